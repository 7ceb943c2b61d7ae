#!/usr/bin/python3
"""The varlink interface on the raw socket: the standard service, strictness, descriptors, and clients that are slow, that
lie, or that leave."""
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap, varlink  # noqa: E402
from harness.product import Product, STAGE  # noqa: E402

MIB = checkpoint.MIB
SERVICE = "org.varlink.service."


class Shared:
    product = model = None


def setup():
    Shared.product = Product()
    Shared.model = checkpoint.small(Shared.product.path("model"))
    Shared.product.start(Shared.model, "qwen")


def teardown():
    Shared.product.close()


def connect(**options):
    return Shared.product.connect(**options)


def others_are_served():
    """The manager still answers everybody else at once."""
    with connect(timeout=5) as c:
        assert c.call("Status", {"name": "qwen"})["cache"]["state"] == "ready"


@tap.test
def the_standard_service_tells_what_there_is():
    with connect() as c:
        info = c.call(SERVICE + "GetInfo")
        assert set(info) == {"vendor", "product", "version", "url", "interfaces"}, info
        assert info["interfaces"] == [SERVICE[:-1], "io.iloader.Manager"], info
        for interface in info["interfaces"]:
            text = c.call(SERVICE + "GetInterfaceDescription", {"interface": interface})["description"]
            assert f"interface {interface}" in text
        described = c.call(SERVICE + "GetInterfaceDescription", {"interface": "io.iloader.Manager"})["description"]
        assert described == (STAGE / "usr/share/varlink/io.iloader.Manager.varlink").read_text()


@tap.test
def standard_errors_have_their_fields():
    with connect() as c:
        assert c.error(SERVICE + "GetInterfaceDescription", {"interface": "no.such"}) == (
            SERVICE + "InterfaceNotFound", {"interface": "no.such"})
        assert c.error("no.such.Method") == (SERVICE + "InterfaceNotFound", {"interface": "no.such"})
        name, parameters = c.error("io.iloader.Manager.NoSuch")
        assert name == SERVICE + "MethodNotFound" and "NoSuch" in parameters["method"], parameters
        assert c.error("Status", {}) == (SERVICE + "InvalidParameter", {"parameter": "name"})
        assert c.error("Status", {"name": 5}) == (SERVICE + "InvalidParameter", {"parameter": "name"})
        assert c.error("Status", {"name": "qwen", "extra": 1}) == (SERVICE + "InvalidParameter", {"parameter": "extra"})
        assert c.error("Status", {"name": "absent"}) == ("NoSuchCache", {"name": "absent"})


@tap.test
def wrong_types_are_named_and_never_coerced():
    wrong = {"source": 5, "workers": "2", "chunkSize": 1.5, "maxMemoryFraction": "0.5", "maxMemoryBytes": True,
             "force": "yes", "patterns": "*.json", "excludes": [1], "wait": 0, "idleTTLUSec": [], "mode": {}, "view": False}
    with connect() as c:
        for field, value in wrong.items():
            name, parameters = c.error("Start", {"name": "x", "source": str(Shared.model), field: value})
            assert name == SERVICE + "InvalidParameter" and parameters["parameter"].startswith(field), (field, name, parameters)
        for field, value in {"workers": -1, "workers ": 1, "chunkSize": -5, "maxMemoryFraction": 2.0, "maxMemoryBytes": -1,
                             "reserveBytes": -1, "idleTTLUSec": -1, "mode": 0o777}.items():
            name, parameters = c.error("Start", {"name": "x", "source": str(Shared.model), field: value})
            assert name.endswith("InvalidParameter"), (field, name, parameters)
        assert "x" not in {cache["name"] for cache in c.call("List")["caches"]}
        # null is absence.
        assert c.call("Start", {"name": "qwen", "source": str(Shared.model), "workers": None})["reused"]


@tap.test
def a_relative_source_is_refused():
    with connect() as c:
        for field, value in (("source", "model"), ("source", ""), ("view", "view"), ("pidFile", "p"), ("logFile", "l")):
            name, parameters = c.error("Start", {"name": "x", "source": str(Shared.model), field: value})
            assert name in (SERVICE + "InvalidParameter", "SourceInvalid", "ViewConflict"), (field, name, parameters)


