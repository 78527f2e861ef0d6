"""Simulated GPUs: NumPy arrays that groups take for arrays of a GPU."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from distributed.protocol import dask_serialize
from paper_nccl import NcclStream, nccl

from dgpuhash import backend
from dgpuhash.distributed.collective import base

__all__ = ["DeviceArray", "install"]


class DeviceArray(np.ndarray):
    """NumPy array with a device address, as CuPy's arrays have."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self, stream: Any, out: np.ndarray, blocking: bool) -> None:
        """Copy the array to the host."""
        out[...] = self

    def set(self, rows: np.ndarray, stream: Any) -> None:
        """Copy rows of the host to the array."""
        self[...] = rows


@dask_serialize.register(DeviceArray)
def refuse(array: DeviceArray) -> NoReturn:
    raise TypeError("memory of a GPU was given to a comm that carries the host's")


class Outgoing(base.Outgoing):
    """Outgoing columns on a simulated GPU, unless they are the host's."""

    def __init__(self, columns: Any, *args: Any) -> None:
        super().__init__(columns, *args)
        if all(isinstance(column, DeviceArray) for column in columns):
            xp = sys.modules["cupy"]
            self.device = SimpleNamespace(name="cuda", xp=xp, empty=empty)  # type: ignore[assignment]
            self.columns = [np.ascontiguousarray(column).view(DeviceArray) for column in columns]


def empty(shape: Any, dtype: Any) -> DeviceArray:
    return np.empty(shape, dtype).view(DeviceArray)


@contextmanager
def install(monkeypatch: Any) -> Iterator[None]:
    """Let groups of threads use one simulated GPU each."""
    # All that is launched on the current stream is done at once.
    current = NcclStream()
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(pci_bus_id=f"bus {threading.get_ident()}"),
        Stream=lambda **_: NcclStream(),
        get_current_stream=lambda: current,
        alloc_pinned_memory=bytearray,
        nccl=nccl,
    )
    cupy = ModuleType("cupy")
    cupy.__dict__.update(
        cuda=cuda,
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(DeviceArray),
        empty_like=lambda rows: np.empty_like(rows).view(DeviceArray),
        asarray=lambda rows: np.array(rows).view(DeviceArray),
        asnumpy=np.array,
        ascontiguousarray=np.ascontiguousarray,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setattr(backend, "default_device", lambda: "cuda")
    monkeypatch.setattr(base, "Outgoing", Outgoing)
    yield
