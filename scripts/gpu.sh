#!/bin/bash
# What is proved and measured on a GPU machine, in one command and under ten minutes.
#   scripts/gpu.sh [PARTS [WHEELS]]
# PARTS are one or more of these, each with a receipt of its name; default: "figures gpu".
#   gpu       one GPU: tests, then compute-sanitizer, of which both tools run side by side where there are several
#   figures   one GPU: benchmarks, on two side by side where there are several
#   papers    one GPU: the papers' tables and figures, on two side by side where there are several
#   dataframes one GPU: merges and groupbys of cuDF frames, beside cuDF
#   letters   one GPU: k-mers of the genomes below DGPUHASH_KMER_DATA
#   multigpu  two or more: the tests of several; those of more workers than GPUs let these share them
#   scaling   two or more: benchmarks of the exchange, the distributed tables, merges and k-mers on all
# The last two are kept with the number of GPUs in their names, beside those of other numbers.
# WHEELS is a folder of wheels to use where there is no network.
# Logs and receipts go to $OUT (default build/gpu). PYTHON names the interpreter; by default that
# of $VENV (.venv) where it exists, else python3 where it has CuPy, else a new $VENV is made.
# STEPS limits what runs, e.g. STEPS="install tests tables", and adds it to what $OUT has of the same code, so that
# several calls make one receipt; LIMIT is the time for all (570 s).
# COMMIT names the commit where there is no git. CUDA_VISIBLE_DEVICES chooses GPUs by number, as for other programs.
set -uo pipefail
cd "$(dirname "$0")/.."
parts=${1:-figures gpu}
wheels=${2:-}
for part in $parts; do
    case $part in gpu | figures | papers | dataframes | letters | multigpu | scaling) ;; *)
        echo "gpu.sh: unknown part '$part'; use gpu, figures, papers, dataframes, letters, multigpu or scaling" >&2
        exit 2
        ;;
    esac
done
if ! nvidia-smi -L; then
    echo "gpu.sh: no NVIDIA GPU or driver on this machine" >&2
    exit 1
fi
export OUT=${OUT:-build/gpu}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd) top=$OUT
code=$(find kernels dgpuhash scripts tests -type f ! -name '*.pyc' ! -name '*.so' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
for part in $parts; do
    [ -n "${STEPS:-}" ] && [ "$(cat "$top/$part/code" 2>/dev/null)" = "$code" ] && continue
    rm -rf "${top:?}/$part" && mkdir -p "$top/$part" && echo "$code" >"$top/$part/code"
done
export DGPUHASH_CACHE_DIR=${DGPUHASH_CACHE_DIR:-$PWD/build/kernel-cache}
export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1
venv=${VENV:-.venv}
if [ -z "${PYTHON:-}" ]; then
    if [ -x "$venv/bin/python" ]; then
        PYTHON=$venv/bin/python
    elif python3 -c 'import cupy' 2>/dev/null; then
        PYTHON=python3
    else
        scripts/install || exit 1
        PYTHON=$venv/bin/python
    fi
fi

# Time left for the next step, with some kept for the receipt.
left() { echo $((${LIMIT:-570} - SECONDS - 10)); }
note() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" >>"$OUT/steps.tsv"; }

# step NAME SECONDS COMMAND…: runs it under a time limit, logs it, and notes how it ended.
step() {
    local name=$1 limit=$2
    shift 2
    case " ${STEPS:-$name} " in *" $name "*) ;; *) return 0 ;; esac
    if [ "$(left)" -lt "$limit" ]; then limit=$(left); fi
    if [ "$limit" -lt 5 ]; then
        note "$name" failed 0 "no time was left"
        return
    fi
    echo "== $name: $*"
    local began=$SECONDS status=passed remark=
    timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$OUT/$name.log"
    local code=${PIPESTATUS[0]}
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then
        status=failed remark="stopped after $limit s"
    elif [ "$code" = 5 ] && [[ $* == *pytest* ]]; then
        status=failed remark="no test was selected"
    elif [ "$code" != 0 ]; then
        status=failed remark="exit status $code"
    fi
    if [[ $* == *sanitize.sh* ]] && ! command -v compute-sanitizer >/dev/null; then
        status=refused remark="compute-sanitizer is not installed"
    elif grep -qE 'Device not supported|Unable to find injection|not supported on this (device|system)' \
        "$OUT/$name.log" && [[ $* == *sanitize.sh* ]]; then
        status=refused remark="compute-sanitizer does not work on this machine"
    fi
    note "$name" "$status" $((SECONDS - began)) "$remark"
}

