"""Groupbys of frames whose partitions have other categories than Dask knows, beside pandas."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.dataframe.utils import clear_known_categories
from distributed import wait
from pandas.api.types import union_categoricals
from suites.raising import no_other_engine

import dgpuhash
from dgpuhash.distributed import DistributedGroupBy
from dgpuhash.distributed.groupby import spilling, steps
from dgpuhash.distributed.partition import skew
from dgpuhash.distributed.shards import worker_memory
from dgpuhash.errors import ColumnError
from dgpuhash.frames.keys.categories import in_one_order

pytestmark = pytest.mark.cluster

VALUES = {
    "texts": list("abcdefgh"),
    "integers": [5, 3, 9, 2**53 + 1, 2**53, 7],
    "floats": [0.5, 1.5, -2.0],
    "dates": list(pd.to_datetime(["2020-01-01", "1999-05-05", "2021-01-01"])),
    "booleans": [True, False],
    "objects": ["a", 1, b"x", 2.5],
}
VERBS: dict[str, Callable[[Any], Any]] = {
    "agg": lambda groups: groups.agg({"x": ["sum", "min"], "c": ["first", "count", "nunique"]}),
    "rows": lambda groups: groups.agg({"x": ["sum", "median"], "c": ["last", "nunique"]}),
    "first": lambda groups: groups["c"].first(),
    "nunique": lambda groups: groups["c"].nunique(),
    "sizes": lambda groups: groups.size(),
    "values": lambda groups: groups["c"].value_counts(sort=False),
    "median": lambda groups: groups["x"].median(),
    "quantile": lambda groups: groups["x"].quantile(0.3),
    "var": lambda groups: groups["x"].var(),
}


def itself(piece: Any) -> Any:
    return piece


def lazy_of(pieces: list[Any], meta: Any = None) -> Any:
    """Return a lazy frame of these partitions; as Dask does, the first one tells the dtypes."""
    return dd.from_map(itself, pieces, meta=pieces[0].iloc[:0] if meta is None else meta)


def piece(keys: Any, categories: Any, first: int = 0, *, ordered: bool = False) -> pd.DataFrame:
    size = len(keys)
    columns = {
        "k": pd.Categorical(list(keys), list(categories), ordered=ordered),
        "x": np.arange(first, first + size),
        "g": np.arange(size) % 2,
    }
    return pd.DataFrame(columns, index=range(first, first + size))


def drawn(rng: random.Random, kind: str, rows: int) -> pd.Categorical:
    """Return values of some categories in any order, with nulls."""
    categories = rng.sample(VALUES[kind], rng.randint(1, len(VALUES[kind])))
    codes = [rng.randrange(-1, len(categories)) for _ in range(rows)]
    return pd.Categorical.from_codes(
        codes, pd.Index(categories, dtype=object if kind == "objects" else None)
    )


def together(pieces: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all partitions, with the categories of all."""
    columns: dict[str, Any] = {}
    for label in pieces[0]:
        each = [part[label].array for part in pieces]
        known = isinstance(each[0], pd.Categorical)
        columns[label] = union_categoricals(each) if known else np.concatenate(each)
    return pd.DataFrame(columns, index=np.concatenate([part.index for part in pieces]))


def labels_of(frame: Any) -> list[str]:
    """Return a text of each row's labels, in which all nulls are one."""
    levels = [frame.index.get_level_values(n) for n in range(frame.index.nlevels)]
    return [
        str(["null" if pd.isna(each) else each for each in row])
        for row in zip(*levels, strict=True)
    ]


def same(found: Any, wanted: Any, *, in_order: bool) -> None:
    """Check the groups, and their order and categories where one partition has all."""
    alike = pd.testing.assert_series_equal if wanted.ndim == 1 else pd.testing.assert_frame_equal
    if not in_order:
        found, wanted = (each.iloc[np.argsort(labels_of(each))] for each in (found, wanted))
    alike(found, wanted, check_dtype=False, check_index_type="equiv")


