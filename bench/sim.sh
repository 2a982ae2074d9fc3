#!/bin/sh
# The simulator's long run: every op under SEEDS random seeds (50) and the adversarial schedules, then two tokens of
# SmolLM2 on four virtual SMs. Usage: bench/sim.sh BUILD MODEL.gguf
set -e
build=$1 model=$2
SIM_SEEDS=${SEEDS:-50} "$build/test_sim"
start=$(date +%s)
"$build/monotile" run "$model" --raw -p Gravity -n 2 --temp 0 --context 64 --machine "${MACHINE:-sim:4}"
echo "two tokens: $(($(date +%s) - start)) s"
