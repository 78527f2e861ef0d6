#!/bin/bash
# The table tests on a GPU under compute-sanitizer, in parts that run side by side.
#   scripts/sanitize.sh memcheck|racecheck
# Called by scripts/gpu.sh, which sets PYTHON, OUT and CUDA_VISIBLE_DEVICES, whose GPUs take turns; what each part
# printed and ran goes to $OUT/TOOL.
set -euo pipefail
cd "$(dirname "$0")/.."
export TOOL=$1 FOLDER=$OUT/$1
mkdir -p "$FOLDER" && rm -f "$FOLDER"/*
timed=()
"$PYTHON" -c 'import pytest_timeout' 2>/dev/null || timed=(-o addopts=--import-mode=importlib)
export TIMED="${timed[*]}"

# Each launch takes much longer so, which is why these are not all tests. Of tests that all tables have, methods
# other than auto get those of sequences of verbs. Memcheck gets these, those of methods, ids and kernels of users,
# and one in six of the others. Racecheck looks at shared memory; it gets the tests that use every verb of every
# table and every batch operation once, and one in six of those of k-mers. It is told of our kernels only, not of the
# sorts and sums that CuPy brings.
# Tests marked slow move gigabytes; nothing is learned from them that small ones do not show.
collect() {
    "$PYTHON" -m pytest ${TIMED} --collect-only -q -m "gpu and not multigpu and not cudf and not slow and $1" "${@:2}" |
        grep '::'
}
operations=(tests/backend/test_gpu_tables.py tests/backend/test_batch_operations.py)
only=()
if [ "$TOOL" = racecheck ]; then
    only=(--kernel-name kernel_substring=dg)
    collect "not methods" tests/tables/{test_hash_set,columns/test_factorize,columns/test_isin}.py "${operations[@]}"
    collect methods tests/tables/test_sequences.py
    collect "not genomes" tests/kmer | awk 'NR % 6 == 0'
else
    whole=tests/tables/'(methods|ids|user_kernels|test_sequences)'
    collect "not methods and not exhaustive and not genomes" tests/tables tests/kmer "${operations[@]}" |
        awk -v whole="$whole" '$0 ~ whole || NR % 6 == 0'
    collect methods tests/tables/test_sequences.py tests/tables/methods/test_mixed.py tests/tables/ids
fi >"$FOLDER/tests"
export ONLY="${only[*]}"
# Dealt out, so that each part has some of the long ones.
split --number=r/$((2 * $(nproc))) --additional-suffix=.part "$FOLDER/tests" "$FOLDER/"

# Memory that a test asks for and cannot have is no fault.
part() {
    IFS=, read -ra devices <<<"${CUDA_VISIBLE_DEVICES:-0}"
    export CUDA_VISIBLE_DEVICES=${devices[SLOT % ${#devices[@]}]}
    if ! compute-sanitizer --tool "$TOOL" --error-exitcode 99 --report-api-errors no --print-limit 20 \
        --target-processes application-only ${ONLY} "$PYTHON" tests/backend/unpooled.py ${TIMED} "@$1" \
        -q -p no:cacheprovider --junitxml="${1%.part}.xml" >"${1%.part}.log" 2>&1; then
        echo "== $TOOL failed on a part of the tests"
        tail -n 60 "${1%.part}.log"
        return 1
    fi
}
export -f part
status=0
# The tools keep memory of their own on the GPU, 8 GiB for each process is enough.
mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
IFS=, read -ra devices <<<"${CUDA_VISIBLE_DEVICES:-0}"
room=$((mib / 8192 * ${#devices[@]}))
together=$((room < $(nproc) ? room : $(nproc)))
printf '%s\n' "$FOLDER"/*.part | xargs -P "$together" --process-slot-var=SLOT -I{} bash -c 'part {}' || status=1
grep -h 'SUMMARY' "$FOLDER"/*.log | sort | uniq -c
exit $status
