#!/usr/bin/python3
"""The installed service under bookworm's and trixie's systemd: socket activation, iloader@NAME units, the journal, varlink
tools, rights of other users."""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.box import Box  # noqa: E402
from harness.product import STAGE  # noqa: E402

SAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/make-sample-checkpoint.py"
SOCKET = "/run/iloader/io.iloader.Manager"
INTERFACE = "/usr/share/varlink/io.iloader.Manager.varlink"
SUITES = ["bookworm", "trixie"]
boxes = {}


def setup():
    for suite in SUITES:
        box.need(suite)
    for suite in SUITES:
        b = boxes[suite] = Box(suite, layers=[STAGE], enable=["iloaderd.socket"], binds={str(SAMPLE.parent): "/run/tools"}).start()
        b.run("python3", "/run/tools/make-sample-checkpoint.py", "/srv/model").ok()
        b.add_user("alice")
        b.add_user("bob", "--groups", "iloader")
        b.write("/etc/iloader/caches/qwen.conf", "[Cache]\nSource=/srv/model\n")


def teardown():
    for b in boxes.values():
        b.stop()


def cached(b, name):
    return json.loads(b.run("iloaderctl", "status", name, "--json").ok().out)


def fresh(b):
    """Nothing resident, no unit of an earlier case."""
    b.systemctl("stop", "iloader@*.service", timeout=90)
    b.systemctl("reset-failed")
    b.run("iloaderctl", "stop", "--all", "--force", "--remove-view")


@tap.parametrize(SUITES)
def the_socket_starts_the_manager(suite):
    b = boxes[suite]
    assert b.show("iloaderd.socket", "ActiveState")["ActiveState"] == "active"
    b.run("iloaderctl", "list").ok()
    service = b.show("iloaderd.service", "ActiveState", "Type", "Slice", "OOMPolicy", "WatchdogUSec", "StatusText")
    assert service["ActiveState"] == "active" and service["Slice"] == "iloader.slice", service
    assert service["Type"].startswith("notify") and service["OOMPolicy"] == "continue" and service["WatchdogUSec"] != "0", service


@tap.parametrize(SUITES)
def a_configured_cache_is_a_unit(suite):
    b = boxes[suite]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    unit = b.show("iloader@qwen.service", "ActiveState", "SubState", "StatusText", "MainPID")
    assert unit["ActiveState"] == "active" and unit["StatusText"], unit
    cache = cached(b, "qwen")
    owner = int(b.run("id", "-u", "iloader").ok().out)
    assert cache["state"] == "ready" and cache["uid"] == owner and cache["view"] == "/run/iloader/views/qwen", cache
    b.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", cache["view"], user="iloader").ok()
    b.systemctl("stop", "iloader@qwen.service", timeout=60).ok()
    assert b.run("iloaderctl", "status", "qwen").code == 1
    assert b.show("iloader@qwen.service", "ActiveState", "Result")["Result"] == "success"


@tap.parametrize(SUITES)
def a_worker_is_its_owners_and_powerless(suite):
    b = boxes[suite]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    cache = cached(b, "qwen")
    status = dict(line.split(":\t", 1) for line in b.read(f"/proc/{cache['pid']}/status").splitlines() if ":\t" in line)
    assert status["Uid"].split() == [str(cache["uid"])] * 4, status
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert status[capabilities].strip() == "0000000000000000", status
    assert status["Seccomp"].strip() == "2" and status["NoNewPrivs"].strip() == "1", status


@tap.parametrize(SUITES)
def a_refused_cache_fails_its_unit_with_the_reason(suite):
    b = boxes[suite]
    fresh(b)
    for name, text, word in (("absent", "[Cache]\nSource=/srv/nowhere\n", "/srv/nowhere"),
                             ("huge", "[Cache]\nSource=/srv/model\nMaxMemoryBytes=1MiB\n", "huge"),
                             ("odd", "[Cache]\nSource=/srv/model\nNoSuchKey=1\n", "odd.conf:3"),
                             ("size", "[Cache]\nSource=/srv/model\nChunkSize=64MiB\n", "size.conf:3")):
        b.write(f"/etc/iloader/caches/{name}.conf", text)
        assert b.systemctl("start", f"iloader@{name}.service", timeout=60).code != 0
        unit = b.show(f"iloader@{name}.service", "ActiveState", "Result", "StatusText")
        assert unit["ActiveState"] == "failed", unit
        story = b.messages(unit=f"iloader@{name}.service")
        assert word in unit["StatusText"] or any(word in line for line in story), (unit, story)


@tap.parametrize(SUITES)
def the_journal_tells_the_caches_story(suite):
    b = boxes[suite]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    b.run("iloader", "run", "qwen", "--", "true", user="iloader").ok()
    b.systemctl("stop", "iloader@qwen.service", timeout=60).ok()
    entries = b.journal(unit="iloader@qwen.service")
    kinds = {e["MESSAGE_ID"] for e in entries if e.get("ILOADER_CACHE") == "qwen"}
    assert len(kinds) >= 6, [e.get("MESSAGE") for e in entries]
    assert any("ILOADER_BYTES" in e for e in entries)
    # Each has its explanation.
    b.run("journalctl", "--update-catalog").ok()
    explained = b.run("journalctl", "-x", "-u", "iloader@qwen.service", "--no-pager").out
    assert "░░" in explained or "-- " in explained
    assert b.run("journalctl", "--no-pager", "ILOADER_CACHE=qwen").ok().out.count("qwen") >= 5