@pytest.fixture(params=["few", "owners", "files", "heavy", "persisted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have states stay results of partitions, go to owners or to files; keys be heavy."""
    if request.param == "few":
        monkeypatch.setattr(steps, "_FEW_STATES", dict.fromkeys(steps._FEW_STATES, 1000))
    if request.param == "files":
        monkeypatch.setattr(worker_memory, "WRITTEN_AT_ONCE", 0)
        monkeypatch.setattr(worker_memory, "SHARE", 1 << 60)
        monkeypatch.setattr(spilling, "PIECES", 3)
    if request.param == "heavy":
        monkeypatch.setattr(skew, "LEAST_ROWS", 2)
        monkeypatch.setattr(skew, "HEAVY_SHARE", 0.2)
    return str(request.param)


@pytest.mark.parametrize("seed", range(2))
def test_partitions_of_any_categories(threads, way, seed):
    rng = random.Random(f"{way} {seed}")
    for name in ["median", "quantile"] if way == "heavy" else rng.sample(sorted(VERBS), 4):
        kinds = [rng.choice(sorted(VALUES)) for _ in "kc"]
        pieces = []
        for number in range(rng.randint(2, 4)):
            rows = rng.choice([5, 12] if number in (0, way == "heavy") else [0, 1, 5, 12])
            pieces.append(pd.DataFrame({
                "k": drawn(rng, kinds[0], rows), "j": drawn(rng, "texts", rows),
                "c": drawn(rng, kinds[1], rows), "x": np.array(rng.choices(range(99), k=rows), int),
            }, index=range(50 * number, 50 * number + rows)))  # fmt: skip
        frame, whole = lazy_of(pieces), together(pieces)
        if way == "persisted":
            wait(frame := frame.persist())
        by = rng.choice(["k", ["k", "j"], ["j"]])
        observed = name == "values" or rng.random() < 0.7
        options: dict[str, Any] = {"observed": observed, "sort": rng.random() < 0.7}
        if observed and name != "values":
            # With nulls as groups, pandas counts codes of other categories.
            options["dropna"] = rng.random() < 0.5
        ranges = rng.choice([1, 3]) if observed else None
        with no_other_engine():
            found = VERBS[name](dgpuhash.groupby(frame, by, npartitions=ranges, **options))
            found = found.compute()
        same(
            found,
            VERBS[name](whole.groupby(by, **options)),
            in_order=ranges != 3 and name != "values",
        )


# What a groupby has in two ways: as a method of groups, and of a frame or Series.
FRAMES: dict[str, Callable[[Any], Any]] = {
    "transform": lambda frame: group(frame, "k")["x"].transform("sum").astype("float64"),
    "columns": lambda frame: group(frame, "k", as_index=False)["x"].sum(),
    "head": lambda frame: group(frame, "k").head(1),
    "series": lambda frame: group(frame["x"], frame["k"]).max(),
    "function": lambda frame: group(frame, "g")["k"].agg(list),
    "labels": lambda frame: group(labelled(frame), None, level="k")["x"].sum(),
    "counts": lambda frame: method(frame["k"], "value_counts")(),
    "numbers": lambda frame: method(frame, "nunique")(),
    "distinct": lambda frame: method(frame[["k"]], "drop_duplicates")(),
}  # fmt: skip


def group(frame: Any, by: Any, **options: Any) -> Any:
    if isinstance(frame, pd.DataFrame | pd.Series):
        return frame.groupby(by, observed=True, **options)
    return dgpuhash.groupby(frame, by, npartitions=1, **options)


def labelled(frame: Any) -> Any:
    if isinstance(frame, pd.DataFrame):
        return frame.set_index("k")
    return frame.map_partitions(pd.DataFrame.set_index, "k", meta=frame._meta.set_index("k"))


def method(frame: Any, name: str) -> Any:
    return getattr(frame if isinstance(frame, pd.DataFrame | pd.Series) else frame.dgpuhash, name)


@pytest.mark.parametrize("name", sorted(FRAMES))
@pytest.mark.parametrize("categories", [["a", "bc", "cad"], ["ab", "ba", "b"], [[1, 2], [3, 2]]])
def test_verbs_of_frames(threads, name, categories):
    pieces = [piece([*each, *each[:1]], each, 10 * n) for n, each in enumerate(categories)]
    with no_other_engine():
        found = FRAMES[name](lazy_of(pieces)).compute()
    wanted = FRAMES[name](together(pieces))
    if name in {"distinct", "head"}:
        # Rows that stay are those of any hash range, with its categories.
        found, wanted = (each.sort_index().astype(object) for each in (found, wanted))
    same(found, wanted, in_order=True)


def test_rows_of_one_key_meet_whatever_its_code(threads):
    pieces = [piece("abcdef", "abcdef"), piece("abcdef", "fedcba", 6)]
    for frame in (lazy_of(pieces), lazy_of(pieces).persist()):
        found = dgpuhash.groupby(frame, "k", npartitions=3)["x"].sum().compute()
        assert found.sort_index().tolist() == [6, 8, 10, 12, 14, 16]


def test_dask_answers_alike_with_ours_enabled(threads):
    pieces = [piece("aab", "ab"), piece("cbc", "cb", 3)]
    for call in (
        lambda frame: frame.groupby("k", observed=True)["x"].sum(),
        lambda frame: frame.groupby("g")["k"].first(),
        lambda frame: frame.groupby("k", observed=True)["x"].median(),
        lambda frame: frame.groupby("k", observed=False).agg({"x": ["sum", "max"]}),
    ):
        with dgpuhash.dask.enabled(fallback=False), no_other_engine():
            found = call(lazy_of(pieces)).compute()
        same(found, call(together(pieces)), in_order=False)


def test_categories_of_which_some_are_unknown(threads):
    pieces = [piece("aab", "ab").assign(u=pd.Categorical(list("xyx"))),
              piece("cbc", "cb", 3).assign(u=pd.Categorical(list("yzz")))]  # fmt: skip
    frame = lazy_of(pieces, clear_known_categories(pieces[0].iloc[:0], cols=["u"]))
    for by, how in ((["k", "u"], "sum"), ("u", "median"), (["u", "k"], "nunique")):
        found = getattr(dgpuhash.groupby(frame, by, npartitions=1)["x"], how)().compute()
        wanted = getattr(together(pieces).groupby(by, observed=True)["x"], how)()
        pd.testing.assert_series_equal(found, wanted)


def test_first_partitions_without_categories(threads, way):
    pieces = [piece([None, None], []), piece("cbc", "cb", 3), piece([None], [], 6)]
    frame = lazy_of(pieces)
    frame = frame.persist() if way == "persisted" else frame
    for dropna in (True, False):
        found = dgpuhash.groupby(frame, "k", dropna=dropna, npartitions=2)["x"].sum().compute()
        wanted = {"c": 8, "b": 4} | ({} if dropna else {np.nan: 7})
        assert {each if isinstance(each, str) else np.nan: n for each, n in found.items()} == wanted


@pytest.mark.parametrize("first", ["meta", "empty", "nulls"])
@pytest.mark.parametrize("keys", [[[5, 7], [7, 8]], [[0.5], [1, 2]], ["ab", "bc"]], ids=str)
def test_transforms_by_categories_of_any_dtype(threads, keys, first):
    pieces = [piece([*each, *each[:1]], each, 10 * n) for n, each in enumerate(keys)]
    meta = clear_known_categories(pieces[0].iloc[:0], cols=["k"])
    null = piece([None], pd.Index([], dtype="float64"), 50)
    pieces.insert(0, {"meta": meta, "empty": null.iloc[:0], "nulls": null}[first])
    found = dgpuhash.groupby(lazy_of(pieces, meta), "k")["x"].transform("sum").compute()
    whole = pd.concat([each.astype({"k": object}) for each in pieces if len(each)])
    wanted = whole.groupby("k")["x"].transform("sum")
    assert found.astype("float64").dropna().to_dict() == wanted.dropna().to_dict()
    assert len(found) == len(wanted)


def test_groups_that_stand(threads):
    pieces = [piece("aab", "ab"), piece("cbc", "cb", 3)]
    with DistributedGroupBy.build(lazy_of(pieces), "k", s=("x", "sum")) as state:
        assert state.result().compute()["s"].to_dict() == {"a": 1, "b": 6, "c": 8}
        state.update(piece("zb", "zb", 6))
        state.retract(piece("b", "cb", 4))
        assert state.result().compute()["s"].to_dict() == {"a": 1, "b": 9, "c": 8, "z": 6}
    named = {"first": ("k", "first"), "last": ("k", "last")}
    with DistributedGroupBy.build(lazy_of(pieces), "g", **named) as state:
        found = state.result().compute().sort_index().astype(object).to_numpy().tolist()
        assert found == [["a", "c"], ["a", "b"]]


def test_ordered_categories_keep_their_order(threads, way):
    pieces = [piece("abc", "cba", ordered=True), piece("ab", "ba", 3, ordered=True)]
    frame = lazy_of(pieces)
    frame = frame.persist() if way == "persisted" else frame
    unknown = frame.assign(k=frame["k"].cat.as_unknown())
    for each in (frame, unknown):
        found = dgpuhash.groupby(each, "g")["k"].agg(["min", "max"]).compute().sort_index()
        assert found.astype(object).to_numpy().tolist() == [["c", "a"], ["b", "b"]]
        found = dgpuhash.groupby(each, "k", npartitions=1)["x"].sum().compute()
        assert list(found.items()) == [("c", 2), ("b", 5), ("a", 3)]


def test_orders_that_contradict(threads, way):
    pieces = [piece("abc", "cba", ordered=True), piece("ab", "ab", 3, ordered=True)]
    frame = lazy_of(pieces)
    frame = frame.persist() if way == "persisted" else frame
    for each in (frame, frame.assign(k=frame["k"].cat.as_unknown())):
        for by, column in (("k", "x"), ("g", "k")):
            with pytest.raises(ColumnError, match=r"order.*\.cat\.as_unordered\(\)"):
                dgpuhash.groupby(each, by)[column].first().compute()
    remedied = frame.assign(k=frame["k"].cat.as_unordered())
    found = dgpuhash.groupby(remedied, "k")["x"].sum().compute()
    assert found.to_dict() == {"a": 3, "b": 5, "c": 2}


def test_an_ordered_category_that_is_not_known(threads):
    frame = lazy_of([piece("ab", "ba", ordered=True), piece("abc", "cba", 2, ordered=True)])
    with pytest.raises(ColumnError, match=r"the category 'c' in .*\.cat\.as_unknown\(\)"):
        dgpuhash.groupby(frame, "k")["x"].sum().compute()
    remedied = frame.assign(k=frame["k"].cat.as_unknown())
    found = dgpuhash.groupby(remedied, "k", npartitions=1)["x"].sum().compute()
    assert list(found.items()) == [("c", 4), ("b", 4), ("a", 2)]


@pytest.mark.parametrize("others", [["a"], [2.5, 1.0]], ids=str)
def test_categories_of_another_type(threads, others):
    frame = lazy_of([piece([1, 1], [1]), piece(others, others, 2)])
    with pytest.raises(ColumnError, match=r"meta are int64; .*\.cat\.as_unknown\(\)"):
        dgpuhash.groupby(frame, "k")["x"].sum().compute()
    remedied = frame.assign(k=frame["k"].cat.as_unknown())
    found = dgpuhash.groupby(remedied, "k")["x"].sum().compute()
    assert found.to_dict() == ({1: 1, "a": 2} if others == ["a"] else {1.0: 4, 2.5: 2})
    # Of another type, but the same values.
    frame = lazy_of([piece([1, 1], [1]), piece([2.0, 1.0], [2.0, 1.0], 2)])
    assert dgpuhash.groupby(frame, "k")["x"].sum().compute().to_dict() == {1: 4, 2: 2}


def test_one_order_of_all():
    def of(*texts: str) -> str:
        return "".join(in_one_order([pd.Index(list(text)) for text in texts], "k"))

    assert of("bc", "ab") == of("abc", "ac") == of("abc") == "abc"
    for texts in (["ab", "ba"], ["ab", "cd"], ["ab", "ac"], ["abc", "ca"]):
        with pytest.raises(ColumnError, match="differs between partitions or is unknown"):
            of(*texts)
