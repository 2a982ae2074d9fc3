"""The examples run and give what they say."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import gguf
except ImportError:
    gguf = None

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("MONOTILE_BUILD", ROOT / "build"))


def setUpModule():
    global FOLDER, ENVIRONMENT
    FOLDER = Path(tempfile.mkdtemp(prefix="monotile-examples-"))
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    ENVIRONMENT = {"MONOTILE_CACHE": str(FOLDER / "cache"), **os.environ}


def example(name, *arguments):
    return subprocess.run([BUILD / f"example_{name}", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=ENVIRONMENT)


class Mlp(unittest.TestCase):
    def check(self, n, rows):
        done = example("mlp", n, rows)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertLess(float(re.fullmatch(rf"{rows} x {n}, .*: largest error (.*)\n", done.stdout)[1]), 1e-4)

    def test_1024(self):
        self.check(1024, 1024)

    def test_odd(self):
        self.check(53, 37)

    def test_one(self):
        self.check(1, 1)

    def test_usage(self):
        self.assertEqual(example("mlp", 0).returncode, 2)


class Generate(unittest.TestCase):
    def check(self, model, prompt):
        first, second = example("generate", model, prompt, 16), example("generate", model, prompt, 16)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, second.stdout)
        return first.stdout

    @unittest.skipIf(gguf is None, "no gguf package")
    def test_small(self):
        path = FOLDER / "small.gguf"
        subprocess.run([sys.executable, ROOT / "tests/make_model.py", path, "--vocab", "515"], check=True, stdout=subprocess.DEVNULL)
        self.check(path, "Once upon")

    @unittest.skipUnless(os.environ.get("MONOTILE_MODEL"), "MONOTILE_MODEL names no model file")
    def test_smollm2(self):
        self.assertRegex(self.check(os.environ["MONOTILE_MODEL"], "The capital of France is"), "Paris")

    def test_bad_model(self):
        done = example("generate", FOLDER / "none", "x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("none", done.stderr)


if __name__ == "__main__":
    unittest.main()
