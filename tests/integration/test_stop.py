#!/usr/bin/python3
"""Stopping: leases, force, time limits, views, all at once; and that memory, processes and files are gone then."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap, varlink  # noqa: E402
from harness.product import Product  # noqa: E402

MIB = checkpoint.MIB
SLEEPER = ("import os, signal; print(os.getpid(), flush=True); signal.pause()")


def lease(p, name):
    """A running child of `iloader run`."""
    background = p.background("run", name, "--", sys.executable, "-c", SLEEPER)
    background.child = int(background.read_line())
    return background


@tap.test
def a_stopped_cache_leaves_nothing():
    with Product() as p:
        p.start(checkpoint.small(p.path("other")), "other")
        descriptors, workers = p.manager_descriptors(), p.worker_pids()
        model = checkpoint.small(p.path("model"), shards=6)
        for _ in range(3):
            p.start(model, "qwen")
            assert p.manager_descriptors() > descriptors
            p.iloader("stop", "qwen", "--remove-view").ok()
            assert p.worker_pids() == workers, "the worker is gone when stop returns"
            assert p.manager_descriptors() <= descriptors
            assert list(p.caches()) == ["other"] and not p.view_of("qwen").exists()
            assert not (p.base / "run/registry/qwen").exists()


@tap.test
def memory_is_given_back():
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=2, shard_size=64 * MIB)
        p.start(model, "qwen")
        pid = p.worker_pids()[0]
        # Held by the worker's and the manager's descriptors, and by nothing else.
        held = [link for link in process.open_descriptors(pid).values() if "memfd:" in link]
        assert len(held) >= 2
        p.iloader("stop", "qwen").ok()
        left = [link for link in process.open_descriptors(p.manager_pid()).values() if "memfd:" in link]
        assert not left and not process.is_alive(pid), left


@tap.test
def a_leased_cache_is_not_stopped():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        with lease(p, "qwen") as holder:
            p.iloader("stop", "qwen").fails(1, "qwen", str(holder.child))
            p.iloader("stop", "qwen", "--remove-view").fails(1, "qwen")
            p.iloader("stop", "--all").fails(1, "qwen")
            checkpoint.same_tree(p.view_of("qwen"), model)
            holder.signal(signal.SIGTERM)
            holder.wait()
        process.wait_until(lambda: not p.status("qwen")["leases"], "the lease ended")
        p.iloader("stop", "qwen").ok()


@tap.test
def force_overrides_leases_and_readers_keep_what_they_mapped():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        view = p.start(model, "qwen")
        program = ("import mmap, os, sys\n"
                   "f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
                   "print(os.getpid(), flush=True)\nsys.stdin.readline()\n"
                   "print(m[:] == open(sys.argv[2], 'rb').read(), flush=True)\n")
        shard = "model-00001-of-00002.safetensors"
        import subprocess
        with p.background("run", "qwen", "--", sys.executable, "-c", program, f"{{model}}/{shard}", model / shard,
                          stdin=subprocess.PIPE) as reader:
            reader.read_line()
            p.iloader("stop", "qwen", "--force").ok()
            assert not p.worker_pids() and p.caches() == {}
            try:
                open(view / shard, "rb").close()
                raise AssertionError("the link still opens")
            except FileNotFoundError:
                pass
            reader.process.stdin.write(b"\n")
            reader.process.stdin.flush()
            assert reader.read_line() == "True"
        # The name is free again.
        p.start(model, "qwen")


@tap.test
def stop_all_stops_all():
    with Product() as p:
        for n in range(3):
            p.start(checkpoint.small(p.path(f"model{n}")), f"m{n}")
        p.iloader("stop", "--all", "--remove-view").ok()
        assert p.caches() == {} and not p.worker_pids()
        assert not any(p.view_of(f"m{n}").exists() for n in range(3))
        p.iloader("stop", "--all").ok()


@tap.test
def stop_all_leaves_only_the_leased():
    with Product() as p:
        for n in range(3):
            p.start(checkpoint.small(p.path(f"model{n}")), f"m{n}")
        with lease(p, "m1"):
            p.iloader("stop", "--all").fails(1, "m1")
            assert list(p.caches()) == ["m1"]
            p.iloader("stop", "--all", "--force").ok()
            assert p.caches() == {}


@tap.test
def what_is_not_there_cannot_be_stopped():
    with Product() as p:
        p.iloader("stop", "qwen").fails(1)
        p.start(checkpoint.small(p.path("model")), "qwen")
        p.iloader("stop", "other").fails(1, "other")
        p.iloader("stop", "qwen").ok()
        p.iloader("stop", "qwen").fails(1, "qwen")


@tap.test
def a_removed_view_is_only_ever_ours():
    with Product() as p:
        view = p.start(checkpoint.small(p.path("model")), "qwen")
        # Somebody put a file of his own into the view.
        (view / "mine.txt").write_text("precious")
        p.iloader("stop", "qwen", "--remove-view")
        if view.exists():
            assert (view / "mine.txt").read_text() == "precious"


@tap.test
def a_replaced_view_is_not_removed():
    with Product() as p:
        view = p.start(checkpoint.small(p.path("model")), "qwen")
        view.rename(p.path("moved"))
        view.mkdir()
        (view / "precious").write_text("kept")
        p.iloader("stop", "qwen", "--remove-view")
        assert (view / "precious").read_text() == "kept"


@tap.test
def idle_caches_are_evicted_and_leased_ones_are_not():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "idle", "--idle-ttl", "1")
        p.start(model, "leased", "--idle-ttl", "1")
        with lease(p, "leased") as holder:
            process.wait_until(lambda: "idle" not in p.caches(), "the idle cache was evicted")
            assert p.status("leased")["state"] == "ready"
            assert p.status("leased")["idleTTLUSec"] == 1000000
            holder.signal(signal.SIGTERM)
            holder.wait()
            process.wait_until(lambda: not p.caches(), "the other one was, after its lease")


@tap.test
def collect_evicts_the_least_recently_used():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        size = sum(f.stat().st_size for f in model.iterdir()) + 4096    # and the small files in the view
        for name in ("old", "middle", "new"):
            p.start(model, name)
        p.iloader("run", "old", "--", "true").ok()
        preview = p.json("gc", "--resident", "--max-bytes", str(size * 2))
        assert preview["evicted"] == ["middle"] and len(p.caches()) == 3, preview
        p.iloader("gc", "--resident", "--max-bytes", str(size * 2), "--apply").ok()
        assert set(p.caches()) == {"old", "new"}
        with lease(p, "new"):
            # An unmet target fails, and what is leased stays.
            p.iloader("gc", "--resident", "--max-bytes", "0", "--apply").fails(1)
            assert set(p.caches()) == {"new"}


@tap.test
def draining_ends_with_the_last_lease():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        with lease(p, "qwen") as holder, p.connect() as c:
            replies = c.stream("Stop", {"name": "qwen", "drain": True})
            first = next(replies)["cache"]
            assert first["state"] == "draining" and [x["pid"] for x in first["leases"]] == [holder.child], first
            p.iloader("run", "qwen", "--", "true").fails(125, "qwen")
            assert p.status("qwen")["state"] == "draining"
            holder.signal(signal.SIGTERM)
            last = list(replies)[-1]["cache"]
            assert last["leases"] == [], last
        assert p.caches() == {}


@tap.test
def a_manager_told_to_end_takes_its_workers_with_it():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        manager, worker = p.manager_pid(), p.worker_pids()[0]
        os.kill(manager, signal.SIGTERM)
        process.wait_for_end(manager)
        process.wait_for_end(worker)
        assert not p.socket.exists()
        p.iloader("list").ok()


@tap.test
def stopping_twice_at_once_is_one_stop():
    with Product() as p:
        for _ in range(3):
            p.start(checkpoint.small(p.path("model"), shards=3), "qwen")
            stops = [p.background("stop", "qwen") for _ in range(4)]
            codes = [s.wait().code for s in stops]
            assert 0 in codes and set(codes) <= {0, 1}, codes
            assert p.caches() == {}


@tap.test
def raw_stop_replies_when_it_is_done():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        worker = p.worker_pids()[0]
        with p.connect() as c:
            cache = c.call("Stop", {"name": "qwen", "removeView": True})["cache"]
            assert cache["name"] == "qwen"
            assert not process.is_alive(worker)
            try:
                c.call("Status", {"name": "qwen"})
            except varlink.VarlinkError as e:
                assert e.name == "NoSuchCache"


tap.main()
