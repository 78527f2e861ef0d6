"""Rows dealt out to the parts of an index that own their keys."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgpuhash import backend
from dgpuhash.kmer.databases.owners import dealt, part_numbers


@given(
    keys=st.lists(st.integers(0, 2**64 - 1), max_size=40),
    n=st.integers(1, 5),
    wide=st.booleans(),
)
def test_each_part_has_its_rows_in_their_order(keys, n, wide):
    words = np.array(keys, np.uint64).astype(np.uint64 if wide else np.uint32)
    found = dealt(backend.get("cpu"), n, words, np.arange(len(words)))
    owners = part_numbers(words, n).tolist()
    assert [rows.tolist() for _, rows in found] == [
        [row for row, owner in enumerate(owners) if owner == part] for part in range(n)
    ]
    for own, rows in found:
        assert own.dtype == words.dtype
        assert own.tolist() == words[rows].tolist()
