#!/usr/bin/python3
"""clang-tidy over every C file of the product, a case a file, on all processors."""
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import tap  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
DIRECTORIES = ("base", "wire", "checkpoint", "daemon", "daemon/worker", "ctl", "lib")
GIVEN = shlex.split(os.environ.get("LINT_CPPFLAGS", "-D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -Iinclude "
                                   "-Ibuild/release/gen -I/usr/include/json-c"))
# The version is a string, whose quotes don't come through make and the shell.
FLAGS = [*(f for f in GIVEN if "ILOADER_VERSION" not in f), '-DILOADER_VERSION="0"', "-std=gnu11"]
results = {}


def tidy(path):
    done = subprocess.run(["clang-tidy", "--quiet", path, "--", *FLAGS], cwd=TREE, capture_output=True, text=True,
                          check=False)
    return path, done


def setup():
    if not shutil.which("clang-tidy"):
        tap.skip("clang-tidy is not installed")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # Only what the arguments choose, as tap.main() does: all of it takes minutes.
        words = [a for a in sys.argv[1:] if not a.startswith("--")]
        results.update(pool.map(tidy, [f for f in FILES if not words or any(w in f"clang tidy: {f}" for w in words)]))


FILES = [p.relative_to(TREE).as_posix() for d in DIRECTORIES for p in sorted((TREE / d).glob("*.c"))]


@tap.parametrize(FILES)
def clang_tidy(path):
    done = results[path]
    assert done.returncode == 0, done.stdout + done.stderr


tap.main(setup)
