"""``dgpuhash.groupby`` beside pandas, with every other engine shut."""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suites.raising import no_other_engine
from support.strategies import KEY_COLUMNS

import dgpuhash
from dgpuhash import config
from dgpuhash.errors import ColumnError, ShapeError, SpecError, UnsupportedError
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.fold import folding
from dgpuhash.frames.keys.encoding import KeyEncoder

KEYS = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=14)
AGGREGATES = [
    "size", "count", "sum", "mean", "min", "max", "first", "last", "any", "all", "var", "std",
    "sem", "prod", "nunique", "median", "quantile",
]  # fmt: skip


def same(made, expected):
    """Assert that a result is pandas', to its dtypes and labels."""
    if isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(made, expected)
    else:
        pd.testing.assert_frame_equal(made, expected)


def same_as_pandas(frame, by, call, **options):
    """Assert that a call of our groups gives what it gives of pandas'."""
    with no_other_engine():
        made = call(dgpuhash.groupby(frame, by, **options))
    same(made, call(frame.groupby(by, **options)))


def frame_of(kind, keys):
    """Return a frame with keys of a kind, and columns of values."""
    n = len(keys)
    rng = np.random.default_rng(n)
    floats = rng.integers(-8, 8, n) / 4
    floats[::3] = np.nan
    return pd.DataFrame({
        "key": KEY_COLUMNS[kind](keys),
        "other": rng.integers(0, 2, n),
        "ints": rng.integers(-9, 9, n),
        "small": rng.integers(0, 99, n).astype("u1"),
        "floats": floats,
        "flags": rng.integers(0, 2, n).astype(bool),
        "nullable": pd.array([None if k is None else 3 * k for k in keys], "Int32"),
        "arrow": pd.array(floats * 2, "double[pyarrow]"),
    })  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(
    kind=st.sampled_from(sorted(KEY_COLUMNS)), keys=KEYS, how=st.sampled_from(AGGREGATES),
    dropna=st.booleans(), sort=st.booleans(), both=st.booleans(), as_index=st.booleans(),
)  # fmt: skip
def test_aggregates_by_keys_of_each_kind(kind, keys, how, dropna, sort, both, as_index):
    frame = frame_of(kind, keys)
    if how == "quantile":
        frame = frame.drop(columns="flags")
    by = ["key", "other"] if both else "key"
    same_as_pandas(
        frame, by, lambda groups: getattr(groups, how)(),
        dropna=dropna, sort=sort, as_index=as_index,
    )  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(
    kind=st.sampled_from(["categories", "texts", "floats"]), keys=KEYS,
    observed=st.booleans(), sort=st.booleans(), dropna=st.booleans(),
)  # fmt: skip
def test_categories_that_no_row_has(kind, keys, observed, sort, dropna):
    frame = frame_of("categories", keys)
    frame["second"] = KEY_COLUMNS[kind](keys[::-1])
    frame["third"] = KEY_COLUMNS["categories"]([3, *keys[1:]])
    options = {"observed": observed, "sort": sort, "dropna": dropna}
    columns = ["ints", "floats", "nullable"]
    same_as_pandas(frame, "key", lambda groups: groups[columns].sum(min_count=1), **options)
    if dropna:
        # With nulls as groups, pandas itself counts codes of dropped categories.
        for by in (["key", "third"], ["second", "key"]):
            same_as_pandas(frame, by, lambda groups: groups["ints"].sum(), **options)


VALUES = {
    "text": pd.Series(["b", "a", None, "c", "", "b"], dtype="str"),
    "masked text": pd.Series(["b", "a", None, "c", "", "b"], dtype="string"),
    "moment": pd.Series(pd.to_datetime([5, 3, None, 9, 4, 4], unit="s")),
    "zoned": pd.Series(pd.to_datetime([5, 3, None, 9, 4, 4], unit="s", utc=True)),
    "span": pd.Series(pd.to_timedelta([5, -3, None, 9, 4, 4], unit="s")),
    "period": pd.Series(pd.PeriodIndex(["2026-01", "2026-02", None] * 2, freq="M")),
    "category": pd.Series(pd.Categorical(["b", "a", None, "a", "b", "b"], ordered=True)),
    "unordered": pd.Series(pd.Categorical(["b", "a", None, "a", "b", "b"])),
    "moments": pd.Series(pd.Categorical(pd.to_datetime([0, 3, None, 0, 0, 0], unit="s"))),
    "float32": pd.Series([1.5, 2, np.nan, 4, 1, np.inf], dtype="float32"),
    "uint64": pd.Series([2**63, 1, 2, 3, 4, 2**64 - 1], dtype="uint64"),
    "boolean": pd.Series([True, None, False, False, None, True], dtype="boolean"),
    "Float32": pd.Series([1.5, None, 2, 4, None, 8], dtype="Float32"),
    "duration": pd.Series(pd.to_timedelta([5, 3, None, 9, 4, 4], unit="s")).astype(
        "duration[us][pyarrow]"
    ),
    "objects": pd.Series(["b", "a", None, "c", "d", "b"], dtype=object),
    "object numbers": pd.Series([1, 2, None, 4, 5, 6], dtype=object),
    "wide": pd.Series([2**62, 2**62, 2**62, 7, -(2**62), 1]),
}


