#!/usr/bin/python3
"""A user's own manager under systemd --user, with lingering: activated by its socket, hardened only by what needs no
namespace, with units of caches; and the embedded default beside it."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import KINDS, System  # noqa: E402

SUITES = ["bookworm", "trixie", "sid"]
BASE = "/home/alice/.cache/infiniloader"
systems = {}


class UserSystem(System):
    """alice's systemd --user, and her shell beside it."""

    def start(self, timeout=60):
        super().start(timeout)
        self.uid = self.add_user("alice")
        self.run("loginctl", "enable-linger", "alice").ok()
        process.wait_until(lambda: self.user_systemctl("is-system-running").out.strip() == "running", "her systemd runs", 30)
        return self

    def mine(self, *argv, **options):
        """A command of alice's own."""
        return self.run(*argv, user="alice", env={"HOME": "/home/alice", "XDG_RUNTIME_DIR": f"/run/user/{self.uid}"}, **options)

    def user_systemctl(self, *argv, **options):
        return self.mine("systemctl", "--user", "--no-pager", *argv, **options)

    def user_state(self, unit):
        out = self.user_systemctl("show", unit, "--property=ActiveState,Result,StatusText,MainPID,NRestarts").ok().out
        return dict(line.split("=", 1) for line in out.splitlines())

    def my_cache(self, name):
        result = self.mine("iloader", "status", name, "--json", "--user")
        return json.loads(result.out) if result.code == 0 else None


def setup():
    for suite in SUITES:
        box.need(KINDS[suite])
    for suite in SUITES:
        systems[suite] = UserSystem(suite).start()


def teardown():
    for s in systems.values():
        s.stop()


def on_each(f):
    def case(suite):
        s = systems[suite]
        s.mine("iloader", "stop", "--user", "--all", "--force", "--remove-view")
        s.user_systemctl("stop", "iloader@*.service", "iloaderd.service", "iloaderd.socket")
        s.user_systemctl("reset-failed")
        f(s)
    case.__name__ = f.__name__
    return tap.parametrize(SUITES)(case)


@on_each
def the_users_socket_starts_the_users_manager(s):
    s.user_systemctl("start", "iloaderd.socket").ok()
    assert s.run("stat", "-c", "%a %U", f"{BASE}/run/io.iloader.Manager").ok().out.split() == ["600", "alice"]
    view = s.mine("iloader", "start", "/srv/model", "--name", "mine").ok().out.strip()
    assert view == f"{BASE}/views/mine", view
    state = s.user_state("iloaderd.service")
    assert state["ActiveState"] == "active" and "1 cache resident" in state["StatusText"], state
    cache = s.my_cache("mine")
    assert cache["uid"] == s.uid and s.read(f"/proc/{cache['pid']}/cgroup").strip().endswith("/iloaderd.service")
    # Her processes read it, in units or not; the hardening has made no user namespace, which would be in their way.
    s.mine("diff", "-r", "--exclude=.iloader-view", "/srv/model", view).ok()
    s.mine("systemd-run", "--user", "--quiet", "--pipe", "--wait", "--collect", "iloader", "run", "mine", "--", "diff", "-r",
           "--exclude=.iloader-view", "/srv/model", "{model}").ok()
    assert s.run("readlink", f"/proc/{cache['pid']}/ns/user").out == s.run("readlink", "/proc/self/ns/user").out
    status = s.read(f"/proc/{cache['pid']}/status")
    assert "\nSeccomp:\t2\n" in status and "\nNoNewPrivs:\t1\n" in status and "\nCapEff:\t" + "0" * 16 in status, status
    # The journal has her cache's story under its own fields.
    kinds = [e.get("MESSAGE_ID") for e in s.journal("ILOADER_CACHE=mine", f"_UID={s.uid}")]
    assert len(set(kinds)) >= 4, kinds
    # Nobody else's.
    assert s.run("runuser", "-u", "nobody", "--", "iloader", "list", "--socket", f"{BASE}/run/io.iloader.Manager").code == 1
    assert "mine" not in s.caches()
    s.mine("iloader", "stop", "mine").ok()


