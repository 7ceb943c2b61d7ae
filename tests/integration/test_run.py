#!/usr/bin/python3
"""iloader run: the placeholder, the environment, exit codes, signals, and the lease that outlives its wrapper."""
import os
import pathlib
import pty
import select
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product  # noqa: E402

# A child that says who it is, then waits for a signal.
CHILD = "import os, signal, sys; print(os.getpid(), flush=True); signal.pause()"


class Running:
    """A product with one ready cache, shared by the cases."""
    product = view = None


def setup():
    Running.product = Product()
    Running.view = Running.product.start(checkpoint.small(Running.product.path("model")), "qwen")


def teardown():
    Running.product.close()


def run(*argv, **options):
    return Running.product.iloader("run", *argv, **options)


def child(*options, program=CHILD, **how):
    return Running.product.background("run", *options, "qwen", "--", sys.executable, "-c", program, **how)


def leases():
    return Running.product.status("qwen")["leases"]


def no_leases():
    process.wait_until(lambda: not leases(), "no lease is left")


@tap.test
def the_placeholder_is_replaced_wherever_it_stands():
    view = str(Running.view)
    result = run("qwen", "--", "printf", "%s\\n", "{model}", "a{model}b{model}c", "{model", "{Model}", "{{model}}", "$HOME",
                 "a b", "").ok()
    assert result.out.split("\n") == [view, f"a{view}b{view}c", "{model", "{Model}", f"{{{view}}}", "$HOME", "a b", "", ""]


@tap.test
def options_of_the_command_are_left_alone():
    result = run("qwen", "--", "printf", "%s\\n", "--help", "--socket", "--", "-x").ok()
    assert result.out == "--help\n--socket\n--\n-x\n"


@tap.test
def the_environment_names_the_view():
    assert run("qwen", "--", "sh", "-c", 'echo "$ILOADER_MODEL_PATH"').ok().out == f"{Running.view}\n"
    env = {**Running.product.env, "KEPT": "yes"}
    assert run("qwen", "--", "sh", "-c", "echo $KEPT", env=env).ok().out == "yes\n"


@tap.test
def standard_streams_are_the_childs():
    assert run("qwen", "--", "cat", input="through\n").ok().out == "through\n"
    assert run("qwen", "--", "true").ok().out == ""


@tap.parametrize([0, 1, 2, 3, 42, 124, 125, 126, 127, 128, 200, 255])
def exit_codes_are_the_childs(code):
    assert run("qwen", "--", "sh", "-c", f"exit {code}").code == code


@tap.parametrize(["TERM", "KILL", "ABRT", "USR1", "HUP", "INT", "PIPE"])
def a_child_that_a_signal_ended(name):
    assert run("qwen", "--", "sh", "-c", f"ulimit -c 0; kill -{name} $$").code == 128 + getattr(signal, f"SIG{name}")


@tap.test
def failures_of_its_own_have_codes_of_their_own():
    run("nosuch", "--", "true").fails(125, "nosuch")
    run("qwen", "--", "/no/such/program").fails(127, "/no/such/program")
    run("qwen", "--", "no-such-program-in-path").fails(127, "no-such-program-in-path")
    run("qwen", "--", "/etc/passwd").fails(126, "/etc/passwd")
    run("qwen", "--", "/").fails(126, "/")
    run("qwen").fails(125)
    run("qwen", "--").fails(125)
    run("--no-such-option", "qwen", "--", "true").fails(125, "--no-such-option")
    run("../odd", "--", "true").fails(125, "../odd")
    no_leases()


@tap.test
def a_script_without_an_interpreter_line_fails_as_with_env():
    script = Running.product.path("script")
    script.write_text("exit 3\n")
    script.chmod(0o755)
    result = run("qwen", "--", script)
    assert result.code in (3, 126), result   # execvp(3) runs it with sh; execve(2) refuses it


@tap.test
def the_lease_is_there_while_the_child_runs():
    with child() as c:
        pid = int(c.read_line())
        held = leases()
        assert [lease["pid"] for lease in held] == [pid], held
        assert held[0]["uid"] == os.getuid() and held[0]["command"].startswith("python") and held[0]["acquiredUSec"] > 0
        Running.product.iloader("stop", "qwen").fails(1, "qwen", str(pid))
        c.signal(signal.SIGTERM)
        assert c.wait().code == 143
    no_leases()


@tap.test
def the_child_has_its_lease_before_its_first_instruction():
    # The first thing that it does is to ask the manager.
    iloader = Running.product.bin / "iloader"
    program = ("import json, os, subprocess; out = subprocess.run(['" + str(iloader) + "', 'status', 'qwen', '--json'],"
               "stdout=subprocess.PIPE).stdout; print([l['pid'] for l in json.loads(out)['leases']] == [os.getpid()])")
    for _ in range(5):
        assert run("qwen", "--", sys.executable, "-c", program).ok().out == "True\n"


