#!/usr/bin/python3
"""What iloader costs, as ratios and differences within one run: times of different machines say nothing of each other.

    bench/run.py [WORD...]          the benches whose name holds a word; all without

Costs are the least of interleaved runs, since a busy machine only ever adds to them; rates are medians. "promise" is what the figure must keep; the exit code is 1 where one is broken.
Memory that the host took back from this machine is touched before each load (BENCH_CONDITION=0: not), since the first
touch of such memory costs more than everything that is measured.
"""
import mmap
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
sys.dont_write_bytecode = True
from harness import checkpoint, process  # noqa: E402
from harness.product import Product, tmpfs  # noqa: E402

MIB = checkpoint.MIB
CONDITION = os.environ.get("BENCH_CONDITION", "1") != "0"
rows = []
benches = []


def bench(function):
    benches.append((function.__name__, function))
    return function


def row(what, figure, reference, relation, promise="", kept=True):
    rows.append((what, figure, reference, relation, promise, kept))
    print(f"    {what}: {figure}  {reference}  {relation}  {promise}{'' if kept else '  BROKEN'}", flush=True)


def milliseconds(seconds):
    return f"{seconds * 1000:.2f} ms"


def condition(size):
    """Touches so much memory, in huge pages where they are to be had, and gives it back to the kernel at once, in a process
    of its own."""
    if CONDITION:
        program = ("import mmap, sys\nm = mmap.mmap(-1, int(sys.argv[1]))\nm.madvise(mmap.MADV_HUGEPAGE)\n"
                   "for n in range(0, len(m), 4096): m[n] = 1")
        subprocess.run([sys.executable, "-c", program, str(size)], check=True)


