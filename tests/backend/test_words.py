"""Bytes of argument structs against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest

from dgpuhash import backend
from dgpuhash.backend.structs import core, groups, join, partition

CPU = backend.get("cpu")
STRUCTS = core.STRUCTS | groups.STRUCTS | join.STRUCTS | partition.STRUCTS
# Lie in device memory and are never passed.
PASSED = {name: struct for name, struct in STRUCTS.items() if name != "OpenState"}


@pytest.mark.parametrize("name", PASSED)
def test_packed_as_numpy_lays_it_out(name):
    struct = PASSED[name]
    expected = np.arange(1, 1 + struct.itemsize // 8, dtype="u8").view(struct)[0]
    fields = {
        field: expected[field].tobytes() if struct[field].names else expected[field]
        for field in struct.names
    }
    assert CPU.pack(struct, **fields) == expected.tobytes()


def test_arrays_are_pointers_and_tuples_are_structs():
    keys = np.arange(3)
    made = CPU.pack(groups.GROUP_COUNT, first_rows=(keys,), counts=None, n=np.uint64(3))
    assert np.frombuffer(made, "u8").tolist() == [CPU.pointer(keys), 0, 3]


def test_unknown_field_is_refused():
    with pytest.raises(TypeError, match="hash: no such fields, use keys, hashes, n, seed"):
        CPU.pack(core.HASH_KEYS, keys=0, hash=0)


def test_wrong_struct_is_refused():
    with pytest.raises(TypeError, match="a struct of 8 bytes was given 16"):
        CPU.pack(groups.GROUP_COUNT, first_rows=(1, 2))
