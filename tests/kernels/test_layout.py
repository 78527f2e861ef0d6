"""Equal fields and offsets of argument structs in Python and C++."""

from __future__ import annotations

import pytest

from dgpuhash.backend.cpu import native
from dgpuhash.backend.structs import (
    bloom,
    core,
    groups,
    join,
    multisplit,
    partition,
    region,
    segments,
)

ROOMS = (
    core, bloom, multisplit, groups, join, segments, partition, region
)  # fmt: skip
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


def test_every_table_has_its_kernels():
    there = set(native().instances())
    words = ("u4", "u8")
    verbs = (core.open_insert, core.open_find, core.open_erase, core.open_rehash)
    for verb in verbs:
        needed = [verb(key, value) for key in words for value in (None, *words)]
        assert {(kernel.expression, kernel.file) for kernel in needed} <= there


def test_wrong_struct_size_is_refused():
    with pytest.raises(ValueError, match="OpenFindArgs of 96 bytes, not 3"):
        native().launch("dg::open_find<dg::u32,void,32>", b"abc", 1)


def test_unknown_kernel_is_refused():
    with pytest.raises(KeyError, match="no kernel"):
        native().launch("dg::nothing", b"", 1)