def clock(argv, env, before=None):
    if before:
        before()
    started = time.perf_counter()
    subprocess.run([os.fspath(a) for a in argv], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def interleaved(count, choose=statistics.median, **ways):
    """One figure of each way, chosen of its runs, which are done in turns."""
    times = {name: [] for name in ways}
    for _ in range(count):
        for name, way in ways.items():
            times[name].append(way())
    return {name: choose(values) for name, values in times.items()}


@bench
def run_overhead():
    """`iloader run NAME -- true` against `true`."""
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        iloader = p.bin / "iloader"
        t = interleaved(50, min, plain=lambda: clock(["true"], p.env),
                        run=lambda: clock([iloader, "run", "qwen", "--", "true"], p.env),
                        env=lambda: clock(["env", "true"], p.env))
        extra = t["run"] - t["plain"]
        row("iloader run NAME -- true, over true", milliseconds(t["run"]), milliseconds(t["plain"]), f"+{milliseconds(extra)}",
            "at most 10 ms more", extra <= 0.010)


@bench
def status_time():
    """`iloader status` as a command, and Status on an open connection."""
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        iloader = p.bin / "iloader"
        with p.connect() as c:
            def call():
                started = time.perf_counter()
                c.call("Status", {"name": "qwen"})
                return time.perf_counter() - started
            t = interleaved(50, min, plain=lambda: clock(["true"], p.env), status=lambda: clock([iloader, "status", "qwen"], p.env),
                            call=call)
        row("iloader status NAME, the whole command", milliseconds(t["status"]), f"true: {milliseconds(t['plain'])}",
            f"+{milliseconds(t['status'] - t['plain'])}", "under 5 ms more", t["status"] - t["plain"] < 0.005)
        row("Status on an open connection", milliseconds(t["call"]), "", "", "under 5 ms", t["call"] < 0.005)


def private_memory(pid):
    """Bytes that would be free without the process: private pages of its mappings, without the resident files."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(n) for n in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", rollup, re.MULTILINE)) * 1024


@bench
def memory_of_its_own():
    """The manager's private memory with 10 caches, and a ready worker's."""
    with Product() as p:
        for n in range(10):
            p.start(checkpoint.small(p.path(f"model{n}"), seed=n), f"m{n}")
        manager = private_memory(p.manager_pid())
        workers = [private_memory(pid) for pid in p.worker_pids()]
        row("private memory of the manager, 10 caches", f"{manager / MIB:.2f} MiB", "", "", "under 4 MiB", manager < 4 * MIB)
        row("private memory of a ready worker (largest)", f"{max(workers) / MIB:.2f} MiB", "", "", "under 2 MiB",
            max(workers) < 2 * MIB)


@bench
def leases_at_once():
    """200 clients, each with a lease of its own process."""
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        children = [subprocess.Popen(["sleep", "1000"]) for _ in range(200)]
        connections = []
        started = time.perf_counter()
        try:
            for child in children:
                connections.append(p.connect())
                fd = os.pidfd_open(child.pid)
                connections[-1].call("AcquireLease", {"name": "qwen"}, [fd])
                os.close(fd)
            took = time.perf_counter() - started
            held = len(p.status("qwen")["leases"])
        finally:
            for child in children:
                child.kill()
            for child in children:
                child.wait()
            for c in connections:
                c.close()
        row("leases held by 200 clients at once", f"{held}", "", f"{milliseconds(took / 200)} each", "200", held == 200)
        process.wait_until(lambda: not p.status("qwen")["leases"], "the leases ended")


@bench
def many_small_files():
    """A checkpoint of 5,000 small files, its view on tmpfs, against cp -r to tmpfs."""
    with Product() as p, tmpfs(p.path("memory"), "512m") as memory:
        model = checkpoint.many_files(p.path("model"), 5000, 4096)
        view, copy, iloader = memory / "view", memory / "copy", p.bin / "iloader"
        p.start(checkpoint.small(p.path("first")), "first")     # the manager is up, as it is for every start but one

        def start():
            condition(64 * MIB)
            seconds = clock([iloader, "start", model, "--name", "many", "--view", view, "--quiet"], p.env)
            subprocess.run([iloader, "stop", "many", "--remove-view"], env=p.env, check=True, stderr=subprocess.DEVNULL)
            return seconds

        def cp():
            condition(64 * MIB)
            seconds = clock(["cp", "-r", model, copy], p.env)
            shutil.rmtree(copy)
            return seconds
        t = interleaved(7, start=start, cp=cp)
        row("start of 5,000 files of 4 KiB, view on tmpfs", milliseconds(t["start"]), f"cp -r: {milliseconds(t['cp'])}",
            f"{t['start'] / t['cp']:.2f} x", "not slower than cp -r", t["start"] <= t["cp"])


def python_way(source, size):
    """What a loader in Python does: read into a buffer of 64 MiB, write into a memfd."""
    started = time.perf_counter()
    fd = os.memfd_create("bench")
    buffer = mmap.mmap(-1, 64 * MIB)
    with open(source, "rb", buffering=0) as f:
        while n := f.readinto(buffer):
            os.write(fd, memoryview(buffer)[:n])
    took = time.perf_counter() - started
    os.close(fd)
    return size / took


@bench
def warm_load():
    """A warm checkpoint of 1 GiB, against the straightforward ways."""
    size = 1024 * MIB
    with Product() as p:
        model = p.path("model")
        model.mkdir()
        checkpoint.fill(model / "model.safetensors", size)
        source, target = model / "model.safetensors", pathlib.Path(f"/dev/shm/iloader-bench-{os.getpid()}")
        p.start(checkpoint.small(p.path("first")), "first")
        iloader = p.bin / "iloader"

        def warm():
            subprocess.run(["cat", source], stdout=subprocess.DEVNULL, check=True)
            condition(size + 256 * MIB)

        def start():
            warm()
            seconds = clock([iloader, "start", model, "--name", "warm", "--quiet"], p.env)
            subprocess.run([iloader, "stop", "warm"], env=p.env, check=True,
                           stderr=subprocess.DEVNULL)
            return size / seconds

        def cp():
            warm()
            seconds = clock(["cp", source, target], p.env)
            target.unlink()
            return size / seconds

        def python():
            warm()
            return python_way(source, size)
        rates = interleaved(3, start=start, cp=cp, python=python)
        gib = 1 << 30
        row("load of 1 GiB, warm", f"{rates['start'] / gib:.2f} GiB/s", f"cp to /dev/shm: {rates['cp'] / gib:.2f} GiB/s",
            f"{rates['start'] / rates['cp']:.1f} x")
        row("", "", f"Python, 64 MiB buffer: {rates['python'] / gib:.2f} GiB/s", f"{rates['start'] / rates['python']:.1f} x")


def main():
    words = sys.argv[1:]
    chosen = [(name, f) for name, f in benches if not words or any(w in name for w in words)]
    for name, function in chosen:
        print(f"{name}: {function.__doc__.splitlines()[0]}", flush=True)
        function()
    print()
    widths = [max(len(r[n]) for r in rows) for n in range(5)]
    for *cells, kept in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
              + ("" if kept else "  BROKEN"))
    sys.exit(0 if all(r[5] for r in rows) else 1)


main()
