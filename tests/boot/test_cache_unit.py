#!/usr/bin/python3
"""iloader@NAME.service: systemctl start loads a configured cache and shows how far it is; active while it is resident;
refusals with their text; the journal tells the story; stopping drains; what a killed attach, worker or manager does."""
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import KINDS, SOCKET, System, unit_of  # noqa: E402

SUITES = ["bookworm", "trixie", "sid"]
# What doesn't hang on systemd's version is asked of the oldest and of one that has all that is used.
TWO = SUITES[:2]
systems = {}

# The catalog's identifiers of what a cache goes through; daemon/events.c.
REQUESTED = "03e364c2a10b40349038793198b9e9ba"
ADMITTED = "e9faed28523947879a0dbff9ad8b3496"
REFUSED = "bbd92a8b8aa549ec990f0d060eee3719"
LOADED = "b0bc1cf4f7a74c1b9b565004e731247a"
READY = "f646e04a8a9b4ab69e3cca9fd4763f13"
FAILED = "f71003988336445190f2799f13373729"
STOPPED = "670f8185bc1e40e7b8fb4ae6636d630a"
EVICTED = "dc996c24b8184923850ce27d15bd0eb0"
LOST = "c7391be0182e4e1c972fef9ac3c0250a"
LEASED = "0bb4fecfb228416ca21bd9c7ac90b05c"
RELEASED = "36d0f0466e514aa6baf74a3d16f4aebc"
LEASE_REFUSED = "e7f9ce56f9be4dc28cc48b63356fb32f"
WORKER_DIED = "ffeec144de5c44879c3b88392a363624"


def setup():
    for suite in SUITES:
        box.need(KINDS[suite])
    for suite in SUITES:
        systems[suite] = System(suite).start()
        systems[suite].add_user("alice")


def teardown():
    for s in systems.values():
        s.stop()


def on_each(function=None, suites=SUITES, **options):
    """A case on each suite's system, with nothing resident."""
    def mark(f):
        def case(suite):
            s = systems[suite]
            s.fresh()
            f(s)
        case.__name__ = f.__name__
        return tap.parametrize(suites, **options)(case)
    return mark(function) if function else mark


def fails_to_start(s, name, *words):
    """systemctl start fails, its unit says why in its status, and so does the journal of the unit."""
    # By hand that many starts would be too many.
    s.systemctl("reset-failed")
    result = s.systemctl("start", unit_of(name))
    assert result.code != 0, result
    state = s.unit_state(name)
    assert state["ActiveState"] == "failed" and state["Result"] == "exit-code" and state["ExecMainStatus"] == "1", state
    shown = s.systemctl("status", "--full", unit_of(name)).out
    story = "\n".join(s.story(name, s.since()))
    for word in words:
        assert word in state["StatusText"], (word, state)
        assert word in shown, (word, shown)
        assert word in story, (word, story)
    assert s.cache(name) is None
    return state["StatusText"]


@on_each
def a_started_unit_is_active_while_its_cache_is_resident(s):
    cache = s.start_unit("qwen")
    owner = int(s.run("id", "-u", "iloader").ok().out)
    assert cache["state"] == "ready" and cache["uid"] == owner and cache["mode"] == 0o400, cache
    assert cache["view"] == "/run/iloader/views/qwen", cache
    state = s.unit_state("qwen")
    assert "resident" in state["StatusText"] and "/run/iloader/views/qwen" in state["StatusText"], state
    # The owner reads every byte; a second start of the unit changes nothing.
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", cache["view"], user="iloader").ok()
    s.systemctl("start", unit_of("qwen")).ok()
    assert s.unit_state("qwen")["MainPID"] == state["MainPID"]
    # However the cache is stopped, the unit goes with it, and well.
    s.run("iloaderctl", "stop", "qwen").ok()
    s.wait_for("qwen", "inactive")
    assert s.unit_state("qwen")["Result"] == "success"
    # And the other way round; the memory's holder is gone when systemctl is back.
    pid = s.start_unit("qwen")["pid"]
    s.systemctl("stop", unit_of("qwen")).ok()
    assert s.cache("qwen") is None and not s.is_alive(pid)
    state = s.unit_state("qwen")
    assert state["ActiveState"] == "inactive" and state["Result"] == "success", state
    # restart is both.
    first = s.start_unit("qwen")
    s.systemctl("restart", unit_of("qwen")).ok()
    second = s.cache("qwen")
    assert second["state"] == "ready" and second["pid"] != first["pid"], second


