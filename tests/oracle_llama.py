#!/usr/bin/env python3
"""The tests' reference for the `llama` and `qwen3` architectures: a plain numpy forward pass over a GGUF file.

It shares nothing with Monotile. PyPI's `gguf` reads the file and dequantises every tensor to float32; all arithmetic
after that is done in float64 (or float32 with --float32), so its rounding is far below what the tests allow.

    oracle_llama.py logits MODEL --ids FILE --out FILE [--last] [--chunk N]   raw little-endian float32 [n, vocab]
    oracle_llama.py greedy MODEL --ids FILE... --out FILE... -n N             a line a step: id logit second-id logit

An ids file holds token ids separated by white space or commas. `greedy` takes several prompts in one call (the model
is read once): the k-th --out belongs to the k-th --ids.

Shapes: a linear layer's weight is [out, in] (gguf's reader gives the rows of the file that way). Rope turns the
interleaved pairs (2i, 2i+1), the order in which the rows of attn_q and attn_k lie in a llama GGUF. A qwen3 has the pairs (i, i + head_dim / 2) instead, an RMS norm
of every query and key head before rope, and no biases. What the file asks
for and this model does not have (experts, YaRN, a tensor that nothing reads) is an error, not a wrong answer.
"""
import argparse
import re
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.quants import dequantize


