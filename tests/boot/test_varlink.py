#!/usr/bin/python3
"""The socket is varlink as others speak it: systemd's varlinkctl (257 and later) and python3-varlink, unchanged."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import KINDS, SOCKET, System  # noqa: E402

SUITES = ["trixie", "sid"]
INTERFACE = "io.iloader.Manager"
METHODS = {"List", "Status", "Start", "Stop", "View", "Manifest", "AcquireLease", "ReleaseLease", "Collect", "SetQuota", "Monitor"}
systems = {}


def setup():
    for suite in SUITES:
        box.need(KINDS[suite])
    for suite in SUITES:
        systems[suite] = System(suite).start()
        systems[suite].add_user("alice")


def teardown():
    for s in systems.values():
        s.stop()


def on_each(f):
    def case(suite):
        s = systems[suite]
        s.fresh()
        f(s)
    case.__name__ = f.__name__
    return tap.parametrize(SUITES)(case)


def call(s, method, parameters=None, *options, user=None):
    return s.run("varlinkctl", "--json=short", *options, "call", SOCKET, f"{INTERFACE}.{method}", json.dumps(parameters or {}),
                 user=user)


def parse(line):
    # With --more each answer is a record of RFC 7464.
    return json.loads(line.lstrip("\x1e"))


def replies(result):
    return [parse(line) for line in result.ok().out.strip().split("\n")]


def refused(result, error, *words):
    assert result.code != 0 and f"{INTERFACE}.{error}" in result.err, result
    for word in words:
        assert word in result.out + result.err, (word, result)


@on_each
def varlinkctl_knows_it(s):
    s.run("varlinkctl", "validate-idl", f"/usr/share/varlink/{INTERFACE}.varlink").ok()
    info = json.loads(s.run("varlinkctl", "--json=short", "info", SOCKET).ok().out)
    assert info["product"] == "iloaderd" and INTERFACE in info["interfaces"] and "org.varlink.service" in info["interfaces"], info
    assert INTERFACE in s.run("varlinkctl", "list-interfaces", SOCKET).ok().out.split()
    listed = s.run("varlinkctl", "list-methods", SOCKET, INTERFACE).ok().out.split()
    assert {m.rpartition(".")[2] for m in listed} == METHODS, listed
    introspected = s.run("varlinkctl", "introspect", SOCKET, INTERFACE).ok().out
    assert "method Start(" in introspected and "error InsufficientMemory" in introspected
    # What is served is what is installed: both are said the same way by systemd's own printer.
    s.write("/tmp/served.varlink", introspected)
    s.run("varlinkctl", "validate-idl", "/tmp/served.varlink").ok()


@on_each
def varlinkctl_calls_it(s):
    started = replies(call(s, "Start", {"name": "byhand", "source": "/srv/model"}))
    assert len(started) == 1 and started[0]["cache"]["state"] == "ready" and not started[0]["reused"], started
    # The answers' names and types are those of the interface; here the ones that others build on.
    cache = replies(call(s, "Status", {"name": "byhand"}))[0]["cache"]
    assert {"name", "state", "source", "view", "fingerprint", "uid", "pid", "files", "bytes", "bytesLoaded", "leases", "reuses",
            "lastUsedUSec", "budget"} <= cache.keys(), cache
    assert [c["name"] for c in replies(call(s, "List"))[0]["caches"]] == ["byhand"]
    assert replies(call(s, "View", {"name": "byhand"})) == [{"view": cache["view"]}]
    assert [f["path"] for f in replies(call(s, "Manifest", {"name": "byhand"}))[0]["files"]] == [
        "config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "sub/odd name.json"]
    again = replies(call(s, "Start", {"name": "byhand", "source": "/srv/model"}))
    assert again[0]["reused"] and again[0]["cache"]["reuses"] == 1, again
    quota = replies(call(s, "SetQuota", {"maxResidentBytes": 1 << 30}))[0]
    assert quota["maxResidentBytes"] == 1 << 30 and not quota["exceeded"], quota
    replies(call(s, "SetQuota"))
    plan = replies(call(s, "Collect", {"maxBytes": 0}))[0]
    assert plan["evicted"] == ["byhand"] and plan["targetMet"], plan
    assert replies(call(s, "Stop", {"name": "byhand", "removeView": True}))[0]["cache"]["name"] == "byhand"
    assert s.caches() == {} and not s.exists(cache["view"])


@on_each
def varlinkctl_follows_it(s):
    s.sparse("/srv/sparse", 512 << 20)
    progress = replies(call(s, "Start", {"name": "slow", "source": "/srv/sparse", "workers": 1}, "--more"))
    loaded = [r["cache"]["bytesLoaded"] for r in progress]
    assert len(progress) >= 2 and loaded == sorted(loaded) and progress[-1]["cache"]["state"] == "ready", loaded
    assert {r["cache"]["state"] for r in progress[:-1]} == {"loading"}, progress
    manifest = replies(call(s, "Manifest", {"name": "slow"}, "--more"))
    assert [f["path"] for r in manifest for f in r["files"]] == ["model.safetensors"], manifest
    with s.background("varlinkctl", "--json=short", "--more", "call", SOCKET, f"{INTERFACE}.Monitor", "{}") as monitor:
        assert parse(monitor.read_line())["kind"] == "current"
        s.run("iloaderctl", "stop", "slow").ok()
        assert [parse(monitor.read_line())["kind"] for _ in range(2)] == ["stopping", "stopped"]
    # Who wants one answer gets one.
    s.start_unit("qwen")
    assert replies(call(s, "Monitor"))[0]["kind"] == "current"


@on_each
def its_errors_are_theirs(s):
    refused(call(s, "Status", {"name": "nosuch"}), "NoSuchCache")
    refused(call(s, "Start", {"name": "../x", "source": "/srv/model"}), "InvalidName")
    refused(call(s, "Start", {"name": "x", "source": "/srv/nowhere"}), "SourceInvalid", "/srv/nowhere")
    refused(call(s, "Start", {"name": "x", "source": "/srv/model", "maxMemoryBytes": 1}), "InsufficientMemory", "requiredBytes")
    s.start_unit("qwen")
    refused(call(s, "Start", {"name": "qwen", "source": "/srv/nowhere"}), "CacheMismatch")
    with s.reader() as reader:
        refused(call(s, "Stop", {"name": "qwen"}), "CacheLeased", str(reader.pid))
    refused(call(s, "AcquireLease", {"name": "qwen"}), "InvalidHolder")
    # The standard ones, with their fields, which 262 says in the words of errno(3).
    for method, parameters, error, text, fields in (
            ("Status", {"name": 1}, "InvalidParameter", "Invalid argument", {"parameter": "name"}),
            ("Status", {}, "InvalidParameter", "Invalid argument", {"parameter": "name"}),
            ("Status", {"name": "qwen", "more": 1}, "InvalidParameter", "Invalid argument", {"parameter": "more"}),
            ("Nothing", {}, "MethodNotFound", "No such device or address", {"method": f"{INTERFACE}.Nothing"})):
        result = call(s, method, parameters)
        assert result.code != 0 and (f"org.varlink.service.{error}" in result.err or text in result.err), result
        assert parse(result.out) == fields, result
    denied = call(s, "SetQuota", {"maxResidentBytes": 1}, user="alice")
    assert denied.code != 0 and ("org.varlink.service.PermissionDenied" in denied.err or "Permission denied" in denied.err), denied
    assert s.cache("qwen")["state"] == "ready"


@tap.test
def varlinkctl_passes_descriptors():
    """From 258: a caller's root directory, and the process that is to hold a cache."""
    s = systems["sid"]
    s.fresh()
    s.run("sh", "-ec", "mkdir -p /srv/elsewhere/models; cp -r /srv/model/. /srv/elsewhere/models").ok()
    opened = s.run("sh", "-c", 'exec 7</srv/elsewhere; exec varlinkctl --json=short --push-fd=7 call "$@"', "sh", SOCKET,
                   f"{INTERFACE}.Start", '{"name":"pushed","source":"/models"}')
    assert json.loads(opened.ok().out)["cache"]["source"] == "/models", opened
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", "/run/iloader/views/pushed").ok()


