#!/usr/bin/python3
"""Starting caches: what is published, reuse, what is refused under a name in use, options, several starters at once."""
import json
import os
import pathlib
import shutil
import stat
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product  # noqa: E402

MIB = checkpoint.MIB


@tap.test
def a_checkpoint_becomes_resident_and_reads_the_same():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        view = p.start(model, "qwen")
        assert view == p.view_of("qwen")
        checkpoint.same_tree(view, model)
        cache = p.status("qwen")
        assert cache["state"] == "ready" and cache["source"] == str(model) and cache["view"] == str(view), cache
        assert cache["files"] == 5 and cache["bytes"] == sum(f.stat().st_size for f in model.iterdir()), cache
        assert cache["bytesLoaded"] == cache["bytes"] and cache["leases"] == [] and cache["reuses"] == 0, cache
        assert len(cache["fingerprint"]) == 64 and cache["uid"] == os.getuid() and cache["mode"] == 0o400, cache
        assert [cache["pid"]] == p.worker_pids()
        assert 0 < cache["startedUSec"] <= cache["readyUSec"] <= cache["lastUsedUSec"], cache
        budget = cache["budget"]
        assert budget["requiredBytes"] >= cache["bytes"] and not budget["forced"], budget
        assert 0 < budget["budgetBytes"] < budget["availableBytes"] and budget["limit"], budget
        assert budget["memoryFraction"] == 0.9 and budget["reserveBytes"] == 256 * MIB, budget


@tap.test
def large_files_are_links_into_memory_and_small_ones_are_real():
    with Product() as p:
        view = p.start(checkpoint.small(p.path("model")), "qwen")
        pid = p.status("qwen")["pid"]
        for file in view.iterdir():
            if file.suffix == ".safetensors":
                assert os.readlink(file).startswith(f"/proc/{pid}/fd/"), os.readlink(file)
            elif file.name != ".iloader-view":
                assert stat.S_ISREG(file.lstat().st_mode) and file.lstat().st_mode & 0o777 == 0o400, file
        shard = view / "model-00001-of-00002.safetensors"
        for flags in (os.O_WRONLY, os.O_RDWR):
            try:
                fd = os.open(shard, flags)
            except OSError:
                continue
            # root may open it for writing; the seal still holds.
            try:
                os.write(fd, b"x")
                raise AssertionError("a sealed file was written")
            except PermissionError:
                pass
            finally:
                os.close(fd)


@tap.test
def the_manifest_tells_every_file():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        view = p.start(model, "qwen")
        manifest = json.loads(p.iloader("manifest", "qwen").ok().out)
        files = {f["path"]: f for f in manifest["files"]}
        assert files.keys() == {f.name for f in model.iterdir()}
        for name, file in files.items():
            info = (model / name).stat()
            assert (file["size"], file["mtimeNSec"], file["inode"]) == (info.st_size, info.st_mtime_ns, info.st_ino)
            assert file["packed"] == (info.st_size < MIB), file
            if not file["packed"]:
                memory = (view / name).stat()
                assert (file["memoryDevice"], file["memoryInode"]) == (memory.st_dev, memory.st_ino)


@tap.test
def the_same_start_again_reuses():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        view = p.start(model, "qwen")
        pid = p.status("qwen")["pid"]
        assert p.start(model, "qwen") == view
        # Another way of naming the same directory.
        assert p.start(f"{model}/../model/.", "qwen") == view
        cache = p.status("qwen")
        assert cache["reuses"] == 2 and cache["pid"] == pid, cache


@tap.test
def a_name_in_use_is_not_taken_for_something_else():
    with Product() as p:
        model, other = checkpoint.small(p.path("model")), checkpoint.small(p.path("other"), seed=9)
        p.start(model, "qwen")
        with p.nothing_left():
            p.iloader("start", other, "--name", "qwen").fails(1, "qwen", str(model), str(other), "stop")
            for option, value in (("--workers", "2"), ("--chunk-size", "1048576"), ("--pattern", "*.json"),
                                  ("--view", str(p.path("elsewhere"))), ("--idle-ttl", "3600"),
                                  ("--max-memory-bytes", "1GiB"), ("--reserve-bytes", "1MiB")):
                p.iloader("start", model, "--name", "qwen", option, value).fails(1, "qwen")
        assert not p.path("elsewhere").exists()


