"""Groups that follow rows beside pandas' groupby of the rows that are there."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from frames import paper_groups
from interrupting import Interrupted, events, raise_at
from pandas.testing import assert_frame_equal

from dgpuhash import FrameGroupBy
from dgpuhash.errors import ColumnError, OutOfMemoryError, SpecError, UnsupportedError
from dgpuhash.frames.keyed_rows import KeyedRows

NAMED: dict[str, Any] = {
    "total": ("v", "sum"), "n": ("v", "count"), "mean": ("w", "mean"), "off": ("w", "var"),
}  # fmt: skip


def rows(seed: int, count: int = 60, keys: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    texts = pd.Series(rng.choice(["a", "b"], count), dtype="str")
    numbers = {"v": rng.integers(-9, 99, count), "w": rng.normal(5, 2, count)}
    return pd.DataFrame({"k": rng.integers(0, keys, count), "s": texts, **numbers})


def check(state: FrameGroupBy, there: pd.DataFrame) -> None:
    expected = there.groupby(["k", "s"]).agg(**NAMED)
    assert_frame_equal(state.result(), expected, rtol=1e-9, atol=1e-9)
    assert len(state) == len(expected)


def test_rows_that_come_and_go() -> None:
    batches = [rows(seed) for seed in range(6)]
    state = FrameGroupBy.build(batches[0], ["k", "s"], NAMED)
    assert (state.by, state.epoch) == (["k", "s"], 1)
    for batch in batches[1:]:
        groups = len(batch[["k", "s"]].drop_duplicates())
        assert state.update(batch) == groups
    check(state, pd.concat(batches))
    for batch in batches[:4]:
        state.retract(batch)
    check(state, pd.concat(batches[4:]))
    assert state.epoch == 10
    assert state.nbytes > 0
    assert repr(state) == f"<FrameGroupBy of {len(state)} groups by ['k', 's'], epoch 10>"
    state.retract(pd.concat(batches[4:]))
    assert len(state) == 0
    state.update(batches[0])
    check(state, batches[0])


def test_groups_that_changed() -> None:
    state = FrameGroupBy.build(rows(1)[:0], "k", NAMED)
    first = rows(1)[:8]
    state.update(first)
    before = state.epoch
    state.update(first[:1])
    changed = state.changed(since=before)
    assert changed.index.tolist() == first["k"][:1].tolist()
    for wrong in (-1, 9, True, "1"):
        with pytest.raises(SpecError, match="give an epoch, from 0 to 3"):
            state.changed(since=wrong)  # type: ignore[arg-type]


def test_lookups_are_of_results() -> None:
    frame = rows(2)
    state = FrameGroupBy.build(frame, "k", NAMED)
    state.update(frame)
    expected = pd.concat([frame, frame]).groupby("k").agg(**NAMED)
    found = state.lookup([3, 99, 5])
    assert found["k"].tolist() == [3, 99, 5]
    assert found["total"].tolist()[::2] == expected["total"].loc[[3, 5]].tolist()
    assert found.loc[1, "total":].isna().all()  # type: ignore[misc]
    assert state.lookup([99, 98])["n"].isna().all()
    asked = pd.DataFrame({"k": frame["k"].to_numpy()}, index=frame.index[::-1])
    assert state.lookup(asked)["n"].tolist() == expected["n"].loc[frame["k"]].tolist()


SPREADS: dict[str, Any] = {how: ("x", how) for how in ("var", "std", "sem")}


@pytest.mark.parametrize("far", [50.0, 1e4, 1e9, 1e12])
def test_deviations_bound_what_retracted_rows_took(far: float) -> None:
    near = pd.DataFrame({"k": [1, 1, 1, 2], "x": [1.0, 2.0, 4.0, 3.0]})
    state = FrameGroupBy.build(near, "k", SPREADS)
    more = pd.DataFrame({"k": [1], "x": [far]})
    state.update(more)
    state.retract(more)
    if far < 1e6:
        expected = near.groupby("k").agg(**SPREADS)
        assert_frame_equal(state.result(), expected, rtol=1e-6)
    else:
        with pytest.raises(UnsupportedError, match="of 1 group, as 1, is not known"):
            state.result()


@pytest.mark.parametrize("how", SPREADS)
@pytest.mark.parametrize("scale", [1e-90, 1e85, 1e130])
def test_digits_lost_by_numbers_of_any_size(how: str, scale: float) -> None:
    near = pd.DataFrame({"k": [1, 1, 1], "x": [scale, 2 * scale, 4 * scale]})
    far = pd.DataFrame({"k": [1], "x": [scale * 1e9]})
    state = FrameGroupBy.build(near, "k", x=("x", how))
    state.update(far)
    state.retract(far)
    with pytest.raises(UnsupportedError, match="of 1 group, as 1, is not known"):
        state.result()


@pytest.mark.parametrize("dtype", ["int64", "uint8", "Int32", "int64[pyarrow]"])
def test_whole_numbers_lose_nothing(dtype: str) -> None:
    frame = pd.DataFrame({"k": [1, 1, 1, 2, 2, 2, 2, 3], "x": [5, 5, 7, 1, 2, 4, 200, 9]})
    frame = frame.astype({"x": dtype})
    gone = frame.iloc[[2, 6]]
    state = FrameGroupBy.build(frame, "k", SPREADS)
    state.retract(gone)
    exact = frame.drop(index=gone.index).groupby("k").agg(**SPREADS)
    assert_frame_equal(state.result().astype(float), exact.astype(float), rtol=1e-12)


def test_equal_values_lose_nothing() -> None:
    frame = pd.DataFrame({"k": [1] * 9, "x": [0.1] * 9})
    state = FrameGroupBy.build(frame, "k", x=("x", "var"))
    state.retract(frame.iloc[:5])
    assert state.result()["x"].tolist() == [0.0]


def test_refused_rows_change_nothing() -> None:
    frame = rows(3)
    state = FrameGroupBy.build(frame, ["k", "s"], NAMED)
    with pytest.raises(ColumnError, match="more rows, or values, of the group"):
        state.retract(pd.concat([frame, frame]))
    with pytest.raises(ColumnError, match="column 'v' is"):
        state.update(frame.astype({"v": "str"}))
    most = FrameGroupBy.build(frame, "k", most=("v", "max"))
    with pytest.raises(UnsupportedError, match="'most'"):
        most.retract(frame)
    check(state, frame)
    assert state.epoch == 1


@pytest.mark.parametrize("number", [12, pytest.param(300, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("verb", ["update", "retract"])
def test_an_exception_at_any_line(verb: str, number: int) -> None:
    base, batch = rows(4), rows(5, keys=20)
    there = pd.concat([base, batch])
    after = there if verb == "update" else base
    first = base if verb == "update" else there

    def fresh() -> FrameGroupBy:
        return FrameGroupBy.build(first, ["k", "s"], NAMED)

    seen = set()
    for event in events("line", lambda: getattr(fresh(), verb)(batch), number):
        state = fresh()
        raise_at(event, "line", functools.partial(getattr(state, verb), batch))
        whole = len(state.result()) and state.epoch == 2
        seen.add(whole)
        check(state, after if whole else first)
        # And it goes on.
        state.update(batch)
        check(state, pd.concat([after if whole else first, batch]))
    assert len(seen) == 2


def test_no_memory_for_new_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    base, batch = rows(6), rows(7, keys=40)
    state = FrameGroupBy.build(base, ["k", "s"], NAMED)

    def full(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(OutOfMemoryError):
        patch.setattr(KeyedRows, "insert", full)
        state.update(batch)
    check(state, base)
    assert state.epoch == 1


def test_an_interrupted_change_is_finished_by_the_next_verb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, batch = rows(8), rows(9, keys=20)
    state = FrameGroupBy.build(base, ["k", "s"], NAMED)
    insert = KeyedRows.insert

    def interrupted(self: KeyedRows, *given: Any) -> None:
        insert(self, *given)
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(KeyedRows, "insert", interrupted)
        state.update(batch)
    check(state, pd.concat([base, batch]))
    assert state.epoch == 2


def test_simulated_cudf(monkeypatch: pytest.MonkeyPatch) -> None:
    paper_groups.install(monkeypatch)
    frame, batch = paper_groups.DataFrame(rows(10)), paper_groups.DataFrame(rows(11))
    named: dict[str, Any] = {"total": ("v", "sum"), "n": ("w", "count")}
    state = FrameGroupBy.build(frame, "k", named)
    state.update(batch)
    state.retract(frame)
    found, expected = (
        state.result(),
        rows(11).groupby("k").agg(total=("v", "sum"), n=("w", "count")),
    )
    assert type(found).__module__ == "cudf.paper"
    assert found["total"].tolist() == expected["total"].tolist()
    assert type(state.lookup([3])).__module__ == "cudf.paper"


@pytest.mark.gpu
@pytest.mark.cudf
def test_groups_of_cudf() -> None:
    import cudf

    frame, batch = rows(12), rows(13)
    state = FrameGroupBy.build(cudf.from_pandas(frame), ["k", "s"], NAMED)
    state.update(cudf.from_pandas(batch))
    state.retract(cudf.from_pandas(frame))
    expected = batch.groupby(["k", "s"]).agg(**NAMED)
    assert_frame_equal(
        state.result().to_pandas(), expected, check_index_type=False, check_dtype=False, rtol=1e-9
    )
    assert state.lookup(cudf.DataFrame({"k": [3], "s": ["a"]})).shape == (1, 6)
