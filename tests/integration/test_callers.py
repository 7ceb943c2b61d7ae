#!/usr/bin/python3
"""Callers in odd circumstances: closed streams, small limits, signals at awkward moments, names with control
characters, and files of one cache given to another."""
import os
import pathlib
import resource
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product, another_user, descendants  # noqa: E402


def shell(p, redirection, *argv):
    """Runs a command with standard streams closed, as sh does it."""
    return process.run("/bin/sh", "-c", f'exec "$@" {redirection}', "sh", p.bin / "iloader", *argv, env=p.env)


@tap.parametrize(["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def closed_streams_do_no_harm(redirection):
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        written = ">&-" not in redirection.split()
        # The first start makes the manager too, with a log and locks that must not become a standard stream.
        result = shell(p, redirection, "start", model, "--name", "qwen")
        assert result.code == (0 if written else 1), result
        if not written and "2>&-" not in redirection:
            assert "Bad file descriptor" in result.err, result
        status = p.status("qwen")
        assert status["state"] == "ready"
        checkpoint.same_tree(status["view"], model)
        for path in p.base.glob("**/*"):
            if path.is_file() and path.suffix != ".log" and "views" not in path.parts:
                assert b"iloader:" not in path.read_bytes(), path
        # The command finds closed what was closed.
        probe = "import os; found = [n for n in (0, 1, 2) if os.path.lexists(f'/proc/self/fd/{n}')]; os._exit(sum(1 << n for n in found))"
        result = shell(p, redirection, "run", "qwen", "--", sys.executable, "-S", "-c", probe)
        closed = {word: n for n, word in enumerate(("<&-", ">&-", "2>&-"))}
        assert result.code == 7 - sum(1 << closed[word] for word in redirection.split()), result


@tap.parametrize(["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"])
def a_signal_before_the_lease_ends_run_at_once(name):
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        manager = p.manager_pid()
        os.kill(manager, signal.SIGSTOP)
        try:
            mark = p.path("was-run")
            with p.background("run", "qwen", "--", "touch", mark) as run:
                process.wait_until(lambda: "touch" in descendants(run.pid).values(), "the held child is there")
                # It waits for the manager's answer now.
                process.wait_until(lambda: "socket" in " ".join(process.open_descriptors(run.pid).values()), "connected")
                held = next(iter(descendants(run.pid)))
                run.signal(getattr(signal, name))
                result = run.wait(3)
                assert result.code == 128 + getattr(signal, name) and result.seconds < 3, result
                process.wait_for_end(held)
        finally:
            os.kill(manager, signal.SIGCONT)
        process.wait_until(lambda: not p.status("qwen")["leases"], "no lease is left")
        assert not mark.exists()
        p.iloader("stop", "qwen").ok()


@tap.test
def an_ignored_signal_before_the_lease_stays_ignored():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        manager = p.manager_pid()
        os.kill(manager, signal.SIGSTOP)
        with p.background("run", "qwen", "--", "sh", "-c", "exit 9", ignore_signals=(signal.SIGHUP,)) as run:
            process.wait_until(lambda: "sh" in descendants(run.pid).values(), "the held child is there")
            run.signal(signal.SIGHUP)
            os.kill(manager, signal.SIGCONT)
            assert run.wait().code == 9


@tap.test
def a_limit_on_file_sizes_is_a_refusal_and_kills_nothing():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        result = p.iloader("start", model, "--name", "qwen", limits={resource.RLIMIT_FSIZE: 1 << 20})
        result.fails(1, "qwen", "too large")
        p.iloader("list").ok()
        result = p.iloader("start", model, "--name", "qwen", env={**p.env, "ILOADER_BASE_DIR": str(p.path("other"))},
                           limits={resource.RLIMIT_FSIZE: 0})
        # No signal (128 + SIGXFSZ) ended the manager: it says what it could not do.
        assert result.code == 1 and "153" not in result.err and "too large" in result.err.lower(), result


@tap.test
def no_control_character_reaches_the_terminal():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        evil = "x\x1b[31m\ny"
        for argv in ((evil,), ("status", "qwen", f"--{evil}"), ("status", "qwen", evil), ("status", f"q{evil}"), ("help", evil),
                     ("completion", evil), ("bench", evil), ("inspect", evil), ("start", evil, "--name", "x"),
                     ("start", p.path("model"), "--name", "x", "--workers", evil),
                     ("start", p.path("model"), "--name", "x", "--view", f"/dev/null/{evil}"),
                     ("start", p.path("model"), "--name", "x", "--owner", evil),
                     ("start", p.path("model"), "--name", "x", "--pattern", evil),
                     ("start", p.path("model"), "--name", "x", "--log-file", p.path("model") / evil),
                     ("start", p.path("model"), "--name", "x", "--pid-file", p.path("nowhere") / evil),
                     ("list", "--socket", f"/{evil}{'x' * 200}"), ("status", "qwen", "--socket", f"/{evil}"),
                     ("run", "qwen", "--", f"./{evil}"), ("start", p.path("model"), "--name", "x", "--base-dir", f"/dev/null/{evil}")):
            result = p.iloader(*argv)
            assert result.code != 0 and result.err.strip(), result
            assert "\x1b" not in result.err and result.err.count("\n") == 1, result


@tap.test
def paths_that_are_no_text_are_named_in_refusals():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        for option in ("--log-file", "--pid-file"):
            for path in (os.fsencode(model) + b"/\xff\xfe", os.fsencode(p.root) + b"/no\xff/x", os.fsencode(p.root) + b"/dir\xff"):
                if path.endswith(b"dir\xff"):
                    os.makedirs(path, exist_ok=True)
                result = process.run(p.bin / "iloader", "start", str(model), "--name", "qwen", option,
                                     os.fsdecode(path), env=p.env)
                result.fails(1, "qwen", "\\xff", "name another")
        p.start(model, "qwen")


@tap.test
def the_pid_file_of_a_live_cache_is_not_taken():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "one")
        pid_file = p.base / "run/one.pid"
        before = pid_file.read_text()
        with p.nothing_left():
            p.iloader("start", model, "--name", "two", "--pid-file", pid_file).fails(1, "two", "one.pid", "pid file of another", "name another")
        assert pid_file.read_text() == before == f"{p.status('one')['pid']}\n"
        # Through a link to its directory too.
        p.path("link").symlink_to(p.base / "run")
        p.iloader("start", model, "--name", "two", "--pid-file", p.path("link/one.pid")).fails(1, "another cache")
        p.iloader("stop", "one").ok()
        assert not pid_file.exists()
        # What a dead worker left is taken over.
        pid_file.write_text(before)
        p.start(model, "two", "--pid-file", pid_file)
        assert pid_file.read_text() == f"{p.status('two')['pid']}\n"


@tap.test
def a_view_inside_another_view_is_refused():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        outer = p.start(model, "one")
        p.path("link").symlink_to(outer)
        for place in (outer / "inner", outer / "a/b/c", p.path("link/inner"), outer / "../one/inner"):
            with p.nothing_left():
                p.iloader("start", model, "--name", "two", "--view", place).fails(1, "two", "inside the view of cache 'one'", "another --view")
        checkpoint.same_tree(outer, model)
        # One that is gone is in nobody's way.
        p.iloader("stop", "one", "--remove-view").ok()
        checkpoint.same_tree(p.start(model, "two", "--view", outer / "inner"), model)


@tap.test
def values_that_the_manager_refuses_are_named_by_their_option():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "undisturbed")
        with p.nothing_left():
            for code, option, value, *words in ((2, "--pattern", "", "empty"), (2, "--exclude", "", "empty"), (2, "--idle-ttl", "0", "out of range"),
                                                (1, "--pattern", "*" * 5000, "not longer"), (1, "--owner", "no-such-user", "a user of this system"),
                                                (1, "--group", "no-such-group", "a group of this system")):
                p.iloader("start", model, "--name", "qwen", option, value).fails(code, option, *words)
            if os.geteuid() == 0:
                p.iloader("start", model, "--name", "qwen", "--owner", "nobody").fails(1, "--system")


@tap.test
def a_group_that_is_not_the_callers_is_refused_before_the_load():
    with Product(user=another_user()) as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "undisturbed")
        with p.nothing_left():
            p.iloader("start", model, "--name", "qwen", "--group", "root").fails(1, "--group", "owner is in")
        for place in ("/root/view", "/etc/view"):
            with p.nothing_left():
                p.iloader("start", model, "--name", "qwen", "--view", place).fails(1, place, "choose another --view")


@tap.test
def standard_error_that_nobody_reads_is_no_obstacle():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = subprocess.run([p.bin / "iloader", "start", model, "--name", "qwen"], stdout=subprocess.PIPE, stderr=write_end,
                              env=p.env, check=False, restore_signals=False)
        os.close(write_end)
        assert done.returncode in (0, 1, -signal.SIGPIPE), done
        assert p.status("qwen")["state"] in ("ready", "loading")


tap.main()
