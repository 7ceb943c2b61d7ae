#!/usr/bin/python3
"""Who may do what with the system's manager: other users, groups and modes, owners, root; and whose files a path means:
those of the caller, below the caller's own root directory, with the caller's rights."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import KINDS, SOCKET, System, unit_of  # noqa: E402

SUITES = ["bookworm", "trixie"]
systems = {}


def setup():
    for suite in SUITES:
        box.need(KINDS[suite])
    for suite in SUITES:
        s = systems[suite] = System(suite).start()
        # alice is nobody; bob and dave may start caches; carol is in the group of some.
        s.run("groupadd", "models").ok()
        s.add_user("alice")
        s.add_user("bob", "--groups", "iloader")
        s.add_user("dave", "--groups", "iloader")
        s.add_user("carol", "--groups", "models")


def teardown():
    for s in systems.values():
        s.stop()


def on_each(function=None, **options):
    def mark(f):
        def case(suite):
            s = systems[suite]
            s.fresh()
            f(s)
        case.__name__ = f.__name__
        return tap.parametrize(SUITES, **options)(case)
    return mark(function) if function else mark


def ctl(s, user, *argv):
    return s.run("iloaderctl", *argv, user=user)


def uid(s, user):
    return int(s.run("id", "-u", user).ok().out)


@on_each
def what_one_may_not_see_does_not_exist(s):
    cache = s.start_unit("qwen")
    # alice is neither root, nor the owner, nor in its group; and the mode is 0400.
    assert s.caches("alice") == {}
    for verb in (["status"], ["view"], ["manifest"], ["stop"], ["stop", "--force"], ["status", "--json"]):
        seen = ctl(s, "alice", verb[0], "qwen", *verb[1:])
        absent = ctl(s, "alice", verb[0], "nosuch", *verb[1:])
        assert seen.code == absent.code == 1, (seen, absent)
        assert seen.out == absent.out == "" and seen.err.replace("qwen", "nosuch") == absent.err, (seen, absent)
    leased = s.run("iloader", "run", "--system", "qwen", "--", "true", user="alice")
    assert leased.code == 125 and leased.err.replace("qwen", "nosuch") == s.run(
        "iloader", "run", "--system", "nosuch", "--", "true", user="alice").err, leased
    collected = json.loads(ctl(s, "alice", "gc", "--resident", "--max-bytes", "0", "--json").out)
    assert "qwen" not in json.dumps(collected) and not collected.get("remainingBytes"), collected
    # Nor in the file system: the names of views aren't listed, and this one isn't entered.
    assert s.run("ls", "/run/iloader/views", user="alice").code != 0
    for path in (cache["view"], f"{cache['view']}/config.json", f"{cache['view']}/.iloader-view",
                 f"{cache['view']}/model-00001-of-00002.safetensors", f"/proc/{cache['pid']}/fd/64", "/run/iloader/registry"):
        for user in ("alice", "bob"):
            denied = s.run("ls" if path.endswith(("qwen", "registry")) else "cat", path, user=user)
            assert denied.code != 0 and "Permission denied" in denied.err, denied
    # Others' stories neither: a monitor tells alice nothing of it, but root all.
    said = ctl(s, "alice", "monitor", "--help")
    assert said.code == 0
    with s.background("iloaderctl", "monitor", "--json", user="alice") as hers, s.background("iloaderctl", "monitor",
                                                                                             "--json") as roots:
        assert "current" in roots.read_line()
        s.run("iloaderctl", "stop", "qwen").ok()
        process.wait_until(lambda: '"stopped"' in roots.read_line(), "root is told")
        hers.process.terminate()
        s.run("pkill", "-u", "alice", "-x", "iloaderctl")
        assert "qwen" not in hers.wait().out


@on_each
def mode_and_group_let_others_see_and_lease(s):
    s.configure("grouped", Group="models", Mode="0440")
    s.configure("public", Mode="0444")
    s.start_unit("grouped")
    public = s.start_unit("public")
    assert set(s.caches("alice")) == {"public"} and set(s.caches("carol")) == {"grouped", "public"}
    for user, name in (("alice", "public"), ("carol", "grouped")):
        s.run("iloader", "run", "--system", name, "--", "true", user=user).ok()
        assert s.cache(name)["leasesGranted"] > 0
        ctl(s, user, "manifest", name).ok()
        # Seeing is not stopping, nor is it forcing.
        for options in ([], ["--force"]):
            refused = ctl(s, user, "stop", name, *options)
            assert refused.code == 1 and s.cache(name)["state"] == "ready", refused
    # What is 0444 in the view is everybody's; what is the group's, the group's.
    assert s.run("cat", f"{public['view']}/config.json", user="alice").ok().out == s.read("/srv/model/config.json")
    assert s.run("cat", "/run/iloader/views/grouped/config.json", user="carol").ok().out == s.read("/srv/model/config.json")
    assert s.run("cat", "/run/iloader/views/grouped/config.json", user="alice").code != 0
    assert s.run("sh", "-c", "echo x >>/run/iloader/views/public/config.json", user="alice").code != 0
    # A lease of hers keeps it from the owner's ordinary stop, and goes with her process.
    with s.reader("public", user="alice") as reader:
        s.run("iloaderctl", "stop", "public").fails(1, str(reader.pid))
    process.wait_until(lambda: not s.cache("public")["leases"], "the lease has ended")


@on_each
def starting_takes_root_or_the_group(s):
    for user in ("alice", "carol"):
        ctl(s, user, "start", "/srv/model", "--name", "hers").fails(1, "group 'iloader'")
        ctl(s, user, "start", "--name", "qwen").fails(1)
    view = ctl(s, "bob", "start", "/srv/model", "--name", "bobs").ok().out.strip()
    assert view == "/run/iloader/views/bobs"
    cache = s.cache("bobs")
    assert cache["uid"] == uid(s, "bob") and cache["mode"] == 0o400, cache
    status = s.read(f"/proc/{cache['pid']}/status")
    assert f"\nUid:\t{uid(s, 'bob')}\t" in status, status
    # Only he reads it: another one who may start caches does not, and can't take the name.
    s.run("diff", "-r", "--exclude=.iloader-view", "/srv/model", view, user="bob").ok()
    assert s.run("cat", f"{view}/config.json", user="dave").code != 0
    ctl(s, "dave", "start", "/srv/model", "--name", "bobs").fails(1, "bobs", "--name")
    assert ctl(s, "dave", "stop", "bobs").code == 1 and set(s.caches("dave")) == set()
    ctl(s, "bob", "stop", "bobs", "--remove-view").ok()
    assert s.cache("bobs") is None and not s.exists(view)


@on_each
def stopping_takes_the_owner_or_root(s):
    ctl(s, "bob", "start", "/srv/model", "--name", "shared", "--mode", "0444").ok()
    for user in ("alice", "dave"):
        refused = ctl(s, user, "stop", "shared")
        assert refused.code == 1 and "shared" in s.caches(), refused
        # Not by the back door.
        assert "shared" not in json.loads(ctl(s, user, "gc", "--resident", "--max-bytes", "0", "--apply", "--json").out)["evicted"]
    ctl(s, "dave", "stop", "--all")
    assert s.cache("shared")["state"] == "ready"
    ctl(s, "bob", "stop", "shared").ok()
    # An owner stops his configured cache; root anybody's.
    s.configure("configured", User="bob")
    s.start_unit("configured")
    ctl(s, "bob", "stop", "configured").ok()
    ctl(s, "bob", "start", "--name", "configured").ok()
    assert s.cache("configured")["uid"] == uid(s, "bob")
    s.run("iloaderctl", "stop", "configured").ok()
    ctl(s, "dave", "start", "--name", "configured").fails(1)


@on_each
def force_quota_and_owners_take_root(s):
    for options in (["--force"], ["--max-resident-bytes", "1GiB"], ["--owner", "root"], ["--owner", "dave"]):
        ctl(s, "bob", "start", "/srv/model", "--name", "other", *options).fails(1, "root")
    ctl(s, "bob", "set-quota", "1GiB").fails(1)
    ctl(s, "alice", "set-quota", "none").fails(1)
    ctl(s, "bob", "start", "/srv/model", "--name", "other").ok()
    with s.reader("other", user="bob"):
        ctl(s, "bob", "stop", "other").fails(1)
        # Not even his own.
        ctl(s, "bob", "stop", "other", "--force").fails(1)
        assert s.cache("other")["state"] == "ready"
        s.run("iloaderctl", "stop", "other", "--force").ok()
    s.run("iloaderctl", "start", "/srv/model", "--name", "daves", "--owner", "dave", "--force").ok()
    assert s.cache("daves")["uid"] == uid(s, "dave")
    s.run("iloaderctl", "start", "/srv/model", "--name", "more", "--max-resident-bytes", "1GiB").ok()
    assert s.cache("more")["budget"]["maxResidentBytes"] == 1 << 30
    s.run("iloaderctl", "set-quota", "none").ok()
    # A group of which one is no member isn't one's to give.
    ctl(s, "bob", "start", "/srv/model", "--name", "grouped", "--group", "models", "--mode", "0440").fails(1, "group")


@on_each
def a_configured_name_is_reserved(s):
    s.configure("reserved", User="dave")
    ctl(s, "bob", "start", "/srv/model", "--name", "reserved").fails(1, "reserved", "--name")
    ctl(s, "dave", "start", "/srv/model", "--name", "reserved").ok()
    assert s.cache("reserved")["uid"] == uid(s, "dave")
    # Also where the file is faulty, and then to root.
    s.write("/etc/iloader/caches/faulty.conf", "[Cache]\nUser=\n?\n")
    ctl(s, "bob", "start", "/srv/model", "--name", "faulty").fails(1, "faulty")


@on_each
def the_owners_rights_decide_what_is_read(s):
    # Only root can read it; bob can't by way of the manager either, wherever the link or the name is.
    s.run("sh", "-ec", "rm -rf /srv/secret /srv/trap; cp -r /srv/model /srv/secret && chmod 0700 /srv/secret; "
          "mkdir /srv/trap && cp /srv/model/config.json /srv/trap && ln -s /etc/shadow /srv/trap/weights.bin && chmod 0755 /srv/trap").ok()
    ctl(s, "bob", "start", "/srv/secret", "--name", "x").fails(1, "/srv/secret", "Permission denied")
    refused = ctl(s, "bob", "start", "/srv/trap", "--name", "x").fails(1, "weights.bin", "Permission denied")
    assert "root:" not in refused.out + refused.err
    # Configured for the service account, neither.
    s.configure("trap", "/srv/trap")
    assert s.systemctl("start", unit_of("trap")).code != 0
    assert "weights.bin" in s.status_text("trap"), s.unit_state("trap")
    # Nor is anything written where the owner may not write, or removed what isn't his.
    for option, path in (("--view", "/srv/view-of-bob"), ("--pid-file", "/run/pid-of-bob"), ("--log-file", "/var/log/log-of-bob")):
        ctl(s, "bob", "start", "/srv/model", "--name", "x", option, path).fails(1, path)
        assert not s.exists(path)
    s.run("sh", "-ec", "ln -sfn /etc ~bob/link && chown -h bob ~bob/link").ok()
    for option, path in (("--view", "/home/bob/link/view"), ("--pid-file", "/home/bob/link/pid"), ("--log-file", "/home/bob/link/log")):
        ctl(s, "bob", "start", "/srv/model", "--name", "x", option, path).fails(1)
        assert not s.exists(path)
    assert s.caches() == {}
    # Root reads what root can.
    s.run("iloaderctl", "start", "/srv/secret", "--name", "roots").ok()
    assert s.cache("roots")["uid"] == 0


# In a root of its own: with the host's programs and the manager's socket, but files that the host doesn't have.
JAIL = r"""
set -e
jail=/srv/jail
umount -R $jail 2>/dev/null || :
rm -rf $jail
mkdir -p $jail/usr $jail/proc $jail/run/iloader $jail/etc $jail/tmp $jail/models/inner $jail/srv
for d in bin lib lib64 sbin; do [ ! -e /$d ] || ln -s usr/$d $jail/$d; done
mount --bind /usr $jail/usr
mount --bind /run/iloader $jail/run/iloader
mount -t proc proc $jail/proc
cp /etc/passwd /etc/group /etc/nsswitch.conf $jail/etc/
echo "the jail's own secret" >$jail/etc/shadow
cp /srv/model/config.json $jail/models/inner/
ln -s /etc/shadow $jail/models/inner/absolute.bin
ln -s ../../../../../../../../etc/shadow $jail/models/inner/climbing.bin
chmod a+rx $jail $jail/models $jail/models/inner $jail/etc $jail/srv
chmod a+r $jail/etc/shadow
chown bob $jail/srv
"""


@on_each
def a_caller_in_a_root_of_its_own_means_its_own_files(s):
    s.run("sh", "-c", JAIL).ok()
    assert not s.exists("/models")
    # As root, whom nothing would keep from reading the host's.
    for user in ([], ["setpriv", "--reuid", "bob", "--regid", "bob", "--init-groups"]):
        view = s.run("chroot", "/srv/jail", *user, "iloaderctl", "start", "/models/inner", "--name", "jailed").ok().out.strip()
        for name in ("absolute.bin", "climbing.bin"):
            assert s.run("cat", f"{view}/{name}", user="bob" if user else None).ok().out == "the jail's own secret\n"
        cache = s.cache("jailed")
        assert cache["source"] == "/models/inner" and cache["uid"] == (uid(s, "bob") if user else 0), cache
        s.run("iloaderctl", "stop", "jailed", "--remove-view").ok()
        assert not s.exists(view)
    # A view that is named there appears there, and goes there.
    s.run("chroot", "/srv/jail", "setpriv", "--reuid", "bob", "--regid", "bob", "--init-groups", "iloaderctl", "start", "/models/inner",
          "--name", "jailed", "--view", "/srv/view").ok()
    assert s.exists("/srv/jail/srv/view/config.json") and not s.exists("/srv/view")
    ctl(s, "bob", "stop", "jailed", "--remove-view").ok()
    assert not s.exists("/srv/jail/srv/view")
    # The path as the host has it means nothing there.
    s.run("chroot", "/srv/jail", "iloaderctl", "start", "/srv/model", "--name", "jailed").fails(1, "/srv/model")
    s.run("umount", "-R", "/srv/jail/usr", "/srv/jail/run/iloader", "/srv/jail/proc").ok()


@on_each
def a_caller_in_mounts_of_its_own_means_its_own_files(s):
    s.run("sh", "-ec", "rm -rf /srv/hidden; mkdir /srv/hidden; echo inner >/srv/hidden/weights.bin").ok()
    # /srv/model is another directory in there; the manager's own view of it has the host's.
    out = s.run("unshare", "--mount", "sh", "-ec", "mount --bind /srv/hidden /srv/model && iloaderctl start /srv/model --name inner").ok()
    assert s.read(f"{out.out.strip()}/weights.bin") == "inner\n"
    # The same path without is another source, and so no reuse.
    s.run("iloaderctl", "start", "/srv/model", "--name", "inner").fails(1, "inner")
    s.run("iloaderctl", "stop", "inner").ok()
    # A unit with a root directory of its own, too: what attach sees decides.
    s.drop_in(unit_of("qwen"), "[Service]\nBindReadOnlyPaths=/srv/hidden:/srv/model\n")
    cache = s.start_unit("qwen")
    assert s.run("cat", f"{cache['view']}/weights.bin", user="iloader").ok().out == "inner\n"


LEASE = """
import json, os, sys
from harness.varlink import Connection
with Connection(sys.argv[1]) as c:
    print(json.dumps(c.error("AcquireLease", {"name": sys.argv[2]}, [os.pidfd_open(int(sys.argv[3]))])))
