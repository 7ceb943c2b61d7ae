#!/usr/bin/python3
"""Sources as they come: hub layouts, odd names, links that lead nowhere, things that are no files, and sources that
change or vanish while they are read."""
import os
import pathlib
import shutil
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap, varlink  # noqa: E402
from harness.product import Product, another_user  # noqa: E402

MIB = checkpoint.MIB
# Large enough to be caught in the middle; sparse, so that the disk isn't.
LONG_LOAD = 1536 * MIB


def refused(p, source, *words, name="refused"):
    with p.nothing_left():
        p.iloader("start", source, "--name", name).fails(1, *words)
    assert not p.view_of(name).exists()


def with_another_cache(p):
    """A cache that no refusal may disturb."""
    p.start(checkpoint.small(p.path("undisturbed")), "undisturbed")


@tap.test
def a_hub_snapshot_of_links_to_blobs():
    with Product() as p:
        snapshot = checkpoint.hugging_face_snapshot(p.path("hub"))
        view = p.start(snapshot, "hub")
        checkpoint.same_tree(view, snapshot)


@tap.test
def a_source_behind_links():
    with Product() as p:
        checkpoint.small(p.path("real/model"))
        p.path("alias").symlink_to("real")
        p.path("latest").symlink_to(p.path("alias/model"))
        checkpoint.same_tree(p.start(p.path("latest"), "linked"), p.path("real/model"))


@tap.test
def odd_names_are_names_like_others():
    names = [b"with blank", b"new\nline", b"tab\t", b"-leading-dash", b"quote'\"`$(x)", b"back\\slash", b"\xff\xfe-not-utf8",
             "ümläut-名前".encode(), b"*glob?[x]", b"x" * 255, b".hidden", b"{model}", b"\x01control"]
    with Product() as p:
        model = os.fsencode(p.path("model"))
        for directory in (model, model + b"/sub dir\n", model + b"/sub dir\n/\xff"):
            os.mkdir(directory)
            for n, name in enumerate(names):
                checkpoint.fill(os.fsdecode(directory + b"/" + name), 1000 + n, n)
        checkpoint.fill(os.fsdecode(model + b"/large \xff\n.bin"), 2 * MIB, 5)
        view = p.start(p.path("model"), "odd")
        checkpoint.same_tree(view, p.path("model"))
        manifest = p.iloader("manifest", "odd").ok().out
        manifest.encode()   # valid UTF-8
        assert "pathBytes" in manifest


@tap.test
def an_odd_source_directory():
    with Product() as p:
        source = os.fsencode(p.root) + b"/odd \xff\n{model} dir"
        os.mkdir(source)
        checkpoint.small(os.fsdecode(source))
        view = p.start(os.fsdecode(source), "odd")
        checkpoint.same_tree(view, os.fsdecode(source))
        assert "sourceBytes" in p.status("odd")


@tap.test
def missing_empty_and_wrong_sources_are_refused():
    with Product() as p:
        with_another_cache(p)
        refused(p, p.path("nowhere"), str(p.path("nowhere")))
        p.path("empty").mkdir()
        refused(p, p.path("empty"), str(p.path("empty")))
        checkpoint.fill(p.path("file"), 10)
        refused(p, p.path("file"), str(p.path("file")), "directory")
        p.path("loop").symlink_to("loop")
        refused(p, p.path("loop"), str(p.path("loop")))
        refused(p, p.path("undisturbed/config.json/deeper"), "undisturbed")


@tap.test
def dangling_links_are_named():
    with Product() as p:
        with_another_cache(p)
        model = checkpoint.small(p.path("model"))
        (model / "gone.safetensors").symlink_to("../../blobs/absent")
        refused(p, model, "gone.safetensors")
        (model / "gone.safetensors").unlink()
        (model / "self.json").symlink_to("self.json")
        refused(p, model, "self.json")


@tap.test
def what_is_no_file_is_named():
    with Product() as p:
        with_another_cache(p)
        model = checkpoint.small(p.path("model"))
        os.mkfifo(model / "pipe")
        refused(p, model, "pipe")
        (model / "pipe").unlink()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(model / "sock"))
        refused(p, model, "sock")
        (model / "sock").unlink()
        (model / "device").symlink_to("/dev/zero")
        refused(p, model, "device")
        # Excluded, none of it matters.
        p.iloader("start", model, "--name", "refused", "--exclude", "device").ok()


@tap.test
def directories_that_lead_back_are_refused():
    with Product() as p:
        with_another_cache(p)
        model = checkpoint.small(p.path("model"))
        (model / "again").symlink_to(".")
        refused(p, model, "again")
        (model / "again").unlink()
        (model / "up").symlink_to("..")
        refused(p, model, "up")


