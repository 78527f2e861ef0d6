"""What the programs here share: which device workers use, GPU workers' settings, and serving."""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
from distributed.utils import LoopRunner

# README.md says what each of these does; worker.sh has the same ones.
GPU_WORKER = {"rmm_pool_size": 0.5, "rmm_allocator_external_lib_list": ["cupy"]}


def needs(extra: str, *modules: str) -> None:
    """End this program where one of `modules` is missing, and name the extra that brings it."""
    for module in modules:
        if find_spec(module) is None:
            other = " (CUDA 12: cu12)" if extra == "cu13" else ""
            takes = f"{Path(sys.argv[0]).name} takes {module}"
            checkout, wheel = (f"pip install '{each}[{extra}]'" for each in (".", "FILE.whl"))
            sys.exit(f"{takes}; {checkout} in a checkout, or {wheel}{other}")


def device_here() -> str:
    """``"cuda"`` on a machine with an NVIDIA driver, else ``"cpu"``."""
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def protocol_for(device: str) -> str:
    """What the scheduler and the workers speak; makes this process ready for it."""
    if device == "cpu":
        return "tcp"
    dask.config.set({"distributed-ucxx.create-cuda-context": True})
    return "ucx"


def number(text: str) -> int:
    """A number of workers, jobs, GPUs or cores that a program was given."""
    if not text.isdigit() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r}; give a number from 1 on")
    return int(text)


@contextmanager
def sheltered_loop() -> Iterator[Any]:
    """The event loop for a cluster whose processes leave Ctrl-C to this one, which ends them.

    They inherit which signals are blocked from the thread that starts them.
    """
    # Started later, it would have the signal unblocked.
    resource_tracker.ensure_running()
    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


def serve(start: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Start a cluster, print the address for clients, and end it at Ctrl-C or SIGTERM.

    What is half started cannot be ended, so the first Ctrl-C waits for it; the second does not.
    """
    ended = threading.Event()

    def end(*_: Any) -> None:
        if ended.is_set() and not started:
            raise KeyboardInterrupt
        ended.set()
        if not started:
            print("ending when the cluster has started; Ctrl-C again: at once", file=sys.stderr)

    started = False
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, end)
    try:
        cluster = start(*args, **options)
        started = True
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        cause: BaseException = error
        # Dask's own say that a part did not start, and what they come from says why.
        while isinstance(cause, RuntimeError) and cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(str(cause).split())
        sys.exit(f"{Path(sys.argv[0]).name}: no cluster was started: {reason}")
    with cluster:
        if not ended.is_set():
            print(cluster.scheduler_address, flush=True)
        ended.wait()
