"""The installed service in a box: the system's manager, configured caches as units, and processes that hold them.

    with System("trixie") as s:
        s.configure("qwen")
        s.start_unit("qwen")
        with s.reader("qwen") as reader:
            assert s.cache("qwen")["leases"][0]["pid"] == reader.pid
"""
import itertools
import json
import pathlib

from . import process
from .box import Box
from .product import STAGE

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
SOCKET = "/run/iloader/io.iloader.Manager"
# By the name that cases show: the root that make-root makes.
KINDS = {"bookworm": "bookworm", "trixie": "trixie", "sid": "sid-llama"}
MIB = 1 << 20


def unit_of(name):
    return f"iloader@{name}.service"

FRESH = """
systemctl stop 'reader-*.service' 'engine*.service'
iloaderctl stop --all --force --remove-view --timeout 20
systemctl stop 'iloader@*.service'
if [ -n "$(find /run/systemd/system -name '50-test.conf' -print -exec rm {} +)" ]; then
        systemctl daemon-reload
        systemctl try-restart iloaderd.service
fi
systemctl reset-failed
systemctl start iloaderd.socket
date +%s.%6N
"""


class Reader:
    """A transient unit of the box that holds a cache."""

    def __init__(self, system, unit, pid):
        self.system, self.unit, self.pid = system, unit, pid

    def end(self):
        self.system.systemctl("stop", self.unit).ok()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.system.systemctl("stop", self.unit)


class System(Box):
    """suite: bookworm, trixie or sid. What Box takes may be given, too."""

    def __init__(self, suite, binds=None, enable=("iloaderd.socket",), **options):
        kind = KINDS.get(suite, suite)
        assert (STAGE / "usr/lib/iloader/iloaderd").exists(), f"no installed tree in {STAGE}: make stage STAGE={STAGE}"
        super().__init__(kind, layers=[STAGE], enable=enable, binds={str(TOOLS): "/run/tools", **(binds or {})},
                         name=options.pop("name", None), **options)
        self._numbers = itertools.count()

    def start(self, timeout=60):
        super().start(timeout)
        self.model("/srv/model")
        self.configure("qwen")
        return self

    # --- checkpoints and configuration

    def model(self, path, user=None):
        """Two shards with a memory file of their own each, and small files; a second's work less than a real one."""
        self.run("sh", "-ec", 'mkdir -p "$1/sub"; for i in 1 2; do head -c $((3000000 + i)) /dev/urandom '
                 '>"$1/model-0000$i-of-00002.safetensors"; done; echo \'{"model_type": "llama"}\' >"$1/config.json"; '
                 'echo "{}" >"$1/sub/odd name.json"', "sh", path, user=user).ok()
        return path

    def sparse(self, path, size=2048 * MIB):
        """A source that takes a while to read, and no memory of its own."""
        self.run("sh", "-ec", 'mkdir -p "$1"; truncate -s "$2" "$1/model.safetensors"', "sh", path, str(size)).ok()
        return path

    def configure(self, name, source="/srv/model", **keys):
        lines = "".join(f"{key}={value}\n" for key, value in {"Source": source, **keys}.items())
        self.write(f"/etc/iloader/caches/{name}.conf", f"[Cache]\n{lines}")

    def drop_in(self, unit, text):
        """A drop-in of a unit; fresh() removes it."""
        self.write(f"/run/systemd/system/{unit}.d/50-test.conf", text)
        self.systemctl("daemon-reload").ok()

    # --- caches and their units

    def cache(self, name, user=None):
        """The Cache object, None where there is none."""
        result = self.run("iloaderctl", "status", name, "--json", user=user)
        return json.loads(result.out) if result.code == 0 else None

    def caches(self, user=None):
        listed = json.loads(self.run("iloaderctl", "list", "--json", user=user).ok().out)["caches"]
        return {c["name"]: c for c in listed}

    def unit_state(self, name):
        return self.show(unit_of(name) if "." not in name else name, "ActiveState", "SubState", "Result", "StatusText",
                         "MainPID", "NRestarts", "ExecMainStatus")

    def status_text(self, name):
        return self.unit_state(name)["StatusText"]

    def start_unit(self, name="qwen", timeout=60):
        """systemctl start, which must succeed: the Cache object."""
        self.systemctl("start", unit_of(name), timeout=timeout).ok()
        state = self.unit_state(name)
        assert state["ActiveState"] == "active", state
        return self.cache(name)

    def wait_for(self, unit, state, timeout=30):
        """Waits until a unit (or the unit of a cache) has this ActiveState."""
        return process.wait_until(lambda: self.unit_state(unit)["ActiveState"] == state, f"{unit} is {state}", timeout)

    def manager_pid(self):
        return int(self.show("iloaderd.service", "MainPID")["MainPID"])

    def is_alive(self, pid):
        return self.run("kill", "-0", str(pid)).code == 0

    def story(self, name, *arguments):
        """What journalctl -u says about a cache."""
        return self.messages(*arguments, unit=unit_of(name))

    def reader(self, name="qwen", user="iloader", command=("sleep", "infinity"), properties=()):
        """Starts a process that holds the cache, and returns once it does."""
        unit = f"reader-{next(self._numbers)}.service"
        before = {lease["pid"] for lease in self.cache(name)["leases"]}
        self.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--uid={user}", "--service-type=exec",
                 *(f"--property={p}" for p in properties), "--", "iloader", "run", "--system", name, "--", *command).ok()
        # Held before exec, and so for a moment under the wrapper's name.
        new = process.wait_until(lambda: [lease["pid"] for lease in self.cache(name)["leases"] if lease["pid"] not in before],
                                 "the lease is there")
        return Reader(self, unit, new[0])

    def fresh(self):
        """Nothing resident, no unit or drop-in of an earlier case."""
        # In one process, since it precedes every case.
        self.began = self.run("sh", "-c", FRESH, timeout=120).ok().out.split()[-1]

    def since(self):
        """An argument for journal(): only what this case has done."""
        return f"--since=@{self.began}"