@on_each(suites=TWO)
def a_worker_is_its_owners_and_powerless(s):
    cache = s.start_unit("qwen")
    assert_powerless(s.read(f"/proc/{cache['pid']}/status"), cache["uid"], cache["gid"])
    # Nothing is open but its link to the manager, /dev/null and the memory.
    targets = set(s.run("sh", "-c", f"readlink /proc/{cache['pid']}/fd/*").out.split("\n")) - {""}
    assert all(t == "/dev/null" or t.startswith(("/memfd:", "socket:")) for t in targets), targets
    assert "/iloader.slice/iloaderd.service" in s.read(f"/proc/{cache['pid']}/cgroup")


def assert_powerless(status, uid, gid):
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [str(uid)] * 4 and fields["Gid"].split() == [str(gid)] * 4, fields
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert fields[capabilities].strip() == "0" * 16, fields
    assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1", fields


# Follows a load from inside: stops the worker at each step that is told, looks, and lets it go on. So what is seen doesn't
# depend on how fast the machine is. hold: seconds for which it once stands still; 0: for good. Prints what the unit's
# status said, and what the worker was while it was loading.
FOLLOW = """
import json, os, select, signal, subprocess, sys
from harness.varlink import Connection

def show(name, *properties):
    out = subprocess.check_output(["systemctl", "show", f"iloader@{name}.service", *("-p" + p for p in properties)], text=True)
    return dict(line.split("=", 1) for line in out.splitlines())

name, hold = sys.argv[1], float(sys.argv[2])
texts, status, visible, state, held = [], "", "", "", False
with Connection(sys.argv[3]) as c:
    c.send("io.iloader.Manager.Monitor", {}, more=True)
    subprocess.check_call(["systemctl", "start", "--no-block", f"iloader@{name}.service"])
    while True:
        change = c.receive(30)["parameters"]
        cache = change.get("cache", {})
        if cache.get("name") != name:
            continue
        if change["kind"] in ("ready", "failed", "stopped"):
            break
        if change["kind"] != "progress" or not cache.get("pid") or (held and not hold):
            continue
        worker = cache["pid"]
        os.kill(worker, signal.SIGSTOP)
        text = show(name, "StatusText")["StatusText"]
        if not texts or text != texts[-1]:
            texts.append(text)
        if cache["bytesLoaded"] and "Loading" in text and ": 0%" not in text and not held:
            held = True
            status = open(f"/proc/{worker}/status").read()
            visible = subprocess.run(["systemctl", "status", f"iloader@{name}.service"], capture_output=True, text=True).stdout
            if not hold:
                continue
            # Past the limit that was set for a load that doesn't move.
            select.select([], [], [], hold)
            state = show(name, "ActiveState")["ActiveState"]
        os.kill(worker, signal.SIGCONT)
print(json.dumps({"texts": texts, "status": status, "held": held, "visible": visible, "state": state}))
"""


@on_each
def a_load_shows_its_progress_and_has_time_for_as_long_as_it_moves(s):
    s.sparse("/srv/sparse")
    s.configure("slow", "/srv/sparse", Workers=1)
    s.drop_in(unit_of("slow"), "[Service]\nTimeoutStartSec=2\n")
    seen = json.loads(s.python(FOLLOW, "slow", "2.5", SOCKET).ok().out)
    assert seen["held"], seen
    assert any("of 2.0 GiB" in text for text in seen["texts"]), seen["texts"]
    assert "Loading 'slow': " in seen["visible"] and "activating" in seen["visible"], seen["visible"]
    # Longer in one step than TimeoutStartSec=, which each step forward puts off.
    assert seen["state"] == "activating", seen
    s.wait_for("slow", "active")
    cache = s.cache("slow")
    assert cache["state"] == "ready" and cache["bytesLoaded"] == cache["bytes"] == 2048 << 20, cache
    assert "resident" in s.status_text("slow")
    # The first filter and the owner's rights, while it was copying.
    assert_powerless(seen["status"], cache["uid"], cache["gid"])


