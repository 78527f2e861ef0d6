"""`dgpuhash.groupby` of cuDF frames on a GPU, beside that of pandas frames, and cuDF's dtypes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames.test_gpu import on_gpu

import dgpuhash
from dgpuhash.errors import ColumnError, KeyTypeError, SpecError, UnsupportedError
from dgpuhash.frames.keys import encoding

pytestmark = [pytest.mark.gpu, pytest.mark.cudf]

RNG = np.random.default_rng(31)
ROWS = 400
NUMBERS = ["count", "mean", "min", "max", "first", "last", "var", "std", "sem", "median", "nunique"]


def rows_of(*, nulls: bool) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "k": pd.array(RNG.integers(0, 9, ROWS), "Int64"),
            "t": pd.array(RNG.choice(["a", "b", "c"], ROWS), "str"),
            "i": pd.array(RNG.integers(-50, 50, ROWS), "Int64"),
            "s": pd.array(RNG.integers(-5, 5, ROWS), "Int8"),
            "f": pd.array(RNG.normal(size=ROWS), "Float64"),
            "b": pd.array(RNG.random(ROWS) < 0.5, "boolean"),
            "d": pd.to_datetime(RNG.integers(0, 10**6, ROWS), unit="s").astype("M8[ns]"),
            "x": pd.array(RNG.choice(["", "u", "vv"], ROWS), "str"),
        }
    )
    if nulls:
        for label in frame:
            frame.loc[RNG.random(ROWS) < 0.15, label] = None
        # A group of nulls alone.
        frame.loc[frame["k"] == 3, ["i", "s", "f", "b", "d", "x"]] = None
    return frame


FRAMES = {nulls: rows_of(nulls=nulls) for nulls in (False, True)}


def plain(values: Any) -> list[Any]:
    return [
        plain(each)
        if pd.api.types.is_list_like(each)
        else None
        if pd.isna(each)
        else each.item()
        if hasattr(each, "item")
        else each
        for each in values
    ]


def assert_same(found: Any, expected: Any) -> None:
    """Assert values, nulls, labels and their names; dtypes are cuDF's own."""
    assert type(found).__module__.startswith("cudf")
    host = found.to_pandas()
    assert list(host.index.names) == list(expected.index.names)
    ours, theirs = (
        made.reset_index() if made.ndim == 2 else made.to_frame("value").reset_index()
        for made in (host, expected)
    )
    assert [str(label) for label in ours.columns] == [str(label) for label in theirs.columns]
    for place in range(theirs.shape[1]):
        one, other = plain(ours.iloc[:, place]), plain(theirs.iloc[:, place])
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            if isinstance(right, float):
                assert left == pytest.approx(right, rel=1e-12), theirs.columns[place]
            else:
                assert left == right, theirs.columns[place]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("by", ["k", "t", ["k", "t"]], ids=str)
@pytest.mark.parametrize(("sort", "dropna"), [(True, True), (True, False), (False, True)])
def test_aggregates_have_the_values_of_pandas(nulls, by, sort, dropna):
    frame = FRAMES[nulls]
    ours = dgpuhash.groupby(on_gpu(frame), by, sort=sort, dropna=dropna)
    theirs = dgpuhash.groupby(frame, by, sort=sort, dropna=dropna)
    assert_same(ours.size(), theirs.size())
    for how in NUMBERS:
        columns = list("isf")
        if how in {"count", "min", "max", "first", "last", "nunique"}:
            columns += list("bdx")
        assert_same(getattr(ours[columns], how)(), getattr(theirs[columns], how)())
    for how in ("sum", "prod"):
        # Of nulls alone there is none, as in cuDF.
        expected = getattr(theirs[["s", "f"]], how)(min_count=1)
        assert_same(getattr(ours[["s", "f"]], how)(), expected)


@pytest.mark.parametrize("nulls", [False, True])
def test_rows_quantiles_and_lists(nulls):
    frame = FRAMES[nulls]
    ours, theirs = dgpuhash.groupby(on_gpu(frame), "k"), dgpuhash.groupby(frame, "k")
    for q in (0.3, [0.1, 0.9]):
        assert_same(ours[["i", "f"]].quantile(q), theirs[["i", "f"]].quantile(q))
    for how in ("lower", "higher", "nearest", "midpoint"):
        expected = theirs["f"].quantile(0.4, interpolation=how)
        assert_same(ours["f"].quantile(0.4, interpolation=how), expected)
    for n in (2, -2):
        assert ours.head(n).index.to_pandas().tolist() == theirs.head(n).index.tolist()
        assert ours.tail(n).index.to_pandas().tolist() == theirs.tail(n).index.tolist()
    for n in (-1, [0, 2], slice(1, 4)):
        assert ours.nth(n).index.to_pandas().tolist() == theirs.nth(n).index.tolist()
    assert_same(ours["i"].agg(list), theirs["i"].agg(list))
    assert_same(ours["i"].unique(), theirs["i"].unique())
    for how in ("any", "all"):
        assert_same(getattr(ours["b"], how)(), getattr(theirs["b"], how)())
    assert_same(ours["i"].transform("max"), theirs["i"].transform("max"))