def shard_paths(path, count):
    """All files of a split model, given any one of them."""
    match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if not match or int(match[3]) != count:
        raise SystemExit(f"{path}: split.count is {count}, the name does not say so")
    return [path.with_name(f"{match[1]}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]


class Cache:
    """Keys and values of every layer for up to `capacity` positions; `length` of them are filled."""

    def __init__(self, model, capacity):
        def make(size):
            return [np.empty((capacity, model.kv_heads, size), model.dtype) for _ in range(model.layers)]

        self.keys, self.values, self.length = make(model.head_dim), make(model.value_dim), 0


class Llama:
    def __init__(self, path, dtype=np.float64):
        self.dtype = np.dtype(dtype)
        first = GGUFReader(path)
        split = first.get_field("split.count")
        count = int(split.contents()) if split else 1
        readers = [GGUFReader(p) for p in shard_paths(Path(path), count)] if count > 1 else [first]
        self.fields = readers[0].fields
        self.tensors = {t.name: t for r in readers for t in r.tensors}
        self.read_shape()
        self.read_weights()
        del self.tensors

    def get(self, key, default=None):
        """A number or a string of the model's metadata; without a default it has to be there."""
        field = self.fields.get(f"{self.arch}.{key}")
        if field is None:
            if default is None:
                raise SystemExit(f"metadata {self.arch}.{key} is missing")
            return default
        if field.types[0] == GGUFValueType.ARRAY:
            raise SystemExit(f"metadata {self.arch}.{key} is an array: one value for each layer is not supported")
        return field.contents()

    def read_shape(self):
        self.arch = self.fields["general.architecture"].contents()
        if self.arch not in ("llama", "qwen3"):
            raise SystemExit(f"architecture {self.arch} is not llama or qwen3")
        self.qwen3 = self.arch == "qwen3"
        for key in ("expert_count", "attention.sliding_window", "attention.clamp_kqv", "attention.scale"):
            if self.get(key, 0) != 0:
                raise SystemExit(f"metadata {self.arch}.{key} is not supported")
        self.layers = self.get("block_count")
        self.hidden = self.get("embedding_length")
        self.heads = self.get("attention.head_count")
        self.kv_heads = self.get("attention.head_count_kv", self.heads)
        self.head_dim = self.get("attention.key_length", self.hidden // self.heads)
        self.value_dim = self.get("attention.value_length", self.hidden // self.heads)
        self.epsilon = self.get("attention.layer_norm_rms_epsilon")
        self.rope_dim = self.get("rope.dimension_count", self.head_dim)
        self.rope_base = self.get("rope.freq_base", 10000.0)
        self.rope_scale = 1.0
        kind = self.get("rope.scaling.type", "linear" if f"{self.arch}.rope.scale_linear" in self.fields else "none")
        if kind == "linear":
            self.rope_scale = self.get("rope.scaling.factor", self.get("rope.scale_linear", 1.0))
        elif kind != "none":
            raise SystemExit(f"rope scaling {kind} is not supported")

    def take(self, name, optional=False):
        """One tensor, dequantised; it leaves the table, so that what nobody takes is noticed."""
        tensor = self.tensors.pop(name, None)
        if tensor is None:
            if optional:
                return None
            raise SystemExit(f"tensor {name} is missing")
        return dequantize(tensor.data, tensor.tensor_type).astype(self.dtype)

    def take_linear(self, name):
        return self.take(name + ".weight"), None if self.qwen3 else self.take(name + ".bias", optional=True)

    def read_weights(self):
        self.embedding = self.take("token_embd.weight")
        self.blocks = []
        for i in range(self.layers):
            norms = ("attn_norm", "ffn_norm") + (("attn_q_norm", "attn_k_norm") if self.qwen3 else ())
            block = {n: self.take(f"blk.{i}.{n}.weight") for n in norms}
            for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
                block[name] = self.take_linear(f"blk.{i}.{name}")
            self.blocks.append(block)
        self.output_norm = self.take("output_norm.weight")
        output = self.take("output.weight", optional=True)
        self.output = self.embedding if output is None else output
        self.vocab = self.output.shape[0]
        frequency = float(self.rope_base) ** (-np.arange(0, self.rope_dim, 2) / self.rope_dim) / self.rope_scale
        factors = None if self.qwen3 else self.take("rope_freqs.weight", optional=True)
        self.rope_frequency = frequency if factors is None else frequency / factors.astype(np.float64)
        if self.tensors:
            raise SystemExit(f"nothing reads tensor {next(iter(self.tensors))}")

    def norm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * weight

    def rope(self, x, positions):
        """x[n, heads, head_dim]: turn the pairs of the first rope_dim elements, in place."""
        angle = positions[:, None, None] * self.rope_frequency
        cos, sin = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        half = self.rope_dim // 2
        first, second = (slice(0, half), slice(half, 2 * half)) if self.qwen3 else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        a, b = x[..., first].copy(), x[..., second].copy()
        x[..., first] = a * cos - b * sin
        x[..., second] = a * sin + b * cos

    def attention(self, q, k, v, start):
        """q[n, heads, d] at positions from start, k and v [start + n, kv_heads, d]: head h reads kv head h // group."""
        n, group = q.shape[0], self.heads // self.kv_heads
        q = q.reshape(n, self.kv_heads, group, self.head_dim).transpose(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2, 0)[:, None] / np.sqrt(self.dtype.type(self.head_dim))
        scores[..., np.arange(start + n) > start + np.arange(n)[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ v.transpose(1, 0, 2)[:, None]).transpose(2, 0, 1, 3).reshape(n, -1)

    def forward(self, ids, cache, last=False):
        """Append ids to the cache and return their logits [n, vocab] (only the last position's, if asked)."""
        ids = np.asarray(ids)
        if ids.size == 0 or ids.min() < 0 or ids.max() >= self.embedding.shape[0]:
            raise SystemExit("no token ids, or one outside the vocabulary")
        n, start = len(ids), cache.length
        end = start + n
        positions = np.arange(start, end)

        def linear(x, layer):
            weight, bias = layer
            y = x @ weight.T
            return y if bias is None else y + bias

        x = self.embedding[ids]
        for i, block in enumerate(self.blocks):
            h = self.norm(x, block["attn_norm"])
            q = linear(h, block["attn_q"]).reshape(n, self.heads, self.head_dim)
            k = linear(h, block["attn_k"]).reshape(n, self.kv_heads, self.head_dim)
            if self.qwen3:
                q, k = self.norm(q, block["attn_q_norm"]), self.norm(k, block["attn_k_norm"])
            self.rope(q, positions)
            self.rope(k, positions)
            cache.keys[i][start:end] = k
            cache.values[i][start:end] = linear(h, block["attn_v"]).reshape(n, self.kv_heads, self.value_dim)
            x = x + linear(self.attention(q, cache.keys[i][:end], cache.values[i][:end], start), block["attn_output"])
            h = self.norm(x, block["ffn_norm"])
            gate = linear(h, block["ffn_gate"])
            with np.errstate(over="ignore"):  # exp(-gate) = inf gives the right limit, 0
                gate = gate / (1 + np.exp(-gate))
            x = x + linear(gate * linear(h, block["ffn_up"]), block["ffn_down"])
        cache.length = end
        return self.norm(x[-1:] if last else x, self.output_norm) @ self.output.T

    def logits(self, ids, last=False, chunk=0):
        """Logits of a whole text, fed at once or `chunk` tokens at a time."""
        cache, step = Cache(self, len(ids)), chunk or max(len(ids), 1)
        parts = [self.forward(ids[i : i + step], cache, last) for i in range(0, len(ids) or 1, step)]
        return parts[-1] if last else np.concatenate(parts)

    def greedy(self, ids, count):
        """Yield (id, logit, second id, its logit) for each step; equal logits: the lower id first."""
        cache = Cache(self, len(ids) + count)
        for _ in range(count):
            row = self.forward(ids, cache, last=True)[0]
            first, second = np.argsort(-row, kind="stable")[:2]
            yield int(first), float(row[first]), int(second), float(row[second])
            ids = [first]


def read_ids(path):
    return [int(word) for word in Path(path).read_text().replace(",", " ").split()]


def main():
    parser = argparse.ArgumentParser(description="reference forward pass of llama and qwen3 GGUF models")
    commands = parser.add_subparsers(dest="command", required=True)
    logits = commands.add_parser("logits", help="logits of a text as raw float32")
    greedy = commands.add_parser("greedy", help="greedy continuations, one line a step")
    for command in (logits, greedy):
        command.add_argument("model")
        command.add_argument("--float32", action="store_true", help="compute in float32 instead of float64")
    logits.add_argument("--ids", required=True)
    logits.add_argument("--out", required=True)
    logits.add_argument("--last", action="store_true", help="only the last position's")
    logits.add_argument("--chunk", type=int, default=0, help="feed N tokens at a time through the cache")
    greedy.add_argument("--ids", required=True, nargs="+")
    greedy.add_argument("--out", required=True, nargs="+")
    greedy.add_argument("-n", type=int, required=True)
    args = parser.parse_args()

    if args.command == "greedy" and len(args.ids) != len(args.out):
        parser.error("as many --out as --ids, please")
    model = Llama(args.model, np.float32 if args.float32 else np.float64)
    if args.command == "logits":
        model.logits(read_ids(args.ids), args.last, args.chunk).astype("<f4").tofile(args.out)
        return
    for ids, out in zip(args.ids, args.out):
        with open(out, "w", encoding="utf-8") as file:
            for first, top, second, next_top in model.greedy(read_ids(ids), args.n):
                file.write(f"{first} {top:.9g} {second} {next_top:.9g}\n")


if __name__ == "__main__":
    sys.exit(main())
