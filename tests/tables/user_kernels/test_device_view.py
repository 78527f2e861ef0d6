"""Tables in kernels and functions of users, against a dict."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import dgpuhash
from dgpuhash import HashMap, HashSet, MultiMap
from dgpuhash.backend.compiler import compile_kernels
from dgpuhash.errors import CapacityError, ReentranceError, UnsupportedError
from dgpuhash.tables.user_kernels import verbs
from dgpuhash.tables.user_kernels.fused import fused_kernel
from dgpuhash.tables.user_kernels.verbs import view_of

METHODS = ("auto", "cops", "slab", "supernode", "double")
LIST_METHODS = ("auto", "cops", "slab", "bucket_list")
APPENDING = ("cops", "slab")
KEYS = np.array([5, -1, 7, -2, 0], np.int32)
VALUES = np.array([1.5, 2.5, 3.5, 4.5, 5.5], np.float32)
KERNEL = """
extern "C" __global__ void work(VIEW view, const int* keys, float* values, unsigned long long n) {
  const auto row = (blockIdx.x * 1ull * blockDim.x + threadIdx.x) / WIDTH;
  if (row >= n) return;
  const dg::Tile<WIDTH> tile;
  BODY
}
"""
INSERT = "view.insert(tile, keys[row], __float_as_uint(values[row]));"
FIND = """const auto got = view.find(tile, keys[row]);
  if (tile.lane() == 0) values[row] = got.found ? dg::device::as<float>(got.value) : -1.0f;"""
APPEND = "view.append(tile, keys[row], __float_as_uint(values[row]));"
COUNT = "const auto got = view.count(tile, keys[row]); if (tile.lane() == 0) values[row] = got;"


def source_of(view, body, width):
    text = KERNEL.replace("BODY", body).replace("VIEW", view.type)
    return view.include + text.replace("WIDTH", str(width))


def compiled(view, arch, *bodies):
    """Compile kernels whose arguments are in one struct, as the backend's are."""
    code, names = "", []
    for i, body in enumerate(bodies):
        text = source_of(view, body, 8).replace('extern "C" __global__', "__device__")
        code += text.replace(" work(", f" work{i}(") + (
            f"struct Args{i} {{ {view.type} view; const int* keys; float* values; dg::u64 n; }};\n"
            f"__global__ void run{i}(Args{i} args) {{\n"
            f"  work{i}(args.view, args.keys, args.values, args.n);\n}}\n"
        )
        names.append(f"run{i}")
    return compile_kernels((), names, arch, code=code)


