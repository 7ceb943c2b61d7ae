#!/usr/bin/python3
"""iloaderd.socket and iloaderd.service: what their installation leaves, activation, the slice, the watchdog, clients that
outlive a restart, and each line of the hardening that has a reason."""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import KINDS, SOCKET, System, unit_of  # noqa: E402

SUITES = ["bookworm", "trixie", "sid"]
# What doesn't hang on systemd's version is asked of the oldest and of one that has all that is used.
TWO = SUITES[:2]
# What systemd-analyze security said when the hardening was last thought over. It may fall.
SCORES = {"bookworm": 1.8, "trixie": 1.8, "sid": 1.8}
systems = {}


def setup():
    for suite in SUITES:
        box.need(KINDS[suite])
    for suite in SUITES:
        systems[suite] = System(suite).start()
        systems[suite].add_user("alice")
        systems[suite].add_user("bob", "--groups", "iloader")


def teardown():
    for s in systems.values():
        s.stop()


def on(suites, **options):
    def mark(f):
        def case(suite):
            s = systems[suite]
            s.fresh()
            f(s)
        case.__name__ = f.__name__
        return tap.parametrize(suites, **options)(case)
    return mark


@on(SUITES)
def the_installation_makes_accounts_and_directories(s):
    account = s.run("getent", "passwd", "iloader").ok().out.strip().split(":")
    assert account[6].endswith("nologin") and int(account[2]) < 1000, account
    assert s.run("getent", "group", "iloader").ok().out.split(":")[2] == account[3]
    for path, what in (("/run/iloader", "755 root root directory"), ("/run/iloader/views", "711 root root directory"),
                       ("/run/iloader/registry", "700 root root directory"), (SOCKET, "666 root root socket")):
        assert s.run("stat", "-c", "%a %U %G %F", path).ok().out.strip() == what, path
    # Again, as at a package's upgrade: nothing changes, nothing goes.
    s.start_unit("qwen")
    s.run("systemd-tmpfiles", "--create").ok()
    s.run("systemd-sysusers").ok()
    assert s.cache("qwen")["state"] == "ready"
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", "/run/iloader/views/qwen", user="iloader").ok()


@on(SUITES)
def the_socket_starts_the_manager(s):
    s.systemctl("stop", "iloaderd.service").ok()
    assert s.show("iloaderd.socket", "ActiveState")["ActiveState"] == "active"
    s.run("iloaderctl", "list", user="alice").ok()
    service = s.show("iloaderd.service", "ActiveState", "Type", "Slice", "OOMPolicy", "WatchdogUSec", "StatusText",
                     "StartLimitIntervalUSec", "LimitNOFILE")
    assert service["ActiveState"] == "active" and service["Type"].startswith("notify"), service
    assert service["Slice"] == "iloader.slice" and service["OOMPolicy"] == "continue", service
    assert service["WatchdogUSec"] == "30s" and service["StartLimitIntervalUSec"] == "0", service
    assert service["LimitNOFILE"] == "16384", service
    assert "0 caches" in service["StatusText"], service
    s.start_unit("qwen")
    process.wait_until(lambda: "1 cache resident" in s.status_text("iloaderd.service"), "STATUS= counts")
    assert s.run("cat", "/proc/%d/cgroup" % s.manager_pid()).ok().out.strip().endswith("/iloader.slice/iloaderd.service")
    assert s.show("iloader.slice", "MemorySwapMax")["MemorySwapMax"] == "0"


@on(TWO)
def nothing_is_left_when_all_is_stopped(s):
    s.start_unit("qwen")
    s.systemctl("stop", "iloaderd.socket").ok()
    s.run("iloaderctl", "list", user="alice").fails(1, SOCKET, "systemctl start iloaderd.socket")
    assert s.show("iloaderd.service", "ActiveState")["ActiveState"] == "inactive"
    s.run("iloaderctl", "start", "/srv/model", "--name", "x").fails(1, SOCKET)
    assert s.run("pgrep", "-x", "iloaderd|iloader-worker").out == ""
    left = s.run("find", "/run/iloader", "-mindepth", "1", "-not", "-path", "*/views/qwen/*").ok().out.split()
    assert sorted(left) == ["/run/iloader/manager.lock", "/run/iloader/registry", "/run/iloader/views",
                            "/run/iloader/views/qwen"], left
    # The view dangles, and is taken over by the next start.
    s.systemctl("start", "iloaderd.socket").ok()
    s.start_unit("qwen")
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", "/run/iloader/views/qwen", user="iloader").ok()


