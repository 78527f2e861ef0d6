"""Groupbys of polars and PyArrow frames, beside polars' own."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.errors import DgpuhashError, UnsupportedError

pl = pytest.importorskip("polars")
assert_frame_equal = pytest.importorskip("polars.testing").assert_frame_equal

ROWS = 300


def with_nulls(rng, values, **options):
    return pl.Series([None if rng.random() < 0.15 else each for each in values], **options)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(5)
    texts = np.array(["", "a", "bb", "ccc"])
    return pl.DataFrame({
        "name": with_nulls(rng, rng.choice(texts, ROWS).tolist()),
        "year": with_nulls(rng, rng.integers(2**60, 2**60 + 3, ROWS).tolist()),
        "whole": with_nulls(rng, (2**60 + rng.integers(-9, 9, ROWS)).tolist()),
        "part": with_nulls(rng, rng.normal(size=ROWS).round(3).tolist()),
        "paid": with_nulls(rng, [Decimal(int(each)) / 100 for each in rng.integers(0, 999, ROWS)]),
        "day": with_nulls(rng, [dt.date(2026, 1, int(each)) for each in rng.integers(1, 9, ROWS)]),
        "word": with_nulls(rng, rng.choice(texts, ROWS).tolist(), dtype=pl.Categorical),
    })  # fmt: skip


KEYS = ["name", "year"]
OTHERS = {
    "sum": ["part", "paid"],
    "mean": ["whole", "part"],
    "min": ["whole", "part", "paid", "day"],
    "max": ["whole", "part", "paid", "day"],
    "count": ["whole", "word", "day"],
    "median": ["part"],
    "std": ["part"],
}


@pytest.mark.parametrize("keys", [["name"], KEYS], ids=str)
@pytest.mark.parametrize("dropna", [False, True])
@pytest.mark.parametrize("how", OTHERS)
def test_aggregates_as_polars(frame, how, keys, dropna):
    columns = OTHERS[how]
    with no_other_engine():
        made = dgpuhash.groupby(frame, keys, dropna=dropna)[columns].agg(how)
    expected = frame.drop_nulls(keys) if dropna else frame
    expected = expected.group_by(keys).agg(getattr(pl.col(each), how)() for each in columns)
    expected = expected.sort(keys, nulls_last=True)
    if how == "count":
        expected = expected.with_columns(pl.col(*columns).cast(pl.Int64))
    assert_frame_equal(made, expected, rel_tol=1e-12)


def test_keys_are_columns_and_keep_their_types(frame):
    with no_other_engine():
        groups = dgpuhash.groupby(frame, ["word", "day"], dropna=False)
        sizes, first = groups.size(), groups["paid"].first()
        beside = dgpuhash.groupby(frame, "name")["whole"].transform("max")
        greatest = dgpuhash.groupby(frame, "name")["part"].nlargest(2)
    shares = dgpuhash.groupby(frame, KEYS)["part"].quantile([0.25, 0.5])
    assert shares.columns == [*KEYS, "quantile", "part"]
    assert sizes.schema == {**frame.select("word", "day").schema, "size": pl.Int64}
    assert sizes["size"].sum() == ROWS
    assert first.schema == frame.select("word", "day", "paid").schema
    known = frame.with_columns(pl.col("whole").max().over("name"))
    known = known.with_columns(pl.when(pl.col("name").is_not_null()).then(pl.col("whole")))
    assert_frame_equal(beside, known.select("whole"))
    expected = frame.drop_nulls("name").group_by("name").agg(pl.col("part").top_k(2))
    expected = expected.explode("part").sort("name", "part", descending=[False, True])
    assert_frame_equal(greatest, expected)


def test_arrow_tables_come_back_as_such():
    table = pa.table({
        "k": pa.array(["b", "a", "b"], pa.string_view()),
        "time": pa.array([1, 2, None], pa.time32("s")), "v": pa.array([1, None, 2**60 + 1]),
    })  # fmt: skip
    made = dgpuhash.groupby(table, "k").agg({"time": "max", "v": ["list", "sum"]})
    assert made.schema.types[:2] == [pa.string_view(), pa.time32("s")]
    assert made.to_pydict() == {
        "k": ["a", "b"], "time_max": [dt.time(0, 0, 2), dt.time(0, 0, 1)],
        "v_list": [[None], [1, 2**60 + 1]], "v_sum": [0, 2**60 + 2],
    }  # fmt: skip
    named = dgpuhash.groupby(table, "k").agg(last=("time", "max"))
    assert named.schema.types == table.schema.types[:2]
    first = dgpuhash.groupby(table, "k").first()
    assert first.schema.types == table.schema.types
    several = dgpuhash.groupby(table, pa.array([7, 7, 8]))["v"].unique()
    assert several.to_pydict() == {"index": [7, 8], "v": [[1, None], [2**60 + 1]]}


def test_columns_by_attribute_and_arrays_as_keys(frame):
    made = dgpuhash.groupby(frame, [frame["name"], pd.Series(range(ROWS))]).whole.count()
    assert made.columns == ["name", "level_1", "whole"]
    assert len(dgpuhash.groupby(frame, "name")) == 4
    assert "4 groups" in repr(dgpuhash.groupby(frame, "name"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda frame: dgpuhash.groupby(frame.lazy(), "name"), r"frame\.collect\(\)"),
        (lambda frame: dgpuhash.groupby(frame, level=0), "has no index"),
        (lambda frame: dgpuhash.groupby(frame, "missing"), "missing"),
        (lambda frame: dgpuhash.groupby(frame, "name").agg({"missing": "sum"}), "missing"),
    ],
)
def test_refused(frame, call, message):
    with pytest.raises(DgpuhashError, match=message):
        call(frame)


def test_no_attribute_falls_through(frame):
    groups = dgpuhash.groupby(frame, "name")
    with pytest.raises(AttributeError, match="no 'rank'"):
        groups.rank()
    with pytest.raises(UnsupportedError, match="to_pandas"):
        groups.apply(len)
    assert "sum" in dir(groups)
    assert "apply" not in dir(groups)