def launch(view, body, width, keys, values):
    import cupy

    module = cupy.RawModule(code=source_of(view, body, width), options=dgpuhash.kernel_options())
    blocks = -(-len(keys) * width // 128)
    module.get_function("work")((blocks,), (128,), (view, keys, values, np.uint64(len(keys))))


def on_cpu(kind, method):
    return kind("int32", "float32", device="cpu", method=method)


@pytest.mark.parametrize("arch", [75, 80, 90])
@pytest.mark.parametrize("method", METHODS)
def test_kernels_of_maps_compile(method, arch):
    made = compiled(view_of(on_cpu(HashMap, method)._store.lend(write=True)), arch, INSERT, FIND)
    assert "warning" not in made.log.lower()


@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("method", LIST_METHODS)
def test_kernels_of_multimaps_compile(method, arch):
    writes = method in APPENDING
    view = view_of(on_cpu(MultiMap, method)._store.lend(write=writes))
    made = compiled(view, arch, COUNT, *[APPEND] * writes)
    assert "warning" not in made.log.lower()


@pytest.mark.parametrize("method", sorted(set(LIST_METHODS) - set(APPENDING)))
def test_other_multimaps_name_those_that_take_values(method):
    with pytest.raises(UnsupportedError, match=f"{method}.*'cops' or 'slab'"):
        on_cpu(MultiMap, method)._store.lend(write=True)


@pytest.mark.parametrize("method", APPENDING)
def test_reserved_keys_get_what_kernels_append(method):
    """What `SideRoom` of C++ leaves, as the lockstep tests show, is stored."""
    table = MultiMap("int32", "float32", 100, device="cpu", method=method)
    table.insert(KEYS, VALUES)
    lent = table._store.lend(write=True)
    state = table._store.table.state
    room = ctypes.cast(int(state[6]), ctypes.POINTER(ctypes.c_uint64))
    places = room[0]
    assert places == table._store.table.limit - 3
    values = ctypes.cast(int(state[6]) + 16, ctypes.POINTER(ctypes.c_float))
    values[0], values[1], values[places - 1] = 6.5, 7.5, 8.5
    room[1], state[4], state[5], state[2] = 1 << 32 | 2, 3, 2, 1
    assert lent.settle() == 1
    assert sorted(table.find([-1])[0].tolist()) == [2.5, 6.5, 7.5]
    assert sorted(table.find([-2])[0].tolist()) == [4.5, 8.5]
    assert (len(table), table.n_keys, table.count([-1, -2, 5]).tolist()) == (8, 5, [3, 2, 1])
    assert state[6] == 2**64 - 1
    table.insert([-2], [9.5])
    assert table.copy().count([-1, -2]).tolist() == [3, 3]
    assert table.erase([-1]).all() and len(table) == 6


@pytest.mark.parametrize("method", METHODS)
def test_functions_in_cpp_compile(method):
    lent = on_cpu(HashMap, method)._store.lend(write=False)
    dtypes = np.dtype(np.int32), np.dtype(np.float32)
    for found, row in ((True, ", auto row"), (False, "")):
        text = f"[](int key, float value{row}, double* out) {{ out[0] += key * value; }}"
        kernel = fused_kernel(lent, dtypes, text, [np.zeros(1)], found=found)
        compile_kernels(kernel.files, [kernel.expression], 90, code=kernel.code)


@pytest.mark.parametrize("method", METHODS)
def test_a_view_has_the_tables_own_arrays(method):
    table = on_cpu(HashMap, method)
    table.insert(KEYS, VALUES)
    store = table._store
    state = store.slots._state if method == "auto" else store.table.state
    view = view_of(store.lend(write=False))
    assert view.shape == () and view.nbytes == len(store.lend(write=False).storage)
    assert int(view["state"]) == state.ctypes.data


@pytest.mark.parametrize("method", METHODS)
def test_settling_a_written_view_counts_again(method):
    table = on_cpu(HashMap, method)
    lent = table._store.lend(write=True)
    state = table._store.slots._state if method == "auto" else table._store.table.state
    state[0], state[2] = 3, 2
    assert lent.settle() == 2
    assert len(table) == 3


@pytest.mark.parametrize("make", [HashSet, HashMap, MultiMap])
def test_the_cpu_names_the_remedy(make):
    table = make("int32", device="cpu") if make is HashSet else on_cpu(make, "auto")
    with pytest.raises(UnsupportedError, match="device='cuda'"), table.device_view():
        pass
    with pytest.raises(UnsupportedError, match="Python function"):
        table.for_each(KEYS, "[](auto key, auto value, auto row) {}")
    with pytest.raises(UnsupportedError, match="Python function"):
        table.for_all("[](auto key, auto value) {}")


@pytest.mark.parametrize("method", METHODS)
def test_for_each_and_for_all(device, method, monkeypatch):
    monkeypatch.setattr(verbs, "CHUNK_ROWS", 2)
    table = HashMap("int32", "float32", device=device.name, method=method)
    table.insert(device.array(KEYS), device.array(VALUES))
    model, seen = dict(zip(KEYS.tolist(), VALUES.tolist(), strict=True)), []
    asked = np.array([7, 9, -1, -2, 9, 9, 7, 5], np.int32)
    table.for_each(device.array(asked), lambda *parts: seen.append([p.tolist() for p in parts]))
    rows = [row for row, key in enumerate(asked.tolist()) if key in model]
    assert all(len(part[0]) <= 2 for part in seen)
    flat = [list(itertools.chain.from_iterable(part)) for part in zip(*seen, strict=True)]
    assert flat == [asked[rows].tolist(), [model[key] for key in asked[rows].tolist()], rows]
    everything = {}
    table.for_all(lambda k, v: everything.update(zip(k.tolist(), v.tolist(), strict=True)))
    assert everything == model


def test_for_each_of_other_dtypes_and_kinds(device):
    seen = []
    table = HashSet("uint8", device=device.name)
    table.insert(device.array(np.array([1, 255], np.uint8)))
    table.for_each(
        device.array(np.array([300, 255, -1, 1])),
        lambda k, v, r: seen.append((k.tolist(), v, r.tolist())),
    )
    assert seen == [([255, 1], None, [1, 3])]
    lists = MultiMap("int64", "int64", device=device.name)
    lists.insert(device.array(np.array([4, 5, 4])), device.array(np.array([1, 2, 3])))
    asked = device.array(np.array([6, 4]))
    lists.for_each(asked, lambda *parts: seen.append(tuple(part.tolist() for part in parts)))
    assert seen[1] == ([4, 4], [1, 3], [1, 1])


def test_a_held_table_refuses_changes():
    table = on_cpu(HashMap, "auto")
    table.insert(KEYS, VALUES)
    with table._turns.hold(table, "device_view", write=False):
        assert len(table) == 5 and table.contains(KEYS).all()
        with pytest.raises(ReentranceError, match="device view"):
            table.insert(KEYS, VALUES)
    with table._turns.hold(table, "device_view", write=True), pytest.raises(ReentranceError):
        len(table)
    table.insert(KEYS + 10, VALUES)
    assert len(table) == 10


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 4, 8, 32])
@pytest.mark.parametrize("method", METHODS)
def test_a_kernel_inserts_and_finds(method, width):
    import cupy

    keys = np.unique(np.random.default_rng(3).integers(-(2**31), 2**31, 20_000).astype(np.int32))
    keys = np.concatenate([keys[(keys != -1) & (keys != -2)], np.array([-1, -2], np.int32)])
    values = np.arange(len(keys), dtype=np.float32)
    table = HashMap("int32", "float32", 2 * len(keys), device="cuda", method=method)
    with table.device_view(write=True) as view:
        launch(view, INSERT, width, cupy.asarray(keys), cupy.asarray(values))
    assert len(table) == len(keys)
    found, there = table.find(cupy.asarray(keys))
    assert bool(there.all()) and (found.get() == values).all()
    asked = np.concatenate([keys, np.setdiff1d(keys + 1, keys)])
    got = cupy.zeros(len(asked), np.float32)
    with table.device_view() as view:
        launch(view, FIND, width, cupy.asarray(asked), got)
    assert (got.get()[: len(keys)] == values).all() and (got.get()[len(keys) :] == -1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("method", APPENDING)
def test_a_kernel_appends_and_counts(method):
    import cupy

    keys = np.repeat(np.arange(-5, 500, dtype=np.int32), 3)
    values = np.arange(len(keys), dtype=np.float32)
    table = MultiMap("int32", "float32", 4 * len(keys), device="cuda", method=method)
    with table.device_view(write=True) as view:
        launch(view, APPEND, 8, cupy.asarray(keys), cupy.asarray(values))
    assert (len(table), table.n_keys) == (len(keys), 505)
    found, _ = table.find(cupy.asarray(np.arange(-5, 500, dtype=np.int32)))
    assert (np.sort(found.get().reshape(505, 3)) == values.reshape(505, 3)).all()
    got = cupy.zeros(len(keys), np.float32)
    with table.device_view() as view:
        launch(view, COUNT, 8, cupy.asarray(keys), got)
    assert (got == 3).all()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 8, 32])
