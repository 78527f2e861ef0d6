#!/bin/sh
# Starts the workers of this host; further options go to `dask cuda worker` or `dask worker`.
#   cluster/worker.sh ADDRESS [OPTION...]
set -eu
if [ $# -eq 0 ]; then
    echo "usage: $0 ADDRESS [OPTION...]; ADDRESS is what the scheduler prints, such as tcp://host:8786, or its scheduler file" >&2
    exit 2
fi
address=$1
shift
. "$(dirname "$0")/settings.sh"
case $address in
ucx*) needs distributed_ucxx ;;
*.json)
    # Written by the scheduler, which may start later.
    case $PROTOCOL in ucx*) needs distributed_ucxx ;; esac
    address=--scheduler-file=$address
    ;;
esac
set -- --memory-limit "${MEMORY_LIMIT:-auto}" --death-timeout "${DEATH_TIMEOUT:-60}" \
    ${INTERFACE:+--interface "$INTERFACE"} "$@"
case $DEVICE in
cpu) set -- worker "$address" "$@" ;;
cuda)
    needs dask_cuda
    set -- cuda worker "$address" --rmm-pool-size "${RMM_POOL_SIZE:-0.5}" \
        --set-rmm-allocator-for-libs cupy "$@"
    ;;
esac
exec "${PYTHON:-python3}" -m dask "$@"