MALFORMED = {
    "no JSON": b"hello\0",
    "an array": b"[]\0",
    "a number": b"5\0",
    "an empty message": b"\0",
    "a half object": b'{"method":"io.iloader.Manager.List"\0',
    "two objects": b'{"method":"io.iloader.Manager.List"}{}\0',
    "duplicate keys": b'{"method":"io.iloader.Manager.List","method":"io.iloader.Manager.List"}\0',
    "duplicate keys below": b'{"method":"io.iloader.Manager.Status","parameters":{"name":"qwen","na\\u006de":"qwen"}}\0',
    "invalid UTF-8": b'{"method":"io.iloader.Manager.Status","parameters":{"name":"\xff"}}\0',
    "an overlong form": b'{"method":"io.iloader.Manager.Status","parameters":{"name":"\xc0\x80"}}\0',
    "a lone surrogate": b'{"method":"io.iloader.Manager.Status","parameters":{"name":"\\ud800"}}\0',
    "a hidden NUL": b'{"method":"io.iloader.Manager.Status","parameters":{"name":"qwen\\u0000x"}}\0',
    "a huge number": b'{"method":"io.iloader.Manager.Status","parameters":{"name":' + b"9" * 400 + b"}}\0",
    "deep nesting": b'{"method":"io.iloader.Manager.List","parameters":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}\0",
    "deep arrays": b"[" * 100000 + b"\0",
    "no method": b'{"parameters":{}}\0',
    "a method that is a number": b'{"method":5}\0',
    "parameters that are a string": b'{"method":"io.iloader.Manager.List","parameters":"x"}\0',
    "more that is a string": b'{"method":"io.iloader.Manager.List","more":"yes"}\0',
    "an unknown member": b'{"method":"io.iloader.Manager.List","surprise":1}\0',
    "trailing comma": b'{"method":"io.iloader.Manager.List",}\0',
    "a comment": b'{/**/"method":"io.iloader.Manager.List"}\0',
    "NaN": b'{"method":"io.iloader.Manager.Start","parameters":{"name":"x","maxMemoryFraction":NaN}}\0',
}


@tap.parametrize(list(MALFORMED))
def a_malformed_message(kind):
    with connect() as c:
        c.send_bytes(MALFORMED[kind])
        try:
            reply = c.receive(timeout=10)
            assert "error" in reply, reply
        except (varlink.Closed, BrokenPipeError):
            pass
    others_are_served()


@tap.test
def an_oversized_message_ends_only_its_connection():
    with connect() as c:
        try:
            for _ in range(64):
                c.send_bytes(b'{"method":"' + b"x" * MIB)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert c.is_closed()
    others_are_served()


@tap.test
def messages_may_come_in_pieces_and_together():
    with connect() as c:
        message = json.dumps({"method": "io.iloader.Manager.Status", "parameters": {"name": "qwen"}}).encode() + b"\0"
        for n in range(len(message)):
            c.send_bytes(message[n:n + 1])
        assert c.receive()["parameters"]["cache"]["name"] == "qwen"
        c.send_bytes(message * 12)
        for _ in range(12):
            assert c.receive()["parameters"]["cache"]["name"] == "qwen"


@tap.test
def a_call_without_an_answer():
    with connect() as c:
        c.send("io.iloader.Manager.List", oneway=True)
        c.send("io.iloader.Manager.NoSuch", oneway=True)
        assert c.call("Status", {"name": "qwen"})["cache"]["name"] == "qwen"


@tap.test
def clients_that_leave_in_the_middle():
    for data in (b"", b"{", b'{"method":"io.iloader.Manager.List"}', b'{"method":"io.iloader.Manager.List"}\0',
                 b'{"method":"io.iloader.Manager.Monitor","more":true}\0'):
        for reset in (False, True):
            c = connect()
            if data:
                c.send_bytes(data)
            if reset:
                c.socket.shutdown(socket.SHUT_RDWR)
            c.close()
    descriptors = Shared.product.manager_descriptors()
    for _ in range(50):
        with connect() as c:
            c.send("io.iloader.Manager.Monitor", more=True)
    process.wait_until(lambda: Shared.product.manager_descriptors() <= descriptors, "no descriptor is left")
    others_are_served()


@tap.test
def a_client_that_leaves_during_its_start():
    p = Shared.product
    model = checkpoint.small(p.path("long"), shards=3, shard_size=100 * MIB)
    with connect() as c:
        c.send("io.iloader.Manager.Start", {"name": "left", "source": str(model)}, more=True)
        c.receive()
    process.wait_until(lambda: p.caches()["left"]["state"] == "ready", "the load went on")
    p.iloader("stop", "left", "--remove-view").ok()


@tap.test
def progress_replies_end_with_the_ready_cache():
    p = Shared.product
    with connect() as c:
        replies = list(c.stream("Start", {"name": "progress", "source": str(p.path("long"))}))
        assert len(replies) >= 2 and [r["reused"] for r in replies] == [False] * len(replies), replies
        counted = [r["cache"]["bytesLoaded"] for r in replies]
        assert counted == sorted(counted) and replies[-1]["cache"]["state"] == "ready"
        assert all(r["cache"]["state"] == "loading" for r in replies[:-1])
    p.iloader("stop", "progress", "--remove-view").ok()


