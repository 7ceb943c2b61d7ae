#!/usr/bin/python3
"""Include directions, formatting, scripts, units, manual pages and libiloader's exports."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import process, tap  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = TREE / "build" / "release"


def tracked(*patterns):
    """The tree's own files; where git doesn't know it (an unpacked archive), all of them."""
    listed = subprocess.run(["git", "-C", TREE, "ls-files", "-co", "--exclude-standard", "--", *patterns],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [TREE / line for line in listed.stdout.splitlines() if (TREE / line).exists()]
    return [p for pattern in patterns for p in TREE.rglob(pattern) if "build" not in p.relative_to(TREE).parts]


@tap.test
def includes_go_in_the_directions_of_the_architecture():
    process.run(TREE / "tools/check-includes.py").ok()


@tap.test
def a_wrong_include_is_found():
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch)
        for directory in ("base", "wire", "daemon"):
            (tree / directory).mkdir()
        (tree / "base/low.h").write_text('#include "wire/high.h"\n')
        (tree / "wire/high.h").write_text('#include "base/low.h"\n')
        (tree / "daemon/main.c").write_text('#include "checkpoint/view.h"\n#include <seccomp.h>\n')
        result = process.run(TREE / "tools/check-includes.py", tree)
        assert result.code == 1
        for expected in ("base/low.h:1: base/ must not include wire/high.h", "daemon/main.c:1:", "daemon/main.c:2:",
                         "headers include one another"):
            assert expected in result.out, result


@tap.test
def sources_are_formatted():
    if not shutil.which("clang-format"):
        tap.skip("clang-format is not installed")
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", "--style=file", *tracked("*.c", "*.h")], cwd=TREE,
                            capture_output=True, text=True, check=False)
    faults = re.findall(r"^(\S+?):(\d+):\d+: error", result.stderr, re.MULTILINE)
    places = {}
    for path, line in faults:
        places.setdefault(pathlib.Path(path).relative_to(TREE).as_posix(), []).append(line)
    for path, lines in places.items():
        tap.note(f"{path}: clang-format changes lines {', '.join(lines[:8])}{' …' if len(lines) > 8 else ''}")
    assert result.returncode == 0 and not places, f"{len(places)} files differ from .clang-format"


@tap.test
def shell_scripts_parse():
    for path in tracked("*.sh", ".ci/run", "tests/boot/*"):
        first = path.read_bytes().split(b"\n")[0] if path.is_file() else b""
        if first in (b"#!/bin/sh", b"#!/bin/bash"):
            process.run("bash" if first.endswith(b"bash") else "sh", "-n", path).ok()


@tap.test
def python_files_compile():
    for path in tracked("*.py"):
        compile(path.read_bytes(), str(path), "exec")


@tap.test
def manual_pages_are_made_of_every_source():
    pages = sorted((TREE / "man").glob("*.scd"))
    assert pages, "man/ holds no pages"
    for page in pages:
        made = BUILD / "man" / page.stem
        assert made.exists(), f"{made} was not built"
        assert ".TH" in made.read_text()
    assert (BUILD / "man/io.iloader.Manager.7").exists()


@tap.test
def units_are_accepted_by_systemd():
    if not shutil.which("systemd-analyze"):
        tap.skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        # A user's manager has one; who runs this, as a service of a build machine, need not.
        env = os.environ | {"XDG_RUNTIME_DIR": scratch}
        for scope in ("system", "user"):
            directory = pathlib.Path(scratch, scope)
            directory.mkdir()
            for unit in sorted((TREE / "units" / scope).iterdir()):
                text = unit.read_text().replace("@BINDIR@", "/bin").replace("@PKGLIBDIR@", "/bin")
                # The programs need not be installed here.
                text = re.sub(r"/bin/iloader(ctl|d)?\b", "/bin/true", text)
                (directory / unit.name).write_text(text)
            names = [directory / re.sub("@", "@test", p.name) for p in directory.iterdir() if p.suffix != ".conf"]
            assert names, f"units/{scope} is empty"
            result = process.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                                 *(["--user"] if scope == "user" else []), *names, env=env)
            complaints = [line for line in result.err.splitlines() if str(directory) in line or "iloader" in line]
            assert result.code == 0 and not complaints, result


@tap.test
def the_library_exports_only_what_it_promises():
    # Cleared of versions: exactly the names of lib/libiloader.sym, all with the public prefix.
    symbols = process.run("nm", "-D", "--defined-only", BUILD / "libiloader.so").ok().out
    exported = {line.split()[2].split("@")[0] for line in symbols.splitlines() if " T " in line}
    promised = set(re.findall(r"\biloader_\w+", (TREE / "lib/libiloader.sym").read_text()))
    assert exported == promised, f"exported {sorted(exported)}, promised {sorted(promised)}"


@tap.test
def public_headers_stand_alone_in_c_and_cxx():
    for header in sorted((TREE / "include/iloader").glob("*.h")):
        program = f'#include <iloader/{header.name}>\nint main(void) {{ return 0; }}\n'
        process.run("gcc", "-x", "c", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
                    f"-I{TREE}/include", "-", input=program).ok()
        if shutil.which("g++"):
            process.run("g++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{TREE}/include", "-",
                        input=program).ok()


tap.main()
