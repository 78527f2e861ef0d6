"""Which strategy a merge of lazy frames gets, by what is known of its sides."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import lazy, until

import dgpuhash

pytestmark = pytest.mark.cluster

LEFT = pd.DataFrame({"k": np.arange(12) % 5, "a": np.arange(12)})
RIGHT = pd.DataFrame({"k": np.arange(6), "b": np.arange(6)})
ONE = "as it is one partition"
LATE = "unless its rows turn out to have at most 16.0 MiB"


@pytest.fixture(autouse=True)
def few_rows_get_shards() -> None:
    """They do not, here."""


@pytest.mark.parametrize(
    ("parts", "given", "kind", "why"),
    [
        ((1, 1), {"on": "k"}, "local", "each side is one partition"),
        ((1, 1), {"on": "k", "build": "replicate", "how": "outer"}, "local", "one task"),
        ((1, 1), {"on": "k", "npartitions": 2}, "shuffle", LATE),
        ((3, 1), {"on": "k"}, "broadcast", ONE),
        ((1, 3), {"on": "k"}, "broadcast", ONE),
        ((3, 1), {"on": "k", "how": "semi"}, "broadcast", ONE),
        ((3, 1), {"on": "k", "build": "right"}, "shuffle", LATE),
        ((3, 1), {"on": "k", "validate": "m:1"}, "shuffle", ""),
        ((3, 1), {"on": "k", "validate": "1:m"}, "shuffle", LATE),
        ((3, 1), {"on": "k", "how": "outer"}, "shuffle", ""),
        ((3, 2), {"on": "k"}, "shuffle", LATE),
        ((3, 2), {"on": "k", "build": "replicate"}, "broadcast", "by build='replicate'"),
        ((3, 2), {"how": "cross"}, "broadcast", "as each row meets all"),
        ((3, 2), {"left_index": True, "right_index": True}, "aligned", "have divisions"),
        ((3, 2), {"left_index": True, "right_index": True, "npartitions": 2}, "shuffle", LATE),
    ],
    ids=str,
)
def test_one_strategy_by_what_is_known(threads, parts, given, kind, why):
    sides = (dd.from_pandas(side, npartitions=n, sort=True)
             for side, n in zip((LEFT, RIGHT), parts, strict=True))  # fmt: skip
    merged = dgpuhash.merge(*sides, suffixes=("", "_r"), **given)
    chosen = merged.expr.strategy
    assert chosen.kind == kind and why in chosen.why
    assert bool(chosen.late_nbytes) == (chosen.why == LATE)
    assert chosen.why in merged.dgpuhash.explain()


@pytest.mark.parametrize(("most", "kind"), [("16 MiB", "broadcast"), ("1 B", "shuffle")])
def test_an_event_tells_what_became_of_a_merge(threads, most, kind):
    before = len(threads.get_events("dgpuhash-merge"))
    with dask.config.set({"dgpuhash.placement.replicate": most}):
        assert len(dgpuhash.merge(lazy(LEFT, 3), lazy(RIGHT, 2), on="k").compute()) == 12
    until(lambda: len(threads.get_events("dgpuhash-merge")) > before)
    (_, event), *more = threads.get_events("dgpuhash-merge")[before:]
    assert (event["strategy"], event["rows"], more) == (kind, 6, [])
