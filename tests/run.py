#!/usr/bin/python3
"""Runs test programs and counts every test case: what `make check` calls at its end.

    tests/run.py [--match WORD] [--jobs N] [SUITE...]      unit, lint, fuzz, integration, boot (all, in this order)

Every test program reports in the Test Anything Protocol. Its whole output is kept in build/test-logs/ and shown where
a case fails. Skipped cases are counted as such and listed with their reasons. The last line is the sum, the exit code 1
where a case failed, or none ran.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
TESTS = TREE / "tests"
LOGS = TREE / "build" / "test-logs"
RESULT = re.compile(r"^(not )?ok \d+\s*(?:-\s*)?([^#]*)(?:#\s*(.*))?$")
PLAN = re.compile(r"^1\.\.(\d+)\s*(?:#\s*SKIP\b\s*(.*))?$", re.IGNORECASE)
# A sanitized program takes this much longer on a machine that is busy otherwise.
SANITIZE_TIME_FACTOR = 4
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def reset_signals():
    """What this process may ignore, being run in the background or under nohup, is no business of the tests."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


class Item:
    """One test program to run. alone: it uses all processors itself."""

    def __init__(self, name, argv, timeout, environment=None, alone=False):
        self.name, self.argv, self.timeout, self.alone = name, argv, timeout, alone
        self.environment = environment or {}
        self.passed, self.failed, self.skipped = [], [], []
        self.output, self.seconds = "", 0.0

    def run(self, match):
        started = time.monotonic()
        argv = [*self.argv, match] if match and self.takes_match() else self.argv
        log = LOGS / (re.sub(r"[^A-Za-z0-9_.-]+", "-", self.name) + ".log")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", **self.environment}
        with open(log, "wb") as output:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=TREE,
                                       env=environment, start_new_session=True,
                                       preexec_fn=reset_signals)
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self.kill_rest(process)
        self.seconds = time.monotonic() - started
        self.output = log.read_text(errors="backslashreplace")
        self.judge(code)
        return self

    def takes_match(self):
        return str(self.argv[-1]).endswith(".py")

    @staticmethod
    def kill_rest(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def judge(self, code):
        planned = None
        said = ""   # the last plain line: cmocka's skip() takes no reason, so tests print it before
        for line in self.output.splitlines():
            plan, result = PLAN.match(line), RESULT.match(line)
            if plan:
                planned = (planned or 0) + int(plan[1])
            elif result:
                self.judge_case(result[2].strip(), bool(result[1]), result[3] or "", said)
                said = ""
            elif line.strip():
                said = line.strip().lstrip("# ")
        ran = len(self.passed) + len(self.failed) + len(self.skipped)
        if code is None:
            self.failed.append(f"(ended after {self.timeout} s)")
        elif planned is None:
            self.failed.append(f"(said nothing about test cases; exit code {code})")
        elif ran < planned:
            self.failed += [f"(case {n} of {planned} never ended; exit code {code})" for n in range(ran + 1, planned + 1)]
        elif code != 0 and not self.failed:
            self.failed.append(f"(exit code {code} though no case failed)")

    def judge_case(self, name, not_ok, directive, said):
        if directive.upper().startswith("SKIP"):
            # cmocka prints "not ok N # SKIP name"
            rest = directive[4:].strip()
            self.skipped.append((name or rest, said if not_ok or not name else rest))
        elif not_ok:
            self.failed.append(name)
        else:
            self.passed.append(name)


def unit_items():
    names = sorted(p.stem for p in (TESTS / "unit").glob("test-*.c"))
    for kind, factor in (("release", 1), ("sanitize", 2)):
        environment = {"CMOCKA_MESSAGE_OUTPUT": "TAP", **(SANITIZER_ENVIRONMENT if kind == "sanitize" else {})}
        for name in names:
            yield Item(f"unit/{kind}/{name}", [TREE / "build" / kind / "tests" / name], 120 * factor, environment)


def lint_items():
    for path in sorted((TESTS / "lint").glob("test_*.py")):
        yield Item(f"lint/{path.stem}", [sys.executable, path], 900, alone="tidy" in path.stem)


def fuzz_items():
    seconds = int(os.environ.get("FUZZ_SECONDS", "30"))
    for path in sorted((TESTS / "fuzz").glob("fuzz-*.c")):
        yield Item(f"fuzz/{path.stem}", [sys.executable, TESTS / "fuzz" / "run-fuzzer", path.stem], 3 * seconds + 180)


def integration_items():
    for kind in ("release", "sanitize"):
        environment = {"ILOADER_STAGE": os.environ.get(f"ILOADER_STAGE_{kind.upper()}", str(TREE / f"build/stage-{kind}")),
                       "ILOADER_HELPERS": str(TREE / "build" / kind / "helpers")}
        if kind == "sanitize":
            environment |= {"ILOADER_TEST_TIME_FACTOR": str(SANITIZE_TIME_FACTOR), "ILOADER_SANITIZED": "1",
                            **SANITIZER_ENVIRONMENT}
        for path in sorted((TESTS / "integration").glob("test_*.py")):
            yield Item(f"integration/{kind}/{path.stem}", [sys.executable, path], 600, environment)


def boot_items():
    # Boxes need root: by way of sudo where that asks for no password.
    become_root = []
    if os.geteuid() != 0 and shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], check=False,
                                                                     capture_output=True).returncode == 0:
        become_root = ["sudo", "-n", "-E"]
    environment = {"ILOADER_STAGE": os.environ.get("ILOADER_STAGE_RELEASE", str(TREE / "build/stage-release"))}
    for path in sorted((TESTS / "boot").glob("test_*.py")):
        yield Item(f"boot/{path.stem}", [*become_root, sys.executable, path], 1200, environment)


