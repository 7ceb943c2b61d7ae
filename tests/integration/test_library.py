#!/usr/bin/python3
"""libiloader as another program uses it: compiled against the installed header with pkg-config."""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import checkpoint, process, tap  # noqa: E402
from harness.product import SANITIZED, STAGE, Product  # noqa: E402

PROGRAM = r"""
#include <errno.h>
#include <iloader/iloader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
        iloader_client *client = NULL;
        char *view = NULL;
        int r = iloader_client_open(argc > 3 ? argv[3] : NULL, 0, &client);

        if (r < 0) {
                printf("open: %s\n", strerror(-r));
                return 1;
        }
        if (strcmp(argv[1], "view") == 0)
                r = iloader_view(client, argv[2], &view);
        else
                r = iloader_lease_acquire(client, argv[2], -1, &view);
        if (r < 0) {
                printf("failed: %s: %s: %s\n", strerror(-r), iloader_client_last_error_name(client),
                       iloader_client_last_error(client));
                iloader_client_close(client);
                return 1;
        }
        printf("%s\n", view);
        fflush(stdout);
        free(view);
        if (strcmp(argv[1], "release") == 0) {
                r = iloader_lease_release(client, argv[2], -1);
                printf("released: %d\n", r);
        }
        client = iloader_client_close(client);
        if (strcmp(argv[1], "lease") == 0)
                (void) getchar();
        return client != NULL;
}
"""


class Shared:
    product = program = None


def setup():
    p = Shared.product = Product()
    p.start(checkpoint.small(p.path("model")), "qwen")
    source = p.path("program.c")
    source.write_text(PROGRAM)
    Shared.program = p.path("program")
    env = {**os.environ, "PKG_CONFIG_PATH": str(STAGE / "usr/lib/pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(STAGE)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libiloader"], env=env, capture_output=True, text=True,
                           check=True).stdout.split()
    sanitize = ["-fsanitize=address,undefined"] if SANITIZED else []
    process.run("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", *sanitize, source, "-o", Shared.program, f"-I{STAGE}/usr/include",
                f"-L{STAGE}/usr/lib", *flags, f"-Wl,-rpath,{STAGE}/usr/lib").ok()


def teardown():
    Shared.product.close()


def call(*argv):
    return process.run(Shared.program, *argv, env=Shared.product.env)


@tap.test
def the_view_is_found():
    assert call("view", "qwen").ok().out == f"{Shared.product.view_of('qwen')}\n"
    assert call("view", "qwen", Shared.product.socket).ok().out == f"{Shared.product.view_of('qwen')}\n"


@tap.test
def failures_are_told_in_words():
    result = call("view", "absent")
    assert result.code == 1 and "io.iloader.Manager.NoSuchCache" in result.out and "absent" in result.out, result
    assert call("view", "qwen", "/nonexistent").code == 1


@tap.test
def a_lease_is_the_processs():
    p = Shared.product
    with process.Background(Shared.program, "lease", "qwen", env=p.env, stdin=subprocess.PIPE) as holder:
        assert holder.read_line() == str(p.view_of("qwen"))
        assert [lease["pid"] for lease in p.status("qwen")["leases"]] == [holder.pid]
        p.iloader("stop", "qwen").fails(1)
        holder.process.stdin.close()
        holder.process.stdin = None
        assert holder.wait().code == 0
    process.wait_until(lambda: not p.status("qwen")["leases"], "the lease ended")


@tap.test
def a_lease_can_be_released():
    assert call("release", "qwen").ok().out.endswith("released: 0\n")
    assert Shared.product.status("qwen")["leases"] == []


tap.main(setup, teardown)
