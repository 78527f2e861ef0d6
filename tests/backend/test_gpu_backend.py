"""Behaviour of the CUDA backend that only a GPU can confirm."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.backend import cache, kernel_named
from dgpuhash.errors import DeviceError, OutOfMemoryError, ShapeError
from dgpuhash.tables import HashMap

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu() -> backend.Backend:
    """Return the CUDA backend."""
    return backend.get("cuda")


def test_device(gpu: backend.Backend) -> None:
    free, total = gpu.memory()
    assert 0 < free <= total
    assert "GPU 0" in gpu.device_name()
    assert backend.default_device() == "cuda"


def test_arrays_decide_the_device(gpu: backend.Backend) -> None:
    keys = gpu.from_host(np.arange(3))
    assert backend.get(None, keys) is gpu
    assert backend.get(None, keys, [1, 2]) is gpu
    with pytest.raises(DeviceError, match="mixed"):
        backend.get(None, keys, np.arange(3))
    with pytest.raises(DeviceError, match=r"cupy\.asarray"):
        gpu.asarray(np.arange(3))


def test_asarray(gpu: backend.Backend) -> None:
    host = np.arange(10, dtype=np.int32)
    device = gpu.from_host(host)
    assert gpu.asarray(device) is device or gpu.pointer(gpu.asarray(device)) == gpu.pointer(device)
    strided = gpu.asarray(device[::2])
    assert strided.flags.c_contiguous
    np.testing.assert_array_equal(gpu.to_host(strided), host[::2])
    np.testing.assert_array_equal(gpu.to_host(gpu.asarray([1, 2, 3])), [1, 2, 3])


def test_alignment_and_fill(gpu: backend.Backend) -> None:
    made = gpu.full(1000, 7, "u4")
    assert gpu.pointer(made) % 64 == 0
    assert (gpu.to_host(made) == 7).all()
    assert gpu.pointer(gpu.empty(0, "u4")) == 0


def test_out_of_memory(gpu: backend.Backend) -> None:
    with pytest.raises(OutOfMemoryError, match=r"bytes of device memory were needed.*are free"):
        gpu.empty(2**44, "u1")


def test_out_of_memory_without_a_pool(gpu: backend.Backend) -> None:
    with gpu.xp.cuda.using_allocator(None):
        with pytest.raises(OutOfMemoryError, match=r"bytes of device memory were needed.*are free"):
            gpu.empty(2**44, "u1")
        with pytest.raises(OutOfMemoryError, match="free"):
            HashMap("int64", "int64", capacity=2**46, device="cuda")
        table = HashMap.from_arrays(gpu.from_host(np.arange(9)), gpu.from_host(np.arange(9)))
        with pytest.raises(OutOfMemoryError, match="free"):
            table.reserve(2**40)
        assert table.contains(gpu.from_host(np.arange(10))).tolist() == [True] * 9 + [False]


def test_masked_is_refused(gpu: backend.Backend) -> None:
    with pytest.raises((ShapeError, DeviceError)):
        gpu.asarray(np.ma.masked_array([1, 2], mask=[True, False]))


def test_stable_order(gpu: backend.Backend) -> None:
    keys = np.random.default_rng(1).integers(0, 50, 10_000).astype(np.uint64)
    order = gpu.to_host(gpu.stable_order(gpu.from_host(keys)))
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))


def test_first_use_compiles_only_what_is_used(
    gpu: backend.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGPUHASH_CACHE_DIR", str(tmp_path))
    fresh = type(gpu)()
    for _ in range(2):
        hashes = fresh.hash_keys(fresh.from_host(np.arange(100, dtype=np.uint64)), 0)
    fresh.synchronize()
    assert cache.info().files == 1
    expected = backend.get("cpu").hash_keys(np.arange(100, dtype=np.uint64), 0)
    np.testing.assert_array_equal(fresh.to_host(hashes), expected)


def test_work_is_ordered_on_the_current_stream(gpu: backend.Backend) -> None:
    host = np.arange(1_000_000, dtype=np.uint64)
    with gpu.xp.cuda.Stream(non_blocking=True):
        keys = gpu.xp.zeros(len(host), np.uint64)
        keys += gpu.xp.arange(len(host), dtype=np.uint64)
        hashes = gpu.to_host(gpu.hash_keys(keys, 3))
    np.testing.assert_array_equal(hashes, backend.get("cpu").hash_keys(host, 3))


@pytest.mark.parametrize("value", ["float64", "S12"])
def test_verbs_do_not_wait_for_the_device(gpu: backend.Backend, value: str) -> None:
    keys = gpu.xp.arange(1000)
    values = gpu.zeros((1000, 12), np.uint8) if value == "S12" else gpu.zeros(1000, value)
    # Large enough that neither places nor tombstones are counted.
    table = HashMap("int64", value, 100_000, device="cuda")
    table.insert(keys, values)
    verbs = [partial(verb, keys) for verb in (table.find, table.contains, table.count, table.erase)]
    if value != "S12":
        verbs.append(partial(table.insert, keys, values))
    for verb in verbs:
        verb()
    source, target = gpu.zeros((2, 2**16), np.uint8)
    done = gpu.xp.cuda.Event()
    # A tenth of a second of copying.
    gpu.run(
        kernel_named("limit_copy"), 2**35,
        values=target, slots=source, slot_count=2**12,
    )  # fmt: skip
    done.record()
    for verb in verbs:
        verb()
    assert not done.done
    gpu.synchronize()


def test_makers_of_arrays_let_the_current_stream_wait(gpu: backend.Backend) -> None:
    """As PyTorch's tensors, whose other interface says nothing of streams."""
    keys, asked = gpu.from_host(np.arange(5)), []
    # It was copied on another stream than the one below, which does not wait for that.
    gpu.xp.cuda.get_current_stream().synchronize()

    class Tensor:
        @property
        def __cuda_array_interface__(self) -> dict[str, object]:
            return {**keys.__cuda_array_interface__, "version": 2, "stream": None}

        def __dlpack_device__(self) -> tuple[int, int]:
            return keys.__dlpack_device__()

        def __dlpack__(self, *, stream: int | None = None, **more: object) -> object:
            asked.append(stream)
            return keys.__dlpack__(stream=stream, **more)

    with gpu.xp.cuda.Stream(non_blocking=True) as stream:
        assert gpu.to_host(gpu.asarray(Tensor())).tolist() == [0, 1, 2, 3, 4]
    assert asked == [stream.ptr]


def test_a_table_stays_on_its_device(gpu: backend.Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = gpu.from_host(np.arange(5))
    table = HashMap("int64", "int64", device="cuda")
    table.insert(keys, keys)
    verbs = [table.find, table.contains, table.erase, partial(table.insert, values=keys)]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(type(gpu), "_device", lambda self: 1)
        for verb in verbs:
            with pytest.raises(DeviceError, match=r"with cupy\.cuda\.Device\(0\)"):
                verb(keys)
    assert table.contains(keys).all() and len(table) == 5