def outcome(call):
    """Return what a call returns, or the kind and text of its error."""
    try:
        return call()
    except Exception as error:
        return error


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_each_dtype(kind):
    frame = pd.DataFrame({"k": [1, 1, 2, 1, 2, 2], "v": VALUES[kind]})
    theirs, ours = frame.groupby("k")["v"], dgpuhash.groupby(frame, "k")["v"]
    for how in [*AGGREGATES, "idxmin", "idxmax"]:
        expected = outcome(getattr(theirs, how))
        with no_other_engine():
            made = outcome(getattr(ours, how))
        if isinstance(expected, Exception):
            assert isinstance(made, type(expected)), how
            if "No matching signature" not in str(expected) and kind != "objects":
                assert str(made) == str(expected)
        elif how in {"std", "sem"} and str(expected.dtype).startswith(("time", "dur")):
            # pandas squares numbers that float64 does not tell apart.
            assert ((made - expected).abs() <= pd.Timedelta(1, "us")).all()
        else:
            same(made, expected)


REQUESTS = {
    "list": lambda groups: groups[["i", "f"]].agg(["sum", "min"]),
    "dict": lambda groups: groups.agg({"i": "sum", "f": "mean"}),
    "dict of lists": lambda groups: groups.agg({"f": ["sum", "mean"], "i": "max"}),
    "named": lambda groups: groups.agg(a=("i", "sum"), b=pd.NamedAgg("f", "std")),
    "list of one": lambda groups: groups["i"].agg(["sum", "count"]),
    "named of one": lambda groups: groups["i"].agg(x="sum", y="count"),
    "pairs": lambda groups: groups["i"].agg([("p", "sum"), ("q", "min")]),
    "options": lambda groups: groups["f"].agg("std", ddof=0),
    "function list": lambda groups: groups["i"].agg(list),
    "numeric_only": lambda groups: groups.sum(numeric_only=True),
    "min_count": lambda groups: groups[["i", "f"]].sum(min_count=3),
    "quantiles": lambda groups: groups[["i", "f"]].quantile([0.25, 0.5]),
    "nearest": lambda groups: groups["i"].quantile(0.4, interpolation="nearest"),
    "skipna": lambda groups: groups[["i", "f"]].max(skipna=False),
    "transform": lambda groups: groups[["i", "f"]].transform("sum"),
    "transform one": lambda groups: groups["f"].transform("median"),
    "transform size": lambda groups: groups["i"].transform("size"),
    "head": lambda groups: groups.head(2),
    "tail": lambda groups: groups["i"].tail(-1),
    "nth": lambda groups: groups.nth([0, -1]),
    "nth of some": lambda groups: groups.nth(-2, dropna="any"),
    "slice": lambda groups: groups.nth(slice(1, None, 2)),
    "nlargest": lambda groups: groups["i"].nlargest(2),
    "nsmallest": lambda groups: groups["f"].nsmallest(2, keep="last"),
    "all ties": lambda groups: groups["i"].nlargest(2, keep="all"),
    "unique": lambda groups: groups["i"].unique(),
    "cov": lambda groups: groups[["i", "f"]].cov(),
    "corr": lambda groups: groups[["i", "f"]].corr(),
    "idxmax": lambda groups: groups[["i", "f"]].idxmax(),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name):
    rng = np.random.default_rng(31)
    frame = pd.DataFrame({
        "k": rng.integers(0, 3, 40), "t": rng.choice(["x", "y", None], 40),
        "i": rng.integers(0, 9, 40), "f": rng.normal(size=40).round(2),
    }, index=np.arange(40) * 2)  # fmt: skip
    frame.loc[::10, "f"] = np.nan
    for by, options in (
        ("k", {}),
        (["k", "t"], {"sort": False}),
        ("t", {"as_index": False}),
        (frame["i"] % 2, {}),
        (lambda label: label % 4, {}),
        (np.arange(40) % 3, {"as_index": False}),
    ):
        same_as_pandas(frame, by, REQUESTS[name], **options)


