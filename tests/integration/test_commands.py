#!/usr/bin/python3
"""The verbs that look, measure and help; what goes to stdout and what to stderr; and exit codes."""
import json
import os
import pathlib
import pty
import re
import select
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import STAGE, Product  # noqa: E402

MIB = checkpoint.MIB
VERBS = ["inspect", "start", "status", "view", "manifest", "list", "stop", "run", "doctor", "selftest", "bench", "monitor",
         "attach", "completion", "gc"]


class Shared:
    product = model = None


def setup():
    Shared.product = Product()
    Shared.model = checkpoint.small(Shared.product.path("model"))
    Shared.product.start(Shared.model, "qwen")


def teardown():
    Shared.product.close()


def iloader(*argv, **options):
    return Shared.product.iloader(*argv, **options)


@tap.parametrize(VERBS)
def help_per_verb(verb):
    result = iloader(verb, "--help").ok()
    assert result.out.startswith("usage:") or "Usage" in result.out[:200] or verb in result.out.split("\n")[0], result
    assert verb in result.out and result.err == "", result
    for line in result.out.splitlines():
        assert len(line) <= 110, f"{len(line)} columns: {line}"


@tap.test
def help_and_version():
    overview = iloader("--help").ok()
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", overview.out), verb
    version = iloader("--version").ok().out
    assert (pathlib.Path(__file__).resolve().parent.parent.parent / "VERSION").read_text().strip() in version
    assert Shared.product.iloader("--version", program="iloaderctl").ok().out


@tap.test
def inspect_tells_sizes_and_memory():
    p = Shared.product
    result = iloader("inspect", Shared.model).ok()
    assert "config.json" in result.out and "available" in result.out.lower(), result
    document = p.json("inspect", Shared.model)
    assert document["bytes"] == sum(f.stat().st_size for f in Shared.model.iterdir()), document
    files = document["files"]
    names = {f["path"] for f in files} if isinstance(files, list) else None
    assert names is None or names == {f.name for f in Shared.model.iterdir()}, document
    assert document["availableBytes"] > 0, document
    only = p.json("inspect", Shared.model, "--pattern", "*.json")
    assert only["bytes"] < document["bytes"]
    iloader("inspect", p.path("absent")).fails(1, "absent")


@tap.test
def inspect_needs_no_manager():
    with Product() as p:
        p.iloader("inspect", checkpoint.small(p.path("model"))).ok()
        assert not p.manager_pids() and not p.socket.exists()


@tap.test
def verbs_that_look_start_no_manager():
    with Product() as p:
        for argv in (["list"], ["status", "qwen"], ["view", "qwen"], ["stop", "qwen"], ["run", "qwen", "--", "true"], ["doctor"]):
            p.iloader(*argv)
            assert not p.manager_pids(), argv
        assert p.json("list") == {"caches": []}


@tap.test
def status_for_people_and_programs():
    text = iloader("status", "qwen").ok().out
    for expected in ("qwen", "ready", str(Shared.model), str(Shared.product.view_of("qwen"))):
        assert expected in text, text
    cache = json.loads(iloader("status", "qwen", "--json").ok().out)
    for key in ("name", "state", "source", "view", "fingerprint", "uid", "pid", "files", "bytes", "bytesLoaded", "leases",
                "reuses", "lastUsedUSec", "budget"):
        assert key in cache, key
    assert json.loads(iloader("status", "--name", "qwen", "--json").ok().out) == cache


@tap.test
def list_for_people_and_programs():
    assert "qwen" in iloader("list").ok().out
    document = Shared.product.json("list")
    assert list(document) == ["caches"] and document["caches"][0]["name"] == "qwen"


@tap.test
def paths_go_alone_to_stdout():
    result = iloader("view", "qwen").ok()
    assert result.out == f"{Shared.product.view_of('qwen')}\n" and result.err == "", result
    result = iloader("start", Shared.model, "--name", "qwen").ok()
    assert result.out == f"{Shared.product.view_of('qwen')}\n", result
    quiet = iloader("start", Shared.model, "--name", "quiet", "--quiet").ok()
    assert quiet.err == "", quiet
    iloader("stop", "quiet", "--remove-view").ok()


@tap.test
def start_prints_one_json_document_where_asked():
    document = json.loads(iloader("start", Shared.model, "--name", "qwen", "--json").ok().out)
    cache = document.get("cache", document)
    assert cache["name"] == "qwen" and cache["state"] == "ready", document


@tap.test
def doctor_checks_the_environment():
    result = iloader("doctor")
    assert result.code in (0, 1) and "memfd" in result.out.lower(), result
    document = Shared.product.json("doctor")
    assert isinstance(document, dict) and document, document


@tap.test
def selftest_exercises_sealing():
    iloader("selftest").ok()


@tap.test
def bench_reads_sequentially():
    document = Shared.product.json("bench", Shared.model, "--repeat", "2")
    assert len(document.get("runs", document.get("seconds", []))) == 2, document
    text = iloader("bench", Shared.model, "--repeat", "1", "--pattern", "*.safetensors").ok()
    assert "iB/s" in text.out, text
    iloader("bench", Shared.product.path("absent")).fails(1, "absent")
    iloader("bench", Shared.product.view_of("qwen")).ok()


