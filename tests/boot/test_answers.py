#!/usr/bin/python3
"""What operators are told: a cache that neither manager has, and a configuration with a fault."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, tap  # noqa: E402
from harness.box import Box  # noqa: E402
from harness.product import STAGE  # noqa: E402


@tap.test
def a_cache_that_neither_manager_has():
    with Box("bookworm", layers=[STAGE], enable=["iloaderd.socket"]) as b:
        b.run("sh", "-c", "mkdir /model && echo '{}' >/model/config.json").ok()
        b.run("iloader", "start", "/model", "--name", "own").ok()
        b.run("iloader", "run", "absent", "--", "true").fails(
            125, "your own manager (", "nor at the system's manager (/run/iloader/io.iloader.Manager)", "'iloader list'",
            "systemctl start iloader@absent")
        b.run("iloader", "stop", "own").ok()


@tap.test
def a_faulty_configuration_loops_nowhere_and_the_socket_stays():
    with Box("bookworm", layers=[STAGE], enable=["iloaderd.socket"]) as b:
        b.run("sh", "-c", "printf '[Manager]\\nCachesMax=many\\n' >/etc/iloader/iloaderd.conf").ok()
        # More than the limit of starts that a socket has by default, and faster.
        for _ in range(25):
            b.run("iloaderctl", "list").fails(1, "systemctl status iloaderd")
        state = b.show("iloaderd.service", "ExecMainStatus", "NRestarts")
        assert state == {"ExecMainStatus": "78", "NRestarts": "0"}, state
        assert b.show("iloaderd.socket", "ActiveState")["ActiveState"] == "active"
        b.run("sh", "-c", ": >/etc/iloader/iloaderd.conf").ok()
        b.run("iloaderctl", "list").ok()
        # Corrections of a cache, one after the other.
        for _ in range(8):
            b.systemctl("start", "iloader@absent.service")
        assert b.show("iloader@absent.service", "Result")["Result"] == "exit-code"


tap.main(lambda: box.need("bookworm"))