@on(SUITES)
def the_watchdog_ends_a_manager_that_hangs(s):
    s.drop_in("iloaderd.service", "[Service]\nWatchdogSec=1\nTimeoutAbortSec=1\n")
    s.systemctl("restart", "iloaderd.service").ok()
    s.run("iloaderctl", "list").ok()
    # One that works is not ended: past several of its periods it is the same.
    first = s.manager_pid()
    s.run("sh", "-c", "exec timeout 3 iloaderctl monitor")
    assert s.manager_pid() == first
    s.run("kill", "-STOP", str(first)).ok()
    process.wait_until(lambda: s.manager_pid() not in (0, first), "it was started anew", 20)
    said = "\n".join(s.messages(s.since(), unit="iloaderd.service"))
    assert "atchdog" in said, said
    s.run("iloaderctl", "list").ok()


# Clients that ask while nobody answers.
CLIENTS = """
import sys
from harness.varlink import Connection
clients = [Connection(sys.argv[1]) for _ in range(20)]
for c in clients:
    c.send("io.iloader.Manager.List")
print("asked", flush=True)
for c in clients:
    assert c.receive(30)["parameters"] == {"caches": []}
print("answered", flush=True)
"""


@on(SUITES)
def waiting_clients_outlive_a_restart(s):
    for restart in (["kill", "-KILL"], ["systemctl", "restart", "iloaderd.service"]):
        s.run("iloaderctl", "list").ok()
        manager = s.manager_pid()
        s.run("kill", "-STOP", str(manager)).ok()
        environment = {"PYTHONPATH": "/run/tests", "PYTHONDONTWRITEBYTECODE": "1"}
        with s.background("python3", "-c", CLIENTS, SOCKET, env=environment) as clients:
            assert clients.read_line() == "asked"
            # systemctl lets it go on as it tells it to end: both, and the clients, reach it at once.
            s.run(*restart, *([str(manager)] if restart[0] == "kill" else [])).ok()
            assert clients.read_line() == "answered"
            assert clients.wait().code == 0
        assert s.manager_pid() != manager


@on(TWO)
def the_quota_outlives_the_manager(s):
    s.run("iloaderctl", "set-quota", "1MiB").ok()
    try:
        s.systemctl("restart", "iloaderd.service").ok()
        s.systemctl("start", unit_of("qwen"))
        assert s.unit_state("qwen")["ActiveState"] == "failed" and "quota" in s.status_text("qwen"), s.unit_state("qwen")
        assert s.run("stat", "-c", "%a %U", "/var/lib/iloader", "/var/lib/iloader/quota").ok().out.split() == ["700", "root", "600",
                                                                                                             "root"]
    finally:
        s.run("iloaderctl", "set-quota", "none").ok()
    s.systemctl("reset-failed").ok()
    s.start_unit("qwen")


@on(TWO)
def a_malformed_iloaderd_conf_is_named_with_its_line(s):
    s.systemctl("stop", "iloaderd.service").ok()
    s.write("/etc/iloader/iloaderd.conf", "[Manager]\n\nCachesMax=many\n")
    try:
        assert s.systemctl("start", "iloaderd.service").code != 0
        said = process.wait_until(lambda: [e for e in s.journal(s.since(), unit="iloaderd.service")
                                           if "iloaderd.conf:3" in e.get("MESSAGE", "")], "the file and line are named")
        assert "CachesMax" in said[0]["MESSAGE"] and said[0]["MESSAGE_ID"] == "5985c2b389de44949676aba26a7cf683", said[0]
        assert "iloaderd.conf:3" in said[0]["ILOADER_REASON"], said[0]
    finally:
        s.write("/etc/iloader/iloaderd.conf", "[Manager]\n")
        s.systemctl("stop", "iloaderd.service")
        s.systemctl("reset-failed")
    s.run("iloaderctl", "list").ok()