@pytest.mark.parametrize("nulls", [False, True])
def test_results_of_agg(nulls):
    frame = FRAMES[nulls]
    ours, theirs = dgpuhash.groupby(on_gpu(frame), "k"), dgpuhash.groupby(frame, "k")
    for how in ({"i": ["min", "max"], "f": "mean"}, {"i": "max", "f": "mean"}):
        assert_same(ours.agg(how), theirs.agg(how))
    assert_same(ours[["i", "f"]].agg(["min", "count"]), theirs[["i", "f"]].agg(["min", "count"]))
    named = {"a": ("i", "max"), "c": ("k", "count")}
    assert_same(ours.agg(**named), theirs.agg(**named))
    assert_same(ours["i"].agg(lambda x: x.quantile(0.25)), theirs["i"].quantile(0.25))
    flat = dgpuhash.groupby(on_gpu(frame), "k", as_index=False)
    wanted = dgpuhash.groupby(frame, "k", as_index=False)
    assert_same(flat["i"].max(), wanted["i"].max())
    assert_same(flat.size(), wanted.size())
    assert_same(flat[["i"]].agg(["min", "max"]), wanted[["i"]].agg(["min", "max"]))


def test_counts_of_values_and_pairs_of_columns():
    frame = FRAMES[False][["k", "t", "s"]]
    found = dgpuhash.groupby(on_gpu(frame), "k").value_counts()
    assert_same(found.sort_index(), dgpuhash.groupby(frame, "k").value_counts().sort_index())
    numbers = FRAMES[True][["k", "i", "f"]]
    for how in ("cov", "corr"):
        expected = getattr(dgpuhash.groupby(numbers, "k"), how)()
        assert_same(getattr(dgpuhash.groupby(on_gpu(numbers), "k"), how)(), expected)


def test_keys_of_every_kind():
    import cudf
    import cupy

    frame = FRAMES[False].set_index("t", drop=False)
    moved = on_gpu(frame.reset_index(drop=True)).set_index(
        on_gpu(frame.reset_index(drop=True))["t"]
    )
    parity = np.arange(ROWS) % 2
    pairs = [
        ({"level": 0}, {"level": 0}),
        ({"by": cupy.asarray(parity)}, {"by": parity}),
        ({"by": [cupy.asarray(parity), "k"]}, {"by": [parity, "k"]}),
        ({"by": cudf.Series(parity, index=moved.index)}, {"by": parity}),
    ]
    for given, wanted in pairs:
        found = dgpuhash.groupby(moved, **given)["i"].max()
        assert_same(found, dgpuhash.groupby(frame, **wanted)["i"].max())
    dates = dgpuhash.groupby(moved, ["d", "b"]).size()
    assert_same(dates, dgpuhash.groupby(frame, ["d", "b"]).size())


def test_categories_come_in_their_order():
    dtype = pd.CategoricalDtype(["c", "z", "a", "b"], ordered=True)
    frame = pd.DataFrame({"t": FRAMES[True]["t"].astype(dtype), "i": FRAMES[True]["i"]})
    import cudf

    found = dgpuhash.groupby(cudf.from_pandas(frame), "t", dropna=False)["i"].max()
    expected = dgpuhash.groupby(frame, "t", dropna=False)["i"].max()
    assert plain(found.to_pandas()) == plain(expected)
    assert plain(found.index.to_pandas()) == plain(expected.index)


def test_dtypes_are_those_of_cudf():
    import cudf

    frame = cudf.DataFrame(
        {
            "k": [1, 1, 2],
            "i": cudf.Series([1, 2, 3], dtype="int8"),
            "f": cudf.Series([1.5, 2.5, 3.5], dtype="float32"),
            "b": [True, False, True],
        }
    )
    ours, theirs = dgpuhash.groupby(frame, "k"), frame.groupby("k", sort=True)
    for how in (*NUMBERS, "sum", "prod"):
        if how == "sem":
            continue
        found, expected = getattr(ours, how)(), getattr(theirs, how)()
        assert found.dtypes.to_dict() == expected.dtypes.to_dict(), how
        assert found.index.dtype == expected.index.dtype


