#!/bin/sh
# The GPU's figures that issue 3 asks for, as one table beside its marks and the peers measured on the same kind of GPU
# (an H200). Usage: bench/gpu.sh [BUILD]
#
# Takes gpu_decode, gpu_prompt, gpu_matmul and gpu_attention from the folder BUILD; without one, builds them in ./build.
# The table goes to stdout, what the programs print to stderr as it comes. Exit status 1: a program failed or computed
# something wrong. A mark that is missed is no failure. Variables:
#   PARTS     which of: llama sampling q4_1 q8_0 qwen prompt matmul attention
#   MACHINE   cuda:0
#   SAMPLER   gpu_decode's options for the part sampling
#   SMALL     a model's file: the whole script in small sizes, with that model for all; to try it on MACHINE=cpu
machine=${MACHINE:-cuda:0}
parts=${PARTS:-llama sampling q4_1 q8_0 qwen prompt matmul attention}
sampler=${SAMPLER:---temperature 0.8 --top-k 40 --top-p 0.95 --min-p 0.02}
case $machine in
cuda*)
    if ! nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
        echo "skipped: no GPU (nvidia-smi finds none)"
        exit 0
    fi
    ;;
esac
build=$1
if [ -z "$build" ]; then
    source=$(dirname "$0")/..
    build=$source/build
    cmake -S "$source" -B "$build" -G Ninja >&2 && cmake --build "$build" --target bench >&2 || exit 1
elif ! [ -x "$build/gpu_decode" ]; then
    echo "no $build/gpu_decode: cmake --build $build --target bench" >&2
    exit 1
fi
kvs="64 512 2048" small="" prompt=512 size=8192x8192x8192 shape="4 4096 32 128"
if [ -n "$SMALL" ]; then
    kvs="2 5 9" small="--steps 3 --loops 2 --tokens 4" prompt=24 size=96x64x80 shape="2 48 2 64"
fi

folder=$(mktemp -d)
failed=""
finish() {
    if [ -s "$folder/table" ]; then
        [ -z "$SMALL" ] || echo "Small sizes, and $SMALL for every model: no measurement."
        echo "| what | ours | mark | peers | floor or ceiling | besides | right |"
        echo "|---|---|---|---|---|---|---|"
        cat "$folder/table"
    fi
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM
has() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }
model() { echo "${SMALL:-synth:$1}"; }

bench() { # PROGRAM OPTION...: leaves what it prints in $folder/out, "yes" or "NO" in $right
    name=$1
    shift
    echo "== $name $*" >&2
    right=yes
    "$build/$name" --machine "$machine" "$@" > "$folder/out" || { right=NO failed="$failed $name"; }
    cat "$folder/out" >&2
}
column() { awk -v key="$1" -v column="$2" '!/^#/ && (key == "" || $1 == key) { print $column; exit }' "$folder/out"; }
mark() { # OURS most|least MARK
    awk -v x="$1" -v way="$2" -v mark="$3" 'BEGIN {
        met = way == "most" ? x <= mark : x >= mark
        printf "%s %s: %s", way == "most" ? "≤" : "≥", mark, x == "" ? "–" : met ? "met" : "SHORT"
    }'
}
row() { # WHAT OURS UNIT MARK PEERS CEILING BESIDES
    if [ -n "$2" ]; then
        echo "| $1 | $2 $3 | $4 | $5 | $6 | $7 | $right |"
    else
        echo "| $1 | failed | $4 | $5 | – | – | NO |"
    fi >> "$folder/table"
}

decode() { # LABEL MODEL OPTIONS MARK PEERS-AT-EACH-LENGTH...
    label=$1 limit=$4
    # shellcheck disable=SC2086  # options are words
    bench gpu_decode --model "$(model "$2")" --kv "$(echo $kvs | tr ' ' ,)" $small $3
    shift 4
    for kv in $kvs; do
        ours=$(column "$kv" 6)
        row "$label, KV $kv" "$ours" "µs a token" "$(mark "$ours" most "$limit")" "$1" \
            "$(column "$kv" 11) µs, $(column "$kv" 12) times that" "one launch a step $(column "$kv" 2) µs"
        shift
    done
}

bf16() { # LABEL MODEL OPTIONS: decode, beside the peers of the 1B shape
    decode "$@" 750 "torch.compile + graph 1091, Hazy 748" "torch.compile + graph 1146, Hazy 944" \
        "torch.compile + graph 1169, Hazy 1603 (at 2000)"
}

has llama && bf16 "Llama-3.2-1B bf16, greedy" llama-3.2-1b ""
has sampling && bf16 "Llama-3.2-1B bf16, $(echo "$sampler" | sed 's,--,,g')" llama-3.2-1b "$sampler"
has q4_1 && decode "Llama-3.2-1B Q4_1, greedy" llama-3.2-1b:q4_1 "" 450 "llama.cpp Q4_0 1747 (tg128)" "–" "–"
has q8_0 && decode "Llama-3.2-1B Q8_0, greedy" llama-3.2-1b:q8_0 "" 550 "llama.cpp Q8_0 1953 (tg128)" "–" "–"
has qwen && decode "Qwen3-8B bf16, greedy" qwen3-8b "" 4000 \
    "–" "torch.compile + graph 5093, eager + graph 6345" "–"
if has prompt; then
    bench gpu_prompt --model "$(model llama-3.2-1b)" --tokens $prompt
    ours=$(column "" 6)
    row "prompt of $prompt, Llama-3.2-1B bf16" "$ours" "tokens/s" "$(mark "$ours" least 40000)" \
        "llama.cpp F16 57400" "–" "logits $(column "" 8) from the path of 16 rows"
fi
if has matmul; then
    bench gpu_matmul --size $size
    ours=$(column "" 7)
    row "linear bf16, $size" "$ours" "TFLOP/s" "$(mark "$ours" least 500)" "cuBLAS 748" "–" \
        "worst error $(column "" 9) spacings of bf16"
fi
if has attention; then
    # shellcheck disable=SC2086
    set -- $shape
    bench gpu_attention --batch "$1" --length "$2" --heads "$3" --head-dim "$4"
    ours=$(column "" 9)
    row "causal attention f16, B$1 S$2 H$3 D$4" "$ours" "TFLOP/s" "$(mark "$ours" least 300)" "cuDNN 590" "–" \
        "relative l2 error $(column "" 11)"
fi
[ -z "$failed" ]