@tap.test
def a_changed_source_is_not_reused():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        os.utime(model / "config.json", ns=(1, 1))
        with p.nothing_left():
            p.iloader("start", model, "--name", "qwen").fails(1, "qwen", "changed")
        p.iloader("stop", "qwen").ok()
        p.start(model, "qwen")
        checkpoint.fill(model / "added.json", 10)
        p.iloader("start", model, "--name", "qwen").fails(1, "qwen")


@tap.test
def many_starters_of_one_name_make_one_cache():
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=4, shard_size=8 * MIB)
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            process.run(p.bin / "iloader", "start", model, "--name", "qwen", env=p.env))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            assert result.code == 0 and result.out.strip() == str(p.view_of("qwen")), result
        assert p.status("qwen")["reuses"] == 7
        assert len(p.worker_pids()) == 1 and len(p.manager_pids()) == 1


@tap.test
def starters_of_one_name_and_two_sources_disagree():
    with Product() as p:
        models = [checkpoint.small(p.path(f"model{n}"), seed=n) for n in range(2)]
        started = [p.background("start", models[n % 2], "--name", "qwen") for n in range(6)]
        codes = [(n % 2, b.wait().code) for n, b in enumerate(started)]
        winners = {which for which, code in codes if code == 0}
        assert len(winners) == 1 and all((code == 0) == (which in winners) for which, code in codes), codes
        checkpoint.same_tree(p.view_of("qwen"), models[winners.pop()])


@tap.test
def several_caches_live_side_by_side():
    with Product() as p:
        models = {f"m{n}": checkpoint.small(p.path(f"model{n}"), seed=n) for n in range(4)}
        started = [p.background("start", model, "--name", name) for name, model in models.items()]
        assert all(b.wait().code == 0 for b in started)
        assert p.caches().keys() == models.keys()
        p.iloader("stop", "m1", "--remove-view").ok()
        assert not p.view_of("m1").exists()
        for name in ("m0", "m2", "m3"):
            checkpoint.same_tree(p.view_of(name), models[name])


@tap.test
def no_wait_returns_before_and_the_cache_becomes_ready():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.iloader("start", model, "--name", "qwen", "--no-wait").ok()
        process.wait_until(lambda: p.status("qwen")["state"] == "ready", "qwen is ready")
        checkpoint.same_tree(p.view_of("qwen"), model)


@tap.test
def pid_file_and_log_file_are_where_they_were_asked_for():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        pid_file, log_file = p.path("pids/qwen.pid"), p.path("logs/qwen.log")
        pid_file.parent.mkdir()
        log_file.parent.mkdir()
        p.start(model, "qwen", "--pid-file", pid_file, "--log-file", log_file)
        assert pid_file.read_text().strip() == str(p.status("qwen")["pid"])
        p.iloader("run", "qwen", "--", "true").ok()
        process.wait_until(lambda: "qwen" in log_file.read_text() or "lease" in log_file.read_text().lower(),
                           "the log tells the cache's events")
        p.iloader("stop", "qwen").ok()
        assert not pid_file.exists() and log_file.exists()
        # The default places.
        p.start(model, "qwen")
        assert (p.base / "run/qwen.pid").read_text().strip() == str(p.status("qwen")["pid"])
        assert (p.base / "logs/qwen.log").stat().st_size > 0
        p.iloader("stop", "qwen").ok()
        assert not (p.base / "run/qwen.pid").exists()


@tap.test
def a_view_where_the_caller_wants_it():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.path("views").mkdir()
        view = p.start(model, "qwen", "--view", "views/deep/er/qwen", cwd=p.root)
        assert view == p.path("views/deep/er/qwen")
        checkpoint.same_tree(view, model)
        assert p.iloader("view", "qwen").ok().out == f"{view}\n"
        p.iloader("stop", "qwen").ok()
        # Without --remove-view the directory stays, its links dangle, and the next start takes it again.
        assert view.exists()
        assert p.start(model, "qwen", "--view", view) == view
        checkpoint.same_tree(view, model)
        p.iloader("stop", "qwen", "--remove-view").ok()
        assert not view.exists()