@tap.test
def a_source_that_the_caller_may_not_read_is_refused():
    user = another_user()
    with Product(user=user) as p:
        os.chown(checkpoint.small(p.path("mine")), user[0], user[1])
        p.start(p.path("mine"), "undisturbed")
        model = checkpoint.small(p.path("model"))
        (model / "config.json").chmod(0o600)
        refused(p, model, "config.json", "permission")
        (model / "config.json").chmod(0o644)
        model.chmod(0o700)
        refused(p, model, str(model), "permission")


@tap.test
def only_empty_files():
    with Product() as p:
        model = p.path("model")
        model.mkdir()
        for n in range(3):
            (model / f"empty{n}").touch()
        checkpoint.same_tree(p.start(model, "empty"), model)
        assert p.status("empty")["bytes"] == 0


def in_the_middle_of_a_load(p, model, change, name="moving"):
    """Starts a long load, stops the worker while it copies, changes something, lets it go on. Returns start's result."""
    model.mkdir(exist_ok=True)
    for n in range(3):
        with open(model / f"model-{n}.safetensors", "wb") as f:
            f.truncate(LONG_LOAD // 3)
    before = set(p.worker_pids())
    with p.background("start", model, "--name", name) as start:
        worker = process.wait_until(lambda: set(p.worker_pids()) - before, "the worker started", every=0.001).pop()
        while True:
            os.kill(worker, signal.SIGSTOP)
            with p.connect() as c:
                try:
                    cache = c.call("Status", {"name": name})["cache"]
                except varlink.VarlinkError as e:
                    assert e.name == "NoSuchCache", e
                    cache = {"state": "loading", "bytesLoaded": 0}
            if cache["state"] != "loading":
                os.kill(worker, signal.SIGCONT)
                tap.skip(f"this machine loads {LONG_LOAD // MIB} MiB faster than the test can stop it")
            if cache["bytesLoaded"] > 0:
                break
            os.kill(worker, signal.SIGCONT)
        change(worker)
        try:
            os.kill(worker, signal.SIGCONT)
        except ProcessLookupError:
            pass
        return start.wait(60)


@tap.test(timeout=120)
def a_source_that_changes_while_it_is_copied_fails_the_load():
    with Product() as p:
        with_another_cache(p)

        def change(_worker):
            with open(p.path("model/model-0.safetensors"), "r+b") as f:
                f.write(b"changed")
        with p.nothing_left():
            in_the_middle_of_a_load(p, p.path("model"), change).fails(1, "model-0.safetensors", "since it was selected")


@tap.test(timeout=120)
def a_file_that_is_replaced_or_cut_while_it_is_copied_fails_the_load():
    with Product() as p:
        with_another_cache(p)

        def replace(_worker):
            checkpoint.fill(p.path("new"), MIB)
            os.rename(p.path("new"), p.path("model/model-1.safetensors"))

        def cut(_worker):
            os.truncate(p.path("model/model-2.safetensors"), 100)
        for change, word in ((replace, "model-1"), (cut, "model-2")):
            with p.nothing_left():
                in_the_middle_of_a_load(p, p.path("model"), change).fails(1, word)


@tap.test(timeout=120)
def a_source_that_is_removed_during_the_load_fails_it():
    with Product() as p:
        with_another_cache(p)
        with p.nothing_left():
            in_the_middle_of_a_load(p, p.path("model"), lambda _w: shutil.rmtree(p.path("model"))).fails(1, "model")


@tap.test(timeout=120)
def a_worker_killed_during_the_load_fails_it():
    with Product() as p:
        with_another_cache(p)
        with p.nothing_left():
            in_the_middle_of_a_load(p, p.path("model"), lambda w: os.kill(w, signal.SIGKILL)).fails(1, "moving")
        # The next command works.
        checkpoint.same_tree(p.start(p.path("undisturbed"), "moving"), p.path("undisturbed"))


@tap.test(timeout=120)
def a_load_that_is_stopped_ends():
    with Product() as p:
        with_another_cache(p)

        def stop(worker):
            with p.background("stop", "moving") as stopping:
                os.kill(worker, signal.SIGCONT)
                assert stopping.wait().code == 0
        with p.nothing_left():
            assert in_the_middle_of_a_load(p, p.path("model"), stop).code == 1


@tap.test(timeout=120)
def a_starter_that_is_killed_does_not_take_the_load_with_it():
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=4, shard_size=64 * MIB)
        with p.background("start", model, "--name", "qwen") as start:
            process.wait_until(p.worker_pids, "the worker started", every=0.001)
            start.signal(signal.SIGKILL)
        view = p.start(model, "qwen")
        checkpoint.same_tree(view, model)
        assert len(p.worker_pids()) == 1


@tap.test
def the_source_may_go_once_it_is_resident():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        view = p.start(model, "qwen")
        shutil.copytree(model, p.path("copy"))
        shutil.rmtree(model)
        checkpoint.same_tree(view, p.path("copy"))
        p.iloader("run", "qwen", "--", "cat", "{model}/model-00001-of-00002.safetensors", text=False).ok()
        p.iloader("start", model, "--name", "qwen").fails(1, str(model))
        assert p.status("qwen")["state"] == "ready"


tap.main()
