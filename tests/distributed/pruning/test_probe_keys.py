"""Pruned probe keys, and the matches of all rows of the lookup."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgpuhash import backend
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.frames import KeyEncoder
from dgpuhash.tables.bloom.blocks import BloomBlocks, blocks_for

NAMES = [*"abcdefgh", None]
KEYS = {
    "int64": st.integers(-3, 3),
    "Int64": st.one_of(st.none(), st.integers(-3, 3)),
    "str": st.sampled_from(NAMES),
}


def bloom_of(codes: np.ndarray) -> BloomBlocks:
    made = BloomBlocks(backend.get("cpu"), blocks_for(len(codes), 0.01), seed=1)
    made.insert(codes)
    return made


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dtype", list(KEYS))
@given(data=st.data())
def test_matches_are_those_of_all_rows(dtype, filtered, deduplicate, data):
    stored, query = (
        pd.DataFrame({"k": pd.Series(data.draw(st.lists(KEYS[dtype], max_size=20)), dtype=dtype)})
        for _ in range(2)
    )
    bits = data.draw(st.sampled_from([1, 64]))
    encoder = KeyEncoder.for_frame(stored, on="k", hash_bits=bits)
    encoded = encoder.encode(query)
    bloom = bloom_of(encoder.encode(stored).codes) if filtered else None
    asked = PrunedKeys.of(encoded, bloom, PruningOptions(deduplicate=deduplicate))
    pairs = query.assign(query=range(len(query))).merge(
        stored.assign(row=range(len(stored))), on="k"
    )
    rows = range(len(query)) if asked.rows is None else asked.rows.tolist()
    assert sorted(set(rows)) == list(rows) and len(asked.keys) == len(rows)
    assert asked.absent + asked.repeated + len(rows) == len(query)
    known = pairs[pairs["query"].isin(rows)].reset_index(drop=True)
    query_rows, matches = asked.expand_matches(known["query"].to_numpy(), len(query))
    found = known["row"].to_numpy()
    found = found if matches is None else found[matches]
    assert query_rows.tolist() == pairs["query"].tolist()
    assert found.tolist() == pairs["row"].tolist()
    if deduplicate and encoder.exact:
        assert len(rows) == query["k"][list(rows)].nunique(dropna=False)


def test_rows_that_match_nothing_stand_for_no_others():
    encoder = KeyEncoder.for_frame(pd.DataFrame({"k": np.arange(9, dtype=np.int8)}), on="k")
    query = pd.DataFrame({"k": [5.5, 5.0, 300.0, 44.0, 5.0]})
    asked = PrunedKeys.of(encoder.encode(query), None, PruningOptions(deduplicate=True))
    assert asked.rows.tolist() == [1, 3]
    assert (asked.absent, asked.repeated) == (2, 1)


def test_keys_of_one_hash_are_all_asked_about():
    frame = pd.DataFrame({"k": pd.Series(list("abcab"), dtype="str")})
    encoder = KeyEncoder.for_frame(frame, on="k", hash_bits=1)
    asked = PrunedKeys.of(encoder.encode(frame), None, PruningOptions(deduplicate=True))
    assert asked.repeated == 0 and asked.rows is None