@on_each(suites=TWO)
def a_load_that_hangs_is_ended(s):
    s.sparse("/srv/sparse")
    s.configure("slow", "/srv/sparse", Workers=1)
    s.write("/etc/iloader/iloaderd.conf", "[Manager]\nLoadStallTimeoutSec=1\n")
    try:
        s.systemctl("restart", "iloaderd.service").ok()
        seen = json.loads(s.python(FOLLOW, "slow", "0", SOCKET).ok().out)
        assert seen["held"], seen
        s.wait_for("slow", "failed")
        state = s.unit_state("slow")
        assert "no progress" in state["StatusText"] and state["ExecMainStatus"] == "1", state
        story = s.journal(s.since(), unit=unit_of("slow"))
        assert [e for e in story if e.get("MESSAGE_ID") == FAILED and "no progress" in e["MESSAGE"]], story
        assert s.cache("slow")["state"] == "failed"
    finally:
        s.write("/etc/iloader/iloaderd.conf", "[Manager]\n")
        s.systemctl("restart", "iloaderd.service").ok()


@on_each(suites=TWO)
def a_refused_start_fails_with_the_text(s):
    s.configure("absent", "/srv/nowhere")
    fails_to_start(s, "absent", "/srv/nowhere", "does not exist")
    s.configure("capped", MaxMemoryBytes="1MiB")
    fails_to_start(s, "capped", "capped", "1.0 MiB", "--max-memory-bytes")
    s.run("mkdir", "-p", "/srv/empty").ok()
    s.configure("empty", "/srv/empty")
    fails_to_start(s, "empty", "/srv/empty")
    s.run("sh", "-ec", "cp -r /srv/model /srv/private && chmod 0700 /srv/private").ok()
    s.configure("private", "/srv/private")
    fails_to_start(s, "private", "/srv/private", "Permission denied")
    s.configure("taken", View="/srv/model")
    fails_to_start(s, "taken", "/srv/model", "source")
    # Never written: named with the file that is missing.
    fails_to_start(s, "unheard-of", "unheard-of.conf")


@on_each(suites=TWO)
def a_malformed_file_is_named_with_its_line(s):
    for text, *words in (("[Cache]\nSource=/srv/model\nNoSuchKey=1\n", "odd.conf:3", "NoSuchKey"),
                         ("[Cache]\nSource=/srv/model\nChunkSize=64MiB\n", "odd.conf:3", "64MiB"),
                         ("[Cache]\nSource=/srv/model\n\nWorkers=-1\n", "odd.conf:4", "Workers"),
                         ("[Cache]\nSource=/srv/model\nMaxMemoryBytes=99999999999999999999\n", "odd.conf:3", "MaxMemoryBytes"),
                         ("[Cash]\nSource=/srv/model\n", "odd.conf:1", "Cash"),
                         ("[Cache]\nSource=model\n", "odd.conf:2", "absolute"),
                         ("[Cache]\nSource=/srv/model\nUser=nobody-knows\n", "nobody-knows"),
                         ("nonsense\n", "odd.conf:1"),
                         ("[Cache]\nWorkers=1\n", "odd.conf", "Source=")):
        s.write("/etc/iloader/caches/odd.conf", text)
        fails_to_start(s, "odd", *words)
    # In a drop-in, too, and that one is named.
    s.configure("odd")
    s.write("/etc/iloader/caches/odd.conf.d/10-more.conf", "[Cache]\nMode=0777\n")
    fails_to_start(s, "odd", "10-more.conf:2", "Mode")
    # A file that others can write is not believed.
    s.run("rm", "-r", "/etc/iloader/caches/odd.conf.d").ok()
    s.write("/etc/iloader/caches/odd.conf", "[Cache]\nSource=/srv/model\n", 0o666)
    fails_to_start(s, "odd", "odd.conf")
    # And nothing of all that was in the way of anybody.
    s.configure("odd")
    s.start_unit("odd")