@pytest.mark.parametrize("method", LIST_METHODS)
def test_a_kernel_counts_lists_of_all_kinds(method, width):
    import cupy

    keys = np.concatenate([np.repeat(np.arange(-3, 30), np.arange(33)), np.full(5000, 77)])
    keys = cupy.asarray(keys.astype(np.int32))
    table = MultiMap("int32", "float32", device="cuda", method=method)
    for times in (1, 2, 3):  # runs, then lists that grow
        table.insert(keys, keys.astype(np.float32))
        asked = cupy.asarray(np.append(np.arange(-9, 40), 77).astype(np.int32))
        got = cupy.zeros(len(asked), np.float32)
        with table.device_view() as view:
            launch(view, COUNT, width, asked, got)
        expected = [times * int((keys == key).sum()) for key in asked.tolist()]
        assert got.tolist() == expected == table.count(asked).tolist()


@pytest.mark.gpu
def test_refused_rows_are_told():
    import cupy

    table = HashMap("int32", "float32", device="cuda", method="cops")
    keys = cupy.arange(10_000, dtype=np.int32)
    with (
        pytest.raises(CapacityError, match="no place"),
        table.device_view(write=True) as view,
    ):
        launch(view, INSERT, 8, keys, keys.astype(np.float32))
    assert 0 < len(table) < 10_000
    table.insert(keys, keys.astype(np.float32))
    assert len(table) == 10_000


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_function_in_cpp_is_one_launch(method, monkeypatch):
    import cupy

    table = HashMap("int32", "float32", device="cuda", method=method)
    table.insert(cupy.asarray(KEYS), cupy.asarray(VALUES))
    launched, backend = [], table._store.backend
    kept = type(backend).launch
    monkeypatch.setattr(
        type(backend), "launch", lambda self, *args: (launched.append(args[0]), kept(self, *args))
    )
    out = cupy.zeros(6, np.float64)
    asked = cupy.asarray(np.append(KEYS, np.int32(99)))
    text = "[](auto key, auto value, auto row, auto* out) { out[row] = key + value; }"
    table.for_each(asked, text, [out])
    assert len(launched) == 1
    assert out.tolist() == [*(KEYS + VALUES.astype(float)).tolist(), 0.0]
    total = cupy.zeros(1, np.float32)
    table.for_all("[](int, float value, float* total) { atomicAdd(total, value); }", [total])
    assert len(launched) == 2 and float(total[0]) == VALUES.sum()