@tap.test
def two_runs_hold_two_leases():
    with child() as a, child() as b:
        pids = {int(a.read_line()), int(b.read_line())}
        assert {lease["pid"] for lease in leases()} == pids
        for c in (a, b):
            c.signal(signal.SIGTERM)
            assert c.wait().code == 143
    no_leases()


@tap.parametrize(["SIGTERM", "SIGHUP"])
def signals_are_forwarded(name):
    number = getattr(signal, name)
    program = ("import os, signal, sys\n"
               f"signal.signal(signal.{name}, lambda *_: sys.exit(7))\n"
               "print(os.getpid(), flush=True)\nsignal.pause()")
    with child(program=program) as c:
        c.read_line()
        c.signal(number)
        assert c.wait().code == 7
    with child() as c:
        c.read_line()
        c.signal(number)
        assert c.wait().code == 128 + number
    no_leases()


@tap.test
def a_child_that_ignores_the_signal_is_killed_after_three_seconds():
    program = ("import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid(), flush=True)\n"
               "while True: time.sleep(1)")
    with child(program=program) as c:
        c.read_line()
        started = time.monotonic()
        c.signal(signal.SIGTERM)
        assert c.wait().code == 137
        assert 2.5 < time.monotonic() - started < 6 * float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))
    no_leases()


@tap.test
def ignored_signals_stay_ignored():
    program = "import signal; print(*(signal.getsignal(s) == signal.SIG_IGN for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1)))"
    with child(program=program, ignore_signals=(signal.SIGHUP,)) as c:
        assert c.wait().out == "True False False\n"
    with child(program=CHILD, ignore_signals=(signal.SIGHUP,)) as c:
        c.read_line()
        c.signal(signal.SIGHUP)
        c.signal(signal.SIGTERM)
        assert c.wait().code == 143


@tap.test
def the_childs_signal_mask_and_descriptors_are_clean():
    program = ("import os\nprint(open('/proc/self/status').read().split('SigBlk:')[1].split()[0])\n"
               "print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])")
    out = run("qwen", "--", sys.executable, "-c", program).ok().out.split("\n")
    assert out[0] == "0000000000000000" and out[1] == "[0, 1, 2]", out


@tap.test
def the_lease_outlives_a_killed_wrapper():
    with child() as c:
        pid = int(c.read_line())
        c.signal(signal.SIGKILL)
        process.wait_until(lambda: not process.is_alive(c.pid), "the wrapper is dead")
        assert process.is_alive(pid)
        assert [lease["pid"] for lease in leases()] == [pid]
        Running.product.iloader("stop", "qwen").fails(1, "qwen")
        os.kill(pid, signal.SIGKILL)
    no_leases()


@tap.test
def a_stopped_wrapper_keeps_the_lease():
    with child() as c:
        pid = int(c.read_line())
        c.signal(signal.SIGSTOP)
        assert [lease["pid"] for lease in leases()] == [pid]
        os.kill(pid, signal.SIGTERM)
        no_leases()
        c.signal(signal.SIGCONT)
        assert c.wait().code == 143


@tap.test
def the_interrupt_key_reaches_child_and_wrapper():
    master, slave = pty.openpty()
    product = Running.product
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number in range(3):
            os.dup2(slave, number)
        import fcntl
        import termios
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.execve(product.bin / "iloader", ["iloader", "run", "qwen", "--", sys.executable, "-c",
                                            "import signal, sys\n"
                                            "signal.signal(signal.SIGINT, lambda *_: sys.exit(9))\n"
                                            "print('up', flush=True)\nsignal.pause()"], product.env)
    os.close(slave)
    try:
        seen = b""
        while b"up" not in seen:
            assert select.select([master], [], [], 20)[0], seen
            seen += os.read(master, 1024)
        os.write(master, b"\x03")
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 9, status
    finally:
        os.close(master)


@tap.test
def a_refused_lease_starts_nothing():
    product = Running.product
    model = checkpoint.small(product.path("second"))
    product.start(model, "second")
    product.iloader("stop", "second").ok()
    marker = product.path("marker")
    run("second", "--", "touch", marker).fails(125, "second")
    assert not marker.exists()


@tap.test
def the_working_directory_and_umask_are_kept():
    here = Running.product.path("here")
    here.mkdir(exist_ok=True)
    assert run("qwen", "--", "pwd", cwd=here).ok().out == f"{here}\n"


@tap.test
def descendants_are_read_from_the_view():
    out = run("qwen", "--", "sh", "-c", 'sh -c "cat $ILOADER_MODEL_PATH/config.json"').ok().out
    assert out == (Running.product.path("model") / "config.json").read_text()


@tap.test
def a_cache_is_stopped_after_its_last_run():
    Running.product.iloader("run", "qwen", "--", "true").ok()
    no_leases()
    cache = Running.product.status("qwen")
    assert cache["leasesGranted"] > 10 and cache["state"] == "ready", cache


tap.main(setup, teardown)