@pytest.mark.parametrize("ascending", [True, False])
def test_value_counts(ascending):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"k": rng.choice(["a", "b", None], 50), "v": rng.integers(0, 4, 50)})
    frame["f"] = frame["v"].where(frame["v"] > 0) / 2
    for columns in ("v", ["f"], ["v", "f"]):
        for dropna in (True, False):
            options = {"ascending": ascending, "dropna": dropna}
            with no_other_engine():
                groups = dgpuhash.groupby(frame, "k")[columns]
                made, shares = (groups.value_counts(**options, normalize=n) for n in (False, True))
            theirs = frame.groupby("k")[columns]
            # pandas does not say in which order values of one number come.
            same(made.sort_index(), theirs.value_counts(**options).sort_index())
            expected = theirs.value_counts(**options, normalize=True)
            same(shares.sort_index(), expected.sort_index())
            assert made.tolist() == theirs.value_counts(**options).tolist()
    with no_other_engine():
        made = dgpuhash.groupby(frame, "k", as_index=False).value_counts(subset=["v"])
    assert list(made) == ["k", "v", "count"]
    assert made["count"].sum() == frame["k"].count()


@pytest.mark.parametrize("as_index", [True, False])
def test_labels_that_are_other_numbers(as_index):
    frame = pd.DataFrame(np.random.default_rng(2).integers(0, 3, (12, 4)), columns=[1, 0, 2, 3])
    # pandas itself takes the label of a level for its number.
    named = frame.set_axis(list("badc"), axis=1)
    for call in (
        lambda groups, _: groups.sum(),
        lambda groups, column: groups[column].nlargest(2),
        lambda groups, _: groups.quantile([0.2, 0.5]),
    ):
        made = call(dgpuhash.groupby(frame, [1, 0], as_index=as_index), 2)
        expected = call(named.groupby(["b", "a"], as_index=as_index), "d")
        assert made.index.tolist() == expected.index.tolist()
        np.testing.assert_allclose(made.to_numpy(), expected.to_numpy())


def test_levels_and_series():
    index = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", "y"])
    frame = pd.DataFrame({"v": [1, 2, 3, 4]}, index=index)
    for level in ("x", 1, ["x", "y"]):
        with no_other_engine():
            made = dgpuhash.groupby(frame, level=level).sum()
        same(made, frame.groupby(level=level).sum())
        with no_other_engine():
            made = dgpuhash.groupby(frame["v"], level=level).mean()
        same(made, frame["v"].groupby(level=level).mean())
    same_as_pandas(frame, "x", lambda groups: groups.max())
    same_as_pandas(frame, ["x", "v"], lambda groups: groups.size())


@pytest.fixture
def colliding(monkeypatch):
    """Keys with two different hashes altogether."""
    original = KeyEncoder.for_frame.__func__
    monkeypatch.setattr(
        KeyEncoder, "for_frame", classmethod(lambda cls, *args: original(cls, *args, hash_bits=1))
    )


@pytest.mark.usefixtures("colliding")
@pytest.mark.parametrize("sort", [True, False])
def test_keys_of_one_hash_are_told_apart(sort):
    rng = np.random.default_rng(8)
    frame = pd.DataFrame({
        "a": rng.integers(0, 12, 200).astype(str), "b": rng.integers(0, 12, 200).astype(str),
        "v": rng.integers(0, 99, 200), "t": rng.integers(0, 30, 200).astype(str),
    })  # fmt: skip
    same_as_pandas(frame, ["a", "b"], lambda groups: groups["v"].sum(), sort=sort)
    same_as_pandas(frame, "a", lambda groups: groups["t"].nunique(), sort=sort)


def test_no_more_groups_of_categories_than_are_allowed(monkeypatch):
    config.register()
    monkeypatch.setitem(dask.config.get("dgpuhash.frames"), "most-groups", 11)
    many = pd.Series(pd.Categorical([0, 1], range(4)))
    frame = pd.DataFrame({"a": many, "b": many, "v": [1, 2]})
    with pytest.raises(UnsupportedError, match=r"makes 16 groups .* observed=True"):
        dgpuhash.groupby(frame, ["a", "b"], observed=False)
    assert len(dgpuhash.groupby(frame, ["a", "b"])) == 2


