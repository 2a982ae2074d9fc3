"""Makes models, token ids and reference logits for test_model.c, test_generate.c and test_smollm.c: several jobs in one interpreter.

    oracle_model.py JOBS OUT

JOBS is a file of lines, split as a shell does it:
    make OUT.gguf ARGUMENTS... [set KEY=VALUE... [tensor NAME]]    make_model.py with other metadata, one tensor more
    logits MODEL ID...        oracle_llama.py: rows, vocabulary, float32 [rows, vocabulary]
    half MODEL ID...          the same with keys and values rounded to float16
    best MODEL ID...          the two largest of each position: rows, then (id, logit, second id, its logit)
    text MODEL FILE           PyPI's tokenizers on the whole file: count, ids
    chats MODEL FILE          and on each line as a chat that asks for an answer, by Jinja as transformers sets it up:
                              lines, then count, ids
What they say is written to OUT one after another: integers of 32 bits and float32, little endian; `make` writes
nothing. Exit status 3: a package is missing.
"""
import io
import shlex
import struct
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    import make_model
    import oracle_llama
    import oracle_tokenizer
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(3)

KINDS = {int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32, str: gguf.GGUFValueType.STRING}


def number_or_text(word):
    for convert in (int, float):
        try:
            return convert(word)
        except ValueError:
            pass
    return word


def make(arguments):
    cut = next((i for i, a in enumerate(arguments) if a in ("set", "tensor")), len(arguments))
    settings, tensors, into = {}, [], None
    for word in arguments[cut:]:
        if word in ("set", "tensor"):
            into = word
        elif into == "set":
            key, value = word.split("=", 1)
            settings[key] = number_or_text(value)
        else:
            tensors.append(word)

    class Writer(gguf.GGUFWriter):
        def write_header_to_file(self, *rest):
            for key, value in settings.items():
                self.kv_data[0][key] = gguf.gguf_writer.GGUFValue(value=value, type=KINDS[type(value)])
            for name in tensors:
                self.add_tensor(name, np.ones(8, np.float32))
            super().write_header_to_file(*rest)

    make_model.GGUFWriter = Writer
    sys.argv = ["make_model.py", *arguments[:cut]]
    sys.stdout = io.StringIO()  # it prints the names of its files
    make_model.main()
    sys.stdout = sys.__stdout__


class Text:
    """The tokenizer and the chat template of a model file, by others' hands."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields

        def get(key):
            return fields["tokenizer." + key].contents()

        tokens, types, merges = get("ggml.tokens"), get("ggml.token_type"), get("ggml.merges")
        parts, whole = oracle_tokenizer.PRE[get("ggml.pre")]
        vocabulary = {t: i for i, t in enumerate(tokens)}
        pairs = [tuple(m.split(" ")) for m in merges]
        self.tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=whole))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        control = [t for t, kind in zip(tokens, types) if kind == oracle_tokenizer.CONTROL]
        self.tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
        jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self.template = jinja.from_string(get("chat_template"))

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def chat(self, line):
        return self.ids(self.template.render(messages=[{"role": "user", "content": line}], add_generation_prompt=True))


def reference(llama, ids, half):
    cache = oracle_llama.Cache(llama, len(ids))
    if half:
        cache.keys, cache.values = ([np.zeros(a.shape, np.float16) for a in c] for c in (cache.keys, cache.values))
    return llama.forward(ids, cache)


def main():
    jobs, target = sys.argv[1:]
    out = bytearray()
    known = {}

    def integers(*values):
        out.extend(struct.pack(f"<{len(values)}i", *values))

    def model(kind, path):
        """The last one of each kind stays: jobs on one model follow each other."""
        if known.get(kind, (None,))[0] != path:
            known[kind] = (path, kind(path))
        return known[kind][1]

    for line in Path(jobs).read_text().splitlines():
        job, path, *rest = shlex.split(line)
        if job == "make":
            make([path, *rest])
        elif job in ("logits", "half", "best"):
            logits = reference(model(oracle_llama.Llama, path), [int(i) for i in rest], job == "half")
            if job != "best":
                integers(*logits.shape)
                out.extend(logits.astype("<f4").tobytes())
            else:
                integers(len(logits))
                for row in logits:
                    first, second = np.argpartition(-row, 1)[:2]
                    if row[first] < row[second]:
                        first, second = second, first
                    out.extend(struct.pack("<ifif", first, row[first], second, row[second]))
        elif job == "text":
            ids = model(Text, path).ids(Path(rest[0]).read_text())
            integers(len(ids), *ids)
        elif job == "chats":
            lines = Path(rest[0]).read_text().splitlines()
            integers(len(lines))
            for chat in lines:
                ids = model(Text, path).chat(chat)
                integers(len(ids), *ids)
        else:
            sys.exit(f"unknown job {job}")
    Path(target).write_bytes(out)


if __name__ == "__main__":
    main()
