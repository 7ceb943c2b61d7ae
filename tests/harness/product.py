"""The installed programs, each test with a manager, a runtime root and processes of its own.

    with Product() as p:
        view = p.start(checkpoint.small(p.path("model")), "qwen")
        p.iloader("run", "qwen", "--", "true").ok()

At its end a Product stops its manager and looks for what must not be left: processes, sockets, half-made views,
sanitizer reports. This process becomes the reaper of orphans (PR_SET_CHILD_SUBREAPER), so that every daemon that
detached itself is still found among its descendants.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import tempfile

from . import process, tap, varlink

STAGE = pathlib.Path(os.environ.get("ILOADER_STAGE",
                                    pathlib.Path(__file__).resolve().parent.parent.parent / "build/stage-release"))
BIN = STAGE / "usr/bin"
LIBEXEC = STAGE / "usr/lib/iloader"
SANITIZED = "ILOADER_SANITIZED" in os.environ
HELPERS = pathlib.Path(os.environ.get("ILOADER_HELPERS", STAGE.parent / "release/helpers"))
_PR_SET_CHILD_SUBREAPER = 36
SOCKET_NAME = "io.iloader.Manager"

ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid=None):
    """The live descendants of this process (or of another), as {pid: program name}."""
    found = {}
    waiting = [pid or os.getpid()]
    while waiting:
        parent = waiting.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                children = pathlib.Path(f"/proc/{parent}/task/{thread}/children").read_text().split()
            except OSError:
                continue
            for child in map(int, children):
                waiting.append(child)
                if process.is_alive(child):
                    with contextlib.suppress(OSError):
                        found[child] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
    return found


class Product:
    """user: runs everything as that (uid, gid, groups), which needs root. env: more variables for every command."""

    def __init__(self, user=None, env=None):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="ilt-"))
        self.user = user
        self.root.chmod(0o755)
        self.base = self.root / "base"
        self.bin, self.libexec = BIN, LIBEXEC
        if user:
            # The build tree may be where only its owner can go.
            shutil.copytree(STAGE / "usr", self.root / "usr", symlinks=True,
                            ignore=shutil.ignore_patterns("man", "systemd", "doc"))
            self.bin, self.libexec = self.root / "usr/bin", self.root / "usr/lib/iloader"
        self.env = {"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.root / "home"), "LANG": "C.UTF-8",
                    "ILOADER_BASE_DIR": str(self.base),
                    **{k: v for k, v in os.environ.items() if k in ("ASAN_OPTIONS", "UBSAN_OPTIONS")}, **(env or {})}
        (self.root / "home").mkdir()
        if user:
            os.chown(self.root, user[0], user[1])
            os.chown(self.root / "home", user[0], user[1])
        self._before = set(descendants())
        self._background = []

    # --- places

    def path(self, *parts):
        return self.root.joinpath(*parts)

    @property
    def socket(self):
        return self.base / "run" / SOCKET_NAME

    def view_of(self, name):
        return self.base / "views" / name

    # --- commands

    def iloader(self, *argv, program="iloader", **options):
        options.setdefault("env", self.env)
        options.setdefault("user", self.user)
        return process.run(self.bin / program, *argv, **options)

    def background(self, *argv, program="iloader", **options):
        options.setdefault("env", self.env)
        options.setdefault("user", self.user)
        return process.Background(self.bin / program, *argv, **options)

    def json(self, *argv):
        """The one JSON document that a command prints on stdout, alone."""
        result = self.iloader(*argv, "--json").ok()
        return json.loads(result.out)

    def start(self, source, name, *options, **how):
        """Starts a cache and returns its view's path, which is all that start prints on stdout."""
        result = self.iloader("start", source, "--name", name, *options, **how).ok()
        lines = result.out.splitlines()
        assert len(lines) == 1 and lines[0].startswith("/"), f"stdout must hold the view's path alone\n{result}"
        return pathlib.Path(lines[0])

    def status(self, name):
        return self.json("status", name)

    def caches(self):
        """{name: Cache} of list --json; empty where no manager answers."""
        return {c["name"]: c for c in self.json("list")["caches"]}

    # --- the manager

    def connect(self, timeout=20.0):
        return varlink.Connection(self.socket, timeout)

    def start_manager(self, *prefix, env=None, limits=None, idle_exit="600", arguments=(), program=None, pass_fds=()):
        """Starts iloaderd by hand (under a tracer, in a cgroup, with limits) and waits until it serves."""
        read_end, write_end = os.pipe()
        argv = [*prefix, program or self.libexec / "iloaderd", "--base-dir", self.base, "--idle-exit", idle_exit,
                "--ready-fd", str(write_end), *arguments]
        # Into a file: nobody reads a pipe meanwhile.
        with open(self.root / f"manager{len(self._background)}.log", "ab") as log:
            daemon = process.Background(*argv, env={**self.env, **(env or {})}, limits=limits, user=self.user,
                                        pass_fds=(write_end, *pass_fds), stderr=log)
        self._background.append(daemon)
        os.close(write_end)
        with open(read_end, "rb") as ready:
            if not ready.read(1):
                raise AssertionError(f"the manager did not come up\n{daemon.wait()}\n"
                                     + pathlib.Path(log.name).read_text(errors="replace"))
        return daemon

    def _ours(self, program):
        return [pid for pid, comm in descendants().items() if comm == program[:15] and pid not in self._before]

    def manager_pid(self):
        pids = self._ours("iloaderd")
        assert len(pids) == 1, f"one manager expected, found {pids}"
        return pids[0]

    def manager_pids(self):
        return self._ours("iloaderd")

    def worker_pids(self):
        return self._ours("iloader-worker")

    def manager_descriptors(self):
        """How many descriptors the manager has open."""
        return len(process.open_descriptors(self.manager_pid()))

    @contextlib.contextmanager
    def nothing_left(self):
        """What happens inside must leave no cache, descriptor, worker, view or file behind, and disturb no other
        cache."""
        def look():
            # A failed cache holds nothing: it is a record of why.
            return {"caches": {n: (c["state"], c.get("pid"), c["fingerprint"]) for n, c in self.caches().items()
                               if c["state"] != "failed"},
                    "workers": sorted(self.worker_pids()), "descriptors": self.manager_descriptors(),
                    "files": sorted(str(p.relative_to(self.base)) for d in ("run", "views") if (self.base / d).exists()
                                    for p in (self.base / d).glob("**/*"))}
        before = look()
        yield
        after = {}

        def same():
            nonlocal after
            after = look()
            # A connection of ours may still have been closing when the first look counted.
            fewer = after["descriptors"] <= before["descriptors"]
            return fewer and all(after[k] == before[k] for k in before if k != "descriptors")
        try:
            process.wait_until(same, "everything is as before", 5)
        except AssertionError:
            differing = {k: (before[k], after[k]) for k in before if before[k] != after[k]}
            raise AssertionError(f"left behind or disturbed (before, after): {differing}") from None

    # --- the end

    def close(self, check=True):
        complaints = []
        try:
            if check:
                complaints = self._stop_politely()
        finally:
            self._kill_all()
            for daemon in self._background:
                daemon.__exit__()
            report = self._sanitizer_reports()
            self._reap()
            _unmount_below(self.root)
            shutil.rmtree(self.root, ignore_errors=True)
        complaints += report
        assert not complaints, "\n".join(complaints)

    def _stop_politely(self):
        complaints = []
        if self.socket.exists() and self.manager_pids():
            stopped = self.iloader("stop", "--all", "--force", "--timeout", "20")
            if stopped.code != 0:
                complaints.append(f"stop --all --force failed: {stopped.err}")
        pids = self.manager_pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in pids:
            try:
                process.wait_for_end(pid)
            except AssertionError as e:
                complaints.append(f"the manager did not end at SIGTERM: {e}")
        try:
            process.wait_until(lambda: not self.worker_pids(), "all workers have ended", 10)
        except AssertionError as e:
            complaints.append(f"{e}: {self.worker_pids()}")
        if self.socket.exists() and pids:
            complaints.append(f"the manager left its socket {self.socket}")
        return complaints

    def _kill_all(self):
        for pid in descendants():
            if pid not in self._before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _sanitizer_reports(self):
        reports = []
        for directory, _, names in os.walk(self.root):
            for name in names:
                path = pathlib.Path(directory, name)
                if path.is_symlink() or path.suffix != ".log":
                    continue
                with contextlib.suppress(OSError):
                    text = path.read_text(errors="replace")
                    if "Sanitizer" in text or "runtime error:" in text:
                        reports.append(f"{path}:\n{text}")
        return reports

    def _reap(self):
        """Takes in orphans that ended; children that Popen knows are left to it."""
        known = {d.pid for d in self._background}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in known or int(entry) in self._before:
                continue
            with contextlib.suppress(OSError, IndexError):
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == os.getpid() and fields[0] == "Z":
                    os.waitpid(int(entry), os.WNOHANG)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _traceback):
        if kind:
            for path in self.root.glob("**/*.log"):
                with contextlib.suppress(OSError):
                    tap.note(f"--- {path}\n{path.read_text(errors='replace')}")
        self.close(check=kind is None)


