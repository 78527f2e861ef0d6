"""Device placement of arrays, and errors of arrays on the wrong device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash import backend
from dgpuhash.errors import DeviceError, ShapeError


class OnGpu:
    """Stand-in for any library's GPU array."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (3,), "typestr": "<i8", "data": (0, False), "version": 3}


class OnDlpackDevice:
    def __init__(self, kind: int) -> None:
        self._kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 0


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (np.arange(3), "cpu"),
        (pd.Series([1]), "cpu"),
        (pa.array([1]), "cpu"),
        (OnGpu(), "cuda"),
        (OnDlpackDevice(1), "cpu"),
        (OnDlpackDevice(2), "cuda"),
        (OnDlpackDevice(3), "cpu"),
        ([1, 2], None),
        (np.int64(4), None),
        (None, None),
    ],
)
def test_device_of(data: Any, place: str | None) -> None:
    assert backend.device_of(data) == place


def test_foreign_device() -> None:
    with pytest.raises(DeviceError, match="DLPack device type 7"):
        backend.device_of(OnDlpackDevice(7))


def test_mixed_arrays() -> None:
    with pytest.raises(DeviceError, match=r"mixed.*cupy\.asarray"):
        backend.get(None, np.arange(3), OnGpu())


def test_device_against_arrays() -> None:
    with pytest.raises(
        DeviceError, match="device='cpu' was requested, but the arrays are on 'cuda'"
    ):
        backend.get("cpu", OnGpu())
    with pytest.raises(DeviceError, match="device='cuda' was requested"):
        backend.get("cuda", np.arange(3))


def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match="'tpu'"):
        backend.get("tpu")


def test_gpu_array_on_cpu_backend() -> None:
    with pytest.raises(DeviceError, match=r"cupy\.asnumpy"):
        backend.get("cpu").asarray(OnGpu())


@pytest.mark.parametrize(
    "data", [np.ma.masked_array([1, 2], mask=[False, True]), pa.array([1, None])]
)
def test_nulls_are_refused(data: Any) -> None:
    with pytest.raises(ShapeError, match="1 of 2 elements"):
        backend.get("cpu").asarray(data)
