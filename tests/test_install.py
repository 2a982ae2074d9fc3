"""The installed library is found by CMake and by pkg-config, and a program builds with either."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("MONOTILE_BUILD", ROOT / "build"))
SOURCE = """\
#include <monotile/monotile.h>
#include <stdio.h>
int main(void) {
    const mt_tile *library;
    if (mt_tile_library(&library, NULL) != MT_OK) return 1;
    printf("%s, %d\\n", mt_status_name(MT_E_IO), mt_tile_count(library) > 10);
    return 0;
}
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(consumer C)
find_package(monotile 0.1 REQUIRED)
add_executable(consumer consumer.c)
target_link_libraries(consumer monotile::monotile)
"""


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def setUpModule():
    global FOLDER, PREFIX
    FOLDER = Path(tempfile.mkdtemp(prefix="monotile-install-"))
    unittest.addModuleCleanup(shutil.rmtree, FOLDER)
    installed = FOLDER / "installed"
    run("cmake", "--install", BUILD, "--prefix", installed)
    PREFIX = FOLDER / "moved"  # nothing may remember where it was installed
    installed.rename(PREFIX)
    (FOLDER / "consumer.c").write_text(SOURCE)
    (FOLDER / "CMakeLists.txt").write_text(PROJECT)


class Install(unittest.TestCase):
    def test_files(self):
        self.assertEqual({p.name for p in (PREFIX / "include/monotile").iterdir()},
                         {p.name for p in (ROOT / "include/monotile").iterdir()})
        self.assertRegex(run(PREFIX / "bin/monotile", "--version"), "^monotile ")

    def test_cmake(self):
        build = FOLDER / "build"
        run("cmake", "-S", FOLDER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={PREFIX}")
        run("cmake", "--build", build)
        self.assertEqual(run(build / "consumer"), "MT_E_IO, 1\n")

    def test_pkg_config(self):
        [folder] = {p.parent for p in PREFIX.rglob("monotile.pc")}
        environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
        flags = run("pkg-config", "--cflags", "--libs", "monotile", env=environment).split()
        run("cc", FOLDER / "consumer.c", *flags, "-o", FOLDER / "consumer")
        self.assertEqual(run(FOLDER / "consumer"), "MT_E_IO, 1\n")


if __name__ == "__main__":
    unittest.main()
