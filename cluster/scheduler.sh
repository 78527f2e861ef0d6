#!/bin/sh
# Starts the scheduler on this host; further options go to `dask scheduler`.
#   cluster/scheduler.sh [OPTION...]
set -eu
. "$(dirname "$0")/settings.sh"
case $PROTOCOL in ucx*) needs distributed_ucxx ;; esac
exec "${PYTHON:-python3}" -m dask scheduler --protocol "$PROTOCOL" --port "${PORT:-8786}" \
    ${INTERFACE:+--interface "$INTERFACE"} "$@"
