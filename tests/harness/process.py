"""Running programs: to their end, in the background, with limits; and waiting for things without a fixed pause."""
import os
import pathlib
import resource
import select
import signal
import subprocess
import time

from . import tap


class Result:
    """How a program ended: code (128 + signal where killed by one), out and err as text."""

    def __init__(self, argv, code, out, err, seconds):
        self.argv, self.code, self.out, self.err, self.seconds = argv, code, out, err, seconds

    def __str__(self):
        return (f"$ {' '.join(map(str, self.argv))}\n"
                f"exit {self.code} after {self.seconds:.2f} s\n--- stdout\n{self.out}--- stderr\n{self.err}---")

    def ok(self):
        assert self.code == 0, f"expected success\n{self}"
        return self

    def fails(self, code=1, *words):
        """Asserts the exit code, and that stderr holds each of the words."""
        assert self.code == code, f"expected exit code {code}\n{self}"
        for word in words:
            assert word.lower() in self.err.lower(), f"expected {word!r} on stderr\n{self}"
        return self


def _words(argv):
    return [str(a) if isinstance(a, int) else os.fspath(a) for a in argv]


def exit_code(returncode):
    return returncode if returncode >= 0 else 128 - returncode


def _before_exec(limits, new_session, ignore_signals):
    def prepare():
        if new_session:
            os.setsid()
        # What whoever runs the tests ignores (nohup, a shell's background) is no business of the program's.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for number in ignore_signals:
            signal.signal(number, signal.SIG_IGN)
        for which, value in limits.items():
            resource.setrlimit(which, value if isinstance(value, tuple) else (value, value))
    return prepare


def run(*argv, input=None, env=None, cwd=None, timeout=60, limits=None, ignore_signals=(), pass_fds=(), text=True,
        user=None):
    """Runs a program to its end and notes it for the report of a failing case. user: (uid, gid, groups)."""
    started = time.monotonic()
    who = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": user[2]}
    timeout *= float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))
    process = subprocess.Popen(_words(argv), stdin=subprocess.PIPE if input is not None else
                               subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd,
                               pass_fds=pass_fds, preexec_fn=_before_exec(limits or {}, True, ignore_signals), **who)
    try:
        out, err = process.communicate(input.encode() if isinstance(input, str) else input, timeout)
    except BaseException as e:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        tap.note(str(Result(argv, 137, out.decode(errors="replace"), err.decode(errors="replace"),
                            time.monotonic() - started)))
        if isinstance(e, subprocess.TimeoutExpired):
            raise AssertionError(f"{argv[0]} did not end within {timeout:g} s") from None
        raise
    if text:
        out = out.decode(errors="surrogateescape")
    result = Result(argv, exit_code(process.returncode), out, err.decode(errors="replace"), time.monotonic() - started)
    tap.note(str(result))
    return result


class Background:
    """A program that runs beside the test. Use as a context manager: it is killed at the end."""

    def __init__(self, *argv, env=None, cwd=None, stdin=subprocess.DEVNULL, limits=None, ignore_signals=(), pass_fds=(),
                 user=None, stderr=subprocess.PIPE):
        who = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": user[2]}
        self.argv = argv
        self.process = subprocess.Popen(_words(argv), stdin=stdin, stdout=subprocess.PIPE,
                                        stderr=stderr, env=env, cwd=cwd, pass_fds=pass_fds,
                                        preexec_fn=_before_exec(limits or {}, True, ignore_signals), **who)
        self.pid = self.process.pid
        self._out = b""

    def read_line(self, timeout=30):
        """The next line of its standard output, without the newline."""
        deadline = time.monotonic() + timeout * float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))
        while b"\n" not in self._out:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                why = "ended its output" if ready else f"said nothing for {timeout} s"
                raise AssertionError(f"{self.argv[0]} {why}; so far: {self._out!r}")
            self._out += data
        line, _, self._out = self._out.partition(b"\n")
        return line.decode(errors="surrogateescape")

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, timeout=30):
        """Its Result once it has ended."""
        started = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=timeout *
                                                float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1")))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{' '.join(map(str, self.argv))} did not end within {timeout} s") from None
        result = Result(self.argv, exit_code(self.process.returncode), (self._out + out).decode(errors="replace"),
                        (err or b"").decode(errors="replace"), time.monotonic() - started)
        tap.note(str(result))
        return result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The group too where its leader has ended already.
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


def wait_until(condition, what, timeout=15, every=0.01):
    """Calls condition() until it gives something true, and returns that."""
    deadline = time.monotonic() + timeout * float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))
    while True:
        place = tap.mark()
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain: {what}")
        tap.forget(place)
        time.sleep(every)


def wait_for_end(pid, timeout=15):
    """Waits until a process (not a child of ours) is gone or a zombie."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(timeout * 1000 * float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))):
            raise AssertionError(f"process {pid} still lives after {timeout} s")
    finally:
        os.close(fd)


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def processes(predicate):
    """The pids of live processes for which predicate(pid, argv as a list of bytes) holds."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            argv = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argv != [b""] and is_alive(int(entry)) and predicate(int(entry), argv):
            found.append(int(entry))
    return found


def open_descriptors(pid):
    return {int(n): _link(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
