"""Find order statistics of heavy keys' groups by radix selection over all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.distributed.groupby.heavy.held import Target
from dgpuhash.frames import frames_of
from dgpuhash.frames.dataframes.order import numbers_of_words
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.result import Known, numbers_dtype, places_asked
from dgpuhash.frames.merge.distinct import numbered

# Bits that a round of counts tells at most, and of all counts together that a worker sends.
MOST_BITS, COUNTS_BITS = 12, 20

# By worker the number of each of its keys, targets and bits: returns their counts by worker.
Count: TypeAlias = Callable[[dict[str, Any], list[Target], int], Sequence[Any]]


@dataclass(frozen=True)
class Found:
    """Heavy keys, and their order statistics for the aggregates.

    Attributes
    ----------
    keys : DataFrame
        As in `places_asked`.
    known : dict
    """

    keys: pd.DataFrame
    known: Known


def found_by_counts(
    plan: GroupPlan, columns: Sequence[int], keys: Mapping[str, pd.DataFrame], count: Count
) -> Found:
    """Return the order statistics that a plan needs, by rounds of histograms.

    All words of a key begin with the same bits. Each round tells how many there are by the next
    bits, and so which of them the word at a place has, until it has no more.

    Parameters
    ----------
    plan : GroupPlan
    columns : sequence of int
        The positions of the columns whose values are asked for.
    keys : mapping
        By worker the keys that it has rows of, some more than once.
    count : callable
    """
    whole = frames_of(plan.states_meta).concat(list(keys.values()))
    codes, heads = numbered(plan.portable(whole))
    ends = np.cumsum([len(each) for each in keys.values()])
    numbers = dict(zip(keys, np.split(codes, ends[:-1]), strict=True))
    united = whole.take(heads)[plan.key_labels].reset_index(drop=True)
    for label in ("n", *(f"{count}{column}" for column in columns for count in ("n", "nan"))):
        united[label] = _fold(np.add, 0, codes, whole[label], len(heads))
    united["at"] = _fold(np.minimum, np.iinfo(np.int64).max, codes, whole["at"], len(heads))

    waiting: dict[tuple[int, int, int], tuple[Target, int]] = {}
    for column, places in places_asked(plan, united).items():
        begun = _begin(column, codes, whole, len(heads))
        waiting |= {(column, key, place): (begun[key], place) for key, place in places}
    while any(target.bits for target, _ in waiting.values()):
        targets = list(dict.fromkeys(target for target, _ in waiting.values() if target.bits))
        bits = max(1, min(MOST_BITS, COUNTS_BITS - len(targets).bit_length()))
        bits = min(bits, max(target.bits for target in targets))
        below = np.cumsum(sum(count(numbers, targets, bits)), axis=1)
        at = {target: place for place, target in enumerate(targets)}
        waiting = {
            key: _next(target, rank, below[at[target]], bits) if target.bits else (target, rank)
            for key, (target, rank) in waiting.items()
        }
    known: dict[int, dict[tuple[int, int], Any]] = {}
    for column in columns:
        own = [key for key in waiting if key[0] == column]
        words = np.array([waiting[key][0].low for key in own], np.uint64)
        values = numbers_of_words(words, numbers_dtype(plan, column))
        known[column] = {key[1:]: value for key, value in zip(own, values, strict=True)}
    return Found(united, known)


def _fold(ufunc: Any, empty: Any, codes: Any, values: Any, size: int) -> Any:
    values = values.to_numpy()
    made = np.full(size, empty, values.dtype)
    ufunc.at(made, codes, values)
    return made


def _begin(column: int, codes: Any, whole: pd.DataFrame, size: int) -> list[Target]:
    """Return for each key the target of all its words."""
    there = np.flatnonzero(whole[f"n{column}"].to_numpy())
    rows, codes = whole.iloc[there], codes[there]
    most = np.iinfo(np.uint64).max
    lows = _fold(np.minimum, most, codes, rows[f"low{column}"], size)
    highs = _fold(np.maximum, 0, codes, rows[f"high{column}"], size)
    made = []
    for key, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        bits = (low ^ high).bit_length()
        made.append(Target(key, column, low >> bits << bits, bits))
    return made


def _next(target: Target, rank: int, below: Any, bits: int) -> tuple[Target, int]:
    """Return the narrower target that contains a rank, and the rank within it."""
    shift = target.bits - min(bits, target.bits)
    place = int(np.searchsorted(below, rank, "right"))
    rank -= int(below[place - 1]) if place else 0
    return replace(target, low=target.low + (place << shift), bits=shift), rank


def of_range(plan: GroupPlan, found: Found, ranges: int) -> dict[int, Found]:
    """Return the results by the hash range of their keys."""
    owners = plan.owners(found.keys, ranges)
    made = {}
    for part in np.unique(owners).tolist():
        rows = np.flatnonzero(owners == part)
        new = {int(row): place for place, row in enumerate(rows)}
        known = {
            column: {(new[row], at): value for (row, at), value in values.items() if row in new}
            for column, values in found.known.items()
        }
        made[part] = Found(found.keys.take(rows).reset_index(drop=True), known)
    return made
