#!/usr/bin/python3
"""Bad input: every refusal names the object, the reason and the remedy, has its exit code, leaves nothing behind and
disturbs no other cache."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product, another_user  # noqa: E402


class Shared:
    product = model = None


def setup():
    Shared.product = Product()
    Shared.model = checkpoint.small(Shared.product.path("model"))
    Shared.product.start(checkpoint.small(Shared.product.path("undisturbed")), "undisturbed")


def teardown():
    Shared.product.close()


def usage(*argv, words=()):
    """A misuse: exit code 2, stdout empty, a remedy on stderr."""
    with Shared.product.nothing_left():
        result = Shared.product.iloader(*argv).fails(2, *words)
    assert result.out == "", result
    return result


BAD_NAMES = ["", ".", "..", "-x", ".x", "_x", "a/b", "a..b", "a b", "a\n", "ä", "x" * 97, "a\tb", "a:b", "*", "a@b"]
GOOD_NAMES = ["a", "0", "a.b", "a-b_c.d", "x" * 96, "Qwen3-0.6B"]


@tap.parametrize(BAD_NAMES)
def a_name_outside_the_rule(name):
    usage("start", Shared.model, "--name", name)
    for verb in ("status", "view", "manifest", "stop"):
        usage(verb, "--name", name)
    with Shared.product.connect() as c:
        for method in ("Status", "View", "Manifest", "Stop"):
            error, parameters = c.error(method, {"name": name})
            assert error in ("InvalidName", "NoSuchCache", "org.varlink.service.InvalidParameter"), (error, parameters)
        error, _ = c.error("Start", {"name": name, "source": str(Shared.model)})
        assert error in ("InvalidName", "org.varlink.service.InvalidParameter"), error


@tap.parametrize(GOOD_NAMES)
def a_name_within_the_rule(name):
    p = Shared.product
    view = p.start(Shared.model, name)
    assert view.name == name
    p.iloader("stop", name, "--remove-view").ok()


@tap.parametrize(["64MiB", "-1", "0", "1e6", "0x1000", "1.5", " 4096", "4096 ", "", "99999999999999999999", "4k", "+4096"])
def a_chunk_size_that_is_no_whole_number_of_bytes(value):
    usage("start", Shared.model, "--name", "x", f"--chunk-size={value}", words=["chunk-size"])


@tap.parametrize(["-1", "1XiB", "MiB", "1.5GiB", "1 GiB", "18446744073709551616", "99999999TiB", "", "0x10", "1e9"])
def a_size_that_is_none(value):
    for option in ("--max-memory-bytes", "--reserve-bytes", "--max-resident-bytes"):
        usage("start", Shared.model, "--name", "x", f"{option}={value}", words=[option])


@tap.parametrize(["0", "-0.5", "1.01", "2", "nan", "inf", "1e-1", "", "0,5", ".", "half"])
def a_fraction_that_is_none(value):
    usage("start", Shared.model, "--name", "x", f"--max-memory-fraction={value}", words=["max-memory-fraction"])


@tap.parametrize(["0", "-1", "1.5", "many", "", "257", "99999999999999999999"])
def a_number_of_workers_that_is_none(value):
    usage("start", Shared.model, "--name", "x", f"--workers={value}", words=["workers"])


@tap.parametrize(["-1", "soon", "", "1s", "1e3", "99999999999999999999"])
def a_time_that_is_none(value):
    usage("start", Shared.model, "--name", "x", f"--idle-ttl={value}", words=["idle-ttl"])
    usage("start", Shared.model, "--name", "x", f"--wait-timeout={value}", words=["wait-timeout"])
    usage("status", "undisturbed", f"--timeout={value}", words=["timeout"])


@tap.test
def unknown_verbs_and_options():
    usage("strat", words=["strat", "start"])
    usage("start", Shared.model, "--name", "x", "--wrkers", "2", words=["--wrkers"])
    usage("start", "--name", "x")
    usage("start", Shared.model, words=["--name"])
    usage("start", Shared.model, Shared.model, "--name", "x")
    usage("status", "a", "b")
    usage("start", Shared.model, "--name")
    usage("list", "--json=yes")
    usage("stop")
    usage("stop", "--all", "undisturbed")
    usage("completion", "fish", words=["fish"])
    usage("--no-such-option")


@tap.test
def no_verb_at_all():
    result = Shared.product.iloader()
    assert result.code == 2 and "--help" in result.err, result


@tap.test
def a_socket_path_that_does_not_fit():
    with Product() as p:
        model = checkpoint.small(p.path("model"))
        long = p.path("s" * (108 - len(str(p.root)) - 1))
        assert len(str(long)) == 108
        for argv in (("start", model, "--name", "x", "--socket", long), ("status", "x", "--socket", long),
                     ("start", model, "--name", "x", "--base-dir", p.path("b" * 100))):
            result = p.iloader(*argv)
            assert result.code in (1, 2) and "107" in result.err, result
        assert not p.manager_pids() and not list(p.root.glob("s*")) and not list(p.root.glob("b*"))
        fits = p.path("s" * (107 - len(str(p.root)) - 1))
        p.start(model, "x", "--socket", fits, "--view", p.path("fits"))
        p.iloader("stop", "--socket", fits, "x", "--remove-view").ok()


def refused_view(view, *words):
    p = Shared.product
    with p.nothing_left():
        p.iloader("start", Shared.model, "--name", "x", "--view", view).fails(1, str(view), *words)


@tap.test
def a_view_where_something_else_is():
    p = Shared.product
    taken = p.path("taken")
    taken.mkdir()
    (taken / "precious").write_text("kept")
    refused_view(taken)
    assert (taken / "precious").read_text() == "kept" and len(list(taken.iterdir())) == 1
    file = p.path("taken-file")
    file.write_text("kept")
    refused_view(file)
    assert file.read_text() == "kept"
    link = p.path("taken-link")
    link.symlink_to(taken)
    refused_view(link)
    assert link.is_symlink()
    refused_view(file / "below")
    # Another cache's view.
    p.iloader("start", Shared.model, "--name", "x", "--view", p.view_of("undisturbed")).fails(1, "undisturbed")
    checkpoint.same_tree(p.view_of("undisturbed"), p.path("undisturbed"))
    empty = p.path("empty-dir")
    empty.mkdir()
    result = p.iloader("start", Shared.model, "--name", "x", "--view", empty)
    if result.code == 0:
        p.iloader("stop", "x", "--remove-view").ok()
    else:
        result.fails(1, str(empty))
        assert empty.exists()


@tap.test
def a_view_that_overlaps_the_source():
    p = Shared.product
    alias = p.path("alias")
    alias.symlink_to("model")
    for view in (Shared.model, Shared.model / "view", p.root, alias / "view", pathlib.Path("/")):
        refused_view(view)
    for source, view in ((p.path("alias"), Shared.model / "inside"), (Shared.model, p.path("alias/inside"))):
        with p.nothing_left():
            p.iloader("start", source, "--name", "x", "--view", view).fails(1, "view")
    assert sorted(f.name for f in Shared.model.iterdir()) == sorted(f.name for f in p.path("undisturbed").iterdir())


@tap.test
def a_marker_that_lies_does_not_make_a_view_ours():
    p = Shared.product
    fake = p.path("fake")
    fake.mkdir()
    (fake / ".iloader-view").write_text("")
    (fake / "precious").write_text("kept")
    refused_view(fake)
    (fake / ".iloader-view").unlink()
    (fake / ".iloader-view").symlink_to(p.view_of("undisturbed") / ".iloader-view")
    refused_view(fake)
    assert (fake / "precious").read_text() == "kept"


@tap.test
def a_view_where_the_caller_may_not_write():
    user = another_user()
    with Product(user=user) as p:
        model = checkpoint.small(p.path("model"))
        p.start(checkpoint.small(p.path("undisturbed")), "undisturbed")
        p.path("roots").mkdir()
        with p.nothing_left():
            p.iloader("start", model, "--name", "x", "--view", p.path("roots/view")).fails(1, "roots", "permission")
        with p.nothing_left():
            p.iloader("start", model, "--name", "x", "--view", "/iloader-view").fails(1, "/iloader-view")
        with p.nothing_left():
            p.iloader("start", model, "--name", "x", "--pid-file", p.path("roots/pid")).fails(1, "roots/pid")
        with p.nothing_left():
            p.iloader("start", model, "--name", "x", "--log-file", p.path("roots/log")).fails(1, "roots/log")


@tap.test
def a_base_that_is_not_safe():
    p = Shared.product
    unsafe = p.path("unsafe")
    unsafe.mkdir()
    unsafe.chmod(0o777)
    p.iloader("start", Shared.model, "--name", "x", "--base-dir", unsafe).fails(1, str(unsafe))
    if os.geteuid() == 0:
        foreign = p.path("foreign")
        foreign.mkdir()
        os.chown(foreign, 65500, 65500)
        p.iloader("start", Shared.model, "--name", "x", "--base-dir", foreign).fails(1, str(foreign))
    file = p.path("base-file")
    file.write_text("kept")
    p.iloader("start", Shared.model, "--name", "x", "--base-dir", file).fails(1, str(file))
    assert file.read_text() == "kept" and list(unsafe.iterdir()) == []


@tap.test
def a_relative_or_empty_base():
    p = Shared.product
    env = {**p.env, "ILOADER_BASE_DIR": "relative"}
    work = p.path("work")
    work.mkdir()
    result = p.iloader("start", Shared.model, "--name", "x", env=env, cwd=work)
    # "Relative paths are anchored at startup."
    result.ok()
    assert result.out.strip() == str(work / "relative/views/x")
    p.iloader("stop", "x", env=env, cwd=work).ok()


@tap.test
def standard_output_that_is_full_or_closed():
    p = Shared.product
    for argv in (("status", "undisturbed", "--json"), ("list",), ("manifest", "undisturbed"), ("--help",)):
        with open("/dev/full", "wb") as full:
            import subprocess
            done = subprocess.run([p.bin / "iloader", *argv], stdout=full, stderr=subprocess.PIPE, env=p.env, check=False)
        assert done.returncode == 1, (argv, done)
        assert b"space" in done.stderr.lower(), (argv, done)


@tap.test
def the_managers_own_command_line():
    p = Shared.product
    for argv in ((), ("--no-such",), ("--base-dir",), ("--base-dir", p.path("b"), "--idle-exit", "x"), ("--system", "--base-dir", "/x"),
                 ("--base-dir", p.path("b"), "extra")):
        result = process.run(p.libexec / "iloaderd", *argv, env={"PATH": p.env["PATH"]})
        assert result.code in (1, 2) and result.err.strip(), result
    assert process.run(p.libexec / "iloaderd", "--version").ok().out.strip()
    # A worker is of no use without its manager.
    result = process.run(p.libexec / "iloader-worker")
    assert result.code in (1, 2), result


tap.main(setup, teardown)
