"""Directories that look like checkpoints, small and large, and the ways in which real ones are odd."""
import os
import pathlib
import random

MIB = 1 << 20


def fill(path, size, seed=1):
    """A file of so many bytes that differ from place to place; the same seed gives the same bytes."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    block = random.Random(f"{seed}").randbytes(min(size, 65536))
    with open(path, "wb") as f:
        written = 0
        while written < size:
            # A counter in each block, so that swapped blocks are seen.
            piece = (written.to_bytes(8, "little") + block)[:min(len(block), size - written)]
            f.write(piece)
            written += len(piece)
    return path


def small(directory, shards=2, shard_size=2 * MIB, seed=1):
    """Two shards over a mebibyte, three small files: packed and unpacked ones."""
    directory = pathlib.Path(directory)
    for n in range(shards):
        fill(directory / f"model-{n + 1:05}-of-{shards:05}.safetensors", shard_size + 4096 * n + 17, seed + n)
    (directory / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}\n')
    (directory / "tokenizer.json").write_text('{"version": "1.0"}\n')
    (directory / "model.safetensors.index.json").write_text('{"weight_map": {}}\n')
    return directory


def hugging_face_snapshot(directory, seed=1):
    """A hub cache: blobs by hash, and a snapshot of relative links to them. Returns the snapshot's directory."""
    directory = pathlib.Path(directory)
    snapshot = directory / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    for n, (name, size) in enumerate((("model-00001-of-00002.safetensors", 3 * MIB + 5),
                                      ("model-00002-of-00002.safetensors", 2 * MIB), ("config.json", 120),
                                      ("tokenizer.json", 5000))):
        blob = fill(directory / "blobs" / f"{n:064x}", size, seed + n)
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def many_files(directory, count, size=512):
    """Many small files, spread over subdirectories."""
    directory = pathlib.Path(directory)
    for n in range(count):
        path = directory / f"part{n % 10}" / f"file-{n:05}.json"
        if n < 10:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((f"{n} " * size).encode()[:size])
    return directory


def same_tree(view, source):
    """Asserts that the view holds exactly the source's files, byte for byte."""
    def listing(top):
        top = os.fsencode(top)
        paths = [os.path.join(directory, name) for directory, _, names in os.walk(top) for name in names]
        return {os.path.relpath(path, top): path for path in paths}
    ours, theirs = listing(view), listing(source)
    ours.pop(b".iloader-view", None)
    assert ours.keys() == theirs.keys(), (f"only in the view: {sorted(ours.keys() - theirs.keys())[:5]}, "
                                          f"only in the source: {sorted(theirs.keys() - ours.keys())[:5]}")
    for name, path in ours.items():
        with open(path, "rb") as a, open(theirs[name], "rb") as b:
            while True:
                x, y = a.read(MIB), b.read(MIB)
                assert x == y, f"{name} differs"
                if not x:
                    break