@tap.parametrize(SUITES)
def other_users_see_and_do_what_they_may(suite):
    b = boxes[suite]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    # alice: neither owner nor in the group; the cache is 0400.
    assert b.run("iloaderctl", "list", "--json", user="alice").ok().out.count("qwen") == 0
    assert b.run("iloaderctl", "status", "qwen", user="alice").code == 1
    assert b.run("iloaderctl", "stop", "qwen", user="alice").code == 1
    assert b.run("iloader", "run", "--system", "qwen", "--", "true", user="alice").code == 125
    refused = b.run("iloaderctl", "start", "/srv/model", "--name", "alices", user="alice")
    assert refused.code == 1 and refused.err.strip(), refused
    # bob may start, as himself, but neither force nor set quotas nor stop what isn't his.
    view = b.run("iloaderctl", "start", "/srv/model", "--name", "bobs", user="bob").ok().out.strip()
    b.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", view, user="bob").ok()
    assert cached(b, "bobs")["uid"] == int(b.run("id", "-u", "bob").out)
    for options in (["--force"], ["--max-resident-bytes", "1GiB"], ["--owner", "root"]):
        assert b.run("iloaderctl", "start", "/srv/model", "--name", "other", *options, user="bob").code == 1, options
    assert b.run("iloaderctl", "stop", "qwen", user="bob").code == 1
    assert b.run("iloaderctl", "start", "/srv/model", "--name", "qwen", user="bob").code == 1
    b.run("iloaderctl", "stop", "bobs", "--remove-view", user="bob").ok()
    assert cached(b, "qwen")["state"] == "ready"


@tap.parametrize(SUITES)
def a_stop_waits_for_its_readers_and_says_whom(suite):
    b = boxes[suite]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    with b.background("iloader", "run", "--system", "qwen", "--", "sleep", "1000", user="iloader"):
        holder = process.wait_until(lambda: cached(b, "qwen")["leases"], "the lease is there")[0]["pid"]
        b.systemctl("stop", "--no-block", "iloader@qwen.service").ok()
        process.wait_until(lambda: cached(b, "qwen")["state"] == "draining", "the cache drains")
        status = process.wait_until(lambda: b.show("iloader@qwen.service", "StatusText")["StatusText"] if "sleep" in
                                    b.show("iloader@qwen.service", "StatusText")["StatusText"] else None,
                                    "STATUS= names the holder")
        assert status
        b.run("kill", holder).ok()
        process.wait_until(lambda: b.show("iloader@qwen.service", "ActiveState")["ActiveState"] == "inactive",
                           "the unit has stopped", 30)


@tap.parametrize(SUITES)
def units_are_right(suite):
    b = boxes[suite]
    result = b.run("systemd-analyze", "verify", "--man=no", "iloaderd.service", "iloaderd.socket", "iloader@x.service")
    assert result.code == 0 and "iloader" not in result.err, result
    score = b.run("systemd-analyze", "security", "--no-pager", "iloaderd.service").out
    figure = re.search(r"exposure level for iloaderd.service: ([0-9.]+)", score)
    assert figure, score
    print(f"# figure: systemd-analyze security, {suite}: {figure[1]}")
    assert float(figure[1]) <= 3.0, score


@tap.test
def varlinkctl_talks_to_it():
    b = boxes["trixie"]
    fresh(b)
    b.systemctl("start", "iloader@qwen.service", timeout=60).ok()
    b.run("varlinkctl", "validate-idl", INTERFACE).ok()
    assert "iloader" in b.run("varlinkctl", "info", SOCKET).ok().out
    introspected = b.run("varlinkctl", "introspect", SOCKET, "io.iloader.Manager").ok().out
    assert "method Start(" in introspected
    listed = json.loads(b.run("varlinkctl", "--json=short", "call", SOCKET, "io.iloader.Manager.List", "{}").ok().out)
    assert [c["name"] for c in listed["caches"]] == ["qwen"]
    streamed = b.run("varlinkctl", "--json=short", "--more", "call", SOCKET, "io.iloader.Manager.Manifest", '{"name":"qwen"}').ok()
    assert "config.json" in streamed.out
    started = b.run("varlinkctl", "--json=short", "--more", "call", SOCKET, "io.iloader.Manager.Start",
                    '{"name":"byhand","source":"/srv/model"}').ok()
    assert '"ready"' in started.out
    refused = b.run("varlinkctl", "call", SOCKET, "io.iloader.Manager.Status", '{"name":"nosuch"}')
    assert refused.code != 0 and "NoSuchCache" in refused.err, refused


@tap.test
def python_varlink_talks_to_it():
    b = boxes["trixie"]
    program = f"""
import varlink
with varlink.Client(address="unix:{SOCKET}") as client, client.open("io.iloader.Manager") as manager:
    print(sorted(c["name"] for c in manager.List()["caches"]))
    try:
        manager.Status("nosuch")
    except varlink.VarlinkError as e:
        print(e.error())
    print([r["kind"] for _, r in zip(range(1), manager.Monitor(_more=True))])
"""
    out = b.run("python3", "-c", program).ok().out
    assert "qwen" in out and "NoSuchCache" in out and "current" in out, out


tap.main(setup, teardown)
