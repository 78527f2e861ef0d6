"""The argument structs in Python and in C++ have the same fields at the same places."""

from __future__ import annotations

import pytest

from dgpuhash.backend import args, group_args, join_args, partition_args, region_args
from dgpuhash.backend.cpu import native
from dgpuhash.spec import TILE_WIDTHS

ROOMS = (args, group_args, join_args, partition_args, region_args)
STRUCTS = {name: struct for room in ROOMS for name, struct in room.STRUCTS.items()}


def test_every_struct_is_mirrored():
    assert set(native().structs()) == set(STRUCTS)


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_layout(name):
    dtype = STRUCTS[name]
    fields, nbytes = native().struct_layout(name)
    mirrored = [(field, dtype.fields[field][1], dtype[field].itemsize) for field in dtype.names]
    assert [tuple(field) for field in fields] == mirrored
    assert nbytes == dtype.itemsize
    # A field left out of both lists would leave a hole.
    assert sum(size for _, _, size in mirrored) == nbytes


@pytest.mark.parametrize("tile", TILE_WIDTHS)
def test_every_tile_has_its_kernels(tile):
    there = set(native().instances())
    words = ("u4", "u8")
    for key in words:
        verbs = (args.open_insert, args.open_erase)
        needed = [verb(key, value, tile) for verb in verbs for value in (None, *words)]
        for kernel in needed:
            assert (kernel.expression, kernel.file) in there
            assert kernel.expression.endswith(f",{kernel.tile}>")
        finds = [args.open_find(key, value) for value in (None, *words)]
        assert {(kernel.expression, kernel.file) for kernel in finds} <= there


def test_wrong_struct_size_is_refused():
    with pytest.raises(ValueError, match="OpenFindArgs of 96 bytes, not 3"):
        native().launch("dg::open_find<dg::u32,void,32>", b"abc", 1)


def test_unknown_kernel_is_refused():
    with pytest.raises(KeyError, match="no kernel"):
        native().launch("dg::nothing", b"", 1)
