# Read by scheduler.sh and worker.sh, and to be read before a client of their cluster is started:
#   . cluster/settings.sh
# What each setting does stands in README.md.
if [ -z "${DEVICE:-}" ]; then
    if [ -e /dev/nvidiactl ]; then DEVICE=cuda; else DEVICE=cpu; fi
fi
case $DEVICE in
cpu) PROTOCOL=${PROTOCOL:-tcp} ;;
cuda)
    PROTOCOL=${PROTOCOL:-ucx}
    export DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT=${DASK_DISTRIBUTED_UCXX__CREATE_CUDA_CONTEXT:-True}
    ;;
*)
    echo "DEVICE=$DEVICE: set it to cuda or cpu, or leave it out" >&2
    return 2
    ;;
esac

# needs MODULE: ends scheduler.sh or worker.sh where their interpreter has no such module.
needs() {
    "${PYTHON:-python3}" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" >/dev/null && return
    case $DEVICE in
    cuda) echo "DEVICE=cuda takes $1: pip install '.[cu13]' (CUDA 12: [cu12]) in a checkout, or 'FILE.whl[cu13]', or set DEVICE=cpu" >&2 ;;
    cpu) echo "UCX takes $1: pip install '.[ucx]' in a checkout, or 'FILE.whl[ucx]', or start the scheduler with PROTOCOL=tcp" >&2 ;;
    esac
    exit 2
}