@on(SUITES)
def the_units_are_right(s):
    units = ["iloaderd.service", "iloaderd.socket", "iloader@x.service", "iloader.slice"]
    result = s.run("systemd-analyze", "verify", "--man=no", *units)
    assert result.code == 0 and "iloader" not in result.err, result
    # The engines' are only as wrong as the absence of engines, and of their settings, makes them.
    examples = s.run("find", "/usr/share/doc/iloader/examples", "-name", "*@.service").ok().out.split()
    assert len(examples) == 4, examples
    for example in examples:
        result = s.run("systemd-analyze", "verify", "--man=no", example.replace("@.", "@x."))
        assert result.code == 0 and "/examples/" not in result.err and "nknown" not in result.err, result
    suite = next(k for k, v in systems.items() if v is s)
    for unit in ("iloaderd.service", "iloader@x.service"):
        said = s.run("systemd-analyze", "security", "--no-pager", unit).out
        figure = re.search(r"exposure level for \S+ ([0-9.]+)", said)
        assert figure, said
        print(f"# figure: systemd-analyze security {unit}, {suite}: {figure[1]}")
        if unit == "iloaderd.service":
            assert float(figure[1]) <= SCORES[suite], said


# Each capability that the manager keeps, and what fails without it.
@on(["bookworm", "sid"], timeout=180)
def each_capability_is_needed(s):
    all_of_them = set(s.show("iloaderd.service", "CapabilityBoundingSet")["CapabilityBoundingSet"].split())
    assert s.show("iloaderd.service", "AmbientCapabilities")["AmbientCapabilities"] == ""
    tried = {"cap_setuid": starting_as_the_owner, "cap_setgid": starting_as_the_owner, "cap_kill": ending_a_worker_that_hangs,
             "cap_chown": publishing_for_the_group}
    assert all_of_them == set(tried), all_of_them
    s.configure("grouped", Mode="0440")
    for task in dict.fromkeys(tried.values()):
        assert task(s), f"{task.__name__} with all of them"
        s.fresh()
    for capability, task in tried.items():
        s.drop_in("iloaderd.service", f"[Service]\nCapabilityBoundingSet=~{capability.upper()}\n")
        s.systemctl("restart", "iloaderd.service").ok()
        assert not task(s), f"{task.__name__} works without {capability}"
        # What is left over goes with the manager, whatever that may do.
        s.systemctl("kill", "--signal=KILL", "iloaderd.service").ok()
        process.wait_until(lambda: s.run("pgrep", "-x", "iloader-worker").out == "", "no worker is left")


def starting_as_the_owner(s):
    started = s.systemctl("start", unit_of("qwen")).code == 0
    if not started:
        assert "Operation not permitted" in s.status_text("qwen"), s.unit_state("qwen")
    return started


def ending_a_worker_that_hangs(s):
    cache = s.start_unit("qwen")
    s.run("kill", "-STOP", str(cache["pid"])).ok()
    return s.run("iloaderctl", "stop", "qwen", "--timeout", "7").code == 0 and not s.is_alive(cache["pid"])


def publishing_for_the_group(s):
    started = s.systemctl("start", unit_of("grouped")).code == 0
    if not started:
        assert "Operation not permitted" in s.status_text("grouped"), s.unit_state("grouped")
    return started


@on(TWO)
def a_hardened_manager_serves_homes_and_private_temporary_directories(s):
    """ProtectHome=, PrivateTmp= and ProtectSystem= of the manager are not in its callers' way."""
    s.run("sh", "-ec", "rm -rf ~bob/model; cp -r /srv/model ~bob/model && chown -R bob ~bob && chmod 0700 ~bob/model").ok()
    view = s.run("sh", "-c", "iloaderctl start ~/model --name homely --view ~/views/homely", user="bob",
                 env={"HOME": "/home/bob"}).ok().out.strip()
    assert view == "/home/bob/views/homely", view
    s.run("diff", "-r", "--exclude=.iloader-view", "/home/bob/model", view, user="bob").ok()
    s.run("iloaderctl", "stop", "homely", "--remove-view", user="bob").ok()
    assert not s.exists(view)
    # A caller's own /tmp, that nobody else sees.
    private = s.unit("sh", "-ec", "cp -r /srv/model /tmp/mine && iloaderctl start /tmp/mine --name mine >/dev/null && "
                     "iloaderctl status mine --json", user="bob", properties=["PrivateTmp=yes"]).ok()
    cache = json.loads(private.out)
    assert not s.exists("/tmp/mine")
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", cache["view"], user="bob").ok()


tap.main(setup, teardown)
