#!/usr/bin/python3
"""After kill -9 of anything, at any moment, the next command works without manual clean-up."""
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product  # noqa: E402

MIB = checkpoint.MIB


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    process.wait_for_end(pid)


@tap.test
def a_killed_worker_takes_only_its_cache():
    with Product() as p:
        models = {n: checkpoint.small(p.path(n), seed=k) for k, n in enumerate(("one", "two"))}
        for name, model in models.items():
            p.start(model, name)
        kill(p.status("one")["pid"])
        process.wait_until(lambda: p.caches().get("one", {}).get("state") in (None, "failed"), "the loss was noticed")
        checkpoint.same_tree(p.view_of("two"), models["two"])
        # The name and the view's place are free again.
        view = p.start(models["one"], "one")
        checkpoint.same_tree(view, models["one"])


@tap.test
def a_run_on_a_cache_whose_worker_died_fails():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        kill(p.worker_pids()[0])
        result = p.iloader("run", "qwen", "--", "true")
        # Right after the death the lease may still have been granted; never later.
        process.wait_until(lambda: p.iloader("run", "qwen", "--", "true").code == 125, "runs are refused")
        assert result.code in (0, 125), result


@tap.test
def after_a_killed_manager_the_next_start_works():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        manager, worker = p.manager_pid(), p.worker_pids()[0]
        kill(manager)
        assert p.socket.exists(), "a killed manager can't remove its socket"
        p.iloader("list").ok()
        view = p.start(model, "qwen")
        checkpoint.same_tree(view, model)
        process.wait_until(lambda: not process.is_alive(worker) or worker in p.worker_pids() and
                           p.status("qwen")["pid"] == worker, "the old worker has ended or serves on")
        assert len(p.manager_pids()) == 1 and len(p.worker_pids()) == 1


@tap.parametrize(["status", "view", "manifest", "list", "stop", "run"])
def after_a_killed_manager_other_commands_say_what_is(verb):
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        kill(p.manager_pid())
        arguments = {"list": [], "run": ["qwen", "--", "true"]}.get(verb, ["qwen"])
        result = p.iloader(verb, *arguments)
        assert result.code in (0, 1, 125) and result.seconds < 5 and "Traceback" not in result.err, result
        if result.code:
            assert result.err.strip(), result
        p.start(p.path("model"), "qwen")


@tap.test
def a_manager_killed_during_a_load_leaves_no_worker():
    with Product() as p:
        model = p.path("model")
        model.mkdir()
        with open(model / "weights.bin", "wb") as f:
            f.truncate(1024 * MIB)
        with p.background("start", model, "--name", "qwen") as start:
            worker = process.wait_until(p.worker_pids, "the worker started", every=0.001)[0]
            manager = p.manager_pid()
            kill(manager)
            result = start.wait()
            assert result.code in (0, 1), result
            if result.code:
                assert result.err.strip(), result
        process.wait_for_end(worker)
        shutil.rmtree(model)
        checkpoint.same_tree(p.start(checkpoint.small(model), "qwen"), model)


@tap.test
def the_lease_of_a_killed_process_ends():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        with p.background("run", "qwen", "--", sys.executable, "-c",
                          "import os, signal; print(os.getpid(), flush=True); signal.pause()") as run:
            os.kill(int(run.read_line()), signal.SIGKILL)
            assert run.wait().code == 137
        process.wait_until(lambda: not p.status("qwen")["leases"], "the lease ended")
        p.iloader("stop", "qwen").ok()


@tap.test(timeout=240)
def killing_anything_at_any_moment():
    """Twenty rounds: a start, and a SIGKILL of one of its processes after a random while."""
    chance = random.Random(os.environ.get("ILOADER_TEST_SEED", "1"))
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=3, shard_size=16 * MIB)
        keeper = checkpoint.small(p.path("keeper"))
        for round_number in range(20):
            with p.background("start", model, "--name", "qwen") as start:
                time.sleep(chance.uniform(0, 0.15))    # the random moment is the point here
                victims = [start.pid, *p.worker_pids(), *p.manager_pids()]
                victim = chance.choice(victims)
                tap.note(f"round {round_number}: kill {victim} of {victims}")
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                start.wait()
            view = p.start(keeper, "keeper")
            checkpoint.same_tree(view, keeper)
            view = p.start(model, "qwen")
            checkpoint.same_tree(view, model)
            assert len(p.manager_pids()) == 1
            process.wait_until(lambda: len(p.worker_pids()) == 2, "no worker is left over")
            p.iloader("stop", "qwen", "--remove-view").ok()
            assert not list(p.base.glob("views/.*")), "no half-made view is left"


@tap.test
def stale_files_of_a_dead_manager_are_taken_over():
    with Product() as p:
        (p.base / "run").mkdir(parents=True)
        p.base.chmod(0o700)
        (p.base / "run").chmod(0o700)
        # A socket that nobody listens on.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(p.socket))
        stale.close()
        (p.base / "run/manager.ready").write_text("old\n")
        p.start(checkpoint.small(p.path("model")), "qwen")


@tap.test
def what_is_not_ours_at_the_sockets_place_is_left_alone():
    with Product() as p:
        (p.base / "run").mkdir(parents=True)
        p.base.chmod(0o700)
        (p.base / "run").chmod(0o700)
        p.socket.write_text("precious")
        p.iloader("start", checkpoint.small(p.path("model")), "--name", "qwen").fails(1, str(p.socket))
        assert p.socket.read_text() == "precious"
        p.socket.unlink()


@tap.test
def damaged_registry_files_do_not_stop_a_manager():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        kill(p.manager_pid())
        for n, text in enumerate((b"", b"{", b"\xff\xfe", b"[]", b'{"name": "../../etc"}', b"{" * 100000)):
            (p.base / f"run/registry/damaged{n}").write_bytes(text)
            (p.base / f"run/registry/damaged{n}.json").write_bytes(text)
        checkpoint.same_tree(p.start(model, "qwen"), model)


@tap.test
def only_one_manager_serves_a_base():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        second = process.run(p.libexec / "iloaderd", "--base-dir", p.base, "--idle-exit", "1", env=p.env)
        assert second.code == 75, second
        assert p.status("qwen")["state"] == "ready"


tap.main()