@on_each(suites=TWO)
def the_keys_of_its_file_hold(s):
    s.run("sh", "-c", "getent group models || groupadd models").ok()
    s.run("install", "-d", "-o", "alice", "/srv/alice").ok()
    s.configure("keys", User="alice", Group="models", Mode="0440", View="/srv/alice/view", PIDFile="/srv/alice/pid",
                LogFile="/srv/alice/log", Pattern="*.json", Workers=2, ChunkSize=65536, MaxMemoryFraction=0.5,
                ReserveBytes="1MiB", MaxMemoryBytes="1GiB", IdleTTLSec=3600)
    s.write("/etc/iloader/caches/keys.conf.d/20-more.conf", "[Cache]\nPattern=*-00001-of-*\n")
    cache = s.start_unit("keys")
    alice, models = (int(s.run(*c).ok().out.split(":")[2]) for c in (("getent", "passwd", "alice"), ("getent", "group", "models")))
    assert cache["uid"] == alice and cache["gid"] == models and cache["mode"] == 0o440, cache
    assert cache["view"] == "/srv/alice/view" and cache["files"] == 3 and cache["idleTTLUSec"] == 3600 * 10**6, cache
    assert cache["budget"]["maxMemoryBytes"] == 1 << 30 and cache["budget"]["memoryFraction"] == 0.5, cache
    listed = s.run("find", "/srv/alice/view", "-mindepth", "1", "!", "-type", "d", "!", "-name", ".iloader-view", "-printf", "%P\\n")
    assert sorted(listed.ok().out.splitlines()) == ["config.json", "model-00001-of-00002.safetensors", "sub/odd name.json"], listed
    assert s.read("/srv/alice/pid").strip() == str(cache["pid"])
    assert "admitted" in s.read("/srv/alice/log")
    owner = s.run("stat", "-c", "%U", "/srv/alice/view", "/srv/alice/view/config.json", "/srv/alice/log").ok().out.split()
    assert owner == ["alice"] * 3, owner
    s.systemctl("stop", unit_of("keys")).ok()
    assert not s.exists("/srv/alice/pid")


@on_each
def the_journal_tells_the_caches_story(s):
    cache = s.start_unit("qwen")
    attach = s.unit_state("qwen")["MainPID"]
    with s.reader() as reader:
        # A stop while it is read is refused, one that drains refuses new readers.
        s.run("iloaderctl", "stop", "qwen").fails(1, "sleep", str(reader.pid))
        s.systemctl("stop", "--no-block", unit_of("qwen")).ok()
        process.wait_until(lambda: s.cache("qwen")["state"] == "draining", "the cache drains")
        s.run("iloader", "run", "--system", "qwen", "--", "true", user="iloader").fails(125, "draining")
    s.wait_for("qwen", "inactive")
    story = s.journal(s.since(), unit=unit_of("qwen"))
    chapters = {e["MESSAGE_ID"]: e for e in story if e.get("ILOADER_CACHE") == "qwen"}
    order = [e["MESSAGE_ID"] for e in story if e.get("ILOADER_CACHE") == "qwen"]
    assert order == [REQUESTED, ADMITTED, LOADED, READY, LEASED, LEASE_REFUSED, RELEASED, STOPPED], [e["MESSAGE"] for e in story]
    # Whose words they are: the manager's own, found under the cache's unit.
    assert all(e["_SYSTEMD_UNIT"] == "iloaderd.service" and e["_UID"] == "0" for e in chapters.values())

    requested = chapters[REQUESTED]
    assert "user 0" in requested["MESSAGE"] and attach in requested["MESSAGE"], requested["MESSAGE"]
    assert requested["ILOADER_PID"] == attach and requested["ILOADER_SOURCE"] == "/srv/model", requested
    admitted = chapters[ADMITTED]
    for figure in ("4 files", "required", "available", "budget", "MemAvailable"):
        assert figure in admitted["MESSAGE"], admitted["MESSAGE"]
    assert int(admitted["ILOADER_BYTES"]) == cache["budget"]["requiredBytes"], admitted
    loaded = chapters[LOADED]
    assert "/s" in loaded["MESSAGE"] and int(loaded["ILOADER_BYTES"]) == cache["bytes"], loaded
    assert int(loaded["ILOADER_DURATION_USEC"]) > 0, loaded
    leased = chapters[LEASED]
    assert leased["ILOADER_PID"] == str(reader.pid) and "user" in leased["MESSAGE"], leased
    assert "draining" in chapters[LEASE_REFUSED]["ILOADER_REASON"], chapters[LEASE_REFUSED]
    assert "given back" in chapters[STOPPED]["MESSAGE"] and chapters[STOPPED]["ILOADER_REASON"], chapters[STOPPED]

    # Each is explained: in the catalog, and by journalctl -x.
    s.run("journalctl", "--update-catalog").ok()
    for identifier in (*order, REFUSED, FAILED, EVICTED, LOST, WORKER_DIED):
        assert "Subject: " in s.run("journalctl", "--dump-catalog", identifier).ok().out, identifier
    explained = s.run("journalctl", "-x", "--no-pager", "-u", unit_of("qwen"), s.since()).ok().out
    for subject in ("Cache qwen was asked for", "Cache qwen was admitted", "Cache qwen is in memory", "Cache qwen is ready",
                    f"Cache qwen is held by process {reader.pid}", "A lease of cache qwen was refused",
                    f"Process {reader.pid} no longer holds cache qwen", "Cache qwen was stopped"):
        assert f"Subject: {subject}" in explained, (subject, explained)
    # Own fields work for everybody.
    assert len(s.journal(s.since(), "ILOADER_CACHE=qwen")) >= len(order)
    # A refusal is part of the story of the name that was refused.
    s.configure("capped", MaxMemoryBytes="1MiB")
    s.systemctl("start", unit_of("capped"))
    refused = [e for e in s.journal(s.since(), unit=unit_of("capped")) if e.get("MESSAGE_ID") == REFUSED]
    assert len(refused) == 1 and "1.0 MiB" in refused[0]["MESSAGE"], refused
    assert "1.0 MiB" in refused[0]["ILOADER_REASON"], refused


