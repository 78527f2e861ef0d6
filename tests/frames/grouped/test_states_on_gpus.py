"""States of groups that stay on their GPU, beside those of pandas; simulated and real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames import paper_groups

from dgpuhash import FrameGroupBy, backend
from dgpuhash.errors import ColumnError, OutOfMemoryError, UnsupportedError
from dgpuhash.frames.dataframes import dispatch
from dgpuhash.frames.grouped.aggregation import Aggregation, LabelledResults
from dgpuhash.frames.keyed_rows import KeyedRows

REAL = pytest.param("cudf", marks=[pytest.mark.gpu, pytest.mark.cudf])
RETRACTABLE: dict[str, Any] = {
    "rows": ("i", "size"), "n": ("f", "count"), "total": ("f", "sum"), "whole": ("i", "sum"),
    "mean": ("i", "mean"), "off": ("f", "var"), "wide": ("w", "std"),
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "least": ("f", "min"), "most": ("d", "max"), "begun": ("d", "first"), "last": ("i", "last"),
    "truth": ("b", "first"), "all": ("b", "all"), "prod": ("s", "prod"), "early": ("d", "min"),
}  # fmt: skip
BYS: list[Any] = ["k", ["k", "s"], ["d"], ["f"]]


def rows(seed: int, count: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({
        "k": pd.array(rng.integers(0, 12, count), "Int64"),
        "s": pd.array(rng.integers(-3, 3, count), "Int16"),
        "i": pd.array(rng.integers(-9, 99, count), "Int64"),
        "w": pd.array(rng.integers(-(2**40), 2**40, count), "Int64"),
        "f": pd.array(rng.integers(-40, 40, count) / 8, "Float64"),
        "b": pd.array(rng.random(count) < 0.5, "boolean"),
        "d": pd.to_datetime(rng.integers(0, 9, count), unit="D").astype("M8[ns]"),
    })  # fmt: skip
    for label in made:
        made.loc[rng.random(count) < 0.15, label] = None
    return made


@pytest.fixture(params=["paper", REAL])
def library(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that makes frames of a library of those of pandas."""
    dispatch.frames_named.cache_clear()
    if request.param == "paper":
        paper_groups.install(monkeypatch)
        yield paper_groups.DataFrame
    else:
        import cudf

        # By Arrow, for the dtypes of cuDF's own.
        yield lambda frame: cudf.DataFrame.from_arrow(
            pa.Table.from_pandas(frame, preserve_index=False)
        )
    dispatch.frames_named.cache_clear()


