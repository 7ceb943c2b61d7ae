#!/usr/bin/python3
"""Writes a small checkpoint as a model hub would deliver it: safetensors shards with their index, configuration and
tokenizer of a Llama with random weights. The same arguments give the same bytes. Real engines load it; what it says
makes no sense.

    make-sample-checkpoint.py DIRECTORY [--shards 3] [--hidden 256] [--layers 6] [--seed 1] [--dtype F32|F16]

The defaults make about 24 MiB. Format: https://github.com/huggingface/safetensors, "Format".
"""
import argparse
import array
import json
import pathlib
import random
import struct

DTYPES = {"F32": ("f", 4, "float32"), "F16": ("e", 2, "float16")}
BYTE_TOKENS = 256
BEGIN, END = BYTE_TOKENS, BYTE_TOKENS + 1
# Some embeddings more than tokens, as real models have them.
VOCABULARY = 320
POOL = 1 << 16


class Weights:
    """Cheap weights that differ between tensors: a pool of normally distributed numbers, read from places that the
    tensor's name decides."""

    def __init__(self, seed, dtype):
        self.seed, self.size = seed, DTYPES[dtype][1]
        source = random.Random(seed)
        numbers = [source.gauss(0.0, 0.05) for _ in range(POOL)]
        code = DTYPES[dtype][0]
        self.pool = array.array("f", numbers).tobytes() if code == "f" else struct.pack(f"<{POOL}{code}", *numbers)
        self.one = struct.pack(f"<{code}", 1.0)

    def write(self, out, name, count):
        if name.endswith("norm.weight"):
            out.write(self.one * count)
            return
        places = random.Random(f"{self.seed} {name}")
        left = count * self.size
        while left > 0:
            start = places.randrange(POOL // 2) * self.size
            left -= out.write(self.pool[start:start + left])


def tensors(hidden, layers):
    """Names and shapes, in the order of a forward pass."""
    heads = 4
    shared = hidden // heads * (heads // 2)     # grouped-query attention: half as many keys and values
    inner = 4 * hidden
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for n in range(layers):
        layer = f"model.layers.{n}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (hidden, hidden)
        yield layer + "self_attn.k_proj.weight", (shared, hidden)
        yield layer + "self_attn.v_proj.weight", (shared, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, hidden)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield layer + "mlp.gate_proj.weight", (inner, hidden)
        yield layer + "mlp.up_proj.weight", (inner, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def into_shards(all_tensors, shards):
    """Consecutive tensors, about equally many bytes in each shard."""
    total = sum(elements(shape) for _, shape in all_tensors)
    groups, current, so_far = [], [], 0
    for tensor in all_tensors:
        current.append(tensor)
        so_far += elements(tensor[1])
        if so_far * shards >= total * (len(groups) + 1):
            groups.append(current)
            current = []
    return [g for g in [*groups, current] if g]


def write_shard(path, group, dtype, weights):
    size = DTYPES[dtype][1]
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in group:
        end = offset + elements(shape) * size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in group:
            weights.write(out, name, elements(shape))
    return offset


def byte_characters():
    """The visible character that stands for each byte in byte-level vocabularies: printable Latin-1 for itself, the
    rest from U+0100 on."""
    visible = {*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)}
    following = iter(range(0x100, 0x200))
    return [chr(b) if b in visible else chr(next(following)) for b in range(256)]


def tokenizer():
    special = [{"id": BEGIN + n, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for n, text in enumerate(("<s>", "</s>"))]
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {character: byte for byte, character in enumerate(byte_characters())}, "merges": []}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": by_bytes, "post_processor": None, "decoder": by_bytes, "model": model}


def configuration(hidden, layers, dtype):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
            "hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": hidden // 4, "hidden_act": "silu",
            "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "attention_bias": False,
            "mlp_bias": False, "tie_word_embeddings": False, "initializer_range": 0.02, "bos_token_id": BEGIN,
            "eos_token_id": END, "pad_token_id": END, "torch_dtype": DTYPES[dtype][2]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 8")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="F32")
    arguments = parser.parse_args()
    if arguments.hidden < 8 or arguments.hidden % 8 or arguments.layers < 1 or arguments.shards < 1:
        parser.error("--hidden must be a positive multiple of 8, --layers and --shards positive")
    directory = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)

    weights = Weights(arguments.seed, arguments.dtype)
    shards = into_shards(list(tensors(arguments.hidden, arguments.layers)), arguments.shards)
    total, places = 0, {}
    for number, group in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        total += write_shard(directory / name, group, arguments.dtype, weights)
        places.update((tensor, name) for tensor, _ in group)

    for name, content in {
            "model.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": places},
            "config.json": configuration(arguments.hidden, arguments.layers, arguments.dtype),
            "generation_config.json": {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": END},
            "tokenizer.json": tokenizer(),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                                      "eos_token": "</s>", "pad_token": "</s>", "model_max_length": 512}}.items():
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
