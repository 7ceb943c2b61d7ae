#!/usr/bin/python3
"""What make says: a word for each object, and the whole command only where it is asked for."""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import process, tap  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parent.parent.parent


@tap.parametrize(["", "1"])
def make_says_little(verbose):
    with tempfile.TemporaryDirectory() as scratch:
        built = pathlib.Path(scratch)
        result = process.run("make", "--no-print-directory", "-C", TREE, f"B={built}", f"V={verbose}", built / "base/size.o",
                             timeout=120).ok()
        assert (built / "base/size.o").exists()
        if verbose:
            assert f"-c -o {built}/base/size.o base/size.c" in result.out, result
        else:
            assert "  CC base/size.c" in result.out.splitlines() and "-Wall" not in result.out, result


tap.main()
