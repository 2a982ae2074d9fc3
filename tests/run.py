#!/usr/bin/env python3
"""Runs every test and counts them: `make check` calls it.

A test program is tests/test_X.c, built as BUILD/test_X, which speaks TAP as cmocka does, or tests/test_X.py, plain
unittest. All of them run on the plain build; the C programs and the command line's tests once more with address and undefined behaviour sanitizers; those that start
threads with the thread sanitizer. Two run at a time, each with a time limit. The last line counts single tests; what
was skipped is listed with its reason.

Tests find in their environment
    MONOTILE_PYTHON  an interpreter that has tests/requirements.txt
    MONOTILE_MODEL   SmolLM2-135M-Instruct as GGUF (plain build only)
    MONOTILE_BUILD   the build folder; MONOTILE_CLI its command line
    MONOTILE_CACHE, TMPDIR   temporary folders, removed at the end
Where the first two cannot be had (no network), they are absent and the tests that need them skip themselves.
"""
import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1200  # seconds for one program, on a busy machine too
PARALLEL = 2


class Outcome:
    """What one program did: counts, and the lines worth showing."""

    def __init__(self, output, code):
        self.passed = self.failed = 0
        self.skipped = []
        planned, reason = 0, ""
        for line in output.splitlines():
            if match := re.fullmatch(r"1\.\.(\d+)", line):
                planned += int(match[1])
            elif match := re.fullmatch(r"(?:not )?ok \d+(?: -)? # SKIP ?(.*)", line):  # cmocka says "not ok" here
                self.skipped.append(match[1] + reason)
            elif re.match(r"ok \d+", line):
                self.passed += 1
            elif re.match(r"not ok \d+", line):
                self.failed += 1
            reason = f" ({line.strip()})" if line.lower().startswith("skip") else ""
        seen = self.passed + self.failed + len(self.skipped)
        self.failed += max(planned - seen, 0)  # a crash: the rest of the plan
        if self.failed == 0 and (code != 0 or seen == 0):
            self.failed = 1


