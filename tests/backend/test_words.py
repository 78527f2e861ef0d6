"""Bytes of argument structs against NumPy's own, and where kernels are looked up."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.backend import kernel_named, struct_named, verb_kernel
from dgpuhash.backend.native import native
from dgpuhash.errors import CompileError

CPU = backend.get("cpu")
STRUCTS = sorted({args for *_, args in native().instances()})


@pytest.mark.parametrize("name", STRUCTS)
def test_packed_as_numpy_lays_it_out(name):
    layout = struct_named(name)
    dtype = layout.dtype
    # No padding in these: a word that DG_FIELDS left out would show.
    expected = np.arange(1, 1 + dtype.itemsize // 8, dtype="u8").view(dtype)[0]
    fields = {
        field: expected[field].tobytes() if dtype[field].names else expected[field]
        for field in dtype.names
    }
    assert CPU.pack(layout, **fields) == expected.tobytes()


def test_state_in_device_memory_is_a_dtype():
    state = struct_named("OpenState").dtype
    assert (state.itemsize, state["side_value"].shape) == (64, (2,))


def test_arrays_are_pointers_and_tuples_are_structs():
    keys = np.arange(3)
    layout = kernel_named("group_count").args
    made = CPU.pack(layout, first_rows=(keys,), counts=None, n=np.uint64(3))
    assert np.frombuffer(made, "u8").tolist() == [CPU.pointer(keys), 0, 3]


def test_unknown_field_is_refused():
    with pytest.raises(TypeError, match="hash: no such fields, use keys, hashes, n, seed"):
        CPU.run(kernel_named("hash_keys", "u4"), 0, hash=0)


def test_wrong_struct_is_refused():
    with pytest.raises(TypeError, match="RowSet has 8 bytes and was given 16"):
        CPU.run(kernel_named("group_count"), 0, first_rows=bytes(16))


def test_other_values_are_refused():
    layout = kernel_named("group_count").args
    marks = {"first_rows": (np.arange(2),)}
    with pytest.raises(TypeError, match="first_rows is a struct of GroupCountArgs, and is missing"):
        CPU.pack(layout)
    with pytest.raises(TypeError, match="str'> is neither a number nor an array"):
        CPU.pack(layout, **marks, counts="x")
    with pytest.raises(OverflowError):
        CPU.pack(layout, **marks, n=-1)
    with pytest.raises(TypeError, match="RowSet has another number of structs or words"):
        CPU.pack(layout, first_rows=(1, 2))
    with pytest.raises(TypeError, match="HashKeysArgs has another number of structs or words"):
        CPU.bound(kernel_named("hash_keys", "u4"))(0, 1)


def test_addresses_come_from_the_backend_of_a_gpu():
    asked = []

    def address(data):
        asked.append(data)
        return 7

    keys = np.arange(3)
    packer = kernel_named("group_count").args.packer
    made = packer.pack({"first_rows": (keys,), "counts": None, "n": 3}, address)
    assert np.frombuffer(made, "u8").tolist() == [7, 0, 3]
    assert asked[0] is keys


def test_every_table_has_its_kernels():
    for verb in ("open_insert", "open_find", "open_erase", "open_rehash"):
        for key in ("u4", "u8"):
            for value in (None, "u4", "u8"):
                kernel = kernel_named(verb, key, value)
                assert kernel.expression.startswith(f"dg::{verb}<dg::u{8 * int(key[1])},")
                assert (kernel.tile, kernel.threads) == (1, 256)


@pytest.mark.parametrize(
    ("name", "words", "tile", "threads"),
    [
        ("open_count", ("u4", None), 4, 256),
        ("region_insert", ("u8", "u8"), 320, 320),
        ("hash_strings", (), 1, 256),
        ("deal_places", (), 1024, 1024),
    ],
)
def test_who_takes_a_row(name, words, tile, threads):
    kernel = kernel_named(name, *words)
    assert (kernel.tile, kernel.threads) == (tile, threads)


def test_a_width_must_be_there():
    assert kernel_named("partition_count", "u4", width=512).threads == 512
    with pytest.raises(CompileError, match=r"partition_count<dg::u32 has the widths 512, 1024"):
        kernel_named("partition_count", "u4")
    with pytest.raises(CompileError, match=r"open_find.* has the widths 32"):
        kernel_named("open_find", "u4", None, width=8)


def test_unknown_names_are_refused():
    with pytest.raises(CompileError, match=r"no kernel dg::nothing: write a row"):
        kernel_named("nothing")
    with pytest.raises(CompileError, match=r"no kernel dg::verb::find<dg::Nothing<dg::u32>: write"):
        verb_kernel("find", "dg::Nothing<dg::u32>", 8)
    with pytest.raises(CompileError, match=r"no struct Nothing: write DG_STRUCT"):
        struct_named("Nothing")
    with pytest.raises(CompileError, match="words of dtype float32; view them"):
        kernel_named("hash_keys", "f4")


def test_wrong_struct_size_is_refused():
    with pytest.raises(ValueError, match="OpenFindArgs of 96 bytes, not 3"):
        native().launch("dg::open_find<dg::u32,void,32>", b"abc", 1)


def test_unknown_kernel_is_refused():
    with pytest.raises(KeyError, match="no kernel"):
        native().launch("dg::nothing", b"", 1)
