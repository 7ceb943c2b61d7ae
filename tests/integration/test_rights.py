#!/usr/bin/python3
"""Who may do what with a user's own manager: nobody but its user and root; and that workers can't do more than they need."""
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import Product, another_user  # noqa: E402

SOMEBODY = (65501, 65501, [])
# The running interpreter may be where only root can go.
PYTHON = "/usr/bin/python3"


@tap.test
def another_user_is_not_answered():
    user = another_user()
    with Product(user=user) as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        for directory in (p.base, p.base / "run"):
            directory.chmod(0o755)
        p.socket.chmod(0o666)
        program = ("import socket, sys\n"
                   "s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])\n"
                   "s.sendall(b'{\"method\":\"io.iloader.Manager.List\"}\\0')\n"
                   "data = s.recv(65536)\nprint(data)\n")
        result = process.run(PYTHON, "-c", program, p.socket, user=SOMEBODY)
        assert b"qwen" not in result.out.encode(), result
        assert "PermissionDenied" in result.out or result.out == "b''\n" or "reset" in result.err.lower(), result
        p.base.chmod(0o700)
        (p.base / "run").chmod(0o700)


@tap.test
def root_may_use_a_users_manager():
    user = another_user()
    with Product(user=user) as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        with p.connect() as c:
            cache = c.call("Status", {"name": "qwen"})["cache"]
            assert cache["uid"] == user[0] and cache["gid"] == user[1], cache


@tap.test
def a_client_does_not_trust_a_socket_of_somebody_else():
    user = another_user()
    with Product(user=user) as p:
        listener = socket.socket(socket.AF_UNIX)
        place = p.path("listening")
        place.mkdir()
        listener.bind(str(place / "sock"))
        listener.listen()
        (place / "sock").chmod(0o777)
        place.chmod(0o755)
        # It is root's here, which everybody trusts; so ask from a listener of a third one.
        program = ("import os, socket, sys, signal\n"
                   "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os.chmod(sys.argv[1], 0o777)\n"
                   "print('up', flush=True)\n"
                   "while True:\n c, _ = s.accept()\n print(len(c.recv(100)), flush=True)\n")
        theirs = p.path("theirs")
        theirs.mkdir()
        os.chown(theirs, SOMEBODY[0], SOMEBODY[1])
        theirs.chmod(0o755)
        with process.Background(PYTHON, "-c", program, theirs / "sock", user=SOMEBODY) as liar:
            assert liar.read_line() == "up"
            p.iloader("status", "qwen", "--socket", theirs / "sock").fails(1, "belongs")
            assert liar.read_line() == "0", "nothing was said to it"
        listener.close()


@tap.test
def a_lease_for_somebody_elses_process_is_refused():
    user = another_user()
    with Product(user=user) as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        program = ("import array, json, os, socket, sys\n"
                   "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                   "fd = os.pidfd_open(int(sys.argv[2]))\n"
                   "s.sendmsg([b'{\"method\":\"io.iloader.Manager.AcquireLease\",\"parameters\":{\"name\":\"qwen\"}}\\0'],\n"
                   "          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])\n"
                   "print(s.recv(65536))\n")
        with process.Background("sleep", "100") as roots:
            result = process.run(PYTHON, "-c", program, p.socket, roots.pid, user=user)
            assert "InvalidHolder" in result.out, result
            # Root may.
            with p.connect() as c:
                fd = os.pidfd_open(roots.pid)
                assert c.call("AcquireLease", {"name": "qwen"}, [fd])["pid"] == roots.pid
                os.close(fd)


@tap.test
def a_holder_that_the_manager_cannot_see_is_refused():
    if os.geteuid() != 0:
        tap.skip("making a pid namespace needs root")
    with Product() as p:
        # The manager lives in a pid namespace of its own; the holder outside of it.
        probe = process.run("unshare", "--pid", "--fork", "--mount-proc", "true")
        if probe.code != 0:
            tap.skip("this machine makes no pid namespaces")
        p.start_manager("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        with p.connect() as c:
            c.call("Start", {"name": "qwen", "source": str(checkpoint.small(p.path("model")))})
            fd = os.pidfd_open(os.getpid())
            name, parameters = c.error("AcquireLease", {"name": "qwen"}, [fd])
            assert name == "InvalidHolder" and parameters["message"], (name, parameters)
            os.close(fd)
            c.call("Stop", {"name": "qwen", "removeView": True})


@tap.test
def a_worker_is_confined():
    with Product() as p:
        p.start(checkpoint.small(p.path("model")), "qwen")
        status = pathlib.Path(f"/proc/{p.worker_pids()[0]}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Seccomp"].strip() == "2" and fields["NoNewPrivs"].strip() == "1", status
        assert int(fields["Seccomp_filters"]) >= 2, "the filter of holding lies over the one of loading"
        # Root's own worker reads with root's rights; the system scope's are the boot tests' matter.
        assert os.geteuid() == 0 or fields["CapEff"].strip() == "0000000000000000", status


@tap.test
def a_worker_holds_nothing_that_is_not_its_caches():
    with Product() as p:
        p.start(checkpoint.small(p.path("one")), "one")
        p.start(checkpoint.small(p.path("two"), seed=5), "two")
        for pid in p.worker_pids():
            links = list(process.open_descriptors(pid).values())
            foreign = [link for link in links if not ("memfd:" in link or link.startswith(("socket:", "/dev/null", "pipe:",
                                                                                         "anon_inode:", "/dev/pts"))
                                                      or link == "/" or link.startswith(str(p.base)))]
            assert not foreign, links
        inodes = []
        for pid in p.worker_pids():
            inodes.append({os.stat(f"/proc/{pid}/fd/{n}").st_ino for n, link in process.open_descriptors(pid).items()
                           if "memfd:" in link})
        assert not inodes[0] & inodes[1]


@tap.test
def a_container_root_of_the_callers_own():
    if os.geteuid() != 0:
        tap.skip("chroot needs root")
    with Product() as p:
        p.start(checkpoint.small(p.path("other")), "other")
        # The caller lives in another root; its paths and absolute links mean that one, for source and view alike.
        root = p.path("container")
        for directory in ("usr", "lib", "lib64", "bin", "etc", "proc"):
            outside = pathlib.Path("/", directory)
            if outside.exists():
                (root / directory).mkdir(parents=True)
                if directory != "etc":
                    assert process.run("mount", "--rbind" if directory == "proc" else "--bind", outside,
                                       root / directory).code == 0
        programs = root / "programs"
        programs.mkdir()
        assert process.run("mount", "--bind", p.bin, programs).code == 0
        (root / "run").mkdir()
        assert process.run("mount", "--bind", p.base / "run", root / "run").code == 0
        (root / "etc/secret").write_text("the container's")
        model = checkpoint.small(root / "model")
        (model / "linked.json").symlink_to("/etc/secret")
        result = process.run("chroot", root, "/programs/iloader", "start", "/model", "--name", "inside", "--view",
                             "/views/inside", "--socket", "/run/io.iloader.Manager", env=p.env)
        if result.code == 127:
            tap.skip(f"the programs don't run in a bare root: {result.err.strip()}")
        result.ok()
        assert result.out.strip() == "/views/inside"
        assert (root / "views/inside/linked.json").read_text() == "the container's"
        assert p.status("inside")["source"] == "/model"
        p.iloader("stop", "inside", "--remove-view").ok()
        assert not (root / "views/inside").exists()


tap.main()
