"""Rows of parts in place of states, for aggregates such as medians."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import chain, pairwise
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.groupby.aggregates.values import key_order
from dgpuhash.frames.groupby.grouping_keys import GroupingKey, levels_of
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.partial.kinds import place_of
from dgpuhash.frames.groupby.partial.verbs import AGGREGATING
from dgpuhash.frames.merge.index import index_of

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.partial.plan import GroupPlan

# Rows of a sample by which parts with few groups are known, and such parts as have no sample.
_SAMPLE, _FEW_ROWS = 2**12, 2**14
# Of this part of it half as many keys or fewer tell that groups are few, without a hash.
_FIRST = 8
# Of so many keys one is counted, with all of its rows.
_OF_KEYS = 2**5
# 2**64 by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
_ODD = np.uint64(0x9E3779B97F4A7C15)
# The share of different keys in a sample below which there are few.
_MOSTLY = 0.8
# Keys that a sample has twice, for each that it has where every key has two rows; and by chance.
_TWICE, _BY_CHANCE = 2, 8


def rows_of(plan: GroupPlan, part: Any, keys: list[GroupingKey], number: int) -> Any:
    """Return the rows of a part that are in a group; see `GroupPlan.reduce`."""
    frames = frames_of(plan.source)
    xp: Any = frames.xp
    made = {label: key.values for label, key in zip(plan.key_labels, keys, strict=True)}
    made["at"] = place_of(number, xp.arange(len(part)))
    made |= {f"c{place}": plan.column_of(part, place) for place in plan.places}
    for level, labels in enumerate(plan.levels_of(part.index) if plan.labels else ()):
        made[f"i{level}"] = labels
    found = plan.frame_of(made.values(), pd.Index(list(made)), frames.range_index(len(part)))
    if plan.dropna and plan.observed:
        nulls = [mask for key in keys if (mask := plan.nulls_of(key.values)) is not None]
        if nulls:
            found = frames.take(found, xp.flatnonzero(~reduce(or_, nulls)))
    return distinct_rows(plan, found) if plan.distinct else found


def mostly_distinct_rows(
    plan: GroupPlan, part: Any, number: int
) -> tuple[pd.DataFrame, Any] | None:  # fmt: skip
    """Return a part's rows with key codes if most keys are distinct, else None.

    That more than half do is told by samples, None otherwise; the same part has the same answer.
    `plan` is one of rows.
    """
    if len(part) < _FEW_ROWS:
        return None
    places = np.random.default_rng(number).integers(0, len(part), _SAMPLE)
    if not plan.on_gpu and all(key.values.dtype != object for key in plan.keys):
        keys = (key.values.tolist() for key in plan.keys_of(part.take(places[::_FIRST])))
        if 2 * len(set(zip(*keys, strict=True))) <= _SAMPLE // _FIRST:
            return None
    sampled = plan.codes_of_part(part.take(places), number)
    if not _share(sampled) > _MOSTLY or _occur_again(sampled, len(part)):
        return None
    rows = plan.reduce(part, number)
    codes = plan.encoded(rows).codes
    # A sample of rows has few of each key: this one has all rows of some keys.
    if not _share(codes[_among_few_keys(codes)]) > 1 / 2:
        return None
    return rows, codes


def _among_few_keys(codes: Any) -> Any:
    """Return a mask of the rows with about one in `_OF_KEYS` keys.

    The first bits of the product with an odd number are mixed well enough for a sample, and take a
    tenth of the time of a hash.
    """
    return codes.astype(np.uint64, copy=False) * _ODD < np.uint64(2**64 // _OF_KEYS)


def _share(codes: Any) -> float:
    """Return the number of distinct codes divided by all codes."""
    xp: Any = backend.get(None, codes).xp
    return len(xp.unique(codes)) / max(1, len(codes))


def _occur_again(codes: Any, rows: int) -> bool:
    """Return whether more keys repeat in a sample than if each key had two rows.

    Of a large part that is known long before half of the sample is of such keys. A key counts
    once: a few that many rows have tell nothing of the others.
    """
    xp: Any = backend.get(None, codes).xp
    _, counts = xp.unique(codes, return_counts=True)
    return int((counts > 1).sum()) > _TWICE * len(codes) ** 2 / rows + _BY_CHANCE


def parts_of_rows(plan: GroupPlan, rows: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield each part's rows with its number, with keys as columns."""
    frames, rows = frames_of(rows), rows_in_order(rows)
    xp: Any = frames.xp
    numbers: Any = frames.array(rows["at"]) >> 32
    starts = xp.flatnonzero(xp.diff(numbers, prepend=-1))
    edges = [*starts.tolist(), len(rows)]
    for (start, end), number in zip(pairwise(edges), numbers[starts].tolist(), strict=True):
        yield int(number), frame_of_rows(plan, rows.iloc[start:end].reset_index(drop=True))