def test_nan_is_a_value_and_a_null_key():
    import cudf

    frame = cudf.DataFrame({"k": [1.0, math.nan, 1.0, None, 2.0]}, nan_as_null=False)
    frame["v"] = cudf.Series([1.0, 2.0, math.nan, 4.0, 5.0], nan_as_null=False)
    found = dgpuhash.groupby(frame, "k", dropna=False)["v"]
    assert plain(found.count().to_pandas()) == [2, 1, 2]
    assert not found.sum().has_nulls
    sums = found.sum().to_cupy().get().tolist()
    assert math.isnan(sums[0])
    assert sums[1:] == [5.0, 6.0]


def test_many_groups_in_one_pass():
    import cudf
    import cupy

    keys = RNG.integers(0, 90_000, 2**18)
    values = RNG.integers(-(10**6), 10**6, 2**18)
    floats = RNG.normal(size=2**18) * 10.0 ** RNG.integers(-8, 8, 2**18)
    host = pd.DataFrame({"k": keys, "v": values, "f": floats})
    moved = cudf.DataFrame({label: cupy.asarray(host[label].to_numpy()) for label in host})
    for sort in (True, False):
        ours, theirs = (dgpuhash.groupby(each, "k", sort=sort) for each in (moved, host))
        named = {"a": ("v", "sum"), "n": ("v", "count"), "m": ("v", "max"), "f": ("f", "sum")}
        found, expected = ours.agg(**named).to_pandas(), theirs.agg(**named)
        assert found[["a", "n", "m"]].equals(expected[["a", "n", "m"]])
        close = pytest.approx(expected["f"].to_numpy(), rel=1e-12, abs=1e-6)
        assert found["f"].to_numpy() == close
        assert ours["f"].median().to_pandas().equals(theirs["f"].median())
        assert ours["v"].nunique().to_pandas().equals(theirs["v"].nunique())


@pytest.mark.parametrize("dtypes", ["i2", "u4", "f4", "f8", "M8[s]", "i4 i4", "i8 u1"])
@pytest.mark.parametrize("span", [50, 30_000])
def test_keys_of_64_bits_and_less(dtypes, span):
    import cudf

    rows = 2**16
    keys = [RNG.integers(0, span, rows).astype(dtype) for dtype in dtypes.split()]
    host = pd.DataFrame({f"k{place}": key for place, key in enumerate(keys)})
    by = list(host)
    host["v"], host["f"] = RNG.integers(-9, 9, rows), RNG.normal(size=rows)
    moved = cudf.from_pandas(host)
    how = {"v": ["sum", "max", "count", "nunique"], "f": ["first", "last", "median", "var"]}
    for sort in (True, False):
        found = dgpuhash.groupby(moved, by, sort=sort).agg(how)
        expected = dgpuhash.groupby(host, by, sort=sort).agg(how)
        assert found.index.to_pandas().equals(expected.index)
        np.testing.assert_allclose(found.to_pandas(), expected, rtol=1e-12)


@pytest.mark.parametrize("sort", [True, False])
def test_groups_in_any_order(sort):
    numbers = FRAMES[True][["k", "i", "f"]]
    ours = dgpuhash.groupby(on_gpu(numbers), "k", sort=sort)
    # Always by key, as in cuDF.
    assert_same(ours.cov(), dgpuhash.groupby(numbers, "k").cov())
    ordered = numbers.dropna(subset="k").sort_values("k", kind="stable")
    expected = dgpuhash.groupby(ordered, "k").head(2).index.tolist()
    assert ours.head(2, preserve_order=False).index.to_pandas().tolist() == expected
    assert_same(ours["i"].max(), dgpuhash.groupby(numbers, "k", sort=sort)["i"].max())


def test_values_of_many_groups_that_begin_alike():
    import cudf

    rows = 2**16
    host = pd.DataFrame({"k": RNG.integers(0, 5000, rows)})
    host["v"] = RNG.integers(0, 4, rows) + RNG.integers(0, 3, rows) * 2.0**-50
    ours, theirs = (dgpuhash.groupby(each, "k") for each in (cudf.from_pandas(host), host))
    assert ours["v"].median().to_pandas().equals(theirs["v"].median())
    for how in ("lower", "higher"):
        found = ours["v"].quantile(0.3, interpolation=how).to_pandas()
        assert found.equals(theirs["v"].quantile(0.3, interpolation=how))
    assert ours["v"].nunique().to_pandas().equals(theirs["v"].nunique())