@on_each
def an_idle_manager_leaves_and_its_socket_brings_it_back(s):
    s.run("mkdir", "-p", "/run/systemd/user/iloaderd.service.d").ok()
    s.write("/run/systemd/user/iloaderd.service.d/idle.conf", "[Service]\nExecStart=\n"
            "ExecStart=/usr/lib/iloader/iloaderd --base-dir %C/infiniloader --idle-exit 0.2\n")
    s.user_systemctl("daemon-reload").ok()
    s.user_systemctl("start", "iloaderd.socket").ok()
    s.mine("iloader", "start", "/srv/model", "--name", "mine").ok()
    s.mine("iloader", "stop", "mine").ok()
    process.wait_until(lambda: s.user_state("iloaderd.service")["ActiveState"] == "inactive", "it leaves when it is idle")
    assert s.user_state("iloaderd.socket")["ActiveState"] == "active"
    s.mine("iloader", "start", "/srv/model", "--name", "mine").ok()
    assert s.user_state("iloaderd.service")["ActiveState"] == "active"
    s.run("rm", "-r", "/run/systemd/user/iloaderd.service.d").ok()
    s.user_systemctl("daemon-reload").ok()


@on_each
def a_users_cache_is_a_unit(s):
    s.write("/home/alice/.config/iloader/qwen.env", "MODEL_DIR=/srv/model\nOPTIONS=--workers 1 --max-memory-bytes 1GiB\n")
    s.run("chown", "-R", "alice", "/home/alice/.config").ok()
    s.user_systemctl("start", "iloader@qwen.service").ok()
    state = s.user_state("iloader@qwen.service")
    assert state["ActiveState"] == "active" and "resident" in state["StatusText"], state
    cache = s.my_cache("qwen")
    assert cache["state"] == "ready" and cache["budget"]["maxMemoryBytes"] == 1 << 30, cache
    s.mine("iloader", "run", "qwen", "--", "cat", "{model}/config.json").ok()
    # Attaches again, like the system's.
    s.run("kill", "-KILL", state["MainPID"]).ok()
    process.wait_until(lambda: s.user_state("iloader@qwen.service")["NRestarts"] == "1"
                       and s.user_state("iloader@qwen.service")["ActiveState"] == "active", "it has attached again", 20)
    assert s.my_cache("qwen")["pid"] == cache["pid"]
    s.user_systemctl("stop", "iloader@qwen.service").ok()
    assert s.my_cache("qwen") is None and s.user_state("iloader@qwen.service")["Result"] == "success"
    # Refused, with the text.
    s.write("/home/alice/.config/iloader/qwen.env", "MODEL_DIR=/srv/nowhere\nOPTIONS=\n")
    assert s.user_systemctl("start", "iloader@qwen.service").code != 0
    assert "/srv/nowhere" in s.user_state("iloader@qwen.service")["StatusText"]


@on_each
def without_units_the_user_has_a_manager_all_the_same(s):
    # A login, with nothing set up: iloader start makes the manager, and readers look there first.
    view = s.mine("iloader", "start", "/srv/model", "--name", "own").ok().out.strip()
    assert s.user_state("iloaderd.service")["ActiveState"] == "inactive"
    cache = s.my_cache("own")
    assert cache["view"] == view
    # run falls through to the system's caches, and says so.
    s.configure("system", Mode="0444")
    s.start_unit("system")
    found = s.mine("iloader", "run", "system", "--", "true")
    assert found.code == 0 and "system" in found.err, found
    s.mine("iloader", "run", "own", "--", "test", "-r", "{model}/config.json").ok()
    # What changes things doesn't fall through.
    s.mine("iloader", "stop", "system").fails(1)
    assert s.cache("system")["state"] == "ready"
    s.mine("iloader", "stop", "own", "--remove-view").ok()
    s.run("iloaderctl", "stop", "system").ok()


tap.main(setup, teardown)