install_tree() {
    for module in click hypothesis pandas platformdirs pyarrow pytest rich scipy; do
        "$PYTHON" -c "import $module" || echo "install $module for $PYTHON first" >&2
    done
    local pip=("$PYTHON" -m pip --disable-pip-version-check)
    if [ "$PYTHON" = "$venv/bin/python" ] && ! "$PYTHON" -c 'import cupy' 2>/dev/null; then
        "${pip[@]}" install --quiet --no-build-isolation --editable '.[cu13,test]'
        return
    fi
    "$PYTHON" -c 'import dgpuhash._native' 2>/dev/null && [ "$PYTHON" = "$venv/bin/python" ] && return
    "${pip[@]}" install --quiet --no-build-isolation --no-deps --no-index --editable .
}

describe() {
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    "$PYTHON" - <<'PY'
import sys
import cupy
from dgpuhash import backend
from dgpuhash.backend import cache, compiler
gpu = backend.get("cuda")
print("python", sys.version.split()[0], "cupy", cupy.__version__, "nvrtc", compiler.nvrtc_version())
print(gpu.device_name(), "free/total bytes", gpu.memory())
print("kernels", compiler.kernel_folder(), compiler.folder_digest(compiler.kernel_folder()))
print(cache.info())
PY
}
export -f install_tree describe
export PYTHON venv

if [ -n "$wheels" ]; then
    site=$PWD/build/site
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade \
        --target "$site" $(find "$wheels" -type f -name '*.whl') || exit 1
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi

