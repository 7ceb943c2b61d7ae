#!/usr/bin/python3
"""What people are told when something is not as they thought: no manager, a failed cache, a wrong value, the wrong
directory. Each answer names the thing and says what to do."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import LIBEXEC, STAGE, Product  # noqa: E402
from harness.varlink import Closed, Connection  # noqa: E402

MIB = checkpoint.MIB
SYSTEM_SOCKET = pathlib.Path("/run/iloader/io.iloader.Manager")


def large(directory, size=256 * MIB):
    """A checkpoint that takes a moment to copy, and no room on the disk."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    with open(directory / "model.safetensors", "wb") as f:
        f.truncate(size)
    return directory


def kill_worker(p, name):
    os.kill(p.status(name)["pid"], signal.SIGKILL)
    process.wait_until(lambda: p.status(name)["state"] == "failed", "the loss was noticed")


def without_manager(p):
    """A BASE of the product's that nobody serves."""
    return {**p.env, "ILOADER_BASE_DIR": str(p.path("nowhere"))}


@tap.test
def no_wait_returns_once_the_load_is_admitted():
    with Product() as p:
        model = large(p.path("big"))
        result = p.iloader("start", model, "--name", "big", "--no-wait").ok()
        assert "'big' is loading" in result.err, result
        assert result.out.strip() == str(p.view_of("big")), result
        with p.connect() as c:
            replies = list(c.stream("Start", {"name": "big", "source": str(model), "wait": False}))
            assert replies[-1]["cache"]["state"] in ("loading", "ready"), replies
        process.wait_until(lambda: p.status("big")["state"] == "ready", "the cache is ready", 30)


@tap.test
def a_list_without_a_manager():
    with Product() as p:
        env = without_manager(p)
        if not SYSTEM_SOCKET.exists():
            result = p.iloader("list", env=env).ok()
            assert "no caches (no manager is running)" in result.err, result
            assert json.loads(p.iloader("list", "--json", env=env).ok().out) == {"caches": []}
            p.iloader("list", program="iloaderctl", env=env).fails(1, "systemctl start iloaderd.socket")
        for named in (["--socket", p.path("none")], ["--base-dir", p.path("none")], ["--user"]):
            p.iloader("list", *named, env=env).fails(1, "no manager listens at")
        p.iloader("list", env={**env, "ILOADER_SOCKET": str(p.path("none"))}).fails(1, "no manager listens at")


@tap.test
def attach_sees_a_new_manager_at_once():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notified.bind(str(p.path("notify")))
        notified.settimeout(20)
        with p.background("attach", "qwen", "--base-dir", p.base,
                          env={**p.env, "NOTIFY_SOCKET": str(p.path("notify"))}) as attach:
            while "READY=1" not in notified.recv(4096).decode():
                pass
            manager = p.manager_pid()
            os.kill(manager, signal.SIGKILL)
            process.wait_for_end(manager)
            p.start_manager()
            began = time.monotonic()
            result = attach.wait()
            assert result.code == 1 and "no longer resident" in result.err, result
            assert time.monotonic() - began < 3, f"attach took {time.monotonic() - began:.1f} s\n{result}"


@tap.test
def a_failed_cache_is_remembered_until_its_name_is_used_again():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        kill_worker(p, "qwen")
        for _ in range(2):
            assert p.status("qwen")["state"] == "failed"
            assert p.caches()["qwen"]["state"] == "failed"
        assert "worker" in p.iloader("status", "qwen").ok().out
        p.iloader("run", "qwen", "--", "true").fails(125, "has failed", "its worker", "start it again")
        p.iloader("view", "qwen").fails(1, "has failed", "its worker")
        assert "record is removed" in p.iloader("stop", "qwen").ok().err
        p.iloader("status", "qwen").fails(1, "there is no cache 'qwen'")
        p.start(model, "qwen")
        kill_worker(p, "qwen")
        p.start(model, "qwen")
        assert p.status("qwen")["state"] == "ready"


@tap.test
def a_failed_load_is_remembered_although_its_starter_was_told():
    with Product() as p:
        model = large(p.path("model"))
        with p.background("start", model, "--name", "qwen", "--quiet") as start:
            worker = process.wait_until(lambda: p.caches().get("qwen", {}).get("budget") and p.worker_pids(), "it loads")
            os.kill(worker[0], signal.SIGKILL)
            result = start.wait()
        if result.code == 0:
            # It was faster; what is lost afterwards is told to nobody else.
            process.wait_until(lambda: p.status("qwen")["state"] == "failed", "the loss was noticed")
        assert p.status("qwen")["state"] == "failed"
        p.iloader("run", "qwen", "--", "true").fails(125, "has failed")
        # A refusal that was heard leaves nothing.
        p.iloader("start", model, "--name", "other", "--max-memory-bytes", "1M").fails(1, "cap")
        assert set(p.caches()) == {"qwen"}


