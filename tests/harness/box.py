"""A box: a real systemd as process 1 of namespaces of its own, over a root file system that make-root keeps.

    with Box("bookworm", layers=[stage.path], enable=["iloaderd.socket"]) as box:
        box.run("iloader", "doctor").ok()           # beside the services, in every namespace of the box
        box.unit("iloader", "list", user="alice")   # as a transient unit of the inner systemd
        box.journal(unit="iloaderd.service")

What happens in a box stays in memory and goes with it. The box dies with the process that started it, however that
ends. tests/boot/box does the same by hand, for looking around.
"""
import ctypes
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import process, tap

HERE = pathlib.Path(__file__).resolve().parent
BOOT = HERE.parent / "boot"
_PR_SET_PDEATHSIG = 1
_POWER_OFF = signal.SIGRTMIN + 4    # systemd(1), "Signals"


def cgroup2_mount():
    """Where the cgroup2 hierarchy is mounted, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2":
            return pathlib.Path(fields[1])
    return None


def why_not():
    """Why this machine can't make boxes, or None where it can."""
    if os.geteuid() != 0:
        return "boxes need root"
    for program in ("unshare", "nsenter", "mmdebstrap"):
        if not shutil.which(program):
            return f"boxes need {program}"
    if not cgroup2_mount():
        return "boxes need a mounted cgroup2 hierarchy"
    if not os.access(cgroup2_mount(), os.W_OK):
        return "boxes need a writable cgroup2 hierarchy"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "sh", "-c",
                            "mount -t tmpfs box /mnt && mkdir /mnt/a /mnt/b /mnt/c /mnt/d && mount -t overlay -o "
                            "lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c overlay /mnt/d && mount -t cgroup2 c /mnt/a"],
                           capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"this machine makes no namespaces with overlays: {probe.stderr.strip().splitlines()[-1:]}"
    return None


