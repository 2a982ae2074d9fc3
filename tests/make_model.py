#!/usr/bin/env python3
"""Writes a small random `llama` or `qwen3` model as GGUF, for tests: any odd size, any storage type, with a tokenizer inside.

    make_model.py OUT.gguf [--hidden 72 --heads 3 --kv-heads 1 --ffn 200 --vocab 515 --type q4_1 --tied --seed 7 ...]

The weights are scaled so that the model is worth testing: logits have a spread of about 2, attention scores too (so
attention is neither uniform nor one-hot), no norm weight is 1 and no bias 0. The same arguments give the same file.

A weight matrix whose rows are not whole blocks of --type is stored as f32, and so are all vectors. gguf cannot quantise
to the k types (q2_k ... q6_k); there the blocks themselves are random bytes, and only their scales are chosen.

The tokenizer is byte-level BPE as in SmolLM2's file (model gpt2, pre smollm): the 256 byte symbols, some merges, three
special tokens, <unusedN> up to --vocab. With --split N the tensors go into N files OUT-0000k-of-0000N.gguf.
"""
import argparse
import logging
import math
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, RopeScalingType, TokenType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Ġ is a space and Ċ a line feed in the byte symbols; every part is a byte or the result of an earlier pair.
MERGES = (
    "Ġ t|h e|i n|Ġ a|Ġt he|e r|o n|r e|Ġ s|Ġ w|o r|a n|e n|o u|i s|Ġ o|Ġ i|e s|i t|a t|Ġ c|Ġ b|Ġ f|e d|in g|Ġa n|"
    "Ġan d|Ġo f|Ġt o|Ġ m|Ġ p|a l|l l|o m|i on|Ġ in|Ġi t|Ġ y|Ġy ou|c h|u s|er s|l y|v er|Ġ h|Ġh a|Ġ he|Ġ is|Ċ Ċ|Ġ Ġ|"
    "ĠĠ ĠĠ|u t|a r|s t|Ġ d|Ġ T|T he|Ġ re|l e|n t|m e|= =|- -|. .|Ã ©|â Ģ"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# The k types: where in a block the float16 scales d and (if any) dmin lie, and the dmin that centres the values if d is
# 1 and all other bits are random: the mean of the quants, because sub-scales and minima have the same range.
K_TYPES = {"q2_k": (80, 82, 1.5), "q3_k": (108, None, 0), "q4_k": (0, 2, 7.5), "q5_k": (0, 2, 15.5),
           "q6_k": (208, None, 0)}
TYPES = {t: GGMLQuantizationType[t.upper()]
         for t in ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", *K_TYPES)}
FILE_TYPES = {"f32": "ALL_F32", "q2_k": "MOSTLY_Q2_K", "q3_k": "MOSTLY_Q3_K_M", "q4_k": "MOSTLY_Q4_K_M",
              "q5_k": "MOSTLY_Q5_K_M", "mxfp4": "GUESSED"}


def byte_symbols():
    """GPT-2's printable stand-in for each byte: itself where it prints, else the next free code from 256."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def random_k_blocks(rng, shape, kind, spread):
    """Random blocks of a k type, as bytes [rows, n]: values of mean about 0 and the given standard deviation."""
    d_at, min_at, centre = K_TYPES[kind]
    values_per_block, size = GGML_QUANT_SIZES[TYPES[kind]]
    blocks = rng.integers(0, 256, (math.prod(shape) // values_per_block, size), np.uint8)

    def set_scale(d):
        for at, value in ((d_at, d), (min_at, d * centre)):
            if at is not None:
                blocks[:, at : at + 2] = np.array([value], "<f2").view(np.uint8)

    set_scale(1)
    set_scale(spread / dequantize(blocks, TYPES[kind]).std())
    return blocks.reshape(shape[0], -1)


class Maker:
    def __init__(self, args, writer):
        self.args, self.writer, self.rng = args, writer, np.random.default_rng(args.seed)

    def matrix(self, name, rows, columns, spread, kind=None):
        """A weight [rows, columns]; spread is the standard deviation of its output for inputs of size 1."""
        kind, spread = kind or self.args.type, spread / math.sqrt(columns)
        if columns % GGML_QUANT_SIZES[TYPES[kind]][0] != 0:
            kind = "f32"
        if kind in K_TYPES:
            data = random_k_blocks(self.rng, (rows, columns), kind, spread)
        else:
            data = quantize(self.rng.standard_normal((rows, columns), np.float32) * np.float32(spread), TYPES[kind])
        self.writer.add_tensor(name + ".weight", data, raw_dtype=TYPES[kind])

    def vector(self, name, size, centre, spread):
        self.writer.add_tensor(name, (centre + spread * self.rng.standard_normal(size)).astype(np.float32))

    def tensors(self):
        a = self.args
        # Tied, the embedding is also the output matrix, and its spread has to suit the logits.
        self.matrix("token_embd", a.vocab, a.hidden, 2 if a.tied else math.sqrt(a.hidden), a.embedding_type)
        if a.rope_freqs:
            # As Llama 3.1 has them: high frequencies stay, low ones are divided by 8, a ramp between.
            factors = np.geomspace(1 / 2, 16, a.rope_dim // 2).clip(1, 8)
            self.writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
        for i in range(a.layers):
            block = f"blk.{i}."
            self.vector(block + "attn_norm.weight", a.hidden, 1, 0.1)
            for name, heads, spread in (("q", a.heads, 1.4), ("k", a.kv_heads, 1.4), ("v", a.kv_heads, 1)):
                self.matrix(f"{block}attn_{name}", heads * a.head_dim, a.hidden, spread)
                if a.bias:
                    self.vector(f"{block}attn_{name}.bias", heads * a.head_dim, 0, 0.3)
                if a.arch == "qwen3" and name != "v":
                    self.vector(f"{block}attn_{name}_norm.weight", a.head_dim, 1.4, 0.3)
            self.matrix(block + "attn_output", a.hidden, a.heads * a.head_dim, 1)
            self.vector(block + "ffn_norm.weight", a.hidden, 1, 0.1)
            self.matrix(block + "ffn_gate", a.ffn, a.hidden, 1.5)
            self.matrix(block + "ffn_up", a.ffn, a.hidden, 1.5)
            self.matrix(block + "ffn_down", a.hidden, a.ffn, 1)
        self.vector("output_norm.weight", a.hidden, 1, 0.1)
        if not a.tied:
            self.matrix("output", a.vocab, a.hidden, 2, a.embedding_type)

    def metadata(self):
        a, w = self.args, self.writer
        w.add_name(f"random {a.arch}")
        w.add_file_type(LlamaFileType[FILE_TYPES.get(a.type, "MOSTLY_" + a.type.upper())])
        w.add_block_count(a.layers)
        w.add_context_length(a.context)
        w.add_embedding_length(a.hidden)
        w.add_feed_forward_length(a.ffn)
        w.add_head_count(a.heads)
        w.add_head_count_kv(a.kv_heads)
        if a.head_dim * a.heads != a.hidden:
            w.add_key_length(a.head_dim)
            w.add_value_length(a.head_dim)
        w.add_layer_norm_rms_eps(1e-5)
        if a.arch == "llama":
            w.add_rope_dimension_count(a.rope_dim)
        w.add_rope_freq_base(a.rope_base)
        if a.rope_linear != 1:
            w.add_rope_scaling_type(RopeScalingType.LINEAR)
            w.add_rope_scaling_factor(a.rope_linear)
        w.add_vocab_size(a.vocab)

    def tokenizer(self):
        w, vocab, symbols = self.writer, self.args.vocab, byte_symbols()
        merges = MERGES.split("|")[: vocab - len(symbols) - len(SPECIALS)]
        tokens = symbols + [m.replace(" ", "") for m in merges] + list(SPECIALS)
        types = [TokenType.NORMAL] * (len(tokens) - len(SPECIALS)) + [TokenType.CONTROL] * len(SPECIALS)
        unused = vocab - len(tokens)
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("smollm")
        w.add_token_list(tokens + [f"<unused{i}>" for i in range(unused)])
        w.add_token_types(types + [TokenType.UNUSED] * unused)
        w.add_token_merges(merges)
        w.add_bos_token_id(tokens.index("<|im_start|>"))
        w.add_eos_token_id(tokens.index("<|im_end|>"))
        w.add_unk_token_id(tokens.index("<|endoftext|>"))
        w.add_add_bos_token(False)
        w.add_add_space_prefix(False)
        w.add_chat_template(CHAT_TEMPLATE)


def parse_arguments():
    parser = argparse.ArgumentParser(description="write a small random model as GGUF")
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", choices=("llama", "qwen3"), default="llama")
    for name, default in (("layers", 2), ("hidden", 72), ("heads", 3), ("ffn", 200), ("vocab", 515), ("context", 256)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--kv-heads", type=int, help="default: as many as --heads")
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--type", choices=TYPES, default="f32", help="storage of the weight matrices")
    parser.add_argument("--embedding-type", choices=TYPES, help="of token_embd and output; default: --type")
    parser.add_argument("--tied", action="store_true", help="no output.weight: the embedding is used")
    parser.add_argument("--bias", action="store_true", help="biases on q, k and v")
    parser.add_argument("--rope-base", type=float, default=10000.0)
    parser.add_argument("--rope-dim", type=int, help="default: all of --head-dim")
    parser.add_argument("--rope-linear", type=float, default=1.0, help="factor of linear rope scaling")
    parser.add_argument("--rope-freqs", action="store_true", help="add Llama 3's rope_freqs.weight")
    parser.add_argument("--no-tokenizer", action="store_true")
    parser.add_argument("--split", type=int, default=1, help="write this many files")
    parser.add_argument("--gguf-version", type=int, choices=(2, 3), default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.kv_heads = args.kv_heads or args.heads
    if args.head_dim is None:
        if args.hidden % args.heads != 0:
            parser.error("--hidden is not a multiple of --heads: give --head-dim")
        args.head_dim = args.hidden // args.heads
    args.rope_dim = args.rope_dim or args.head_dim
    if args.heads % args.kv_heads != 0:
        parser.error("--heads must be a multiple of --kv-heads")
    if args.rope_dim % 2 != 0 or args.rope_dim > args.head_dim:
        parser.error("--rope-dim must be even and at most --head-dim")
    if not args.no_tokenizer and args.vocab <= 256 + len(SPECIALS):
        parser.error(f"the tokenizer needs a --vocab of more than {256 + len(SPECIALS)} (or say --no-tokenizer)")
    return args


def main():
    args = parse_arguments()
    logging.disable(logging.CRITICAL)  # the writer's own chatter
    writer = GGUFWriter(args.out, args.arch)
    maker = Maker(args, writer)
    maker.metadata()
    if not args.no_tokenizer:
        maker.tokenizer()
    maker.tensors()
    if args.split > 1:  # the writer's own split is by a number of tensors, not of files
        everything = list(writer.tensors[0].items())
        if args.split > len(everything):
            raise SystemExit(f"--split: there are only {len(everything)} tensors")
        cuts = [len(everything) * i // args.split for i in range(args.split + 1)]
        writer.tensors = [dict(everything[a:b]) for a, b in zip(cuts, cuts[1:])]
    paths = writer.format_shard_names(args.out)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for path in paths:
        if args.gguf_version != 3:  # a version 2 file is a little-endian version 3 file but for this number
            with open(path, "r+b") as file:
                file.seek(4)
                file.write(args.gguf_version.to_bytes(4, "little"))
        print(path)


if __name__ == "__main__":
    sys.exit(main())
