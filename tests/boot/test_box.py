#!/usr/bin/python3
"""The boxes themselves: each root boots a whole systemd, exit codes are exact, and nothing is left behind."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, tap  # noqa: E402
from harness.box import Box  # noqa: E402

VERSIONS = {"bookworm": 252, "trixie": 257, "sid-llama": 258, "sid-torch": 258}


@tap.parametrize(list(VERSIONS), timeout=900)
def a_root_boots(kind):
    with Box(kind) as b:
        state = b.systemctl("is-system-running").out.strip()
        assert state == "running", f"{state}\n{b.systemctl('--failed').out}"
        version = int(b.systemctl("--version").ok().out.split()[1])
        assert version >= VERSIONS[kind], version
        assert b.run("cat", "/proc/1/comm").out == "systemd\n"


@tap.test
def exit_codes_are_exact():
    with Box("bookworm") as b:
        for code in (0, 1, 7, 125, 255):
            assert b.run("sh", "-c", f"exit {code}").code == code
            assert b.unit("sh", "-c", f"exit {code}").code == code
        assert b.run("sh", "-c", "kill -TERM $$").code == 143


@tap.test
def files_users_and_the_journal():
    with Box("bookworm", files={"/etc/box.conf": "before the boot\n"}) as b:
        assert b.read("/etc/box.conf") == "before the boot\n"
        b.write("/var/lib/x/y", "later\n", 0o600)
        assert b.read("/var/lib/x/y") == "later\n"
        uid = b.add_user("alice")
        assert b.run("id", "-u", user="alice").out == f"{uid}\n"
        b.run("logger", "-t", "boxtest", "hello journal").ok()
        assert "hello journal" in b.messages("-t", "boxtest")


@tap.test
def nothing_is_left_of_a_box():
    with Box("bookworm") as b:
        state, cgroup, wrapper = b.state, b.cgroup, b.wrapper.pid
        assert state.exists() and cgroup.exists()
    assert not state.exists() and not cgroup.exists() and not pathlib.Path(f"/proc/{wrapper}").exists()
    assert str(state) not in pathlib.Path("/proc/self/mounts").read_text()


tap.main(lambda: box.need("bookworm"))