def distinct_rows(plan: GroupPlan, rows: Any) -> Any:
    """Return distinct rows, the first of each."""
    rows = rows_in_order(rows)
    heads = plan.first_rows(rows.drop(columns="at"))
    return rows if len(heads) == len(rows) else frames_of(rows).take(rows, heads)


def rows_in_order(rows: Any) -> Any:
    """Return rows in the order of parts and rows."""
    frames = frames_of(rows)
    place: Any = frames.array(rows["at"])
    if not bool((place[1:] < place[:-1]).any()):
        return rows
    return frames.take(rows, frames.row_order(place))


def result_of(plan: GroupPlan, rows: pd.DataFrame) -> Any:
    """Return the result of rows from parts in any order."""
    rows = rows_in_order(rows) if plan.in_order else rows
    return plan.answer(_groups_of_rows(plan, rows)[0])


def in_pieces(plan: GroupPlan) -> bool:
    """Return whether results of subsets of groups can be concatenated; see `result_of_pieces`."""
    return plan.verb.name in AGGREGATING and plan.observed and not plan.on_gpu


def result_of_pieces(
    plan: GroupPlan,
    pieces: Iterable[pd.DataFrame],
    told: Iterable[tuple[Any, pd.DataFrame]] = (),
    require: Callable[[int], None] = lambda nbytes: None,
) -> Any:
    """Return the result of rows or merged states, from subsets with whole groups.

    Only one piece is in memory at a time, with the results of those before. All groups have equally
    many rows of the result. `told` are results of other groups, with their keys. `require` is
    called with the bytes that putting the results together takes besides, and raises where those
    are not there.
    """
    results: list[Any] = []
    parts: list[pd.DataFrame] = []
    of_piece = partial(_result_of_rows if plan.needs_rows else _fold, plan)
    for result, heads in chain(told, map(of_piece, pieces)):
        if results and not len(results[0]):
            results.clear()
            parts.clear()
        if len(result) or not results:
            results.append(result)
            parts.append(heads)
    if len(results) == 1:
        return results[0]
    nbytes = sum(int(np.sum(each.memory_usage(deep=True))) for each in [*results, *parts])
    require(nbytes)
    heads = pd.concat(parts, ignore_index=True)
    parts.clear()
    if plan.sort:
        order = key_order([as_series(heads[label]) for label in plan.key_labels], in_runs=True)
    else:
        order = np.argsort(heads["at"].to_numpy(), kind="stable")
    count = len(heads)
    del heads
    indexes = [each.index for each in results]
    whole = pd.concat([each.reset_index(drop=True) for each in results], ignore_index=True)
    # Their memory is needed for the rows in order.
    results.clear()
    del result
    times = len(whole) // count
    if times > 1:
        order = (order[:, None] * times + np.arange(times)).ravel()
    whole = whole.take(order).reset_index(drop=True)
    if plan.as_index:
        columns = [
            pd.concat([as_series(each) for each in level], ignore_index=True).take(order)
            for level in zip(*map(levels_of, indexes), strict=True)
        ]
        whole.index = index_of(columns, list(indexes[0].names))
    return whole


def _fold(plan: GroupPlan, states: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """Return the result of merged states, and its groups, as `_result_of_rows` does."""
    groups = plan.groups_of(states)
    return plan.result_of(states, groups), plan.heads_of(groups, states["at"], groups.states)


def _result_of_rows(plan: GroupPlan, rows: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """Return the result of rows, and the groups' keys with their first row's position."""
    rows = rows_in_order(rows) if plan.in_order else rows
    grouped, groups = _groups_of_rows(plan, rows)
    return plan.answer(grouped), plan.heads_of(groups, rows["at"], groups.ends("first"))


def _groups_of_rows(plan: GroupPlan, rows: pd.DataFrame) -> tuple[Any, Groups]:
    """Return a groupby of rows, in the order of the parts if that matters."""
    frame = frame_of_rows(plan, rows)
    groups = plan.groups(
        plan.keys_of_states(rows), len(rows), sort=plan.sort, dropna=plan.dropna,
        observed=plan.observed,
    )  # fmt: skip
    return plan.grouped_rows(frame, groups), groups


def frame_of_rows(plan: GroupPlan, rows: Any) -> Any:
    """Return rows as a frame like the source, with the columns to read."""
    labels: Any = frames_of(rows).range_index(len(rows))
    if plan.labels:
        names = list(plan.source.index.names)
        levels = [as_series(rows[f"i{level}"]).rename(None) for level in range(len(names))]
        labels = index_of(levels, names)
    columns = [rows[f"c{place}"] for place in plan.places]
    if plan.source.ndim == 1:
        made = plan.series_of(columns[0], labels)
    else:
        made = plan.frame_of(columns, plan.source.columns.take(plan.places), labels)
    return made if plan.rows_as is None else plan.rows_as(made)