@tap.test
def failed_caches_hold_no_manager_and_are_not_kept_for_ever():
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=1, shard_size=MIB)
        daemon = p.start_manager(idle_exit="1")
        with p.connect() as c:
            for i in range(66):
                c.call("Start", {"name": f"c{i}", "source": str(model)})
            for pid in p.worker_pids():
                os.kill(pid, signal.SIGKILL)
            process.wait_until(lambda: not p.worker_pids() and
                               all(k["state"] == "failed" for k in c.call("List")["caches"]), "all have failed")
            assert len(c.call("List")["caches"]) == 64
        assert daemon.wait(timeout=30).code == 0


@tap.test
def run_names_the_remedy_for_a_cache_that_is_not_there():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        status = p.iloader("status", "absent").fails(1, "there is no cache 'absent'", str(p.socket), "'iloader list' shows")
        run = p.iloader("run", "absent", "--", "true").fails(125)
        assert run.err == status.err, f"{run}\n{status}"
        p.iloader("status", "absent", "--user", program="iloaderctl").fails(1, "'iloaderctl list' shows")


@tap.test
def run_of_a_loading_cache_says_to_wait():
    with Product() as p:
        model = large(p.path("big"), 512 * MIB)
        p.start_manager()
        for i in range(5):
            name = f"big{i}"
            with p.connect() as c:
                cache = next(iter(c.stream("Start", {"name": name, "source": str(model)})))["cache"]
                if cache["state"] != "loading":
                    continue
                os.kill(cache["pid"], signal.SIGSTOP)
                try:
                    if p.status(name)["state"] != "loading":
                        continue
                    p.iloader("run", name, "--", "true").fails(125, "is loading", f"iloader monitor {name}", "wait")
                    return
                finally:
                    os.kill(cache["pid"], signal.SIGCONT)
                    p.iloader("stop", name, "--quiet", "--timeout", "30").ok()
        tap.skip("this machine loads 512 MiB faster than the test can stop it")


@tap.test
def configured_caches_are_refused_with_the_file_and_its_line():
    if os.getuid() != 0:
        tap.skip("needs root")
    with Product() as p:
        config, runtime, state = p.path("etc"), p.path("run"), p.path("lib")
        (config / "caches").mkdir(parents=True)
        for d in (runtime, runtime / "views", runtime / "registry", state):
            d.mkdir(exist_ok=True)
        (runtime / "registry").chmod(0o700)
        read_end, write_end = os.pipe()
        with process.Background(p.libexec / "iloaderd", "--system", "--config-dir", config, "--runtime-dir", runtime,
                                "--state-dir", state, "--ready-fd", str(write_end), env=p.env, pass_fds=(write_end,),
                                stderr=open(p.path("system.log"), "wb")) as daemon:
            os.close(write_end)
            assert os.read(read_end, 1)
            os.close(read_end)
            with Connection(runtime / "io.iloader.Manager") as c:
                name, parameters = c.error("Start", {"name": "qwen"})
                assert name == "InvalidConfiguration", name
                assert parameters["message"].startswith(f"{config}/caches/qwen.conf: no cache 'qwen'"), parameters
                file = config / "caches/qwen.conf"
                for key, what in (("User", "user"), ("Group", "group")):
                    file.write_text(f"[Cache]\nSource=/models/x\n{'User=root' if key == 'Group' else ''}\n{key}=vlmm\n")
                    name, parameters = c.error("Start", {"name": "qwen"})
                    assert name == "InvalidConfiguration" and parameters["line"] == 4, (name, parameters)
                    for word in (f"{file}:4: cache 'qwen'", f"{key}= names 'vlmm'", f"no {what} of this system"):
                        assert word in parameters["message"], parameters
                file.write_text("[Cache]\nSource=/models/x\nReserveBytes=4g\n")
                assert "KiB, MiB, GiB or TiB" in c.error("Start", {"name": "qwen"})[1]["message"]
            daemon.signal(signal.SIGTERM)
            daemon.wait()


@tap.test
def a_faulty_configuration_turns_clients_away_and_is_not_tried_again():
    with tempfile.TemporaryDirectory(prefix="ilt-") as scratch:
        scratch = pathlib.Path(scratch)
        for d in ("etc", "run", "lib"):
            (scratch / d).mkdir()
        (scratch / "etc/iloaderd.conf").write_text("[Manager]\nCachesMax=many\n")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(scratch / "run/io.iloader.Manager"))
        listener.listen()
        client = Connection(scratch / "run/io.iloader.Manager")
        # As systemd passes it: descriptor 3, to the process of that pid.
        result = process.run("/bin/sh", "-c", f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh",
                             LIBEXEC / "iloaderd", "--system", "--config-dir", scratch / "etc", "--runtime-dir", scratch / "run",
                             "--state-dir", scratch / "lib", pass_fds=(listener.fileno(),))
        result.fails(78, "iloaderd.conf:2", "CachesMax")
        try:
            client.receive_frame(5)
            raise AssertionError("it was answered")
        except Closed:
            pass
        listener.setblocking(False)
        try:
            listener.accept()
            raise AssertionError("a client still waits, for whom systemd would start the next one")
        except BlockingIOError:
            pass
    for scope in ("system", "user"):
        units = STAGE / "usr/lib/systemd" / scope
        assert "\nStartLimitIntervalSec=0\n" in (units / "iloader@.service").read_text(), scope
        assert "FileDescriptorStore" not in (units / "iloaderd.service").read_text(), scope
    assert "\nRestartPreventExitStatus=78\n" in (STAGE / "usr/lib/systemd/system/iloaderd.service").read_text()
    assert "\nTriggerLimitIntervalSec=0\n" in (STAGE / "usr/lib/systemd/system/iloaderd.socket").read_text()