def test_what_there_is_not_is_told_by_name():
    frame = pd.DataFrame({"k": [1, 2], "v": [1.0, 2.0]})
    groups = dgpuhash.groupby(frame, "k")
    with pytest.raises(AttributeError, match=r"no 'rank'; there is agg, .* var"):
        groups.rank()
    with pytest.raises(AttributeError, match="no aggregate 'skew'"):
        groups.agg("skew")
    with pytest.raises(UnsupportedError, match="spearman"):
        groups.corr(method="spearman")
    with pytest.raises(TypeError):
        list(groups)
    with pytest.raises(KeyError):
        dgpuhash.groupby(frame, "nobody")
    with pytest.raises(ColumnError):
        groups["nobody"]
    with pytest.raises(ShapeError, match="same length"):
        dgpuhash.groupby(frame, np.arange(3))
    with pytest.raises(SpecError, match="'by' and 'level'"):
        dgpuhash.groupby(frame)


def test_the_accessor_groups():
    frame = pd.DataFrame({"k": [1, 2, 1], "v": [1, 2, 3]})
    same(frame.dgpuhash.groupby("k").sum(), frame.groupby("k").sum())
    assert repr(frame.dgpuhash.groupby("k")["v"]) == (
        "<GroupBy of 3 rows by 'k': 2 groups, column 'v'>"
    )
    assert frame.dgpuhash.groupby("k").v.max().tolist() == [3, 2]


@pytest.mark.parametrize("chosen", [["a", "c"], ["a"], ["c"], "a", "c"], ids=str)
@pytest.mark.parametrize("by", ["a", ["b", "a"]], ids=str)
def test_lists_of_aggregates_beside_keys_that_are_columns(by, chosen):
    frame = pd.DataFrame({"a": [2, 1, 2], "b": ["x", "y", "x"], "c": [3.5, 4.0, 5.0]})
    for hows in (["min"], ["min", "max"], [("c", "max")]):
        same_as_pandas(frame, by, lambda groups, h=hows: groups[chosen].agg(h), as_index=False)
    labels = [np.array([1, 1, 2])]
    same_as_pandas(frame, labels, lambda groups: groups[["a", "c"]].agg(["min"]), as_index=False)


def test_a_key_is_not_called_as_a_result():
    groups = dgpuhash.groupby(pd.DataFrame({"a": [1], "c": [2]}), "a", as_index=False)
    for call in (lambda: groups["a"].agg(a="min"), lambda: groups["c"].agg([("a", "min")])):
        with pytest.raises(SpecError, match="cannot insert a, already exists; give"):
            call()


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_floats_of_few_bits_have_the_digits_of_pandas(dtype):
    frame = pd.DataFrame({"k": [1, 1, 1, 2, 2], "x": np.array([0.1, 0.2, 0.4, 6e4, 6e4], dtype)})
    for rows in (frame, frame.iloc[::-1], frame.iloc[[0, 3, 1, 2, 4]]):
        for how in ("mean",) if dtype == "complex64" else ("mean", "prod", "sum", "std", "var"):
            if dtype == "float16" and rows is frame and how in {"prod", "sum"}:
                # pandas' own are infinite there.
                continue
            wanted = rows.groupby("k")["x"].agg(how)
            found = dgpuhash.groupby(rows, "k")["x"].agg(how)
            assert found.dtype == wanted.dtype
            # Sums that float16 does not have are no infinities.
            assert np.allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("how", ["mean", "sum", "prod", "var", "std", "median"])
def test_floats_of_few_bits_have_one_dtype_in_parts(dtype, how):
    few = pd.DataFrame({"k": [1, 2, 1, 1], "x": np.array([0.1, np.nan, 0.2, 0.4], dtype)})
    plan = GroupPlan.of(few.iloc[:0], "k", how=how, selection="x")
    wide = np.finfo(dtype).bits < 32 or how == "mean"
    exact = few.astype({"x": "float64"}).groupby("k")["x"].agg(how)
    for rows in (few, few.iloc[:1], few.sort_values("k")):
        states = folding(plan)
        for number in range(len(rows)):
            states.fold(plan.reduce(rows.iloc[number : number + 1], number))
        found = states.result()
        assert found.dtype == plan.meta.dtype == (found.dtype if wide else dtype)
        if len(rows) == len(few):
            assert np.allclose(found, exact, rtol=1e-12 if how == "mean" else 1e-6, equal_nan=True)