@on_each(suites=TWO)
def stopping_drains_and_names_the_holders(s):
    cache = s.start_unit("qwen")
    with s.reader() as first, s.reader(command=("tail", "-f", "/dev/null")) as second:
        process.wait_until(lambda: "sleep" in s.status_text("qwen") and "tail" in s.status_text("qwen"), "the status names both")
        s.systemctl("stop", "--no-block", unit_of("qwen")).ok()
        process.wait_until(lambda: s.cache("qwen")["state"] == "draining", "the cache drains")
        for reader in (first, second):
            process.wait_until(lambda pid=reader.pid: str(pid) in s.status_text("qwen"), "STATUS= names the holder")
        assert "sleep" in s.systemctl("status", unit_of("qwen")).out
        first.end()
        process.wait_until(lambda: str(first.pid) not in s.status_text("qwen"), "STATUS= follows")
        assert str(second.pid) in s.status_text("qwen")
        assert s.unit_state("qwen")["ActiveState"] == "deactivating" and s.is_alive(cache["pid"])
    s.wait_for("qwen", "inactive")
    assert s.unit_state("qwen")["Result"] == "success" and s.cache("qwen") is None and not s.is_alive(cache["pid"])


@on_each
def past_its_time_the_unit_fails_and_the_memory_goes_with_the_last_lease(s):
    s.drop_in(unit_of("qwen"), "[Service]\nTimeoutStopSec=1\n")
    cache = s.start_unit("qwen")
    with s.reader() as reader:
        s.systemctl("stop", unit_of("qwen"))
        state = s.wait_for("qwen", "failed") and s.unit_state("qwen")
        assert state["Result"] == "timeout" and state["NRestarts"] == "0", state
        assert s.cache("qwen")["state"] == "draining" and s.is_alive(cache["pid"]) and s.is_alive(reader.pid)
        s.run("iloader", "run", "--system", "qwen", "--", "true", user="iloader").fails(125)
    process.wait_until(lambda: s.cache("qwen") is None, "the last lease has ended, and the cache with it")
    process.wait_until(lambda: not s.is_alive(cache["pid"]), "its worker has ended")
    s.start_unit("qwen")


@on_each
def a_killed_attach_leaves_the_cache_and_attaches_again(s):
    cache = s.start_unit("qwen")
    killed = s.unit_state("qwen")["MainPID"]
    with s.reader():
        s.run("kill", "-KILL", killed).ok()
        process.wait_until(lambda: s.unit_state("qwen")["MainPID"] not in (killed, "0")
                           and s.unit_state("qwen")["ActiveState"] == "active", "Restart= has attached again", 20)
        again = s.cache("qwen")
        assert again["pid"] == cache["pid"] and again["startedUSec"] == cache["startedUSec"], again
        assert again["reuses"] == cache["reuses"] + 1 and len(again["leases"]) == 1, again
        assert s.unit_state("qwen")["NRestarts"] == "1"
    s.systemctl("stop", unit_of("qwen")).ok()
    assert s.cache("qwen") is None


