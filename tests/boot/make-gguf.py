#!/usr/bin/python3
"""Writes a small Llama with random weights as one GGUF file, which llama-server loads and answers from. The same
arguments give the same bytes.

    make-gguf.py FILE [--hidden 64] [--layers 2] [--seed 1]

Format: ggml's docs/gguf.md, version 3.
"""
import argparse
import random
import struct

ALIGNMENT = 32
HEADS, KEY_HEADS = 4, 2
# Value types of the metadata.
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
SCALARS = {U32: "I", I32: "i", F32: "f", BOOL: "B"}
# Kinds of tokens: ordinary, unknown, control, unused, byte.
NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text(value) if kind == STRING else struct.pack("<" + SCALARS[kind], value)


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array_pair(key, kind, values):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(scalar(kind, v) for v in values)


def vocabulary():
    """Text, score and kind of each token: bytes, the blank and the lower-case letters; padded to a multiple of 32."""
    tokens = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    tokens += [(f"<0x{b:02X}>", 0.0, BYTE) for b in range(256)]
    tokens += [("\u2581", -1.0, NORMAL)] + [(chr(ord("a") + n), -2.0 - n, NORMAL) for n in range(26)]
    tokens += [(f"<unused{n}>", -1000.0, UNUSED) for n in range(-len(tokens) % 32)]
    return tokens


def metadata(hidden, inner, layers, tokens):
    return [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, "sample"),
        pair("general.alignment", U32, ALIGNMENT),
        pair("general.file_type", U32, 0),
        pair("llama.block_count", U32, layers),
        pair("llama.context_length", U32, 512),
        pair("llama.embedding_length", U32, hidden),
        pair("llama.feed_forward_length", U32, inner),
        pair("llama.attention.head_count", U32, HEADS),
        pair("llama.attention.head_count_kv", U32, KEY_HEADS),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.rope.dimension_count", U32, hidden // HEADS),
        pair("llama.rope.freq_base", F32, 10000.0),
        pair("llama.vocab_size", U32, len(tokens)),
        pair("tokenizer.ggml.model", STRING, "llama"),
        array_pair("tokenizer.ggml.tokens", STRING, [t[0] for t in tokens]),
        array_pair("tokenizer.ggml.scores", F32, [t[1] for t in tokens]),
        array_pair("tokenizer.ggml.token_type", I32, [t[2] for t in tokens]),
        pair("tokenizer.ggml.unknown_token_id", U32, 0),
        pair("tokenizer.ggml.bos_token_id", U32, 1),
        pair("tokenizer.ggml.eos_token_id", U32, 2),
        pair("tokenizer.ggml.add_bos_token", BOOL, 1),
    ]


def tensors(hidden, inner, layers, tokens):
    """Names and shapes; the fastest dimension comes first."""
    shared = hidden // HEADS * KEY_HEADS
    yield "token_embd.weight", (hidden, len(tokens))
    for n in range(layers):
        yield f"blk.{n}.attn_norm.weight", (hidden,)
        yield f"blk.{n}.attn_q.weight", (hidden, hidden)
        yield f"blk.{n}.attn_k.weight", (hidden, shared)
        yield f"blk.{n}.attn_v.weight", (hidden, shared)
        yield f"blk.{n}.attn_output.weight", (hidden, hidden)
        yield f"blk.{n}.ffn_norm.weight", (hidden,)
        yield f"blk.{n}.ffn_gate.weight", (hidden, inner)
        yield f"blk.{n}.ffn_up.weight", (hidden, inner)
        yield f"blk.{n}.ffn_down.weight", (inner, hidden)
    yield "output_norm.weight", (hidden,)
    yield "output.weight", (hidden, len(tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hidden, inner, tokens = arguments.hidden, 2 * arguments.hidden, vocabulary()
    source = random.Random(arguments.seed)
    pool = struct.pack("<16384f", *(source.gauss(0.0, 0.05) for _ in range(16384)))

    pairs = metadata(hidden, inner, arguments.layers, tokens)
    infos, data = b"", bytearray()
    listed = list(tensors(hidden, inner, arguments.layers, tokens))
    for name, shape in listed:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        if "norm" in name:
            data += struct.pack("<f", 1.0) * count
        else:
            end = len(data) + 4 * count
            while len(data) < end:
                start = source.randrange(8192) * 4
                data += pool[start:start + min(end - len(data), 32768)]
        data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(pairs)) + b"".join(pairs) + infos
    with open(arguments.file, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT) + data)


if __name__ == "__main__":
    main()