def root(kind):
    """The path of a root file system; made now where it isn't there yet (that can take minutes)."""
    made = subprocess.run([BOOT / "make-root", kind], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        raise AssertionError(f"make-root {kind} failed")
    return pathlib.Path(made.stdout.strip())


def need(kind):
    """Skips the test file where boxes can't be made, else makes sure of the root."""
    reason = why_not()
    if reason:
        tap.skip(reason)
    return root(kind)


class Box:
    """layers: directories laid over the root, the last one topmost. binds: {directory outside: place inside},
    read-only. enable: units enabled before the boot. files: {path: text} written before the boot. persistent: the box
    outlives the process that started it (for tests/boot/box)."""

    def __init__(self, kind, layers=(), enable=(), files=None, binds=None, persistent=False, name=None):
        self.name = name or f"{re.sub('[^a-z0-9]', '', kind)}-{os.getpid()}"
        self.lower = [root(kind), *map(pathlib.Path, layers)]
        self.enable, self.files, self.binds, self.persistent = list(enable), files or {}, binds or {}, persistent
        self.binds = {str(HERE): "/run/tests/harness", **self.binds}
        self.leader = self.wrapper = None
        self.state = None

    # --- life

    def start(self, timeout=60):
        self.state = pathlib.Path(tempfile.mkdtemp(prefix=f"iloader-box-{self.name}-"))
        os.chmod(self.state, 0o755)
        try:
            self._boot(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def _boot(self, timeout):
        (self.state / "mnt").mkdir()
        if self.files:
            self._write_layer()
        self.cgroup = cgroup2_mount() / f"iloader-box-{self.name}"
        self.cgroup.mkdir(exist_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(self.state / "notify"))
        os.chmod(self.state / "notify", 0o666)
        layers = ":".join(str(p) for p in reversed(self.lower))
        console = open(self.state / "console", "wb")
        self.wrapper = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup",
             BOOT / "box-init", self.state / "mnt", self.name, layers, *self.enable],
            stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=self._enter_cgroup,
            env={**os.environ, "NOTIFY_OUTSIDE": str(self.state / "notify"), "SYSTEMD_OFFLINE": "1",
                 "BOX_BINDS": "\n".join(f"{a}\t{b}" for a, b in self.binds.items())})
        console.close()
        with notify:
            self._wait_for_boot(notify, timeout)
        # The wrapper isn't visible in the box; in the box's own cgroup it would show there as a process 0.
        (self.cgroup.parent / "cgroup.procs").write_text(str(self.wrapper.pid))

    def _write_layer(self):
        layer = self.state / "files"
        for path, text in self.files.items():
            target = layer / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(text, bytes):
                target.write_bytes(text)
            else:
                target.write_text(text)
            target.chmod(0o644)
        self.lower.append(layer)

    def _enter_cgroup(self):
        os.setsid()
        if not self.persistent:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        (self.cgroup / "cgroup.procs").write_text("0")

    def _wait_for_boot(self, notify, timeout):
        deadline = time.monotonic() + timeout
        wrapper = os.pidfd_open(self.wrapper.pid)
        try:
            while True:
                ready, _, _ = select.select([notify, wrapper], [], [], max(0, deadline - time.monotonic()))
                if wrapper in ready or not ready:
                    raise AssertionError(f"box {self.name} {'died' if ready else 'did not boot'}:\n"
                                         + (self.state / "console").read_text(errors="replace"))
                if b"READY=1" in notify.recv(4096).split(b"\n"):
                    break
        finally:
            os.close(wrapper)
        self.leader = int(pathlib.Path(f"/proc/{self.wrapper.pid}/task/{self.wrapper.pid}/children").read_text().split()[0])

    def stop(self, timeout=20):
        """Powers off; kills what does not. Never fails for a box that is half made."""
        if self.wrapper and self.wrapper.poll() is None:
            try:
                if self.leader:
                    os.kill(self.leader, _POWER_OFF)
                    self.wrapper.wait(timeout)
            except (subprocess.TimeoutExpired, ProcessLookupError):
                pass
            self.wrapper.kill()
            self.wrapper.wait()
        if self.state:
            self._clean()

    def _remove_cgroup(self):
        for directory, _, _ in os.walk(self.cgroup, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                pass
        return not self.cgroup.exists()

    def _clean(self):
        if getattr(self, "cgroup", None):
            # Processes that have been killed are in it for a moment longer.
            try:
                process.wait_until(self._remove_cgroup, f"{self.cgroup} can be removed", 10)
            except AssertionError as e:
                tap.note(str(e))
        shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # --- use

    def inside(self, *argv, env=None):
        """The command line that runs argv in all namespaces of the box."""
        variables = {"container": "iloader-box", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb",
                     "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(env or {})}
        return ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r/proc/%d/root" % self.leader,
                "-w/proc/%d/root" % self.leader, "--", "env", "-i", *(f"{k}={v}" for k, v in variables.items()),
                *map(str, argv)]

    def run(self, *argv, user=None, env=None, **options):
        """Runs a program beside the services. user: a name of the box's, by way of runuser."""
        if user:
            argv = ("runuser", "-u", user, "--", *argv)
        return process.run(*self.inside(*argv, env=env), **options)

    def background(self, *argv, user=None, env=None, **options):
        if user:
            argv = ("runuser", "-u", user, "--", *argv)
        return process.Background(*self.inside(*argv, env=env), **options)

    def unit(self, *argv, user=None, properties=(), **options):
        """Runs a program as a transient unit of the inner systemd, with its exact exit code."""
        who = ["--uid", user] if user else []
        return self.run("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--service-type=exec", *who,
                        *(f"--property={p}" for p in properties), "--", *argv, **options)

    def systemctl(self, *argv, **options):
        return self.run("systemctl", "--no-pager", *argv, **options)

    def show(self, unit, *properties):
        """The unit's properties, as a dictionary."""
        out = self.systemctl("show", unit, *(f"--property={p}" for p in properties)).ok().out
        return dict(line.split("=", 1) for line in out.splitlines())

    def python(self, program, *argv, **options):
        """Runs a Python program, given as text, with the harness importable."""
        return self.run("python3", "-c", program, *argv, env={"PYTHONPATH": "/run/tests", "PYTHONDONTWRITEBYTECODE": "1"},
                        **options)

    def journal(self, *arguments, unit=None):
        """Journal entries as dictionaries, everything written so far."""
        self.run("journalctl", "--sync")
        which = ["-u", unit] if unit else []
        result = self.run("journalctl", "-o", "json", "--all", "--no-pager", *which, *arguments)
        return [json.loads(line) for line in result.out.splitlines() if line.startswith("{")]

    def messages(self, *arguments, unit=None):
        return [e.get("MESSAGE", "") for e in self.journal(*arguments, unit=unit)]

    def write(self, path, data, mode=0o644):
        """Writes a file, making its directories."""
        self.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"', "sh", path, f"{mode:o}",
                 input=data if isinstance(data, bytes) else data.encode()).ok()

    def read(self, path):
        return self.run("cat", path).ok().out

    def exists(self, path):
        return self.run("test", "-e", path).code == 0

    def copy_in(self, source, target):
        """Copies a directory of this machine to a place in the box."""
        packed = subprocess.run(["tar", "-C", source, "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout
        self.run("mkdir", "-p", target).ok()
        self.run("tar", "-C", target, "-xf", "-", "--no-same-owner", input=packed).ok()

    def add_user(self, name, *options):
        self.run("useradd", "--create-home", "--shell", "/bin/sh", *options, name).ok()
        return int(self.run("id", "-u", name).ok().out)