@on_each(suites=TWO)
def a_cache_that_is_evicted_ends_its_unit_well(s):
    s.configure("brief", IdleTTLSec="0.5")
    s.systemctl("start", unit_of("brief")).ok()
    s.wait_for("brief", "inactive")
    assert s.unit_state("brief")["Result"] == "success"
    evicted = [e for e in s.journal(s.since(), unit=unit_of("brief")) if e.get("MESSAGE_ID") == EVICTED]
    assert len(evicted) == 1 and "not used for" in evicted[0]["MESSAGE"], evicted
    # By a collection: never what is in use.
    s.start_unit("qwen")
    with s.reader():
        assert s.run("iloaderctl", "gc", "--resident", "--max-bytes", "0", "--apply").code == 1
        assert s.cache("qwen")["state"] == "ready"
    process.wait_until(lambda: not s.cache("qwen")["leases"], "the lease has ended")
    s.run("iloaderctl", "gc", "--resident", "--max-bytes", "0", "--apply").ok()
    s.wait_for("qwen", "inactive")
    assert s.unit_state("qwen")["Result"] == "success"


@on_each(suites=TWO)
def a_dead_worker_fails_its_unit_and_no_other(s):
    s.configure("other")
    lost, kept = s.start_unit("qwen"), s.start_unit("other")
    manager = s.manager_pid()
    s.run("kill", "-KILL", str(lost["pid"])).ok()
    s.wait_for("qwen", "failed")
    state = s.unit_state("qwen")
    assert str(lost["pid"]) in state["StatusText"] and "SIGKILL" in state["StatusText"], state
    died = [e for e in s.journal(s.since(), unit=unit_of("qwen")) if e.get("MESSAGE_ID") == WORKER_DIED]
    assert len(died) == 1 and died[0]["ILOADER_PID"] == str(lost["pid"]), died
    # OOMPolicy=continue: the manager and the other cache don't notice.
    assert s.manager_pid() == manager and s.unit_state("other")["ActiveState"] == "active"
    assert s.cache("other")["pid"] == kept["pid"]
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", kept["view"], user="iloader").ok()
    # Without any cleaning up.
    s.start_unit("qwen")
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", lost["view"], user="iloader").ok()


@on_each
def a_dead_manager_fails_the_units_clearly_and_starts_anew(s):
    cache = s.start_unit("qwen")
    killed = s.manager_pid()
    s.run("kill", "-KILL", str(killed)).ok()
    s.wait_for("qwen", "failed")
    state = s.unit_state("qwen")
    assert "no longer resident" in state["StatusText"] and state["ExecMainStatus"] == "1", state
    process.wait_until(lambda: s.manager_pid() not in (0, killed), "the manager is back")
    process.wait_until(lambda: not s.is_alive(cache["pid"]), "its worker went with it")
    story = s.journal(s.since(), unit=unit_of("qwen"))
    assert [e for e in story if e.get("MESSAGE_ID") == LOST], [e["MESSAGE"] for e in story]
    assert s.cache("qwen") is None
    again = s.start_unit("qwen")
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", again["view"], user="iloader").ok()


@on_each
def a_restarted_or_stopped_manager_fails_the_units_clearly(s):
    s.start_unit("qwen")
    s.systemctl("restart", "iloaderd.service").ok()
    s.wait_for("qwen", "failed")
    state = s.unit_state("qwen")
    assert "manager" in state["StatusText"] and state["ExecMainStatus"] == "1", state
    s.start_unit("qwen")
    # A manager that was stopped on purpose is not started by those who were attached to it.
    s.systemctl("stop", "iloaderd.service").ok()
    s.wait_for("qwen", "failed")
    assert s.show("iloaderd.service", "ActiveState")["ActiveState"] == "inactive"
    # When all stops together, as at a shutdown (and here, since both need the socket), the caches' units go first.
    s.start_unit("qwen")
    s.systemctl("stop", "iloaderd.socket").ok()
    assert s.show("iloaderd.service", "ActiveState")["ActiveState"] == "inactive"
    state = s.unit_state("qwen")
    assert state["ActiveState"] == "inactive" and state["Result"] == "success", state


# What is harmless for a reader; systemd.exec(5).
HARDENED = ("NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectSystem=strict", "ProtectHome=yes", "ProtectProc=invisible",
            "ProcSubset=pid", "CapabilityBoundingSet=", "SystemCallFilter=@system-service", "RestrictNamespaces=yes",
            "MemoryDenyWriteExecute=yes", "PrivateDevices=yes", "PrivateNetwork=yes", "RestrictSUIDSGID=yes", "UMask=0077",
            "ProtectControlGroups=yes", "ProtectKernelTunables=yes", "RestrictAddressFamilies=AF_UNIX")
