#!/usr/bin/python3
"""What happens when the system says no: no space for the view, no memory, no descriptors, failing system calls. Each time
the load fails with words, frees everything, and the manager and its other caches go on."""
import os
import pathlib
import resource
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import SANITIZED, Product, memory_cgroup, tmpfs  # noqa: E402

MIB = checkpoint.MIB


def with_another_cache(p):
    p.start(checkpoint.small(p.path("undisturbed")), "undisturbed")


@tap.test
def no_space_for_the_view():
    with Product() as p:
        with_another_cache(p)
        model = checkpoint.small(p.path("model"))
        for n in range(4):
            checkpoint.fill(model / f"code{n}.py", 200_000, n)
        with tmpfs(p.path("small"), "256k") as small:
            with p.nothing_left():
                p.iloader("start", model, "--name", "qwen", "--view", small / "qwen").fails(1, "space")
            assert list(small.iterdir()) == [], "nothing half-made is left"
        checkpoint.same_tree(p.start(model, "qwen", "--view", p.path("qwen")), model)


@tap.test
def no_space_for_the_log_or_the_registry():
    with Product() as p:
        with tmpfs(p.base, "64k"):
            p.base.chmod(0o700)
            model = checkpoint.small(p.path("model"))
            view = p.path("view")
            p.start(model, "first", "--view", view)
            filler = p.base / "filler"
            try:
                with open(filler, "wb") as f:
                    while True:
                        f.write(b"x" * 4096)
                        f.flush()
            except OSError:
                pass
            result = p.iloader("start", model, "--name", "second", "--view", p.path("second"))
            assert result.code in (0, 1), result
            if result.code:
                assert result.err.strip() and not p.path("second").exists(), result
            p.iloader("run", "first", "--", "true").ok()
            checkpoint.same_tree(view, model)
            filler.unlink()
            p.iloader("stop", "--all", "--remove-view").ok()
            p.close(check=False)


@tap.test
def a_limit_of_descriptors_is_a_refusal():
    with Product() as p:
        p.start_manager(limits={resource.RLIMIT_NOFILE: (400, 400)})
        with_another_cache(p)
        model = p.path("model")
        for n in range(300):
            checkpoint.fill(model / f"shard{n}.bin", MIB)
        with p.nothing_left():
            p.iloader("start", model, "--name", "qwen", timeout=60).fails(1, "open files")
        p.iloader("run", "undisturbed", "--", "true").ok()


@tap.test
def connections_up_to_the_limit_of_descriptors_do_no_harm():
    with Product() as p:
        p.start_manager(limits={resource.RLIMIT_NOFILE: (400, 400)})
        with_another_cache(p)
        crowd = []
        try:
            for _ in range(700):
                try:
                    crowd.append(p.connect(timeout=2))
                except OSError:
                    break
            for c in crowd:
                try:
                    c.send("io.iloader.Manager.List")
                except OSError:
                    pass
        finally:
            for c in crowd:
                c.close()
        assert p.iloader("status", "undisturbed").code == 0
        p.iloader("run", "undisturbed", "--", "true").ok()


@tap.test
def a_cgroup_that_is_too_small_refuses():
    with memory_cgroup(256 * MIB if SANITIZED else 96 * MIB) as procs, Product() as p:
        p.start_manager("sh", "-c", 'echo 0 >"$1" && shift && exec "$@"', "sh", procs)
        model = checkpoint.small(p.path("tiny"), shard_size=MIB)
        p.start(model, "undisturbed", "--reserve-bytes", "1MiB")
        large = p.path("large")
        large.mkdir()
        with open(large / "weights.bin", "wb") as f:
            f.truncate(300 * MIB)
        with p.nothing_left():
            p.iloader("start", large, "--name", "large").fails(1, "large", "available", procs.parent.name)


@tap.test(timeout=120)
def out_of_memory_in_the_middle_of_a_forced_load():
    with memory_cgroup(256 * MIB if SANITIZED else 96 * MIB) as procs, Product() as p:
        p.start_manager("sh", "-c", 'echo 0 >"$1" && shift && exec "$@"', "sh", procs)
        model = checkpoint.small(p.path("tiny"), shard_size=MIB)
        p.start(model, "undisturbed", "--reserve-bytes", "1MiB")
        large = p.path("large")
        large.mkdir()
        with open(large / "weights.bin", "wb") as f:
            f.truncate(400 * MIB)
        result = p.iloader("start", large, "--name", "large", "--force", timeout=90)
        assert result.code == 1 and result.err.strip(), result
        # Whatever the kernel chose to kill, the next command works and the other cache is still, or again, to be had.
        checkpoint.same_tree(p.start(model, "undisturbed", "--reserve-bytes", "1MiB"), model)
        assert [n for n, c in p.caches().items() if c["state"] != "failed"] == ["undisturbed"]