def _unmount_below(directory):
    for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{directory}/"):
            process.run("umount", "--lazy", place)


@contextlib.contextmanager
def tmpfs(path, size):
    """A small file system of its own; needs root."""
    if os.geteuid() != 0:
        tap.skip("mounting needs root")
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    mounted = process.run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "iloader-test", path)
    if mounted.code != 0:
        tap.skip(f"this machine mounts no tmpfs: {mounted.err.strip()}")
    try:
        yield path
    finally:
        process.run("umount", "--lazy", path)


@contextlib.contextmanager
def memory_cgroup(limit):
    """A cgroup whose processes may use so many bytes: yields the file into which to write their pids."""
    if os.geteuid() != 0:
        tap.skip("making a cgroup needs root")
    v1 = pathlib.Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    v2 = pathlib.Path("/sys/fs/cgroup/cgroup.subtree_control")
    name = f"iloader-test-{os.getpid()}"
    if v1.exists():
        group, settings = v1.parent / name, {"memory.limit_in_bytes": limit}
    elif v2.exists() and "memory" in v2.read_text().split():
        group, settings = v2.parent / name, {"memory.max": limit, "memory.swap.max": 0}
    else:
        tap.skip("this machine has no memory controller to use")
    try:
        group.mkdir()
    except OSError as e:
        tap.skip(f"this machine makes no memory cgroup: {e}")
    try:
        for file, value in settings.items():
            (group / file).write_text(str(value))
        yield group / "cgroup.procs"
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        process.wait_until(lambda: _try_rmdir(group), f"{group} can be removed")


def _try_rmdir(path):
    try:
        path.rmdir()
    except OSError:
        return False
    return True


def another_user(number=65500):
    """(uid, gid, groups) of a user who is nobody here; needs root."""
    if os.geteuid() != 0:
        tap.skip("acting as another user needs root")
    return number, number, []