CONTAINED = ("RootDirectory=/srv/contained", "MountAPIVFS=yes", "BindReadOnlyPaths=/usr /etc /srv/model /run/iloader/views",
             "BindReadOnlyPaths=/run/iloader/io.iloader.Manager", "NoNewPrivileges=yes")


@on_each(suites=TWO)
def processes_of_the_caches_user_read_the_view(s):
    view = s.start_unit("qwen")["view"]
    compare = ("diff", "-r", "--exclude=.iloader-view", "/srv/model")
    s.run("sh", "-ec", "mkdir -p /srv/contained; for d in bin lib lib64 sbin; do [ ! -e /$d ] || ln -sfn usr/$d /srv/contained/$d; done"
          ).ok()
    for properties in ((), HARDENED, CONTAINED):
        # By the path alone, and by way of run, in a grandchild of its shell.
        s.unit(*compare, view, user="iloader", properties=properties).ok()
        s.unit("iloader", "run", "--system", "qwen", "--", "sh", "-c", '(exec "$@")', "sh", *compare, "{model}", user="iloader",
               properties=properties).ok()
    # A process that was running before, with the directory open, and a bind mount of it.
    s.run("sh", "-ec", f"mkdir -p /srv/bound && mount --bind {view} /srv/bound && setpriv --reuid iloader --regid iloader "
          "--clear-groups diff -r --exclude=.iloader-view /srv/model /srv/bound; umount /srv/bound").ok()
    # Nothing can be changed through it, and what is mapped stays.
    for attempt in (f"echo x >>{view}/model-00001-of-00002.safetensors", f"echo x >>{view}/config.json", f"rm {view}/config.json",
                    f"touch {view}/new"):
        assert s.run("sh", "-c", attempt, user="iloader").code != 0, attempt


@on_each
def an_engine_is_bound_to_its_cache(s):
    s.write("/etc/systemd/system/engine.service", "[Unit]\nBindsTo=iloader@qwen.service\nAfter=iloader@qwen.service\n"
            "[Service]\nUser=iloader\nExecStart=iloader run --system qwen -- tail -f {model}/config.json\n")
    s.systemctl("daemon-reload").ok()
    # Starting it starts the cache, and waits for it.
    s.systemctl("start", "engine.service").ok()
    process.wait_until(lambda: [e["command"] for e in s.cache("qwen")["leases"]] == ["tail"], "the engine holds the cache")
    first = s.cache("qwen")
    assert b"/run/iloader/views/qwen/config.json" in s.run("cat", f"/proc/{first['leases'][0]['pid']}/cmdline",
                                                           text=False).ok().out
    # The engine's restart leaves the cache alone.
    s.systemctl("restart", "engine.service").ok()
    process.wait_until(lambda: [e["command"] for e in s.cache("qwen")["leases"]] == ["tail"], "the engine is back")
    assert s.cache("qwen")["pid"] == first["pid"]
    # Stopping the cache stops the engine first, so that nothing has to drain.
    s.systemctl("stop", unit_of("qwen")).ok()
    assert s.unit_state("engine.service")["ActiveState"] in ("inactive", "failed")
    assert s.unit_state("qwen")["Result"] == "success" and s.cache("qwen") is None
    # A cache that dies takes the engine down.
    s.systemctl("reset-failed")
    s.systemctl("start", "engine.service").ok()
    s.run("kill", "-KILL", str(s.cache("qwen")["pid"])).ok()
    s.wait_for("qwen", "failed")
    process.wait_until(lambda: s.unit_state("engine.service")["ActiveState"] in ("inactive", "failed"), "the engine stops")


@tap.parametrize(SUITES)
def an_enabled_cache_comes_with_the_boot_and_goes_with_the_shutdown(suite):
    with System(suite, name=f"enabled-{suite}", enable=["iloaderd.socket", unit_of("early")],
                files={"/etc/iloader/caches/early.conf": "[Cache]\nSource=/srv/early\n", "/srv/early/config.json": "{}\n",
                       "/srv/early/model.bin": b"weights" * 300000}) as s:
        # Up means that everything that was enabled is there.
        assert s.unit_state("early")["ActiveState"] == "active" and s.cache("early")["state"] == "ready"
        s.reader("early")
        began = time.monotonic()
        s.stop(timeout=60)
        took = time.monotonic() - began
        assert took < 30, f"powering off took {took:.0f} s"


tap.main(setup, teardown)