"""


@on_each
def a_lease_is_for_ones_own_processes(s):
    ctl(s, "bob", "start", "/srv/model", "--name", "bobs").ok()
    for pid, words in (("1", "belongs"), (str(s.manager_pid()), "belongs")):
        result = s.run("python3", "-c", LEASE, SOCKET, "bobs", pid, user="bob",
                       env={"PYTHONPATH": "/run/tests", "PYTHONDONTWRITEBYTECODE": "1"}).ok()
        error, parameters = json.loads(result.out)
        assert error == "InvalidHolder" and words in parameters["message"], result
    assert s.cache("bobs")["leases"] == []


@on_each
def limits_hold_for_each_user_and_not_for_root(s):
    s.write("/etc/iloader/iloaderd.conf", "[Manager]\nCachesMaxPerUser=1\nLeasesMaxPerUser=1\nBytesMaxPerUser=16M\n")
    try:
        s.systemctl("restart", "iloaderd.service").ok()
        ctl(s, "bob", "start", "/srv/model", "--name", "one").ok()
        ctl(s, "bob", "start", "/srv/model", "--name", "two").fails(1, "CachesMaxPerUser")
        s.run("sh", "-c", "rm -rf /srv/large; mkdir -m 0755 /srv/large; head -c 17M /dev/zero >/srv/large/model.bin").ok()
        ctl(s, "dave", "start", "/srv/large", "--name", "large").fails(1, "BytesMaxPerUser")
        with s.reader("one", user="bob"):
            s.run("iloader", "run", "--system", "one", "--", "true", user="bob").fails(125, "LeasesMaxPerUser")
            s.run("iloader", "run", "--system", "one", "--", "true").ok()
        for name in ("r1", "r2"):
            s.run("iloaderctl", "start", "/srv/large", "--name", name).ok()
    finally:
        s.write("/etc/iloader/iloaderd.conf", "[Manager]\n")
        s.systemctl("restart", "iloaderd.service").ok()


tap.main(setup, teardown)