class Job:
    def __init__(self, name, command, environment):
        self.name, self.command, self.environment = name, command, environment

    def run(self):
        start = time.monotonic()
        process = subprocess.Popen(self.command, cwd=ROOT, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        late = ""
        try:
            output = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            late = f"not ok 0 - stopped after {LIMIT} s\n"
        text = output.decode(errors="replace") + late
        outcome = Outcome(text, process.returncode)
        state = "FAIL" if outcome.failed else "ok"
        counts = f"{outcome.passed} passed, {outcome.failed} failed, {len(outcome.skipped)} skipped"
        print(f"{state:5}{self.name:32}{counts:36}{time.monotonic() - start:6.1f} s", flush=True)
        if outcome.failed:
            print("".join(f"      | {line}\n" for line in text.splitlines()[-200:])
                  + f"      | exit code {process.returncode}", flush=True)
        return self, outcome


def without_randomised_addresses():
    """The prefix for the thread sanitizer, which some kernels' address layouts confuse."""
    prefix = ["setarch", "-R"]
    try:
        return prefix if subprocess.run(prefix + ["true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def find_jobs(args, common, plain):
    jobs = []
    programs = sorted(p.stem for p in (ROOT / "tests").glob("test_*.c"))
    scripts = sorted(p.stem for p in (ROOT / "tests").glob("test_*.py"))
    python = common.get("MONOTILE_PYTHON", sys.executable)

    def add(build, label, names, environment, prefix=()):
        build = build.resolve()
        environment = {**common, "MONOTILE_BUILD": str(build), "MONOTILE_CLI": str(build / "monotile"), **environment}
        for name in names:
            command = [python, __file__, "--unittest", str(ROOT / "tests" / f"{name}.py")] if name in scripts else [*prefix, str(build / name)]
            jobs.append(Job(f"{name} {label}".strip(), command, environment))

    # These run emitted code in the simulator for minutes, or need a GPU. Under the sanitizers the same host code runs in
    # test_loop, test_sample, test_role, test_narrow, test_device and test_nvrtc; level 2's front end in
    # test_level2_refused, test_diagnostic and fuzz_tile.
    plain_only = {"test_emit_cuda", "test_sim", "test_handoff", "test_wide", "test_level2", "test_level2_store",
                  "test_cuda", "test_cuda_model", "test_cuda_sample"}
    # the longest first: those that run the whole model
    whole = [p for p in programs if "MONOTILE_MODEL" in (ROOT / "tests" / f"{p}.c").read_text()]
    add(args.build, "", whole + scripts + [p for p in programs if p not in whole], plain)
    if args.address:
        add(args.address, "(address)", [s for s in scripts if s == "test_cli"] + [p for p in programs if p not in plain_only],
            {"UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_stack_use_after_return=1"})
    if args.thread:
        add(args.thread, "(thread)", [p for p in args.threaded.split() if p not in plain_only], {"TSAN_OPTIONS": f"halt_on_error=1 suppressions={ROOT}/tests/thread.supp"},
            without_randomised_addresses())
    return jobs


def output_of(command):
    """What a command prints, or None when it fails; it has said why."""
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def run_all(args):
    folder = Path(tempfile.mkdtemp(prefix="monotile-check-"))
    venv = args.build / "venv"
    common, plain = {"CMOCKA_MESSAGE_OUTPUT": "TAP", "MONOTILE_CACHE": str(folder / "cache"), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}, {}
    if output_of(["scripts/venv.sh", str(venv), "tests/requirements.txt"]) is not None:
        common["MONOTILE_PYTHON"] = str((venv / "bin/python").absolute())
        model = os.environ.get("MONOTILE_MODEL") or output_of([common["MONOTILE_PYTHON"], "scripts/model.py"])
        if model:
            plain["MONOTILE_MODEL"] = model
    else:
        print("check: no Python packages: the tests against Python oracles will be skipped")
    if not plain:
        print("check: no model file: the tests on SmolLM2 will be skipped")
    os.environ.pop("MONOTILE_MODEL", None)  # the sanitized builds are too slow for it
    try:
        with ThreadPoolExecutor(PARALLEL) as pool:
            done = list(pool.map(Job.run, find_jobs(args, common, plain)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for job, outcome in done:
        for name in outcome.skipped:
            print(f"skipped: {job.name}: {name}")
    passed, failed = sum(o.passed for _, o in done), sum(o.failed for _, o in done)
    print(f"{passed} passed, {failed} failed, {sum(len(o.skipped) for _, o in done)} skipped")
    return 1 if failed or not passed else 0


class Tap(unittest.TestResult):
    """Writes the results of unittest as TAP."""

    lines = 0

    def line(self, state, test, comment=""):
        self.lines += 1
        print(f"{state} {self.lines}{comment or ' - ' + test.id().split('.', 1)[-1]}", flush=True)

    def addSuccess(self, test):
        self.line("ok", test)

    def addSkip(self, test, reason):
        self.line("ok", test, f" # SKIP {test.id().split('.', 1)[-1]} ({reason})")

    def problem(self, test, error):
        print(self._exc_info_to_string(error, test))
        self.line("not ok", test)

    addError = addFailure = problem

    def addSubTest(self, test, subtest, error):
        if error:
            self.problem(subtest, error)


def run_unittest(path):
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    result = Tap()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    print(f"1..{result.lines}")
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--address", type=Path, help="build folder with address and undefined behaviour sanitizers")
    parser.add_argument("--thread", type=Path, help="build folder with the thread sanitizer")
    parser.add_argument("--threaded", default="", help="names of the test programs in it")
    parser.add_argument("--unittest", help=argparse.SUPPRESS)  # run one Python file, as TAP
    args = parser.parse_args()
    return run_unittest(args.unittest) if args.unittest else run_all(args)


if __name__ == "__main__":
    sys.exit(main())