@tap.test
def patterns_choose_files():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        (model / "sub").mkdir()
        (model / "sub/extra.json").write_text("{}")
        (model / "weights.bin.incomplete").write_text("debris")
        (model / ".cache").mkdir()
        (model / ".cache/x").write_text("debris")

        def files(*options):
            view = p.start(model, "qwen", *options)
            found = {str(f.relative_to(view)) for f in view.glob("**/*") if not f.is_dir() or f.is_symlink()}
            p.iloader("stop", "qwen", "--remove-view").ok()
            return found - {".iloader-view"}
        every = files()
        assert "sub/extra.json" in every and not any("incomplete" in f or ".cache" in f for f in every), every
        assert files("--pattern", "*.safetensors", "--pattern", "config.json") == {
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "config.json"}
        assert "weights.bin.incomplete" in files("--exclude", "*.safetensors")
        assert files("--pattern", "sub/*") == {"sub/extra.json"}
        p.iloader("start", model, "--name", "qwen", "--pattern", "*.nothing").fails(1, str(model))


@tap.parametrize(["1", "2", "7"])
def any_number_of_workers_and_odd_chunks(workers):
    with Product() as p:
        model = checkpoint.small(p.path("model"), shards=3, shard_size=5 * MIB + 4093)
        checkpoint.fill(model / "odd.bin", 3 * MIB + 1)
        for chunk in ("4096", "1000003", str(256 * MIB)):
            view = p.start(model, "qwen", "--workers", workers, "--chunk-size", chunk)
            checkpoint.same_tree(view, model)
            p.iloader("stop", "qwen").ok()


@tap.test
def files_of_every_size_around_the_borders():
    with Product() as p:
        model = p.path("model")
        for size in (0, 1, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 10 * MIB + 7):
            checkpoint.fill(model / f"f{size}", size, size)
        checkpoint.same_tree(p.start(model, "sizes"), model)


@tap.test
def a_thousand_files_cost_few_descriptors():
    with Product() as p:
        model = checkpoint.many_files(p.path("model"), 1000)
        checkpoint.same_tree(p.start(model, "many"), model)
        assert p.status("many")["files"] == 1000
        assert p.manager_descriptors() < 60
        assert len(process.open_descriptors(p.worker_pids()[0])) < 40


@tap.test
def the_per_cache_cap_and_the_quota_are_enforced():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "first")
        with p.nothing_left():
            p.iloader("start", model, "--name", "capped", "--max-memory-bytes", "1MiB").fails(1, "capped")
            p.iloader("start", model, "--name", "capped", "--max-memory-bytes", "1MiB", "--force").fails(1, "capped")
        p.iloader("start", model, "--name", "second", "--max-resident-bytes", "6MiB").fails(1, "quota")
        # The quota stays, for starts that don't mention it too, and can be raised by one that does.
        p.iloader("start", model, "--name", "second").fails(1, "quota")
        p.iloader("start", model, "--name", "second", "--force").fails(1, "quota")
        p.start(model, "second", "--max-resident-bytes", "1GiB")


@tap.test
def what_does_not_fit_is_refused_before_a_byte_is_read():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "first")
        huge = p.path("huge")
        huge.mkdir()
        with open(huge / "weights.bin", "wb") as f:
            f.truncate(1 << 43)
        with p.nothing_left():
            result = p.iloader("start", huge, "--name", "huge").fails(1, "huge", "available")
        assert result.seconds < 5 * float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))
        p.iloader("start", huge, "--name", "huge", "--reserve-bytes", "1TiB").fails(1)


@tap.test
def a_socket_of_its_own_has_a_registry_of_its_own():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        p.start(model, "qwen")
        socket = p.path("own.sock")
        p.start(model, "mine", "--socket", socket, "--view", p.path("own-view"))
        assert list(p.caches()) == ["qwen"]
        assert p.status("qwen")["state"] == "ready"
        p.iloader("status", "mine").fails(1, "mine")
        p.iloader("run", "--socket", socket, "mine", "--", "test", "-f", "{model}/config.json").ok()
        assert len(p.manager_pids()) == 2
        p.iloader("stop", "--socket", socket, "mine").ok()
        for pid in p.manager_pids():
            if str(socket).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, 15)
                process.wait_for_end(pid)
        assert not socket.exists()


@tap.test
def an_embedded_manager_leaves_when_it_is_empty():
    with Product() as p:
        p.start_manager(idle_exit="1")
        p.start(checkpoint.small(p.path("model")), "qwen")
        pid = p.manager_pid()
        p.iloader("stop", "qwen").ok()
        process.wait_for_end(pid)
        assert not p.socket.exists()
        p.start(p.path("model"), "qwen")
        assert p.manager_pid() != pid


@tap.test
def a_manager_whose_base_was_removed_leaves():
    with Product() as p:
        p.start_manager(idle_exit="1")
        pid = p.manager_pid()
        shutil.rmtree(p.base)
        process.wait_for_end(pid)


tap.main()