pytest=("$PYTHON" -m pytest)
# The settings name a time limit for each test, which pytest refuses to read without its plugin.
"$PYTHON" -c 'import pytest_timeout' 2>/dev/null || pytest+=(-o "addopts=-ra --import-mode=importlib")
# together GPUS: A GPU has room for several tests at once, and each process takes one GPU (tests/conftest.py).
together() {
    local each
    IFS=, read -ra each <<<"$1"
    local most=$((14 * ${#each[@]}))
    "$PYTHON" -c 'import xdist' 2>/dev/null && echo "-n $(($(nproc) < most ? $(nproc) : most))"
}

# lane GPU FROM TO FUNCTION: with several GPUs, beside other lanes, on cores of its own (a share of them, in
# percent), and a GPU of its own where there are as many.
visible=${CUDA_VISIBLE_DEVICES:-$(seq --separator=, 0 $(($(nvidia-smi -L | wc -l) - 1)))}
IFS=, read -ra devices <<<"$visible"
gpus=${#devices[@]}
lane() {
    if [ "$gpus" -lt 2 ]; then
        "$4"
        return
    fi
    (
        export CUDA_VISIBLE_DEVICES=${devices[$1 % gpus]}
        taskset --pid --cpu-list $(($2 * $(nproc) / 100))-$(($3 * $(nproc) / 100 - 1)) $BASHPID
        "$4"
    ) &
}
# half N: of four GPUs or more the first or second half; else one of them.
half() {
    local each=$((gpus < 4 ? 1 : gpus / 2))
    local IFS=,
    echo "${devices[*]:$1 * each % gpus:each}"
}
# tests_of NAME GPUS MARKS
tests_of() {
    step "$1" 420 env CUDA_VISIBLE_DEVICES="$2" "${pytest[@]}" $(together "$2") -m "gpu and not multigpu and $3" -q \
        --junitxml="$OUT/$1.xml" tests
}
table_tests() { tests_of tests "$(half 0)" "not cudf"; }
# Most of their time goes to Dask, and to kernels that each process loads.
cudf_tests() { tests_of cudf "$(half 1)" cudf; }
memory_check() { step memcheck 500 env CUDA_VISIBLE_DEVICES="$(half 0)" scripts/sanitize.sh memcheck; }
race_check() { step racecheck 500 env CUDA_VISIBLE_DEVICES="$(half 1)" scripts/sanitize.sh racecheck; }
# The figures of one GPU take about two minutes; peers run where cuDF is installed.
"$PYTHON" -c 'import cudf' 2>/dev/null && compare=--compare || compare=
bench=("$PYTHON" -m dgpuhash bench)
measured=(--device cuda --repeats 3)
figures_of_tables() {
    step limits 90 "${bench[@]}" limits "${measured[@]}" --json "$OUT/limits.jsonl"
    step tables 110 "${bench[@]}" tables "${measured[@]}" --n $((1 << 28)) --n $((1 << 27)) --n $((1 << 24)) --n $((1 << 22)) \
        --json "$OUT/tables.jsonl"
}
figures_of_batches() {
    step multi 40 "${bench[@]}" multi "${measured[@]}" --json "$OUT/multi.jsonl"
    step group 50 "${bench[@]}" group "${measured[@]}" $compare --json "$OUT/group.jsonl"
    [ -z "$compare" ] || step aggregates 60 "${bench[@]}" aggregates "${measured[@]}" --compare --json "$OUT/aggregates.jsonl"
    step join 50 "${bench[@]}" join "${measured[@]}" $compare --json "$OUT/join.jsonl"
    step close 30 "${bench[@]}" close "${measured[@]}" --json "$OUT/close.jsonl"
    step growth 60 "${bench[@]}" growth "${measured[@]}" --json "$OUT/growth.jsonl"
}

# Figures of one text, each cut short after some seconds; those that $OUT has of this commit are not measured again.
drawn() {
    local name=$1 limit=$2 each only=()
    shift 2
    for each in "$@"; do only+=(--only "$each"); done
    step "$name" "$limit" "${bench[@]}" papers "${measured[@]}" --seconds 9 --folder "$OUT/drawn" "${only[@]}" \
        --json "$OUT/$name.jsonl" --force
}
papers_of_one() {
    step cops 150 "${bench[@]}" papers "${measured[@]}" --only cops --json "$OUT/cops.jsonl"
    drawn thesis 300 thesis
}
papers_of_another() {
    step lists 150 "${bench[@]}" papers "${measured[@]}" --only slab --only slab-mixed --only slab-alloc \
        --only bucket-list --only count --only bloom --json "$OUT/papers.jsonl"
    drawn texts 190 slabhash dachash warpcore
}

# The tests leave the kernels compiled. Dozens of processes under compute-sanitizer make launches slow on the whole
# host, so never beside these.
proof() {
    lane 0 0 55 table_tests
    [ -z "$has_cudf" ] || lane 1 55 100 cudf_tests
    wait
    lane 0 0 55 memory_check
    lane 1 55 100 race_check
    wait
}
figures() {
    lane 0 0 50 figures_of_tables
    lane 1 50 100 figures_of_batches
    wait
}
papers() {
    lane 0 0 50 papers_of_one
    lane 1 50 100 papers_of_another
    wait
}
figures_of_dataframes() { step frames 480 "${bench[@]}" frames --device cuda --compare --json "$OUT/frames.jsonl"; }
figures_of_letters() {
    local kmer=("${bench[@]}" kmer --device cuda --repeat 3 --input letters)
    step letters 240 "${kmer[@]}" --json "$OUT/letters.jsonl"
    step construction 240 "${kmer[@]}" --question construction-kraken2 --question construction-metacache \
        --json "$OUT/construction.jsonl"
}
# Each file starts clusters of its own, so they run side by side, as many as there are cores for; but for the last,
# which looks at the memory that is free on a GPU.
tests_of_several() {
    mkdir -p "$OUT/multigpu"
    for_gpus() {
        # Files of several folders have one name.
        local name=${1#tests/}
        name=$(tr / - <<<"${name%.py}")
        step "$name" 300 "${pytest[@]}" -m multigpu -q --junitxml="$OUT/multigpu/$name.xml" "$1"
    }
    local alone=tests/distributed/collective/test_gpus.py file most=$((2 + $(nproc) / 6))
    for file in $(grep -lrE --include='test_*.py' 'mark\.multigpu' tests | sort); do
        [ "$file" != $alone ] || continue
        while [ "$(jobs -rp | wc -l)" -ge $most ]; do wait -n; done
        for_gpus "$file" &
    done
    wait
    for_gpus $alone
}
# Rows of a worker: those of WarpCore for tables; of merges as many as dask-cuDF's own benchmark has, and few.
figures_of_several() {
    local weak=("${bench[@]}" scaling --device cuda --mode weak --runs 3 --workers)
    local merges=(--verb merge --verb "build + merge")
    step exchange 60 "${bench[@]}" exchange --device cuda --runs 5 --json "$OUT/exchange.jsonl"
    step bulk 90 "${weak[@]}" 1 --workers "$gpus" --verb "bulk insert" --verb "bulk find" --json "$OUT/bulk.jsonl"
    step merges 90 "${weak[@]}" "$gpus" -c 100000000 "${merges[@]}" --verb "replicated merge" \
        --partitions 16 --partitions 64 $compare --json "$OUT/merges.jsonl"
    step small 60 "${weak[@]}" "$gpus" -c 20000000 "${merges[@]}" $compare --json "$OUT/small.jsonl"
    # Beside cudf-polars Dask's own would take most of the time.
    "$PYTHON" -c 'import cudf_polars' 2>/dev/null && engines=(--engine dgpuhash --engine cudf-polars) || engines=()
    step groupbys 180 "${bench[@]}" groupbys --device cuda --workers "$gpus" "${engines[@]}" --json "$OUT/groupbys.jsonl"
    step kmers 240 "${bench[@]}" kmer --device cuda --repeat 3 --question scaling-kraken2 --question scaling-metacache \
        --workers 1 --workers "$gpus" --json "$OUT/kmers.jsonl"
}

OUT=$top/machine
rm -rf "$OUT" && mkdir "$OUT" && touch "$OUT"/{steps.tsv,install.log,machine.log}
step install 240 bash -c install_tree
step machine 60 bash -c describe
for part in $parts; do
    cat "$OUT/steps.tsv" >>"$top/$part/steps.tsv"
    cat "$OUT"/*.log >>"$top/$part/all.txt"
done
status=0
for part in $parts; do
    OUT=$top/$part
    case $part in
    gpu)
        has_cudf=1
        if ! "$PYTHON" -c 'import cudf' 2>/dev/null; then
            has_cudf=
            note cudf absent 0 "cuDF is not installed; the tests that need it did not run"
        fi
        proof
        ;;
    figures) figures ;;
    papers) papers ;;
    dataframes) figures_of_dataframes ;;
    letters) figures_of_letters ;;
    multigpu) tests_of_several ;;
    scaling) figures_of_several ;;
    esac
    cat "$OUT"/*.log >>"$OUT/all.txt" && rm -f "$OUT"/*.log
    "$PYTHON" scripts/receipt.py write "$part" "$OUT" || status=1
    # A run of some of the steps proves too little.
    if [ -z "${STEPS:-}" ]; then "$PYTHON" scripts/receipt.py accept "$OUT/$part.json" || status=1; fi
done
exit $status
