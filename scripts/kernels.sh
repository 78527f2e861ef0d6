#!/bin/sh
# Builds the kernels' C++ tests with ThreadSanitizer and with AddressSanitizer and runs them, each under a timeout.
# CXX names the compiler, BUILD the folder for the programs. QUICK=1 leaves out the tests of methods, of counts, of wide
# and of claimed keys, and runs only those of the tables behind the default methods with AddressSanitizer too.
set -u
cd "$(dirname "$0")/.."
CXX=${CXX:-c++}
BUILD=${BUILD:-build/kernels}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
mkdir -p "$BUILD"
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

# begin NAME SECONDS PROGRAM ARGUMENTS: runs it under a timeout, into NAME.log, and its status into NAME.status.
# Lanes in lockstep hand over from one to the next: on a core of their own in half of the time that two cores take.
cat >"$BUILD/begin" <<'EOF'
name=$1
seconds=$2
shift 2
pin=""
case $name in *_lockstep.*)
    cores=$(taskset -cp $$ 2>/dev/null | sed 's/.*: *//' | tr , '\n' | awk -F- '{ for (i = $1; i <= $NF; i++) print i }')
    [ -z "$cores" ] || pin="taskset -c $(echo "$cores" | awk -v slot="$SLOT" '{ core[NR - 1] = $1 } END { print core[slot % NR] }')"
    ;;
esac
timeout "$seconds" $pin $FIXED "$@" >"$BUILD/$name.log" 2>&1
echo $? >"$BUILD/$name.status"
EOF

# check NAME PROGRAM: it has ended by itself, and said that it is content.
check() {
    status=$(cat "$BUILD/$1.status")
    [ "$status" -eq 124 ] && echo "ended by its timeout" >>"$BUILD/$1.log"
    count "$status" "$1" "$BUILD/$1.log"
    [ "$status" -ne 0 ] || cat "$BUILD/$1.log"
}

# caught FAULT TEXT: the harness reports the seeded fault in words, instead of passing or hanging.
caught() {
    timeout 100 $fixed "$BUILD/seeded_faults.thread" "$1" >"$BUILD/log" 2>&1
    status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && grep -q "$2" "$BUILD/log"; then
        echo "seeded fault '$1': caught ($2)"
        count 0 ""
    else
        count 1 "the seeded fault '$1' was not caught (status $status)" "$BUILD/log"
    fi
}

started=$(date +%s)
by_both=$(find tests/kernels -name '*_lockstep.cpp' | sed 's#.*/##; s#\.cpp$##' | sort)
lockstep=$by_both
if [ "${QUICK:-0}" != 0 ]; then
    lockstep=$(echo "$by_both" | grep -vE '^(chained|claims|cops|count|cuckoo|lists|methods|mixed|slab|supernode|two_level|wide)_')
    by_both=$(echo "$lockstep" | grep -E '^(bucket_list|group|open|partition|region)_')
fi
{
    for name in $lockstep pool_threads; do
        echo "$name thread"
    done
    for name in $by_both pool_threads; do
        echo "$name address,undefined"
    done
    echo "seeded_faults thread"
} | xargs -P "$JOBS" -L 1 sh -c '
    more=""
    [ "$3" != pool_threads ] || more=kernels/host/pool.cpp
    exec "$0" -std=c++20 -O0 -g1 -Wall -Wextra -Werror "-fsanitize=$4" -fno-sanitize-recover=all \
        -pthread -Ikernels "$(find "$1" -name "$3.cpp")" $more -o "$2/$3.${4%%,*}"' "$CXX" tests/kernels "$BUILD" ||
    { echo "the kernels' tests do not compile"; exit 1; }
echo "compiled in $(($(date +%s) - started)) s"

rm -f "$BUILD"/*.status
# The longest begin first. ThreadSanitizer cannot follow threads into a forked child.
longest="open_lockstep combine_lockstep partition_lockstep bucket_list_lockstep"
ordered="$longest $(echo "$lockstep" | grep -vxE "$(echo "$longest" | tr ' ' '|')")"
{
    for name in $ordered; do
        echo "$name.thread 900 $BUILD/$name.thread"
    done
    for name in $by_both; do
        echo "$name.address 400 $BUILD/$name.address"
    done
    echo "pool_threads.thread 400 $BUILD/pool_threads.thread"
    echo "pool_threads.address 400 $BUILD/pool_threads.address"
    echo "pool_threads.fork 200 $BUILD/pool_threads.address fork"
} | BUILD=$BUILD FIXED=$fixed xargs -P "$JOBS" --process-slot-var=SLOT -L 1 sh "$BUILD/begin"
echo "== thread sanitizer"
for name in $lockstep pool_threads; do
    check "$name.thread"
done
echo "== address sanitizer"
for name in $by_both pool_threads; do
    check "$name.address"
done
check pool_threads.fork
caught vote "data race"
caught slot "data race"
caught step "data race"
caught branch "divergent collective"
caught count "divergent collective"
caught barrier "divergent collective"
caught fields "not true: complete<LeavesOneOut>"

echo "$(($(date +%s) - started)) s"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