def in_unit(number, unit):
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit]


@tap.test
def the_rate_is_that_of_the_figures_beside_it():
    with Product() as p:
        p.start(large(p.path("model"), 64 * MIB), "qwen")
        log = (p.base / "logs/qwen.log").read_text()
        found = re.search(r"was loaded: ([0-9.]+) (\w+) copied in ([0-9.]+)(us|ms|s) \(([0-9.]+) (\w+)/s\)", log)
        assert found, log
        size, seconds = in_unit(found[1], found[2]), float(found[3]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[found[4]]
        rate = in_unit(found[5], found[6])
        assert 0.8 < size / seconds / rate < 1.25, found[0]


@tap.test
def sizes_are_told_for_people():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        p.iloader("start", model, "--name", "qwen", "--reserve-bytes", "4GiB").fails(
            1, "its memory reserve is 256.0 MiB, 4.0 GiB was asked for")
        p.iloader("start", model, "--name", "qwen", "--reserve-bytes", str(256 * MIB + 1)).fails(
            1, f"{256 * MIB} bytes, {256 * MIB + 1} were asked for")
        p.iloader("set-quota", "6M").ok()
        p.iloader("start", model, "--name", "two").fails(1, "iloader set-quota")
        for wrong in ("4g", "4GiBB", "-1"):
            p.iloader("set-quota", "--", wrong).fails(2, f"not '{wrong}'", "KiB, MiB, GiB or TiB")
        p.iloader("start", model, "--name", "two", "--reserve-bytes", "4g").fails(2, "not '4g'", "KiB, MiB, GiB or TiB")
        if os.getuid() == 0:
            assert "uid 0 (root), gid 0 (root)" in p.iloader("status", "qwen").ok().out


@tap.test
def a_wrong_owner_is_named():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.iloader("start", model, "--name", "qwen", "--owner", "vlm").fails(1, "'vlm'", "--owner", "a user of this system")
        p.iloader("start", model, "--name", "qwen", "--group", "nosuch").fails(1, "'nosuch'", "--group")


@tap.test
def a_view_where_one_may_not_look_has_a_remedy():
    if os.getuid() != 0:
        tap.skip("needs root")
    user = (65502, 65502, [])
    with Product(user=user) as p:
        model = checkpoint.small(p.path("model"))
        closed = p.path("closed")
        closed.mkdir(mode=0o700)
        p.iloader("start", model, "--name", "qwen", "--view", closed / "view").fails(1, str(closed), "choose another --view")


@tap.test
def a_directory_of_checkpoints_is_remarked_on():
    with Product() as p:
        for name in ("one", "two"):
            checkpoint.small(p.path("models", name))
        for verb in (["inspect"], ["start", "--name", "x"]):
            result = p.iloader(verb[0], p.path("models"), *verb[1:]).ok()
            assert "several of its directories" in result.err, result
            assert "several of" not in p.iloader(verb[0], p.path("models", "one"), *(["--name", "y"] if verb[1:] else [])).ok().err


@tap.test
def hints():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        p.iloader("run", "qwen", "--help").fails(127, "'iloader run --help'")
        assert p.iloader("gc").fails(1).err.startswith("iloader: gc needs --resident")
        p.iloader("status").fails(2, "'iloader list'")
        large(p.path("vast"), 4 << 40)
        result = p.iloader("inspect", p.path("vast")).ok()
        assert "does not fit: " in result.out and "--max-memory-fraction" in result.out, result
        result = p.iloader("stop", "qwen", "-q").ok()
        assert result.out == result.err == "", result
        for verb in ("inspect", "doctor", "completion", "bench"):
            text = p.iloader(verb, "--help").ok().out
            assert "--socket" not in text and "--system" not in text, text
            assert ("--base-dir" in text) == (verb == "doctor"), text
        if shutil.which("bash"):
            script = p.iloader("completion", "bash").ok().out + (
                'COMP_WORDS=(iloader inspect --); COMP_CWORD=2; _iloader; echo "${COMPREPLY[@]}"\n'
                'COMP_WORDS=(iloader status --); COMP_CWORD=2; _iloader; echo "${COMPREPLY[@]}"\n')
            lines = process.run(shutil.which("bash"), "-c", script, env=p.env).ok().out.splitlines()
            assert "--socket" not in lines[0] and "--pattern" in lines[0] and "--socket" in lines[1], lines


tap.main()