@pytest.mark.parametrize("groups", [3, 5_000, 60_000])
def test_sums_of_floats_are_compensated(groups):
    import cudf
    import cupy

    rows = 4 * groups + 50_000
    keys = np.arange(rows) % groups
    values = RNG.normal(size=rows) * 10.0 ** RNG.integers(-3, 3, rows)
    values[:groups], values[groups : 2 * groups] = 1e12, -1e12
    frame = cudf.DataFrame({"k": cupy.asarray(keys), "v": cupy.asarray(values)})
    found = dgpuhash.groupby(frame, "k")["v"].sum().to_cupy().get()
    for group in RNG.choice(groups, min(groups, 50), replace=False):
        own = values[keys == group]
        exact, size = sum(map(Fraction, own.tolist())), Fraction(np.abs(own).sum())
        bound = abs(exact) / 2**51 + size / 2**92
        assert abs(Fraction(found[group]) - exact) <= bound


@pytest.mark.parametrize(
    "values",
    [
        1e9 + RNG.normal(size=6000),
        10**9 + RNG.integers(-3, 3, 6000),
        -(2**60) // 6000 + RNG.integers(0, 2**20, 6000),
        RNG.integers(0, 2**45, 6000),
        RNG.integers(0, 2**63, 6000, dtype=np.uint64),
    ],
    ids=["floats", "close", "large", "far apart", "sums that leave 64 bits"],
)
def test_variances_at_a_large_mean(values):
    import cudf

    keys = np.arange(6000) % 3
    found = dgpuhash.groupby(cudf.DataFrame({"k": keys, "v": values}), "k")["v"].var()
    for group, variance in enumerate(found.to_cupy().get().tolist()):
        own = list(map(Fraction, values[keys == group].tolist()))
        mean = sum(own) / len(own)
        exact = sum((each - mean) ** 2 for each in own) / (len(own) - 1)
        assert abs(Fraction(variance) - exact) <= exact * Fraction(1, 10**6)


def test_keys_of_one_code_are_compared(monkeypatch):
    made = encoding.KeyEncoder.for_frame

    def weak(frame: Any, on: Any, **_: Any) -> Any:
        return made(frame, on, hash_bits=3)

    monkeypatch.setattr(encoding.KeyEncoder, "for_frame", weak)
    frame = FRAMES[True]
    found = dgpuhash.groupby(on_gpu(frame), ["t", "x", "i"], dropna=False).size()
    monkeypatch.undo()
    assert_same(found, dgpuhash.groupby(frame, ["t", "x", "i"], dropna=False).size())


@pytest.mark.parametrize("width", ["Decimal32Dtype", "Decimal64Dtype", "Decimal128Dtype"])
def test_decimals(width):
    import cudf

    texts = ["1.25", "-7.50", None, "3.00", "-0.25"]
    frame = cudf.DataFrame({"k": [1, 2, 1, 1, 2]})
    frame["v"] = cudf.Series(texts).astype(getattr(cudf, width)(7, 2))
    ours = dgpuhash.groupby(frame, "k")["v"]
    assert [str(each) for each in ours.sum().to_arrow().to_pylist()] == ["4.25", "-7.75"]
    assert [str(each) for each in ours.min().to_arrow().to_pylist()] == ["1.25", "-7.50"]
    assert [str(each) for each in ours.max().to_arrow().to_pylist()] == ["3.00", "-0.25"]
    assert ours.count().to_arrow().to_pylist() == [2, 2]


def test_libcudf_groups_nothing(monkeypatch):
    import cudf.core.groupby.groupby as engine

    def raising(*_: Any, **__: Any) -> None:
        raise AssertionError("cuDF's groupby was called")

    monkeypatch.setattr(engine._GroupByContextManager, "__init__", raising)
    groups = dgpuhash.groupby(on_gpu(FRAMES[True]), ["k", "t"])
    assert len(groups[["i", "f"]].agg(["mean", "median", "nunique", "var"])) == len(groups)
    assert len(groups["x"].agg(["min", "first", "list"])) == len(groups)


def test_no_rows():
    for by in ("k", ["k", "t"]):
        groups = dgpuhash.groupby(on_gpu(FRAMES[True][:0]), by)
        assert len(groups.size()) == len(groups.head()) == 0
        for how in (*NUMBERS, "sum", "prod"):
            assert len(getattr(groups[["i", "f"]], how)()) == 0


def test_refusals():
    frame = on_gpu(FRAMES[False])
    groups = dgpuhash.groupby(frame, "k")
    with pytest.raises(KeyTypeError, match="does not support mean"):
        groups["x"].mean()
    with pytest.raises(ColumnError):
        dgpuhash.groupby(frame, "absent")
    with pytest.raises(SpecError, match="No group keys"):
        dgpuhash.groupby(frame, [])
    with pytest.raises(UnsupportedError, match="the function"):
        groups["i"].agg(lambda rows: rows.iloc[0] + 1)
    with pytest.raises(UnsupportedError, match="observed=False"):
        dgpuhash.groupby(frame.astype({"t": "category"}), "t", observed=False)