FAULTS = [
    "memfd_create:error=ENOMEM:when=1", "memfd_create:error=EMFILE:when=2", "memfd_create:error=ENFILE:when=3",
    "ftruncate:error=ENOSPC:when=2", "ftruncate:error=ENOMEM:when=1",
    "pread64:error=EIO:when=3", "pread64:error=ENOMEM:when=1", "read:error=EIO:when=6+50",
    "openat2:error=EMFILE:when=2", "openat2:error=EACCES:when=1", "openat:error=EMFILE:when=8", "openat:error=ENFILE:when=10",
    "mmap:error=ENOMEM:when=30", "mmap:error=ENOMEM:when=40", "madvise:error=EINVAL:when=1+1",
    "fcntl:error=EBUSY:when=30", "fchmod:error=EPERM:when=1", "write:error=ENOSPC:when=3", "pwrite64:error=ENOSPC:when=1",
    "renameat:error=ENOSPC:when=1", "renameat2:error=EINVAL:when=1", "symlinkat:error=ENOSPC:when=2",
    "mkdirat:error=EACCES:when=1", "linkat:error=EPERM:when=1", "clone3:error=EAGAIN:when=1", "clone:error=EAGAIN:when=1",
    "sendmsg:error=ENOBUFS:when=2", "getdents64:error=EIO:when=1", "statx:error=EIO:when=2", "newfstatat:error=EIO:when=4",
    "seccomp:error=EINVAL:when=1", "prctl:error=EINVAL:when=3", "io_uring_setup:error=EPERM:when=1+1", "fsync:error=EIO:when=1",
]


def tracer(fault):
    """strace on the worker alone: everything that follows its execve."""
    call = fault.split(":")[0]
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={fault}"]


@tap.parametrize(FAULTS, timeout=90)
def a_failing_system_call_of_the_worker(fault):
    if not shutil.which("strace"):
        tap.skip("strace is not installed")
    with Product(env={"ASAN_OPTIONS": "detect_leaks=0"} if SANITIZED else None) as p:
        model = checkpoint.small(p.path("model"))
        worker = p.path("libexec")
        shutil.copytree(p.libexec, worker)
        # The manager starts the worker that is beside it: one that lets strace start the real one.
        (worker / "iloader-worker").rename(worker / "worker-proper")
        (worker / "iloader-worker").symlink_to(p.path("no-such"))
        (worker / "iloader-worker").unlink()
        shim = p.path("shim.c")
        arguments = ", ".join(f'"{a}"' for a in [*tracer(fault), str(worker / "worker-proper")])
        shim.write_text("#include <unistd.h>\n#include <stdlib.h>\n#include <fcntl.h>\n"
                        "int main(int argc, char **argv) { if (access(\"" + str(p.path("armed")) + "\", F_OK) < 0)\n"
                        f"  return execv(\"{worker}/worker-proper\", argv);\n"
                        f"  char *a[] = {{ {arguments}, NULL }}; setenv(\"PATH\", \"/usr/bin:/bin\", 1);\n"
                        "  return execvp(a[0], a); }\n")
        process.run("gcc", "-o", worker / "iloader-worker", shim).ok()
        p.start_manager(program=worker / "iloaderd")
        p.start(checkpoint.small(p.path("undisturbed")), "undisturbed")
        p.path("armed").touch()
        before = p.manager_descriptors()
        result = p.iloader("start", model, "--name", "qwen", timeout=60)
        assert result.code in (0, 1), result
        if result.code == 0:
            # Done without, or never called: then it must be right all the same.
            checkpoint.same_tree(p.view_of("qwen"), model)
            p.iloader("stop", "qwen", "--remove-view")
        else:
            assert result.err.strip(), result
        p.path("armed").unlink()
        if p.view_of("qwen").exists():
            # A worker that fails while it gives back may leave the view to the next one.
            p.start(model, "qwen")
            p.iloader("stop", "qwen", "--remove-view").ok()
        assert not p.view_of("qwen").exists()
        process.wait_until(lambda: p.manager_descriptors() <= before, "the manager holds nothing of it")
        checkpoint.same_tree(p.view_of("undisturbed"), p.path("undisturbed"))
        checkpoint.same_tree(p.start(model, "qwen"), model)


MANAGER_FAULTS = [
    "accept4:error=EMFILE:when=2..4", "accept4:error=ECONNABORTED:when=2..3", "sendmsg:error=EPIPE:when=6", "recvmsg:error=ECONNRESET:when=5",
    "pidfd_open:error=EMFILE:when=1..2", "socketpair:error=EMFILE:when=1..2", "clone:error=EAGAIN:when=1..2", "vfork:error=EAGAIN:when=1..2",
    "openat:error=EMFILE:when=30..32", "openat:error=ENFILE:when=40..42", "fstat:error=EIO:when=20", "fcntl:error=EINVAL:when=40",
    "renameat:error=ENOSPC:when=2", "read:error=EIO:when=30", "fdatasync:error=EIO:when=1", "timerfd_settime:error=EINVAL:when=5",
]


@tap.parametrize(MANAGER_FAULTS, timeout=90)
def a_failing_system_call_of_the_manager(fault):
    """One request may fail by it; the manager, and the requests after it, may not."""
    if not shutil.which("strace"):
        tap.skip("strace is not installed")
    call = fault.split(":")[0]
    with Product(env={"ASAN_OPTIONS": "detect_leaks=0"} if SANITIZED else None) as p:
        model = checkpoint.small(p.path("model"))
        try:
            p.start_manager("strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={fault}")
        except AssertionError:
            return      # refused to start for it, which is an answer
        for _ in range(3):
            result = p.iloader("start", model, "--name", "qwen", "--wait-timeout", "30")
            assert result.code in (0, 1), result
            assert result.code == 0 or result.err.strip(), result
            p.iloader("run", "qwen", "--", "true")
            p.iloader("stop", "qwen")
        checkpoint.same_tree(p.start(model, "qwen"), model)
        p.iloader("run", "qwen", "--", "true").ok()
        assert len(p.worker_pids()) == 1
        os.kill(p.manager_pid(), 15)


tap.main()
