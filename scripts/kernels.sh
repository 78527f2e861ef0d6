#!/bin/sh
# Builds the kernels' C++ tests with ThreadSanitizer and with AddressSanitizer and runs them, each under a timeout.
# CXX names the compiler, BUILD the folder for the programs.
set -u
cd "$(dirname "$0")/.."
CXX=${CXX:-c++}
BUILD=${BUILD:-build/kernels}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
passed=0
failed=0

# ThreadSanitizer needs the usual memory layout, which some kernels randomise too much.
fixed=""
if command -v setarch >/dev/null && setarch "$(uname -m)" -R true 2>/dev/null; then
    fixed="setarch $(uname -m) -R"
fi

count() {
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
        [ -z "${3:-}" ] || tail -n 40 "$3"
    fi
}

# check SECONDS PROGRAM ARGUMENTS: the program ends by itself and says it is content.
check() {
    seconds=$1
    shift
    timeout "$seconds" $fixed "$@" >"$BUILD/log" 2>&1
    status=$?
    [ "$status" -eq 124 ] && echo "timeout after $seconds s" >>"$BUILD/log"
    count "$status" "$*" "$BUILD/log"
    [ "$status" -ne 0 ] || cat "$BUILD/log"
}

# caught FAULT TEXT: the harness reports the seeded fault in words, instead of passing or hanging.
caught() {
    timeout 30 $fixed "$BUILD/seeded_faults.thread" "$1" >"$BUILD/log" 2>&1
    status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && grep -q "$2" "$BUILD/log"; then
        echo "seeded fault '$1': caught ($2)"
        count 0 ""
    else
        count 1 "the seeded fault '$1' was not caught (status $status)" "$BUILD/log"
    fi
}

mkdir -p "$BUILD"
started=$(date +%s)
lockstep="bloom_lockstep open_lockstep region_lockstep bucket_list_lockstep runs_lockstep partition_lockstep group_lockstep"
{
    for name in $lockstep pool_threads; do
        echo "$name thread"
        echo "$name address,undefined"
    done
    echo "seeded_faults thread"
} | xargs -P "$JOBS" -L 1 sh -c '
    more=""
    [ "$3" != pool_threads ] || more=kernels/host/pool.cpp
    exec "$0" -std=c++20 -O0 -g1 -Wall -Wextra -Werror "-fsanitize=$4" -fno-sanitize-recover=all \
        -pthread -Ikernels "$1/$3.cpp" $more -o "$2/$3.${4%%,*}"' "$CXX" tests/kernels "$BUILD" ||
    { echo "the kernels' tests do not compile"; exit 1; }
echo "compiled in $(($(date +%s) - started)) s"

for sanitizer in thread address; do
    echo "== $sanitizer sanitizer"
    for name in $lockstep pool_threads; do
        check 120 "$BUILD/$name.$sanitizer"
    done
done
# ThreadSanitizer cannot follow threads into a forked child.
check 60 "$BUILD/pool_threads.address" fork
caught vote "data race"
caught slot "data race"
caught step "data race"
caught branch "divergent collective"
caught count "divergent collective"
caught barrier "divergent collective"

echo "$(($(date +%s) - started)) s"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
