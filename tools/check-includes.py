#!/usr/bin/python3
"""Checks the include directions of ARCHITECTURE.md ("Layers") and that headers don't include one another in a circle.

    check-includes.py [TREE]        prints every violation as FILE:LINE: why, and exits 1 where there is one
"""
import pathlib
import re
import sys

# Which directories, or single headers, the files of a directory may include. "" stands for the tree's public headers
# in include/, which are included as <iloader/…> or "iloader/…". Subdirectories count for themselves.
LAYERS = {
    "base": ["base"],
    "wire": ["base", "wire"],
    "checkpoint": ["base", "checkpoint"],
    "lib": ["base", "wire", "lib", "iloader"],
    "ctl": ["base", "wire", "checkpoint", "lib", "ctl", "iloader"],
    "daemon": ["base", "wire", "daemon", "checkpoint/manifest.h"],
    "daemon/worker": ["base", "wire", "checkpoint", "daemon/worker"],
    "include/iloader": ["iloader"],
}
# Libraries that have one user each, so that the choice of library stays a detail of that module.
LIBRARIES = {
    "seccomp.h": ["base/sandbox"],
    "gcrypt.h": ["base/digest"],
    "ini.h": ["daemon/keyfile"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            yield number, found[1] == '"', found[2]


def directory_of(included):
    head, _, _ = included.rpartition("/")
    return head


def allowed(directory, included):
    return any(included == rule or directory_of(included) == rule for rule in LAYERS[directory])


def check_file(tree, path, faults):
    name = path.relative_to(tree)
    directory = name.parent.as_posix()
    for number, quoted, included in includes(path):
        where = f"{name}:{number}: "
        users = LIBRARIES.get(included)
        if users is not None and not name.as_posix().startswith(tuple(users)):
            faults.append(f"{where}only {', '.join(users)} may use <{included}>")
        ours = included.startswith(tuple(f"{d}/" for d in (*LAYERS, "iloader")))
        if not quoted and not (ours and directory.startswith("include/")):
            if ours and not included.startswith("iloader/"):
                faults.append(f"{where}headers of this tree are included with quotes: {included}")
            continue
        if not ours:
            faults.append(f"{where}name the header from the top of the tree: {included}")
        elif not allowed(directory, included):
            faults.append(f"{where}{directory}/ must not include {included}")


def check_circles(tree, headers, faults):
    graph = {h.relative_to(tree).as_posix(): [i for _, quoted, i in includes(h) if quoted] for h in headers}
    done = set()

    def visit(header, trail):
        if header in trail:
            faults.append("headers include one another: " + " → ".join([*trail[trail.index(header):], header]))
        elif header not in done:
            for following in graph.get(header, []):
                visit(following, [*trail, header])
            done.add(header)
    for header in graph:
        visit(header, [])


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    faults = []
    files = [p for d in LAYERS for p in sorted((tree / d).glob("*.[ch]"))]
    for path in files:
        check_file(tree, path, faults)
    check_circles(tree, [p for p in files if p.suffix == ".h"], faults)
    for fault in faults:
        print(fault)
    if not files:
        print(f"{tree}: no sources found")
        faults.append("none")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
