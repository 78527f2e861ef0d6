"""Independent tables, whose rows stay where they are, against a model for each worker."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from agreement import fresh_once
from hypothesis import given, settings
from hypothesis import strategies as st
from model import MapModel, MultiMapModel, SetModel, key_of, rows_of
from ranks import LandingEnd, Ranks
from strategies import keys_from

from dgpuhash.distributed.partition.table_mode import TableMode
from dgpuhash.distributed.pruning.policy import PruningOptions
from dgpuhash.distributed.shards.table_shard import Verb
from dgpuhash.errors import UnsupportedError

MODELS = {"set": SetModel, "map": MapModel, "multimap": MultiMapModel}
VERBS = {
    "set": ["insert", "add", "erase", "contains", "count", "distinct"],
    "map": ["insert", "insert", "upsert", "erase", "find", "find", "count"],
    "multimap": ["insert", "insert", "erase", "find", "find", "count", "distinct"],
}
SPARINGS = [PruningOptions(bloom, once) for bloom in (False, True) for once in (False, True)]
# Rows of a piece, and of a slice, by the number of ranks: one slice, and several.
ROWS = {1: (7, 7), 2: (14, 100), 3: (60, 1)}
CASES = [
    ("set", 2, "int8", None, "error"),
    ("set", 3, "float64", None, "error"),
    ("map", 1, "int64", "int64", "error"),
    ("map", 2, "int64", "float64", "sum"),
    ("map", 3, "int8", "int64", "sum"),
    ("map", 2, "uint32", "float16", "min"),
    ("map", 3, "float64", "datetime64[s]", "max"),
    ("map", 3, "int16", "S5", "first"),
    ("map", 2, "datetime64[s]", "complex128", "last"),
    ("multimap", 2, "uint32", "int64", "error"),
    ("multimap", 3, "int64", "S5", "error"),
]


def mode_of(conflict):
    return TableMode.of("independent", conflict)


def merged(values, conflict, dtype):
    """Return the value, as bytes, that counts of those that several workers have."""
    if conflict in ("first", "last", "error"):
        return values[-1 if conflict == "last" else 0]
    series = pd.Series(np.frombuffer(b"".join(values), dtype))
    options = {"min_count": 1} if conflict == "sum" else {}
    return pd.Series([getattr(series, conflict)(**options)], dtype=dtype).to_numpy().tobytes()


def values_for(dtype, rows, seed):
    """Return values with some nulls, where the dtype has one."""
    made = ((np.arange(rows) * 7 + seed) % 100).astype(np.int32).astype(dtype)
    if made.dtype.kind in "fM":
        made[::5] = np.nan if made.dtype.kind == "f" else np.datetime64("NaT")
    return made


@pytest.mark.parametrize("ends", [None, LandingEnd])
@pytest.mark.parametrize(("kind", "size", "key", "value", "conflict"), CASES)
@settings(max_examples=8)
@given(data=st.data())
def test_ranks(device, ends, kind, size, key, value, conflict, data):
    options = {} if ends is None else {"ends": ends}
    ranks = Ranks(
        device, size, ROWS[size], kind, key, value, mode=mode_of(conflict), **options
    )  # fmt: skip
    models = [MODELS[kind]() for _ in range(size)]
    steps = st.tuples(
        st.sampled_from(VERBS[kind]),
        keys_from(key),
        st.integers(0, 99),
        st.lists(st.integers(0, 60), max_size=4),
        st.lists(st.integers(0, 2), min_size=1, max_size=4),
    )
    for name, keys, seed, cuts, places in data.draw(st.lists(steps, max_size=6)):
        edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
        shares = [[] for _ in range(size)]
        for number, (start, stop) in enumerate(itertools.pairwise(edges)):
            shares[places[number % len(places)] % size] += range(start, stop)
        columns = [keys]
        sparing = SPARINGS[0 if name == "distinct" else seed % 4]
        verb = Verb(name, sparing=sparing)
        if name in ("insert", "upsert", "add"):
            verb = Verb(name, keep=("first", "last")[seed % 2])
            columns += [] if value is None else [values_for(value, len(keys), seed)]
        stored = np.any([model.contains(keys) for model in models], axis=0)
        several = np.sum([model.contains(keys) for model in models], axis=0)
        if name == "find" and kind == "map" and conflict == "error" and (several > 1).any():
            with pytest.raises(UnsupportedError, match="several workers"):
                ranks.ask(verb, cuts, places, *columns)
            return
        answers = ranks.ask(verb, cuts, places, *columns)
        got = [
            np.concatenate([device.backend.to_host(each) for each in column])
            for column in zip(*answers, strict=True)
        ]
        if name in ("insert", "upsert", "add"):
            for model, rows in zip(models, shares, strict=True):
                given_rows = [column[rows] for column in columns]
                how = {"keep": verb.keep} if (name, kind) == ("insert", "map") else {}
                fresh = getattr(model, "upsert" if name == "upsert" else "insert")(
                    *given_rows, **how
                )
                if (name, kind) == ("insert", "map"):
                    assert got[0][rows].tolist() == fresh
                elif (name, kind) == ("insert", "set"):
                    fresh_once(given_rows[0], got[0][rows], fresh)
        elif name == "erase":
            gone = MODELS["set"]()
            gone.insert(keys[stored])
            fresh_once(keys, got[0], gone.erase(keys))
            for model in models:
                model.erase(keys)
        elif name == "contains":
            assert got[0].tolist() == stored.tolist()
        elif name == "count":
            counts = [
                model.count(keys) if kind == "multimap" else model.contains(keys)
                for model in models
            ]
            assert got[0].tolist() == np.sum(counts, axis=0).tolist()
        elif name == "distinct":
            fresh_once(keys, got[1], SetModel().insert(keys))
        elif kind == "map":
            assert got[1].tolist() == stored.tolist()
            found = rows_of(device.host(device.backend.from_host(got[0]), value))
            for one, each, there in zip(keys, found, stored, strict=True):
                if there:
                    has = [m.pairs[key_of(one)] for m in models if key_of(one) in m.pairs]
                    wanted = merged(has, conflict, value)
                    assert same_value(each, wanted, value)
        else:
            lists = [rows_of(device.host(values, value)) for values, _ in answers]
            wanted = []
            for one in keys:
                for model in models:
                    wanted += model.find(np.array([one], keys.dtype))[0]
            assert list(itertools.chain(*lists)) == wanted
        assert len(ranks) == sum(map(len, models))


def same_value(one, other, dtype):
    values = [np.frombuffer(each, dtype)[0] for each in (one, other)]
    return one == other or all(each != each for each in values)