@tap.test
def a_client_that_does_not_read_costs_the_others_nothing():
    with connect() as c:
        for _ in range(2000):
            try:
                c.socket.setblocking(False)
                c.socket.send(b'{"method":"io.iloader.Manager.Status","parameters":{"name":"qwen"}}\0' * 50)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                break
        others_are_served()
        with connect() as monitor:
            monitor.send("io.iloader.Manager.Monitor", more=True)
            for _ in range(20):
                assert Shared.product.iloader("run", "qwen", "--", "true").code == 0
        others_are_served()


@tap.test
def many_connections_at_once():
    connections = [connect() for _ in range(300)]
    try:
        for c in connections:
            c.send("io.iloader.Manager.Status", {"name": "qwen"})
        for c in connections:
            assert c.receive()["parameters"]["cache"]["name"] == "qwen"
    finally:
        for c in connections:
            c.close()


# --- leases and descriptors


def sleeper():
    return subprocess.Popen(["sleep", "1000"])


@tap.test
def a_lease_is_of_the_process_and_not_of_the_connection():
    child = sleeper()
    pidfd = os.pidfd_open(child.pid)
    with connect() as c:
        reply = c.call("AcquireLease", {"name": "qwen"}, [pidfd])
        assert reply["pid"] == child.pid and reply["cache"]["leases"][0]["pid"] == child.pid
        again = c.call("AcquireLease", {"name": "qwen"}, [pidfd])
        assert len(again["cache"]["leases"]) == 1, "a second lease of the same process is the first one"
    os.close(pidfd)
    with connect() as c:
        assert len(c.call("Status", {"name": "qwen"})["cache"]["leases"]) == 1
        name, parameters = c.error("Stop", {"name": "qwen"})
        assert name == "CacheLeased" and parameters["leases"][0]["pid"] == child.pid, parameters
        child.kill()
        child.wait()
        process.wait_until(lambda: not c.call("Status", {"name": "qwen"})["cache"]["leases"], "the lease ended")


@tap.test
def a_lease_can_be_given_back():
    child = sleeper()
    pidfd = os.pidfd_open(child.pid)
    try:
        with connect() as c:
            c.call("AcquireLease", {"name": "qwen"}, [pidfd])
            assert c.call("ReleaseLease", {"name": "qwen"}, [pidfd])["cache"]["leases"] == []
            name, _ = c.error("ReleaseLease", {"name": "qwen"}, [pidfd])
            assert name == "InvalidHolder", name
    finally:
        child.kill()
        child.wait()
        os.close(pidfd)


@tap.test
def holders_that_are_none_are_refused():
    dead = subprocess.Popen(["true"])
    dead_fd = os.pidfd_open(dead.pid)
    dead.wait()
    read_end, write_end = os.pipe()
    with open("/dev/null", "rb") as null, connect() as c:
        for fd in (dead_fd, null.fileno(), read_end, c.socket.fileno(), os.open("/", os.O_PATH)):
            name, parameters = c.error("AcquireLease", {"name": "qwen"}, [fd])
            assert name == "InvalidHolder" and parameters["message"], (name, parameters)
        name, _ = c.error("AcquireLease", {"name": "qwen"})
        assert name in ("InvalidHolder", SERVICE + "InvalidParameter"), name
        child = sleeper()
        pidfd = os.pidfd_open(child.pid)
        name, _ = c.error("AcquireLease", {"name": "absent"}, [pidfd])
        assert name == "NoSuchCache", name
        child.kill()
        child.wait()
        for fd in (dead_fd, read_end, write_end, pidfd):
            os.close(fd)
    others_are_served()


@tap.test
def surplus_descriptors_end_the_connection():
    descriptors = Shared.product.manager_descriptors()
    with connect() as c:
        fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(64)]
        try:
            c.send("io.iloader.Manager.Status", {"name": "qwen"}, fds)
            closed = False
            try:
                c.receive(timeout=10)
            except varlink.Closed:
                closed = True
            assert closed
        finally:
            for fd in fds:
                os.close(fd)
    process.wait_until(lambda: Shared.product.manager_descriptors() <= descriptors, "no descriptor is left")
    others_are_served()


@tap.test
def descriptors_sent_between_messages_and_never_used():
    descriptors = Shared.product.manager_descriptors()
    for _ in range(20):
        with connect() as c, open("/dev/null", "rb") as null:
            c.send_bytes(b"{", [null.fileno()])
    process.wait_until(lambda: Shared.product.manager_descriptors() <= descriptors, "no descriptor is left")


@tap.test
def a_root_descriptor_that_is_no_directory():
    p = Shared.product
    with open("/dev/null", "rb") as null, p.nothing_left(), connect() as c:
        name, parameters = c.error("Start", {"name": "x", "source": str(Shared.model)}, [null.fileno()])
        assert name in (SERVICE + "InvalidParameter", "SourceInvalid", "LoadFailed"), (name, parameters)


