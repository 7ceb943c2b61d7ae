"""Test cases and their report in the Test Anything Protocol, one process a file.

    from harness import tap

    @tap.test
    def reuse_is_counted():
        ...                         # assert, or tap.skip("why it can't run here")

    tap.main()

A file's cases run in order. Each has a time limit (60 s; @tap.test(timeout=...)). A failing case prints its traceback
and everything that tap.note() collected during it. Arguments choose cases by substring; --list names them.
"""
import contextlib
import os
import signal
import sys
import time
import traceback

DEFAULT_TIMEOUT = 60.0
_tests = []
_notes = []


class Skip(Exception):
    """Raised by skip(): the case counts as skipped, with this reason."""


class CaseTimeout(BaseException):
    """The case's time is over. No Exception, so that no handler in a test swallows it."""


def skip(reason):
    raise Skip(reason)


def note(text):
    """Remembers text that is printed only where the current case fails."""
    _notes.append(text)


def mark():
    """A place in the notes, for forget()."""
    return len(_notes)


def forget(place):
    """Drops what was noted since: of many looks at the same thing, only the last is worth a report."""
    del _notes[place:]


def test(function=None, *, timeout=DEFAULT_TIMEOUT):
    """Marks a function as a test case; its name is the case's, with blanks for underscores."""
    def mark(f):
        _tests.append((f.__name__.replace("_", " "), f, timeout))
        return f
    return mark(function) if function else mark


def parametrize(values, **options):
    """One case a value: the function is called with it; the value is part of the case's name."""
    def mark(f):
        for value in values:
            label = value if isinstance(value, str) else getattr(value, "__name__", repr(value))

            def case(value=value):
                f(value)
            _tests.append((f"{f.__name__.replace('_', ' ')}: {label}", case, options.get("timeout", DEFAULT_TIMEOUT)))
        return f
    return mark


@contextlib.contextmanager
def _time_limit(seconds):
    # Sanitized programs on a busy machine take several times as long.
    seconds *= float(os.environ.get("ILOADER_TEST_TIME_FACTOR", "1"))

    def over(_number, _frame):
        raise CaseTimeout(f"still running after {seconds:g} s")
    previous = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _diagnose(text):
    for line in text.rstrip("\n").split("\n"):
        print("#   " + line.encode("utf-8", "backslashreplace").decode("utf-8"))


def _run_case(number, name, function, timeout):
    _notes.clear()
    started = time.monotonic()
    try:
        with _time_limit(timeout):
            function()
    except Skip as e:
        print(f"ok {number} - {name} # SKIP {e}")
        return True
    except (Exception, CaseTimeout):
        print(f"not ok {number} - {name}")
        for text in _notes:
            _diagnose(text)
        _diagnose(traceback.format_exc())
        return False
    print(f"ok {number} - {name} # {time.monotonic() - started:.2f} s")
    return True


def main(setup=None, teardown=None):
    """Runs the file's cases and exits. setup() runs once before; where it skips or fails, every case does."""
    # Runners in the background, or under nohup, ignore these; programs under test would inherit that.
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    chosen = [t for t in _tests if not wanted or any(w in t[0] for w in wanted)]
    if "--list" in sys.argv:
        print("\n".join(t[0] for t in chosen))
        sys.exit(0)
    print(f"1..{len(chosen)}")
    failed = 0
    before = None
    if setup:
        try:
            setup()
        except (Skip, Exception) as e:
            before = e
            _notes.append(traceback.format_exc())
    for number, (name, function, timeout) in enumerate(chosen, 1):
        if isinstance(before, Skip):
            print(f"ok {number} - {name} # SKIP {before}")
        elif before:
            print(f"not ok {number} - {name}")
            _diagnose("the file's setup failed:")
            for text in _notes:
                _diagnose(text)
            failed += 1
        else:
            failed += not _run_case(number, name, function, timeout)
    if teardown and not before:
        try:
            teardown()
        except Exception:
            _diagnose("the file's teardown failed:")
            _diagnose(traceback.format_exc())
            failed += 1
    sys.exit(1 if failed else 0)