@tap.test
def monitor_prints_changes_as_they_happen():
    p = Shared.product
    with p.background("monitor", "--json") as monitor:
        first = json.loads(monitor.read_line())
        assert first["kind"] == "current" and first["cache"]["name"] == "qwen", first
        p.iloader("run", "qwen", "--", "true").ok()
        kinds = []
        while "released" not in kinds:
            kinds.append(json.loads(monitor.read_line())["kind"])
        assert "leased" in kinds
        monitor.signal(15)
        assert monitor.wait().code in (0, 143)
    with p.background("monitor") as monitor:
        assert "qwen" in monitor.read_line()


@tap.test
def attach_waits_while_the_cache_is_resident():
    p = Shared.product
    p.start(Shared.model, "attached")
    with p.background("attach", "attached", "--base-dir", p.base) as attach:
        process.wait_until(lambda: process.is_alive(attach.pid) and p.status("attached")["state"] == "ready", "attached")
        assert not p.iloader("stop", "attached", "--remove-view").ok().out
        result = attach.wait()
        assert result.code in (0, 1), result


@tap.test
def completion_is_a_script_that_bash_takes():
    script = iloader("completion", "bash").ok().out
    process.run("bash", "-n", "-c", script).ok()
    program = script + '''
COMP_WORDS=(iloader sta); COMP_CWORD=1; COMP_LINE="iloader sta"; COMP_POINT=11
f=$(complete -p iloader | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $f iloader sta iloader; printf '%s\\n' "${COMPREPLY[@]}"
'''
    words = process.run("bash", "-c", program, env=Shared.product.env).ok().out.split()
    assert {"start", "status"} <= set(words), words
    assert (STAGE / "usr/share/bash-completion/completions/iloader").read_text() == script


def through_a_terminal(argv):
    """What a command prints where stderr and stdout are a terminal."""
    pid, master = pty.fork()
    if pid == 0:
        os.execve(Shared.product.bin / "iloader", ["iloader", *map(str, argv)], {**Shared.product.env, "TERM": "xterm"})
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return os.waitstatus_to_exitcode(status), seen.decode(errors="replace")


@tap.test(timeout=120)
def progress_is_drawn_on_a_terminal():
    model = Shared.product.path("long")
    model.mkdir()
    with open(model / "weights.bin", "wb") as f:
        f.truncate(1024 * MIB)
    code, seen = through_a_terminal(["start", model, "--name", "long"])
    assert code == 0, seen
    assert "\r" in seen and "%" in seen and "iB/s" in seen, repr(seen[:2000])
    iloader("stop", "long", "--remove-view").ok()
    code, seen = through_a_terminal(["start", model, "--name", "long", "--quiet"])
    assert code == 0 and "%" not in seen, repr(seen)
    iloader("stop", "long", "--remove-view").ok()


@tap.test
def which_manager_is_meant():
    p = Shared.product
    # iloaderctl means the system's, which isn't there; verbs that read then look at the user's and say so.
    result = p.iloader("status", "qwen", program="iloaderctl")
    if result.code == 0:
        assert result.err.strip(), "which manager answered is said on stderr"
    p.iloader("stop", "qwen", program="iloaderctl").fails(1)
    assert p.status("qwen")["state"] == "ready"
    env = {k: v for k, v in p.env.items() if k != "ILOADER_BASE_DIR"} | {"ILOADER_SOCKET": str(p.socket)}
    p.iloader("status", "qwen", env=env).ok()
    p.iloader("status", "qwen", "--socket", p.socket, env={"PATH": p.env["PATH"]}).ok()
    p.iloader("status", "qwen", "--base-dir", p.base, env={"PATH": p.env["PATH"]}).ok()
    p.iloader("status", "qwen", "--socket", p.path("absent")).fails(1, str(p.path("absent")))
    p.iloader("status", "--socket", p.socket, "qwen", "--system").fails(2)


@tap.test
def where_the_base_is_without_options():
    with Product() as p:
        env = {"PATH": p.env["PATH"], "HOME": p.env["HOME"]}
        model = checkpoint.small(p.path("model"))
        for extra, base in (({}, p.path("home/.cache/infiniloader")),
                            ({"XDG_CACHE_HOME": str(p.path("xdg"))}, p.path("xdg/infiniloader"))):
            view = p.start(model, "qwen", env={**env, **extra})
            assert view == base / "views/qwen", view
            assert base.stat().st_mode & 0o77 == 0, oct(base.stat().st_mode)
            p.iloader("stop", "qwen", env={**env, **extra}).ok()


@tap.test
def the_installed_tree_is_complete():
    for path in ("usr/bin/iloader", "usr/bin/iloaderctl", "usr/lib/iloader/iloaderd", "usr/lib/iloader/iloader-worker",
                 "usr/lib/libiloader.so.0", "usr/include/iloader/iloader.h", "usr/lib/pkgconfig/libiloader.pc",
                 "usr/lib/systemd/system/iloaderd.service", "usr/lib/systemd/system/iloaderd.socket",
                 "usr/lib/systemd/system/iloader@.service", "usr/lib/sysusers.d/iloader.conf", "usr/lib/tmpfiles.d/iloader.conf",
                 "usr/lib/systemd/catalog/iloader.catalog", "usr/share/man/man1/iloader.1", "usr/share/man/man8/iloaderd.8",
                 "etc/iloader/iloaderd.conf"):
        assert (STAGE / path).exists(), path
    for path in STAGE.glob("usr/lib/systemd/**/*.service"):
        assert "@BINDIR@" not in path.read_text() and str(STAGE) not in path.read_text(), path


tap.main(setup, teardown)
