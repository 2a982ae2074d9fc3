"""The worked example of docs/new-operation.md, done literally: its .tile file goes into a copy of the library, its test
is built against that library and passes; its commands work."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    np = None

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("MONOTILE_BUILD", ROOT / "build"))
CLI = os.environ.get("MONOTILE_CLI", str(BUILD / "monotile"))
TEXT = (ROOT / "docs/new-operation.md").read_text()


def block(heading):
    """The indented block behind the first line with this heading."""
    lines = re.search(rf"(?m)^\*\*.*{re.escape(heading)}.*\n(?:\S.*\n)*\n((?:(?:    .*)?\n)+)", TEXT)[1].splitlines()
    return "\n".join(line[4:] for line in lines).strip() + "\n"


class NewOperation(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="monotile-docs-"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(ROOT / "src/ops", self.folder / "src/ops")
        (self.folder / "src/ops/softcap.tile").write_text(block("src/ops/softcap.tile"))

    def run_in_folder(self, *command):
        environment = {"MONOTILE_CACHE": str(self.folder / "cache"), **os.environ}
        done = subprocess.run([*map(str, command)], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    @unittest.skipIf(np is None, "no numpy")
    def test_commands(self):
        x = np.linspace(-100, 100, 700, dtype=np.float32).reshape(7, 100)
        np.save(self.folder / "x.npy", x)
        commands = re.findall(r"(?m)^    monotile (tile .*?)(?: +#.*)?$", TEXT)
        self.assertEqual(len(commands), 3)
        for command in commands:
            self.run_in_folder(CLI, *shlex.split(command))
        expected = 30 * np.tanh(x.astype(np.float64) / 30)
        np.testing.assert_allclose(np.load(self.folder / "y.npy"), expected, rtol=1e-5, atol=1e-6)

    def test_test(self):
        (self.folder / "test_softcap.c").write_text(block("tests/test_softcap.c"))
        self.run_in_folder("cmake", "-DOUT=library.c", "-DFOLDER=src/ops", "-DPATTERN=*.tile", "-DNAME=library",
                           "-P", ROOT / "cmake/embed.cmake")
        packages = "cmocka jansson libpcre2-8 libutf8proc libxxhash".split()
        libraries = self.run_in_folder("pkg-config", "--cflags", "--libs", *packages).split()
        warnings = "-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes".split()
        headers = [f"-I{ROOT / folder}" for folder in ("include", "src", "tests")]
        self.run_in_folder("cc", "-std=c11", "-D_GNU_SOURCE", *warnings, *headers, "test_softcap.c", "library.c",
                           BUILD / "libmonotile.a", "-o", "test_softcap", *libraries, "-lm", "-ldl", "-pthread")
        self.assertIn("ok 1", self.run_in_folder("env", "CMOCKA_MESSAGE_OUTPUT=TAP", "./test_softcap"))


if __name__ == "__main__":
    unittest.main()
