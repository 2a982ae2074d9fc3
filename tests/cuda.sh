#!/bin/sh
# The CUDA test suite: what needs a GPU, in one go. Usage: tests/cuda.sh BUILD [MODEL.gguf | synth:NAME]...
#
# Compiles the code of all cases on all cores, then runs: every op in every format against float64, the watchdog,
# sampling, whole models (default: MONOTILE_MODEL) against the CPU, few small cases under compute-sanitizer, where that
# tool is. Where there is no GPU it says so and succeeds. PARTS="code ops sample model sanitizer" chooses. The programs
# say at their top which variables they heed.
build=${1:?usage: tests/cuda.sh BUILD [MODEL...]}
shift
parts=${PARTS:-code ops sample model sanitizer}
if ! nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
    echo "skipped: no GPU (nvidia-smi finds none)"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MONOTILE_CACHE="${MONOTILE_CACHE:-$folder/cache}"
failed=""
has() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }

check() { # NAME COMMAND...: without the lines of cmocka that say nothing
    name=$1
    shift
    start=$(date +%s)
    echo "== $name"
    "$@" > "$folder/log" 2>&1
    result=$?
    grep -vE '^\[( RUN      |       OK |==========)\]' "$folder/log"
    [ $result = 0 ] || failed="$failed $name"
    echo "== $name: $([ $result = 0 ] && echo passed || echo FAILED), $(($(date +%s) - start)) s"
}

if has code; then
    start=$(date +%s) cores=$(nproc) i=0 jobs=""
    while [ $i -lt "$cores" ]; do
        CUDA_CODE=$i/$cores "$build/test_cuda" > "$folder/code$i" 2>&1 &
        jobs="$jobs $!" i=$((i + 1))
    done
    for job in $jobs; do
        wait "$job" || failed="$failed code"
    done
    case "$failed" in *code*) grep -hE 'ERROR|error' "$folder"/code* | sort -u | head -20 ;; esac
    echo "== code of all cases: $(($(date +%s) - start)) s on $cores cores"
fi
has ops && check ops "$build/test_cuda"
has sample && check sample "$build/test_cuda_sample"
has model && check model "$build/test_cuda_model" "$@"
if has sanitizer; then
    if tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null); then
        for kind in memcheck racecheck synccheck; do
            check $kind env CUDA_SMALL=1 CUDA_TIMEOUT=100 timeout "${SECONDS_EACH:-300}" "$tool" --tool $kind --error-exitcode 9 "$build/test_cuda"
        done
    else
        echo "skipped: no compute-sanitizer"
    fi
fi
[ -z "$failed" ] && echo "all passed" || echo "FAILED:$failed"
[ -z "$failed" ]
