#!/usr/bin/env python3
"""Prompt and decode speed of `monotile run`: cpu_llm.py MONOTILE [--machine cpu:2] [--cache f32] [--repeats 7] MODEL...

Prints for each model the median and the range of tokens a second over fresh processes, after one that is not counted.
A prompt of 128 tokens, then 128 steps (positions 128 to 255). Models take turns, so that a noisy minute hits all of them."""
import argparse
import json
import statistics
import subprocess

# 128 tokens of SmolLM2's tokenizer, the ends of turns of its template not counted.
PROMPT = " ".join(["The ship sailed at dawn with seven men, two dogs and a cargo of salt."] * 8)


def run(options, model):
    command = [options.monotile, "run", model, "--raw", "--machine", options.machine, "--cache", options.cache, "--json"]
    out = subprocess.run([*command, "-p", PROMPT, "-n", "128"], check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("monotile")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--machine", default="cpu")
    parser.add_argument("--cache", default="f32")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    figures = {model: [] for model in options.models}
    for repeat in range(options.repeats + 1):
        for model in options.models:
            result = run(options, model)
            if repeat:
                figures[model].append((len(result["prompt_ids"]), len(result["ids"]), result["figures"]))
    for model, results in figures.items():
        print(model.rsplit("/", 1)[-1], f"prompt {results[0][0]}, steps {results[0][1]}")
        for key in results[0][2]:
            values = sorted(r[2][key] for r in results)
            print(f"  {key:28} median {statistics.median(values):12.6g}   {values[0]:.6g} to {values[-1]:.6g}")


if __name__ == "__main__":
    main()