def values(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a result with its keys, in the order of all values, NaN as null."""
    flat = frame.reset_index(drop=list(frame.index.names) == [None])
    if hasattr(flat, "to_arrow"):
        table = flat.to_arrow(preserve_index=False)
    else:
        table = pa.Table.from_pandas(flat, preserve_index=False)
    rows = zip(*table.to_pydict().values(), strict=True)
    return sorted((tuple(None if each != each else each for each in row) for row in rows), key=repr)


def dtypes_of(frame: Any) -> list[str]:
    """Return the names of the dtypes; nullable ones are cuDF's plain ones."""
    return [str(dtype).lower().replace("boolean", "bool") for dtype in frame.dtypes]


def assert_alike(ours: Any, theirs: Any, rel: float = 1e-12) -> None:
    assert type(ours).__module__.startswith("cudf")
    left, right = values(ours), values(theirs)
    assert len(left) == len(right)
    for own, other in zip(left, right, strict=True):
        for mine, its in zip(own, other, strict=True):
            if isinstance(mine, float) and isinstance(its, float):
                assert mine == pytest.approx(its, rel=rel, abs=1e-12), (own, other)
            else:
                assert mine == its, (own, other)


@pytest.mark.parametrize("dropna", [True, False])
@pytest.mark.parametrize("by", BYS, ids=str)
@pytest.mark.parametrize("named", [RETRACTABLE, OTHERS], ids=["retractable", "others"])
def test_changes_are_those_of_pandas(library, by, dropna, named):
    batches = [rows(seed) for seed in range(4)]
    ours = FrameGroupBy.build(library(batches[0]), by, named, dropna=dropna)
    theirs = FrameGroupBy.build(batches[0], by, named, dropna=dropna)
    assert ours._index.stats().frames == "cudf"
    for number, batch in enumerate(batches[1:]):
        assert ours.update(library(batch)) == theirs.update(batch)
        assert_alike(ours.changed(number + 1), theirs.changed(number + 1))
    for wanted in (ours.changed(ours.epoch), ours.lookup(library(batches[0][:0]))):
        assert len(wanted) == 0
    found = ours.result()
    assert_alike(found, theirs.result())
    assert dtypes_of(found) == dtypes_of(LabelledResults(ours._groups).meta)
    for exact in {"total", "whole", "n", "rows", "prod", "least"}.intersection(named):
        assert values(found[[exact]]) == values(theirs.result()[[exact]])
    if named is RETRACTABLE:
        assert ours.retract(library(batches[1])) == theirs.retract(batches[1])
        assert_alike(ours.result(), theirs.result(), rel=1e-9)
        assert ours.retract(library(batches[0])) == theirs.retract(batches[0])
        ours.update(library(batches[0]))
        theirs.update(batches[0])
        with pytest.raises(ColumnError, match="than were added"):
            ours.retract(library(pd.concat(batches)))
    assert_alike(ours.result(), theirs.result(), rel=1e-9)
    assert len(ours) == len(theirs)
    # Rows of pandas are reduced on the host, as those of logs were.
    ours.update(batches[2])
    theirs.update(batches[2])
    assert_alike(ours.result(), theirs.result(), rel=1e-9)
    keys = [by] if isinstance(by, str) else by
    asked = batches[0][keys].iloc[:5].reset_index(drop=True)
    assert_alike(ours.lookup(library(asked)), theirs.lookup(asked), rel=1e-9)


def test_saved_states_are_those_of_the_host(library):
    frame = rows(5)
    for named in (RETRACTABLE, OTHERS):
        ours = Aggregation.of(library(frame), ["k", "d"], named, dropna=False, sort=True)
        theirs = Aggregation.of(frame, ["k", "d"], named, dropna=False, sort=True)
        states = ours.reduce(library(frame), 0)
        assert ours.are_on_gpu
        assert type(states).__module__.startswith("cudf")
        saved, expected = ours.to_save(states), theirs.reduce(frame, 0)
        assert type(saved) is pd.DataFrame
        assert list(saved) == list(expected)
        assert saved.dtypes.equals(expected.dtypes)
        assert_alike(states, expected)
        assert_alike(ours.from_save(saved), expected)
        assert ours.saved_results.dtypes.equals(theirs.results.dtypes)
        for each in (states, ours.from_save(expected)):
            assert dtypes_of(each) == dtypes_of(ours.states)


def test_refusals_change_nothing(library):
    frame = pd.DataFrame({"k": [1, 2, 1], "v": [1.5, 2.0, 3.0]})
    state = FrameGroupBy.build(library(frame), "k", total=("v", "sum"))
    assert (state.update(library(frame[:0])), state.retract(library(frame[:0]))) == (0, 0)
    large = library(pd.DataFrame({"k": [1, 2], "v": [1.7e308, 1.0]}))
    state.update(large)
    with pytest.raises(UnsupportedError, match=r"group \{'k': 1\}, or .* exceeds float64"):
        state.update(large)
    endless = library(pd.DataFrame({"k": [2], "v": [np.inf]}))
    state.update(endless)
    with pytest.raises(UnsupportedError, match="infinite values are retracted"):
        state.retract(endless)
    assert values(state.result()) == [(1, 1.7e308), (2, np.inf)]
    apart = library(pd.DataFrame({"k": [1, 1, 1], "v": [1.1, 1e20, 2.2]}))
    state = FrameGroupBy.build(apart, "k", off=("v", "var"))
    state.retract(library(pd.DataFrame({"k": [1], "v": [1e20]})))
    with pytest.raises(UnsupportedError, match="var of 1 group, as 1, is not known"):
        state.result()
    state = FrameGroupBy.build(library(frame[:0]), "k", total=("v", "sum"))
    assert (len(state), len(state.result())) == (0, 0)
    assert values(state.lookup([1])) == [(1, None)]


def test_without_memory_nothing_changes(library, monkeypatch):
    first, batch = rows(6), rows(7)
    state = FrameGroupBy.build(library(first), "k", RETRACTABLE)
    before = values(state.result())

    def no_memory(*_: Any, **__: Any) -> None:
        raise MemoryError("out of 77 bytes")

    more = batch.assign(k=pd.array(range(100, 300), "Int64"))
    with monkeypatch.context() as patch, pytest.raises(OutOfMemoryError):
        patch.setattr(KeyedRows, "insert", no_memory)
        state.update(library(more))
    assert values(state.result()) == before
    assert state.epoch == 1


def test_texts_stay_on_the_host(library):
    frame = rows(8).assign(t=pd.array(["a", "b"] * 100, "str"))
    for by, named in (("t", RETRACTABLE), ("k", {"first": ("t", "first")})):
        state = FrameGroupBy.build(library(frame[[*frame]]), by, named)
        assert state._index.stats().frames == "pandas"
        assert type(state.result()).__module__.startswith("cudf")


@pytest.mark.parametrize("library", [REAL], indirect=True)
def test_no_state_leaves_the_gpu(library, monkeypatch):
    import cudf
    import cupy

    few, device = 64, type(backend.get("cuda"))
    count = 10_000
    frame = cudf.DataFrame({
        "k": cupy.arange(count) // 2, "i": cupy.arange(count), "f": cupy.arange(count) / 7
    })  # fmt: skip
    named = {"whole": ("i", "sum"), "total": ("f", "sum"), "off": ("f", "var")}
    state = FrameGroupBy.build(frame, "k", named)
    with monkeypatch.context() as patch:
        asnumpy = of_few_rows(cupy.asnumpy, few)
        patch.setattr(cupy, "asnumpy", asnumpy)
        for name in ("to_host", "fetch"):
            own = of_few_rows(getattr(device, name), few, place=1)
            patch.setattr(device, name, own)
        for kind in (cudf.DataFrame, cudf.Series, cudf.Index):
            for name in ("to_arrow", "to_pandas", "to_numpy"):
                patch.setattr(kind, name, of_few_rows(getattr(kind, name), few))
        with pytest.raises(AssertionError, match="leave the GPU"):
            state.result().to_pandas()
        state.update(frame)
        state.retract(frame[: count // 2])
    assert len(state) == count // 2


def of_few_rows(method: Any, few: int, place: int = 0) -> Any:
    """Return a function that raises where it moves more than a few rows of an argument."""

    def moving(*args: Any, **kwargs: Any) -> Any:
        rows = getattr(args[place], "size", None)
        count = len(args[place]) if rows is None else int(rows)
        assert count <= few, f"{count} values leave the GPU by {method.__name__}"
        return method(*args, **kwargs)

    return moving