@tap.test
def paths_are_resolved_below_the_callers_root():
    p = Shared.product
    root = p.path("root")
    checkpoint.small(root / "model")
    (root / "model/config.json").unlink()
    # Absolute links mean the caller's root: not /etc/hostname of this machine, but of that one.
    (root / "etc").mkdir()
    (root / "etc/value").write_text("inside")
    (root / "model/config.json").symlink_to("/etc/value")
    (root / "model/up.json").symlink_to("../../../../../../../../etc/value")
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    with connect() as c:
        cache = c.call("Start", {"name": "rooted", "source": "/model", "view": "/views/rooted"}, [fd])["cache"]
        assert cache["source"] == "/model" and cache["view"] == "/views/rooted", cache
        assert (root / "views/rooted/config.json").read_text() == "inside"
        assert (root / "views/rooted/up.json").read_text() == "inside"
        c.call("Stop", {"name": "rooted", "removeView": True})
        assert not (root / "views/rooted").exists()
        with p.nothing_left():
            name, _ = c.error("Start", {"name": "rooted", "source": str(Shared.model)}, [fd])
            assert name == "SourceInvalid", name
    os.close(fd)


@tap.test(timeout=120)
def two_hundred_clients_hold_leases_at_once():
    children = [sleeper() for _ in range(200)]
    connections = []
    try:
        for child in children:
            c = connect()
            connections.append(c)
            fd = os.pidfd_open(child.pid)
            c.call("AcquireLease", {"name": "qwen"}, [fd])
            os.close(fd)
        with connect() as c:
            assert len(c.call("Status", {"name": "qwen"})["cache"]["leases"]) == 200
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
        for c in connections:
            c.close()
    with connect() as c:
        process.wait_until(lambda: not c.call("Status", {"name": "qwen"})["cache"]["leases"], "all leases ended")


# --- Monitor


@tap.test
def monitor_tells_what_happens():
    p = Shared.product
    with connect() as c:
        events = c.stream("Monitor", {"name": "watched"})
        seen = []
        done = threading.Event()

        def watch():
            for event in events:
                seen.append((event["kind"], event["cache"]["state"]))
                if event["kind"] == "stopped":
                    done.set()
                    return
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        p.start(Shared.model, "watched")
        p.start(Shared.model, "watched")
        p.iloader("run", "watched", "--", "true").ok()
        process.wait_until(lambda: ("released", "ready") in seen, "the lease's end was told")
        p.iloader("stop", "watched", "--remove-view").ok()
        assert done.wait(20), seen
    kinds = [kind for kind, _ in seen if kind != "progress"]
    expected = ["started", "ready", "reused", "leased", "released", "stopping", "stopped"]
    assert [k for k in kinds if k in expected] == expected, seen


@tap.test
def monitor_begins_with_what_there_is():
    with connect() as c:
        first = next(c.stream("Monitor"))
        assert first["kind"] == "current" and first["cache"]["name"] == "qwen", first
    with connect() as c:
        assert c.call("Monitor", {"name": "qwen"})["kind"] == "current"
        assert c.call("Monitor", {"name": "absent"}) in ({}, {"kind": None, "cache": None})


@tap.test
def a_manifest_streams():
    p = Shared.product
    model = checkpoint.many_files(p.path("many"), 3000, 64)
    p.start(model, "many")
    with connect() as c:
        replies = list(c.stream("Manifest", {"name": "many"}))
        assert len(replies) > 1 and sum(len(r["files"]) for r in replies) == 3000
        assert len(p.iloader("manifest", "many").ok().out) > 100000
    p.iloader("stop", "many", "--remove-view").ok()


@tap.test
def quota_by_itself():
    with connect() as c:
        reply = c.call("SetQuota", {"maxResidentBytes": 1 << 40})
        assert reply["maxResidentBytes"] == 1 << 40 and not reply["exceeded"] and reply["residentBytes"] > 0, reply
        assert c.call("SetQuota", {"maxResidentBytes": 1})["exceeded"]
        c.call("SetQuota")
        name, parameters = c.error("SetQuota", {"maxResidentBytes": -1})
        assert name == SERVICE + "InvalidParameter", (name, parameters)


@tap.test
def the_manager_survives_noise():
    noise = random.Random(7)
    for _ in range(100):
        with connect() as c:
            try:
                c.send_bytes(noise.randbytes(noise.randrange(1, 5000)))
            except (BrokenPipeError, ConnectionResetError):
                pass
    others_are_served()
    assert process.is_alive(Shared.product.manager_pid())


tap.main(setup, teardown)