SUITES = {"unit": unit_items, "lint": lint_items, "fuzz": fuzz_items, "integration": integration_items,
          "boot": boot_items}


def report(item):
    parts = [f"{len(item.passed)} passed"]
    parts += [f"{len(item.failed)} FAILED"] if item.failed else []
    parts += [f"{len(item.skipped)} skipped"] if item.skipped else []
    print(f"{item.name}: {', '.join(parts)} ({item.seconds:.1f} s)", flush=True)
    if item.failed:
        print("".join(f"    {line}\n" for line in item.output.splitlines()), end="", flush=True)


def run_suite(items, jobs, match):
    together = [i for i in items if not i.alone]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(i.run, match) for i in together]):
            report(future.result())
    for item in items:
        if item.alone:
            report(item.run(match))


def summarize(items):
    skipped = [(i, case, reason) for i in items for case, reason in i.skipped]
    failed = [(i, case) for i in items for case in i.failed]
    # The lines that fuzzers and benches want to be seen, whatever became of them.
    for item in items:
        for line in item.output.splitlines():
            if line.startswith("# figure: "):
                print(f"{item.name}: {line[10:]}")
    if skipped:
        print("\nskipped:")
        for item, case, reason in skipped:
            print(f"    {item.name}: {case}: {reason or 'no reason given'}")
    if failed:
        print("\nfailed:")
        for item, case in failed:
            print(f"    {item.name}: {case}")
    passed = sum(len(i.passed) for i in items)
    print(f"\n{passed} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    return 1 if failed or not passed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", help="only programs whose name, or cases whose name, holds the word")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    arguments = parser.parse_args()
    unknown = [s for s in arguments.suites if s not in SUITES]
    if unknown:
        parser.error(f"no such suite: {unknown[0]} ({', '.join(SUITES)})")
    LOGS.mkdir(parents=True, exist_ok=True)
    done = []
    for name in arguments.suites or SUITES:
        items = list(SUITES[name]())
        match = arguments.match
        if match:
            named = [i for i in items if match in i.name]
            items, match = (named, None) if named else (items, match)
        started = time.monotonic()
        run_suite(items, arguments.jobs, match)
        print(f"-- {name}: {time.monotonic() - started:.0f} s\n", flush=True)
        done += items
    sys.exit(summarize(done))


if __name__ == "__main__":
    main()
