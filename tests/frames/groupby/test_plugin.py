"""The plugin that runs pandas' tests of groupbys with ours: what goes to whom, what is counted."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.api.typing import DataFrameGroupBy, SeriesGroupBy
from suites import raising
from suites.pandas_groupby import Counts, Suite, groupby_in_place, is_key

FRAME = pd.DataFrame({"k": [2, 1, 2], "v": [1.0, 2.0, 3.0]})


class Fake:
    """A groupby that answers with the name of what is called."""

    def __init__(self, frame: Any, by: Any, *, level: Any, sort: bool, **given: Any) -> None:
        if isinstance(by, str) and by in ("refused", "absent"):
            raise LookupError(by)
        self.chosen: list[Any] = []
        assert "group_keys" not in given

    def __getitem__(self, key: Any) -> Fake:
        self.chosen.append(key)
        return self

    def sum(self) -> Any:
        return "sum", *self.chosen

    def agg(self, *args: Any, **kwargs: Any) -> str:
        return "agg"

    def transform(self, func: Any) -> str:
        return "transform"

    def nunique(self) -> Any:
        return pd.factorize(FRAME["k"])

    def mean(self) -> str:
        warnings.warn("of the caller", stacklevel=2)
        return "mean"


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def groupby(counts: Counts) -> Callable[..., Any]:
    return groupby_in_place(pd.DataFrame.groupby, Fake, DataFrameGroupBy, counts)


@pytest.fixture
def grouped(groupby: Callable[..., Any]) -> Any:
    return groupby(FRAME, "k", group_keys=False)


def test_aggregates_are_ours_and_the_rest_is_of_pandas(grouped: Any, counts: Counts) -> None:
    assert grouped.sum() == ("sum",)
    assert counts.kind == "only ours"
    assert grouped.cumsum()["v"].tolist() == [1.0, 2.0, 4.0]
    assert [key for key, _ in grouped] == [1, 2]
    assert len(grouped) == 2
    assert counts.kind == "ours and others"
    assert counts.ours == {"sum": 1}
    assert counts.others == {"cumsum": 1, "__iter__": 1, "__len__": 1}


def test_columns_are_chosen_of_both(grouped: Any) -> None:
    assert isinstance(grouped, DataFrameGroupBy)
    assert isinstance(grouped.v, SeriesGroupBy)
    assert grouped["v"].sum() == ("sum", "v", "v")
    assert grouped["v"].shift().isna().tolist() == [True, True, False]


@pytest.mark.parametrize(
    "func", ["sum", ["sum", "mean"], {"v": ["sum", list]}, list, np.sum, ["sum", len], max]
)
def test_agg_by_names_and_functions_is_ours(grouped: Any, counts: Counts, func: Any) -> None:
    assert grouped.agg(func) == "agg"
    assert counts.kind == "only ours"


@pytest.mark.parametrize("func", ["cumsum", {"v": "cumsum"}])
def test_agg_by_other_names_is_of_pandas(grouped: Any, counts: Counts, func: Any) -> None:
    pd.testing.assert_frame_equal(grouped.agg(func), FRAME.groupby("k").agg(func))
    assert counts.kind == "only others"


def test_named_aggregates(grouped: Any, counts: Counts) -> None:
    assert grouped.agg(x=("v", "sum"), y=pd.NamedAgg("v", "max")) == "agg"
    assert grouped.agg(x=("v", len)) == "agg"
    assert (counts.ours, counts.others) == ({"agg": 2}, {})


def test_transform_of_aggregates_is_ours(grouped: Any, counts: Counts) -> None:
    assert grouped.transform("max") == "transform"
    assert grouped.transform("cumsum")["v"].tolist() == [1.0, 2.0, 4.0]
    assert counts.kind == "ours and others"


def test_what_both_refuse_is_refused_by_ours(groupby: Callable[..., Any]) -> None:
    with pytest.raises(LookupError, match="absent") as refused:
        groupby(FRAME, "absent")
    assert refused.type is LookupError, "pandas raises KeyError"


def test_what_ours_alone_refuses_fails_with_the_first_aggregate(
    groupby: Callable[..., Any],
) -> None:
    grouped = groupby(FRAME.rename(columns={"k": "refused"}), "refused")
    assert grouped.ngroups == 2
    with pytest.raises(LookupError, match="refused"):
        grouped.sum()


def test_an_aggregate_that_ours_lacks_fails(grouped: Any) -> None:
    with pytest.raises(AttributeError, match="median"):
        grouped.median()
    with pytest.raises(AttributeError, match="'DataFrameGroupBy' object has no attribute 'foo'"):
        _ = grouped.foo


def test_engines_of_pandas_raise_while_ours_runs(
    grouped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raising, "running", lambda: True)
    with pytest.raises(AssertionError, match="pandas' factorize was called"):
        grouped.nunique()


def test_a_warning_about_the_caller_is_about_the_test(grouped: Any) -> None:
    with pytest.warns(UserWarning, match="of the caller") as told:
        assert grouped.mean() == "mean"
    assert [each.filename for each in told] == [__file__]


def test_the_code_of_pandas_keeps_its_own(
    groupby: Callable[..., Any], counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = FRAME.pivot_table(index="k")
    monkeypatch.setattr(pd.DataFrame, "groupby", groupby)
    pd.testing.assert_frame_equal(FRAME.pivot_table(index="k"), expected)
    assert counts.kind == "none"


def test_pandas_through_the_plugin(counts: Counts) -> None:
    plain = groupby_in_place(pd.DataFrame.groupby, None, DataFrameGroupBy, counts)
    pd.testing.assert_frame_equal(plain(FRAME, "k").sum(), FRAME.groupby("k").sum())
    assert counts.kind == "only ours"
    with pytest.raises(KeyError, match="absent"):
        plain(FRAME, "absent")


def test_keys_of_ours() -> None:
    keys = ["k", ["k", "v"], ("k",), FRAME["k"], FRAME["k"].array, [FRAME["k"], "v"], len, {}]
    assert all(map(is_key, keys))
    assert all(map(is_key, [pd.Grouper(key="k"), ["v", pd.Grouper(level=0)]]))
    assert not any(map(is_key, [pd.Grouper(key="k", freq="D"), [pd.Grouper(freq="D"), "v"]]))


@pytest.mark.parametrize(
    ("called", "failed", "below"),
    [
        (Counts(ours=Counter(["sum"])), 3, []),
        (Counts(ours=Counter(["sum"])), 4, ["only ours"]),
        (Counts(ours=Counter(["sum"]), others=Counter(["apply"])), 10, []),
        (Counts(ours=Counter(["sum"]), others=Counter(["apply"])), 11, ["ours and others"]),
        (Counts(others=Counter(["apply"])), 1, ["only others"]),
        (Counts(), 1, ["none"]),
    ],
)
def test_tests_are_judged_by_what_they_call(
    called: Counts, failed: int, below: list[str], counts: Counts
) -> None:
    suite = Suite(counts, report=None)
    for number in range(100):
        suite.calls[str(number)] = called
        suite.outcomes[str(number)] = "failed" if number < failed else "passed"
    assert suite.below == below