@pytest.mark.parametrize("method", ["auto", "cops", "chained", "slab"])
@pytest.mark.parametrize(
    "dtype",
    ["bool", "i1", "f2", "f4", "i8", "c16", "M8[s]", "S3", "S5", "S11", "U3", "S16", "V5",
     [("a", "i4"), ("b", "f8")]],
    ids=str,
)  # fmt: skip
def test_read_verbs_of_values_of_any_size(method, dtype):
    dtype, keys = np.dtype(dtype), np.arange(40)
    values = np.frombuffer(b"\x01a\0\0" * 10 * dtype.itemsize, dtype)
    if dtype.kind == "b":
        values = keys % 3 == 0
    for kind in (HashMap, MultiMap):
        table = kind.from_arrays(keys, values, method=method, device="cpu")
        for asked in (table.for_all, lambda call, of=table: of.for_each(keys, call)):
            seen = []
            asked(lambda *entries, seen=seen: seen.append(entries))
            found = np.concatenate([each[1] for each in seen])
            assert found.dtype == dtype
            order = np.argsort(np.concatenate([each[0] for each in seen]))
            assert found[order].tobytes() == values.tobytes()
        assert table.find(keys)[0].tobytes() == values.tobytes()
        at, found = table.items()
        assert found[np.argsort(at)].tobytes() == values.tobytes()