PYTHON = """
import json, sys, varlink
with varlink.Client(address="unix:" + sys.argv[1]) as client:
    print(sorted(client.get_interfaces()))
    with client.open("io.iloader.Manager") as manager:
        print([c["name"] for c in manager.List()["caches"]])
        print([r["cache"]["state"] for r in manager.Start(name="bypython", source="/srv/model", _more=True)][-1])
        print(manager.Status("bypython")["cache"]["files"])
        print(len([f for r in manager.Manifest("bypython", _more=True) for f in r["files"]]))
        try:
            manager.Status("nosuch")
        except varlink.VarlinkError as e:
            print(e.error(), e.parameters())
        try:
            manager.Start(name="bypython", source=1)
        except varlink.VarlinkError as e:
            print(e.error())
        print(manager.Stop(name="bypython")["cache"]["name"])
        for change in manager.Monitor(_more=True):
            print(change["kind"], change["cache"]["name"])
            break
"""


@on_each
def python_varlink_talks_to_it(s):
    s.start_unit("qwen")
    said = s.run("python3", "-c", PYTHON, SOCKET).ok().out.splitlines()
    assert said == ["['io.iloader.Manager', 'org.varlink.service']", "['qwen']", "ready", "4", "4",
                    "io.iloader.Manager.NoSuchCache {'name': 'nosuch'}", "org.varlink.service.InvalidParameter", "bypython",
                    "current qwen"], said


tap.main(setup, teardown)
