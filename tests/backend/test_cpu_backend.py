"""Arrays and memory of the CPU backend."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dgpuhash import backend
from dgpuhash.backend import Kernel
from dgpuhash.errors import CompileError, OutOfMemoryError

CPU = backend.get("cpu")


@pytest.mark.parametrize("dtype", ["u1", "i4", "f8", "M8[ns]"])
@pytest.mark.parametrize("shape", [0, 1, 1000, (3, 5)])
def test_empty_is_aligned(shape: int | tuple[int, ...], dtype: str) -> None:
    made = CPU.empty(shape, dtype)
    assert made.shape == np.empty(shape).shape
    assert made.dtype == np.dtype(dtype)
    assert CPU.pointer(made) % 64 == 0


def test_full_and_zeros() -> None:
    assert CPU.full(3, 7, "u4").tolist() == [7, 7, 7]
    assert not CPU.zeros((2, 2), "f4").any()


def test_asarray_takes_every_kind_of_host_data() -> None:
    expected = np.array([3, 1, 2])
    strided = np.repeat(expected, 2)[::2]
    frozen = expected.copy()
    frozen.flags.writeable = False
    for data in ([3, 1, 2], strided, frozen, pd.Series([3, 1, 2]), pa.array([3, 1, 2])):
        made = CPU.asarray(data)
        assert isinstance(made, np.ndarray)
        assert made.flags.c_contiguous
        np.testing.assert_array_equal(made, expected)
    assert CPU.asarray(expected) is expected


def test_pointer_of_nothing() -> None:
    assert CPU.pointer(None) == 0
    assert CPU.pointer(np.empty(0)) == 0


def test_memory_and_name() -> None:
    free, total = CPU.memory()
    assert 0 < free <= total
    assert "threads" in CPU.device_name()


def test_out_of_memory_says_how_much() -> None:
    with pytest.raises(OutOfMemoryError, match=r"9,223,372,036,854,775,808 bytes.*are free"):
        CPU.empty(2**60, "u8")


def test_unknown_kernel() -> None:
    with pytest.raises(CompileError, match="dg::nothing"):
        CPU.launch(Kernel("dg::nothing<1>", ("launch/nothing.cuh",)), bytes(8), 1)


def test_stable_order() -> None:
    keys = np.array([5, 1, 5, 1, 0], np.uint64)
    order = CPU.stable_order(keys)
    assert order.dtype == np.int64
    assert order.tolist() == [4, 1, 3, 0, 2]
