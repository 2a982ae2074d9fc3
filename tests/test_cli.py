"""The command line: its exit codes and messages, bad input, and that its results are the same everywhere.

The models are small random ones of make_model.py. MONOTILE_CLI names the program.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError:
    gguf = np = None

ROOT = Path(__file__).resolve().parent.parent
CLI = os.environ.get("MONOTILE_CLI", str(ROOT / "build/monotile"))
COMMANDS = ("run", "tokenize", "compile", "disasm", "inspect", "tile", "trace", "doctor")
needs_packages = unittest.skipIf(gguf is None, "no numpy and gguf")


def setUpModule():
    global FOLDER, ENVIRONMENT
    FOLDER = Path(tempfile.mkdtemp(prefix="monotile-cli-"))
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    ENVIRONMENT = {"MONOTILE_CACHE": str(FOLDER / "cache"), **os.environ}


def monotile(*arguments, stdin=None):
    return subprocess.run([CLI, *map(str, arguments)], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
                          capture_output=True, env=ENVIRONMENT)


def make_model(name, *options):
    path = FOLDER / f"{name}.gguf"
    if not path.exists():
        subprocess.run([sys.executable, ROOT / "tests/make_model.py", path, "--vocab", "515", *options], check=True,
                       stdout=subprocess.DEVNULL)
    return path


def odd_model():
    return make_model("odd", "--hidden", "72", "--heads", "3", "--kv-heads", "1", "--ffn", "200", "--type", "q8_0")


class Case(unittest.TestCase):
    def good(self, *arguments, stdin=None):
        done = monotile(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr.decode()}")
        return done.stdout.decode()

    def bad(self, *arguments, message=None, code=2, stdin=None):
        """The command fails with this code and one message on stderr."""
        done = monotile(*arguments, stdin=stdin)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, f"{arguments}: {text}")
        self.assertRegex(text, r"\Amonotile: .+\n\Z", arguments)
        self.assertNotIn("Sanitizer", text)
        if message:
            self.assertRegex(text, message)
        return text


class Usage(Case):
    def test_help(self):
        self.assertIn("Usage: monotile COMMAND", self.good("--help"))
        for command in COMMANDS:
            self.assertIn(f"Usage: monotile {command}", self.good(command, "--help"))
            self.assertIn(command, self.good("--help"))

    def test_version(self):
        self.assertRegex(self.good("--version"), r"^monotile \d+\.\d+\.\d+\n$")

    def test_no_command(self):
        self.bad(message="no command")

    def test_unknown_command(self):
        self.bad("sing", message="sing")
        self.bad("tile", "sing", message="sing")

    def test_unknown_options(self):
        for command in COMMANDS:
            arguments = (command, "list") if command == "tile" else (command,)
            self.bad(*arguments, "--bogus", message="--bogus")
            self.bad(*arguments, "-z", message="-z")

    def test_missing_arguments(self):
        for arguments in (("run",), ("run", "m.gguf"), ("run", "m.gguf", "-p"), ("tokenize", "m.gguf"), ("compile", "m.gguf"),
                          ("disasm",), ("inspect",), ("tile",), ("tile", "check"), ("tile", "run", "f.tile"), ("tile", "doc")):
            self.bad(*arguments)

    def test_too_many_arguments(self):
        for arguments in (("run", "a", "b", "-p", "x"), ("inspect", "a", "b"), ("doctor", "a"), ("tile", "list", "a", "b")):
            self.bad(*arguments)

    def test_bad_numbers(self):
        for option, value in (("-n", "x"), ("-n", "-1"), ("-n", ""), ("-n", "3x"), ("--temp", "hot"), ("--temp", "-0.1"),
                              ("--temp", "nan"), ("--top-p", "0"), ("--top-p", "1.5"), ("--min-p", "2"), ("--top-k", "-3"),
                              ("--seed", "1e3"), ("--context", "0"), ("--context", "99999999999999999999")):
            self.bad("run", "m.gguf", "-p", "x", f"{option}={value}" if option.startswith("--") else option + value,
                     *() if value or option.startswith("--") else ("",), message=option)
        self.bad("compile", "m.gguf", "-o", "x", "--placement", "random", message="random")

    def test_contradictions(self):
        self.bad("run", "m.gguf", "-p", "x", "--raw", "--system", "y")
        self.bad("tokenize", "m.gguf", "-p", "x", "--raw", "--chat")
        self.bad("tile", "list", "-c", "N=1", message="-c")

    def test_doctor(self):
        text = self.good("doctor")
        for what in ("compiler", "cache", "cpu", "workers", "run"):
            self.assertRegex(text, rf"(?m)^ok +{what} ")


@needs_packages
class BadModels(Case):
    """Every command that opens a model turns a bad one down: exit code 2, one message that names the file."""

    def refused(self, data, message=None, commands=("inspect", "run", "tokenize", "compile")):
        path = FOLDER / "bad.gguf"
        path.write_bytes(data)
        for command in commands:
            more = {"run": ("-p", "x"), "tokenize": ("-p", "x"), "compile": ("-o", FOLDER / "bad.mono")}.get(command, ())
            self.assertIn("bad.gguf", self.bad(command, path, *more, message=message))
        self.assertFalse((FOLDER / "bad.mono").exists())

    def setUp(self):
        self.data = bytearray(odd_model().read_bytes())

    def test_no_file(self):
        for command, *more in (("inspect",), ("run", "-p", "x"), ("tokenize", "-p", "x"), ("compile", "-o", "x"), ("disasm",)):
            self.bad(command, FOLDER / "none", *more, message="none")

    def test_directory(self):
        for command, *more in (("inspect",), ("run", "-p", "x"), ("tokenize", "-p", "x"), ("compile", "-o", "x"), ("disasm",)):
            self.bad(command, FOLDER, *more, message=re.escape(str(FOLDER)))

    def test_empty(self):
        self.refused(b"")

    def test_other_file(self):
        self.refused(b"#!/bin/sh\necho this is not a model\n" * 10)

    def test_truncated(self):
        self.refused(self.data[: len(self.data) // 2])
        self.refused(self.data[:-1])
        for size in (1, 4, 8, 16, 23, 24, 25, 31, 40, 1000, 5000):
            self.refused(self.data[:size], commands=("inspect",))

    def test_huge_counts(self):
        for at in (8, 16):  # tensors, key-values
            for count in (2**60, 2**63, 2**64 - 1, 2**32):
                data = self.data[:]
                struct.pack_into("<Q", data, at, count)
                self.refused(data, commands=("inspect", "run") if count == 2**60 else ("inspect",))

    def test_huge_string(self):
        data = self.data[:]
        struct.pack_into("<Q", data, 24, 2**60)  # the first key's length
        self.refused(data)

    def tensor_entry(self, name):
        """Where in the header a tensor's number of dimensions is, and that number."""
        key = struct.pack("<Q", len(name)) + name.encode()
        at = self.data.index(key) + len(key)
        return at, struct.unpack_from("<I", self.data, at)[0]

    def test_tensor_past_the_end(self):
        at, rank = self.tensor_entry("blk.0.ffn_up.weight")
        where = at + 4 + 8 * rank + 4
        for offset in (len(self.data) // 32 * 32, 2**60, 2**64 - 32):
            data = self.data[:]
            struct.pack_into("<Q", data, where, offset)
            self.refused(data, message="ffn_up", commands=("inspect", "run") if offset == 2**60 else ("inspect",))

    def test_huge_tensor(self):
        at, _ = self.tensor_entry("blk.0.ffn_up.weight")
        for extent in (2**60, 2**63, 2**64 - 1, 0):
            data = self.data[:]
            struct.pack_into("<Q", data, at + 4, extent)
            self.refused(data, message="ffn_up", commands=("inspect",))

    def test_unknown_architecture(self):
        data = self.data.replace(b"llama", b"lamma")
        self.assertEqual(len(data), len(self.data))
        self.refused(data, message="lamma", commands=("run", "tokenize", "compile"))
        text = self.good("inspect", FOLDER / "bad.gguf")  # shows what is there all the same
        known = self.good("inspect", odd_model())
        self.assertEqual(text.rsplit("note: ", 1)[0], known.replace("llama", "lamma"))
        self.assertRegex(text.rsplit("note: ", 1)[1], r"\Athis model cannot be run: .*'lamma'.*\n\Z")

    def test_wrong_metadata(self):
        data = self.data.replace(b"llama.block_count", b"llama.block_colnt")
        self.refused(data, message="llama.block_count")
        done = monotile("inspect", FOLDER / "bad.gguf")
        self.assertIn(b"llama.block_colnt", done.stdout)

    def test_unknown_machine(self):
        for machine in ("abacus", "cpu:0", "cpu:x", "cpu:-1", ""):
            self.bad("run", odd_model(), "-p", "x", "--machine", machine)

    def test_unknown_cache_type(self):
        self.bad("run", odd_model(), "-p", "x", "--cache", "f17", message="f17")

    def test_prompt_too_long(self):
        self.bad("run", odd_model(), "--raw", "-p", "word " * 100, "--context", "20", message="20")


@needs_packages
class Programs(Case):
    def compiled(self):
        path = FOLDER / "odd.mono"
        if not path.exists():
            self.good("compile", odd_model(), "-o", path, "--context", "64", "--processors", "3")
        return path

    def test_compile_disassemble_inspect(self):
        path = self.compiled()
        lines = self.good("disasm", path).splitlines()
        self.assertGreater(len(lines), 20)
        self.assertEqual(self.good("disasm", path, "--from", "3", "--count", "2").splitlines(), lines[3:5])
        self.assertIn(f"{len(lines)} instructions", self.good("inspect", path))
        for i in (0, len(lines) - 1):
            self.assertIn(f"instruction {i} ", self.good("inspect", path, "--instruction", i))
        self.bad("inspect", path, "--instruction", len(lines))
        self.bad("disasm", path, "--from", len(lines) + 1)

    def test_same_program_twice(self):
        other = FOLDER / "again.mono"
        self.good("compile", odd_model(), "-o", other, "--context", "64", "--processors", "3")
        self.assertEqual(other.read_bytes(), self.compiled().read_bytes())

    def test_options(self):
        path = FOLDER / "options.mono"
        self.good("compile", odd_model(), "-o", path, "--rows", "5", "--context", "31", "--placement", "queue", "--no-fusion",
                  "--cache", "f32")
        self.assertIn("queue", self.good("inspect", path))

    def test_dump(self):
        everything = self.good("compile", odd_model(), "--dump", "all", "--context", "64")
        for name in ("before", "fuse", "choose", "lower"):
            self.assertIn(f"==== {name}\n{self.good('compile', odd_model(), '--dump', name, '--context', '64')}", everything)
        self.bad("compile", odd_model(), "--dump", "nothing", message="nothing")

    def test_cannot_write(self):
        self.bad("compile", odd_model(), "-o", FOLDER / "none/x.mono", "--context", "64", code=1)

    def test_replaces_nothing_but_files(self):
        folder = FOLDER / "places"
        folder.mkdir()
        os.mkfifo(folder / "pipe")  # a device would be the same, but a test must not try
        (folder / "folder").mkdir()
        for name in ("pipe", "folder"):
            self.bad("compile", odd_model(), "-o", folder / name, "--context", "64", code=1,
                     message="not a regular file")
        self.assertTrue((folder / "pipe").is_fifo())
        (folder / "file").write_bytes(b"old")
        (folder / "link").symlink_to("file")
        (folder / "dangling").symlink_to("nothing")
        for name in ("file", "link", "dangling"):
            self.good("compile", odd_model(), "-o", folder / name, "--context", "64", "--processors", "3")
            self.assertEqual((folder / name).read_bytes(), self.compiled().read_bytes())
        self.assertTrue((folder / "link").is_symlink())
        self.assertEqual(len(list(folder.iterdir())), 5)

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full")
    def test_output_lost(self):
        for arguments in (("disasm", self.compiled()), ("inspect", self.compiled()), ("inspect", odd_model()),
                          ("tile", "list"), ("--help",), ("compile", odd_model(), "--dump", "all"),
                          ("run", odd_model(), "-p", "x", "-n", "3", "--context", "64")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([CLI, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, env=ENVIRONMENT)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"monotile: stdout: cannot write", done.stderr)

    def test_damaged(self):
        data, path = self.compiled().read_bytes(), FOLDER / "damaged.mono"
        damaged = [data[:size] for size in (0, 1, 8, 63, 64, 300, len(data) // 2, len(data) - 1)] + [data + b"x"]
        for at in (9, 16, 24, 100, len(data) // 2, len(data) - 70):
            changed = bytearray(data)
            changed[at] ^= 0x40
            damaged.append(bytes(changed))
        for version in damaged:
            path.write_bytes(version)
            self.bad("disasm", path, message="damaged.mono")
        self.bad("inspect", path, message="damaged.mono")

    def test_instruction_of_a_model(self):
        self.bad("inspect", odd_model(), "--instruction", "0", message="no program")

    def test_inspect_model(self):
        text = self.good("inspect", odd_model())
        for what in ("llama.embedding_length = 72", "blk.0.ffn_up.weight", "f32", "515"):
            self.assertIn(what, text)


@needs_packages
class Running(Case):
    def run_json(self, *arguments, stdin=None):
        return json.loads(self.good("run", odd_model(), "--json", "--context", "128", *arguments, stdin=stdin))

    def test_json(self):
        result = self.run_json("-p", "Hello", "-n", "9")
        self.assertEqual(set(result), {"text", "ids", "prompt_ids", "ended_by", "figures"})
        self.assertEqual(result["figures"]["tokens"], len(result["ids"]))
        self.assertEqual(result["figures"]["prompt_tokens"], len(result["prompt_ids"]))
        self.assertLessEqual(len(result["ids"]), 9)
        for figure in ("prompt_tokens_per_second", "first_token_seconds", "weight_bytes_per_token"):
            self.assertGreater(result["figures"][figure], 0)

    def test_same_on_any_number_of_workers(self):
        arguments = ("--raw", "-p", "The quick brown fox jumps over it", "-n", "24")
        results = [self.run_json(*arguments, *more, "--machine", f"cpu:{workers}")
                   for workers in (1, 2, 7) for more in ((), ("--temp", "0.9", "--seed", "5"))]
        for result in results[2:]:
            self.assertIn(result["ids"], (results[0]["ids"], results[1]["ids"]))
        for i, result in enumerate(results):
            self.assertEqual(result["ids"], results[i % 2]["ids"])
            self.assertEqual(result["text"], results[i % 2]["text"])

    def test_streamed_text_and_ids(self):
        result = self.run_json("-p", "Once upon", "-n", "12")
        shared = ("-p", "Once upon", "-n", "12", "--context", "128")
        self.assertEqual(self.good("run", odd_model(), *shared), result["text"] + "\n")
        self.assertEqual(self.good("run", odd_model(), *shared, "--print-ids").split(), [str(i) for i in result["ids"]])

    def test_figures(self):
        done = monotile("run", odd_model(), "-p", "Hi", "-n", "4", "--context", "128")
        self.assertRegex(done.stderr.decode(), r"\Aprompt: \d+ tokens, [\d.]+ tokens/s; answer: \d+ tokens, [\d.]+ tokens/s; first token after "
                                               r"[\d.]+ s; [\d.]+ MB of weights read per token\n\Z")

    def test_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            for options in ([], ["--loop"], ["--prompt-run"], ["-p", "Hi there"]):
                text = self.good("trace", odd_model(), "-n", "3", "--context", "128", "--bandwidth", "10", "-o", path, *options)
                self.assertRegex(text, r"\A\d runs of \d+ instructions on \d+ processors; a run takes [\d.]+ µs")
                for words in ("floor: ", "per node, µs", "per instruction, mean µs", "on the critical path, µs of a run", "\nblk.*."):
                    self.assertIn(words, text)
                with open(path, encoding="utf-8") as file:
                    events = json.load(file)["traceEvents"]
                self.assertTrue(any(e["ph"] == "X" and e["name"].startswith("blk.") for e in events))
        self.bad("trace", odd_model(), "--loop", "--prompt-run", message="either --loop or --prompt-run")
        self.bad("trace", odd_model(), "-n", "0", message="-n takes an integer from 1")
        self.bad("trace", odd_model(), "--context", "128", "-o", os.path.join("/no such folder", "x"), message="cannot write")

    def test_shared_options(self):
        for command in ("run", "trace"):
            for options, message in ((("--prompt-ids", "0"), "--prompt-ids takes an integer from 1"),
                                     (("-p", "x", "--prompt-ids", "3"), "either -p or --prompt-ids"),
                                     (("-p", "x", "--context", "0"), "--context takes an integer from 1"),
                                     (("-p", "x", "--machine", "nothing"), "nothing"), (("-p", "x", "--cache", "i8"), "i8"),
                                     (("-p", "x", "--synth", "llama-3.2-1b"), "--synth stands for the model file")):
                self.bad(command, odd_model(), *options, message=message)

    def test_profile(self):
        done = monotile("run", odd_model(), "-p", "Hi there", "-n", "4", "--context", "128", "--profile")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr.decode(), r"last step: .*\n( +[\d.]+ % .*\n)+")

    def test_stdin(self):
        self.assertEqual(self.run_json("-p", "-", "-n", "3", stdin=b"Good day")["prompt_ids"],
                         self.run_json("-p", "Good day", "-n", "3")["prompt_ids"])
        self.bad("run", odd_model(), "-p", "-", stdin=b"zero \0 byte", message="stdin")

    def test_prompt_tokens(self):
        for run_options, options in ((("--raw",), ("--raw",)), ((), ("--chat",))):
            tokens = json.loads(self.good("tokenize", odd_model(), "-p", "an <|im_end|> x", "--json", *options))
            self.assertEqual(tokens["ids"], self.run_json("-p", "an <|im_end|> x", "-n", "1", *run_options)["prompt_ids"])
            self.assertEqual(len(tokens["ids"]), len(tokens["pieces"]))

    def test_system(self):
        plain, system = self.run_json("-p", "x", "-n", "1"), self.run_json("-p", "x", "-n", "1", "--system", "Be brief.")
        self.assertGreater(len(system["prompt_ids"]), len(plain["prompt_ids"]))

    def test_tokenize(self):
        lines = self.good("tokenize", odd_model(), "-p", "the <|im_end|>\n").splitlines()
        result = json.loads(self.good("tokenize", odd_model(), "-p", "the <|im_end|>\n", "--json"))
        self.assertEqual([int(line.split("\t")[0]) for line in lines], result["ids"])
        self.assertEqual("".join(result["pieces"]), "the <|im_end|>\n")
        special = json.loads(self.good("tokenize", odd_model(), "-p", "the <|im_end|>\n", "--json", "--special"))
        self.assertIn("<|im_end|>", special["pieces"])
        self.assertLess(len(special["ids"]), len(result["ids"]))

    def test_no_tokenizer(self):
        path = make_model("mute", "--no-tokenizer")
        self.bad("run", path, "-p", "x", message="okeni[sz]er")

    def test_interrupt(self):
        process = subprocess.Popen([CLI, "run", odd_model(), "--raw", "-p", "x", "-n", "0", "--print-ids", "--context", "20000"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0)  # nothing is lost between read and communicate
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        self.assertIn(process.returncode, (130, 0), err)  # 0: it was done already
        self.assertRegex((first + out).decode(), r"\A[\d ]+\n\Z")
        self.assertIn(b"tokens/s", err)


TEN_ERRORS = """\
// Each of these programs has one error.
tile a[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] + }
tile b[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[: = x[:] }
tile c[N](x: in f32[N], y: out f32[N]) over (i on 1) { y[:] = x[:] }
tile d[N](x: into f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] }
tile e[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] == x[:] }
tile f[N](x: in f32[N], y: out f32[N]) over (i in 1) { for k in { } }
tile g[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] @ 3 }
tile h[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = (x[:] }
tile i[N](x: in f32[N], y: out f32[N]) over (i in 1) { if { y[:] = 0 } }
tile 7[N](x: in f32[N], y: out f32[N]) over (i in 1) { y[:] = x[:] }
"""


@needs_packages
class TokenIds(Case):
    def test_prompt_of_ids(self):
        arguments = ("--prompt-ids", "5", "-n", "7", "--context", "64")
        result = json.loads(self.good("run", odd_model(), "--json", *arguments))
        self.assertEqual((len(result["prompt_ids"]), len(result["ids"]), result["text"]), (5, 7, ""))
        self.assertEqual([int(i) for i in self.good("run", odd_model(), *arguments).split()], result["ids"])

    def test_no_tokenizer(self):
        model = make_model("mute", "--no-tokenizer", "--layers", "1")
        self.bad("run", model, "-p", "x", message="tokenizer")
        self.assertEqual(len(self.good("run", model, "--prompt-ids", "3", "-n", "4", "--context", "16").split()), 4)

    def test_usage(self):
        self.bad("run", odd_model(), "--prompt-ids", "3", "-p", "x", message="either")
        self.bad("run", odd_model(), "--prompt-ids", "0", message="--prompt-ids")
        self.bad("run", odd_model(), "--prompt-ids", "3", "--raw", message="--raw")


class Synthetic(Case):
    """Models without a file. test_synthetic.c looks at their weights."""

    def test_inspect(self):
        text = self.good("inspect", "--synth", "llama-3-8b:q8_0")
        for line in (r"random weights", r"llama.block_count = 32", r"blk.31.ffn_down.weight +q8_0 +\[4096, 14336\]"):
            self.assertRegex(text, rf"(?m)^{line}$")

    def test_compile(self):
        path = FOLDER / "synthetic.mono"
        self.good("compile", "--synth", "qwen3-0.6b:q4_1", "--context", "64", "-o", path)
        self.assertIn("norm_linear_norm_rope_append", self.good("inspect", path))

    def test_run(self):
        arguments = ("run", "--synth", "qwen3-0.6b:q4_1", "--prompt-ids", "2", "-n", "2", "--context", "16")
        result = json.loads(self.good(*arguments, "--json"))
        self.assertEqual((len(result["prompt_ids"]), len(result["ids"])), (2, 2))
        self.assertEqual([int(i) for i in self.good(*arguments).split()], result["ids"])

    def test_refusals(self):
        for command, *more in (("inspect",), ("run",), ("tokenize", "-p", "x"), ("compile", "-o", FOLDER / "none.mono")):
            self.bad(command, "--synth", "gpt-5", *more, message="gpt-5.*llama-3.2-1b")
            self.bad(command, "--synth", "qwen3-0.6b:f99", *more, message="f99")
            self.bad(command, "--synth", "qwen3-0.6b", "model.gguf", *more, message="no other|expected one")
            self.bad(command, "--synth", message="--synth")
        self.bad("tokenize", "--synth", "qwen3-0.6b:q8_0", "-p", "x", message="no tokenizer")
        self.bad("run", "--synth", "qwen3-0.6b:q8_0", "-p", "x", message="no tokenizer")
        self.bad("inspect", "--synth", "qwen3-0.6b:q8_0", "--instruction", "1", message="no program")


class Tiles(Case):
    def file(self, text, name="some.tile"):
        (FOLDER / name).write_text(text)
        return FOLDER / name

    def errors(self, path, *more):
        """The diagnostics of a bad file, each checked to have its line and its caret."""
        done = monotile("tile", "check", path, *more)
        self.assertEqual(done.returncode, 2)
        found = re.findall(rf"(?m)^{re.escape(str(path))}:(\d+):(\d+): error: .+\n(.*)\n( *\^)", done.stderr.decode())
        self.assertEqual(len(found), done.stderr.decode().count("error:"))
        for line, _, text, _ in found:
            self.assertEqual(text.strip(), path.read_text().splitlines()[int(line) - 1].strip())
        return [int(line) for line, *_ in found]

    def test_ten_errors(self):
        lines = self.errors(self.file(TEN_ERRORS))
        self.assertEqual(len(lines), 10)
        self.assertEqual(sorted(set(lines)), list(range(2, 12)))

    def test_type_errors(self):
        path = self.file("tile bad[N = 8](x: in f32[N], y: out f16[N])\n    over (i in 1)\n{\n    a = x[:] + z\n    y[:] = x[:]\n"
                         "    b = dot(x[:], x[:])\n}\n")
        self.assertEqual(self.errors(path), [4, 5, 6])
        self.assertEqual(self.errors(path, "bad"), [4, 5, 6])

    def test_check(self):
        path = self.file("tile one[N = 8](x: in f32[N], y: out f32[N])\n    over (i in 1)\n{\n    y[:] = x[:]\n}\n"
                         "tile two[N](x: in f32[N], y: out f32[N])\n    over (i in 1)\n{\n    y[:] = x[:]\n}\n")
        self.assertEqual(self.good("tile", "check", path), "one: ok\ntwo: parsed; give -c N=VALUE to check it\n")
        self.assertEqual(self.good("tile", "check", path, "-c", "N=5"), "one: ok\ntwo: ok\n")
        self.assertEqual(self.good("tile", "check", path, "two", "-c", "N=5"), "two: ok\n")
        self.bad("tile", "check", path, "two", message="N")
        self.bad("tile", "check", path, "three", message="three")
        self.bad("tile", "check", path, "two", "-c", "N")
        self.bad("tile", "check", path, "two", "-c", "N=5", "-c", "Q=5", message="Q")
        self.bad("tile", "check", path, "two", "-c", "N=f99", message="f99")

    def test_no_file(self):
        self.bad("tile", "check", FOLDER / "none.tile", message="none.tile")
        self.bad("tile", "check", FOLDER)

    def test_no_text(self):
        path = FOLDER / "bytes.tile"
        for data in (b"\0", b"\xff\xfe" * 100, b"tile \xc3"):
            path.write_bytes(data)
            self.assertEqual(monotile("tile", "check", path).returncode, 2)
        path.write_bytes(b"")
        self.good("tile", "check", path)

    def test_list_and_doc(self):
        text = self.good("tile", "list")
        self.assertRegex(text, r"(?m)^rmsnorm +\S")
        self.assertRegex(text, r"(?m)^norm_linear_norm_rope_append +\S")
        self.assertIn("q4_1", text)
        self.assertEqual(text, self.good("tile", "list", "library"))
        text = self.good("tile", "doc", "linear")
        for what in ("x: in X[M, K]", "w: in W[N, K]", "y: out T[M, N]", "T = f32"):
            self.assertIn(what, text)
        self.bad("tile", "doc", "sing", message="sing")

    def test_show(self):
        text = self.good("tile", "show", "library", "rmsnorm", "-c", "K=72")
        self.assertIn("K = 72", text)
        self.assertNotIn("reads", text)
        text = self.good("tile", "show", "library", "rmsnorm", "-s", "x=3x72:f16", "-s", "g=72", "-a", "eps=1e-5")
        for what in ("X = f16, T = f16", "reads x[0:3, 0:72]", "writes y[0:3, 0:72]"):
            self.assertIn(what, text)
        text = self.good("tile", "show", "library", "linear", "-c", "N=64", "-c", "K=128", "-c", "BM=1", "-c", "P=bf16",
                         "-c", "W=bf16", "--machine", "cuda")
        self.assertRegex(text, r"(?s)layout w: atoms.*loader \{\n    pages \d+: w\[.*\n}\n.*= skinny dot\(panel_")
        self.assertNotIn("mt_page_take", text)
        text = self.good("tile", "show", "library", "linear", "-c", "N=64", "-c", "K=128", "--machine", "cuda", "--code")
        self.assertIn("op0_linear_run(mt_context *mt)", text)
        self.assertIn("rmsnorm", self.good("tile", "show", "library", "rmsnorm", "-c", "K=72", "--code").split("}\n", 1)[1])

    def test_bad_shapes(self):
        for shape in ("3x", "x3", "3xx4", "-", "1x1x1x1x1x1", "99999999999999999999", "3x7:" + "f" * 40, "3x7:f17", "0x7", "3x-7", ""):
            self.bad("tile", "show", "library", "relu", "-s", f"x={shape}", message="x")
        self.bad("tile", "show", "library", "relu", "-s", "q=3x7", message="q")
        self.bad("tile", "show", "library", "relu", "-s", "x=3x7", "-s", "x=3x7", message="x")


@needs_packages
class Arrays(Case):
    """`tile run` against numpy."""

    def save(self, name, array):
        np.save(FOLDER / f"{name}.npy", array)
        return f"{name}={FOLDER / name}.npy"

    def apply(self, program, inputs, output, *more, file="library"):
        arguments = [part for name, array in inputs.items() for part in ("-i", self.save(name, array))]
        self.good("tile", "run", file, program, *arguments, "-o", f"{output}={FOLDER / 'out.npy'}", *more)
        return np.load(FOLDER / "out.npy")

    def numbers(self, *shape):
        return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)

    def test_rmsnorm(self):
        x, g = self.numbers(7, 53), self.numbers(53)
        expected = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * g
        y = self.apply("rmsnorm", {"x": x, "g": g}, "y", "-a", "eps=1e-5")
        self.assertEqual((y.dtype, y.shape), (np.float32, (7, 53)))
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
        y = self.apply("rmsnorm", {"x": x.astype(np.float16), "g": g}, "y", "-a", "eps=1e-5", "-c", "ROWS=3", "--machine", "cpu:3")
        self.assertEqual(y.dtype, np.float16)
        np.testing.assert_allclose(y, expected, rtol=1e-2, atol=2e-3)

    def test_matmul_with_tile_sizes(self):
        x, w = self.numbers(5, 77), self.numbers(77, 33)
        y = self.apply("matmul", {"x": x, "w": w}, "y", "-c", "BM=4", "-c", "BN=16", "-c", "BK=256")
        np.testing.assert_allclose(y, x @ w, rtol=1e-4, atol=1e-4)

    def test_block_format(self):
        x, w = self.numbers(3, 64), self.numbers(10, 64)
        blocks = gguf.quants.quantize(w, gguf.GGMLQuantizationType.Q4_1)
        y = self.apply("linear", {"x": x, "w": blocks}, "y", "-s", "w=10x64:q4_1")
        decoded = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_1)
        np.testing.assert_allclose(y, x @ decoded.T, rtol=1e-4, atol=1e-4)

    def test_own_format(self):
        """A format and programs of a file of one's own, against arithmetic on the bytes."""
        path = FOLDER / "five.tile"
        path.write_text("format five { block 8; d: f16; q: u5[8]; value[i] = d * (q[i] - 16) }\n"
                        "tile decode[N, W = five](w: in W[M, N], y: out f32[M, N]) over (r in M) { y[r, :] = f32(w[r, :]) }\n"
                        "tile fixed[N](w: in five[M, N], ids: in i32[L], y: out f32[L, N])\n"
                        "    over (r in L) { y[r : +1, :] = f32(w[ids[r : +1], :]) }\n")
        data, expected = bytearray(), []
        for block in range(9):
            codes = [(block * 37 + i * 11) % 32 for i in range(8)]
            scale = (-1) ** block * (1 + block / 16)
            data += struct.pack("<e", scale) + sum(code << 5 * i for i, code in enumerate(codes)).to_bytes(5, "little")
            expected += [scale * (code - 16) for code in codes]
        blocks = np.frombuffer(bytes(data), np.uint8)
        for arguments in ((), ("-c", "W=five"), ("--machine", "cpu:2")):
            y = self.apply("decode", {"w": blocks}, "y", "-s", "w=3x24:five", *arguments, file=path)
            self.assertEqual((y.shape, y.ravel().tolist()), ((3, 24), expected))
        y = self.apply("fixed", {"w": blocks, "ids": np.array([2, 0, 7, 1], np.int32)}, "y", "-s", "w=3x24:five", file=path)
        self.assertEqual(y.ravel().tolist(), expected[48:] + expected[:24] + [0] * 24 + expected[24:48])
        self.assertRegex(self.good("tile", "show", path, "fixed", "-s", "w=3x24:five", "-s", "ids=4:i32"), r"(?s)five \[3, 24\].*\n25 bytes read")  # an id, a row
        w = self.save("w", blocks)
        for shape, message in (("3x24:six", "six"), ("3x20:five", "multiple of 8"), ("3x16:five", "bytes"), ("3x24:q4_1", "multiple of 32")):
            self.bad("tile", "run", path, "decode", "-i", w, "-s", f"w={shape}", "-o", f"y={FOLDER}/y.npy", message=message)

    def test_type_without_npy(self):
        x = self.numbers(2, 6)
        bits = (x.view(np.uint32) >> 16).astype(np.uint16)
        y = self.apply("relu", {"x": bits}, "y", "-s", "x=:bf16")
        self.assertEqual((y.dtype, y.shape), (np.uint8, (24,)))
        np.testing.assert_array_equal(y.view(np.uint16).reshape(2, 6), np.where(bits >> 15, 0, bits))

    def test_read_and_written(self):
        x, cache = self.numbers(3, 2, 4), self.numbers(9, 2, 4).astype(np.float16)
        y = self.apply("append", {"x": x, "cache": cache}, "cache", "-l", "pos=5")
        cache[5:8] = x
        np.testing.assert_array_equal(y, cache)

    def test_own_program(self):
        path = FOLDER / "own.tile"
        path.write_text("tile scale[N](x: in i32[M, N], by: arg i32, y: out i32[M + 1, N])\n    over (r in M + 1)\n{\n"
                        "    y[r : +1, :] = x[r : +1, :] * by\n}\n")
        x = np.arange(12, dtype=np.int32).reshape(4, 3)
        y = self.apply("scale", {"x": x}, "y", "-a", "by=-3", "-s", "y=5x3", file=path)
        np.testing.assert_array_equal(y, np.vstack([x * -3, np.zeros((1, 3), np.int32)]))
        self.bad("tile", "run", path, "scale", "-i", self.save("x", x), "-a", "by=-3", "-o", "y=y.npy", message="-s y=")

    def test_wrong_operands(self):
        x, y = self.save("x", self.numbers(2, 3)), f"y={FOLDER / 'y.npy'}"
        for arguments, message in (((), "x"), (("-i", x, "-i", x), "twice"), (("-i", x, "-o", f"z={FOLDER}/z.npy"), "z"),
                                   (("-i", x, "-a", "eps=1"), "eps"), (("-i", x, "-s", "x=2x4"), "bytes"), (("-i", x, "-s", "x=6"), "dimension"),
                                   (("-i", x, "-s", "y=2x4"), "N"), (("-i", x, "-c", "ROWS=0"), "zero|ROWS"), (("-i", x, "-c", "X=f16"), "X"),
                                   (("-i", f"x={FOLDER}/none.npy"), "none.npy"), (("-i", f"x={FOLDER}"), re.escape(str(FOLDER)))):
            done = monotile("tile", "run", "library", "relu", "-o", y, *arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertRegex(done.stderr.decode(), message)
        self.assertFalse((FOLDER / "y.npy").exists())
        self.bad("tile", "run", "library", "rmsnorm", "-i", x, "-i", self.save("g", self.numbers(3)), "-a", "eps=x", message="eps")
        self.bad("tile", "run", "library", "rmsnorm", "-i", x, "-i", self.save("g", self.numbers(3)), message="eps")
        self.bad("tile", "run", "library", "relu", "-i", x, "-o", f"y={FOLDER}/none/y.npy", code=1)

    def test_npy_versions(self):
        x = self.numbers(2, 3)
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(FOLDER / "v.npy", "wb") as file:
                np.lib.format.write_array(file, x, version)
            self.good("tile", "run", "library", "relu", "-i", f"x={FOLDER}/v.npy", "-o", f"y={FOLDER}/y2.npy")
            np.testing.assert_array_equal(np.load(FOLDER / "y2.npy"), np.maximum(x, 0))

    def test_hostile_npy(self):
        def version_1(header, data=b""):
            return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data

        def array(shape, descr="<f4", order="False", data=bytes(24)):
            return version_1(f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}", data)

        path = FOLDER / "hostile.npy"
        self.assertNotEqual(array("(2, 3)"), b"")
        path.write_bytes(array("(2, 3)"))  # what all the others are variations of
        self.good("tile", "run", "library", "relu", "-i", f"x={path}", "-o", f"y={FOLDER}/y3.npy")
        good = array("(2, 3)")
        for data in (b"", b"\x93NUMPY", good[:9], good[:30], good[:-1], good + b"x", b"\x92" + good[1:], good[:6] + b"\x04" + good[7:],
                     array("(2, 3)", descr=">f4"), array("(2, 3)", descr="|O"), array("(2, 3)", descr="<c8"), array("(2, 3)", order="True"),
                     array("(2, 4)"), array("(2, 0)"), array("(0, 3)", data=b""), array("(-2, 3)"), array("(2, 3"), array("2, 3"),
                     array("(1099511627776, 1099511627776)"), array("(4611686018427387904, 4)"), array("(99999999999999999999, 1)"),
                     array("(1, 1, 1, 1, 1, 6)"), version_1("{'descr': '<f4'}", bytes(24)), version_1("{}"), version_1("{'descr': '<f4', " * 1000),
                     version_1("{'shape': (2, 3), 'shape': (2, 3), 'descr': '<f4', 'fortran_order': False}", bytes(24)),
                     version_1("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} + 1", bytes(24)),
                     version_1("{'descr': '<f4\0', 'fortran_order': False, 'shape': (2, 3)}", bytes(24)),
                     version_1("{'descr': '" + "f" * 500 + "', 'fortran_order': False, 'shape': (2, 3)}", bytes(24)),
                     b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(100)):
            path.write_bytes(data)
            self.bad("tile", "run", "library", "relu", "-i", f"x={path}", "-o", f"y={FOLDER}/y3.npy", message="hostile.npy")


if __name__ == "__main__":
    unittest.main()
