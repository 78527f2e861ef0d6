"""Aligned join of two frames by indexes with known divisions, partition by partition."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import (
    Alias,
    Expr,
    LoweredExpr,
    PartitionsFiltered,
    Task,
    TaskRef,
)
from dgpuhash.distributed.cluster.host import current_worker
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.distributed.merge.broadcast import MergeTaskExpr, check_size
from dgpuhash.distributed.merge.sides import SidesExpr, not_unique, raise_if_repeated
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.tables.memory_errors import memory_errors_of


class AlignedMergeExpr(SidesExpr, LoweredExpr):
    """Join of two frames by their indexes, with the union of both divisions.

    No row is sent by its hash: a partition of the result takes what lies between two divisions,
    from the partitions that have it. `validate` says which sides are to have unique keys.
    """

    _parameters = [  # noqa: RUF012
        "left", "right", "arguments", "strategy", "validate", "_partitions",
    ]  # fmt: skip
    _defaults = {"validate": (False, False), "_partitions": None}  # noqa: RUF012

    @functools.cached_property
    def _targets(self) -> tuple[Any, ...]:
        """The union of both sides' divisions."""
        both = sorted({*self.left.divisions, *self.right.divisions})
        if self.left.npartitions == self.right.npartitions == 1 or len(both) == 1:
            return both[0], both[-1]
        return tuple(both)

    def _divisions(self) -> tuple[Any, ...]:
        keys = self.plan.keys
        labelled = self.plan.is_filter or (keys.left_index and keys.right_index)
        if labelled or any(pair.of_levels for pair in keys.pairs):
            return self._targets
        # The labels are of one side, and there is none where it lacks a row.
        return (None,) * len(self._targets)

    @property
    def _npartitions(self) -> int:
        """The requested number of partitions, under Dask's name for it."""
        return int(self.npartitions)

    def _simplify_down(self) -> Expr | None:
        return self._narrow()

    def _lower(self) -> Expr:
        chosen = self.operand("_partitions")
        chosen = None if chosen is None else tuple(chosen)
        sides = (BetweenExpr(side, self._targets, chosen) for side in (self.left, self.right))
        return PairExpr(*sides, self.plan, not_unique(self.validate), self.divisions)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a partition between two divisions.

    Attributes
    ----------
    target : int
        The first of the two divisions, by its number.
    number : int
        The partition.
    low, high : label
    closed : bool
        Whether `high` is one of the labels.
    whole : bool
        Whether all rows of the partition do.
    nulls : bool or None
        Whether rows without a label are taken, too; None where the partition may have none.
    """

    target: int
    number: int
    low: Any
    high: Any
    closed: bool
    whole: bool
    nulls: bool | None


class BetweenExpr(PartitionsFiltered, Expr):
    """Rows of a frame between each pair of neighbouring divisions in `targets`.

    Rows whose label is null are in the last partition, where Dask puts them.
    """

    _parameters = ["frame", "targets", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.targets)

    def _lower(self) -> None:
        return None

    def is_last(self, place: int) -> bool:
        """Return whether a chosen partition is the last one of all."""
        return bool(self._partitions[place] == len(self.targets) - 2)

    def _layer(self) -> dict[Any, Any]:
        parts: dict[int, list[Span]] = {}
        nullable = self._meta.index.dtype.kind not in "iu"
        for part in _parts(self.frame.divisions, self.targets, nullable=nullable):
            parts.setdefault(part.target, []).append(part)
        graph: dict[Any, Any] = {}
        for place, target in enumerate(self._partitions):
            key, refs = (self._name, place), []
            for part in parts.get(target, []):
                found = TaskRef((self.frame._name, part.number))
                if not part.whole:
                    piece = (f"dgpuhash-between-{self.deterministic_token}", target, part.number)
                    graph[piece] = Task(piece, rows_between, found, part)
                    found = TaskRef(piece)
                refs.append(found)
            if len(refs) == 1:
                graph[key] = Alias(key, refs[0])
            else:
                graph[key] = Task(key, rows_of, self._meta, *refs)
        return graph


def _parts(divisions: Sequence[Any], targets: Sequence[Any], *, nullable: bool) -> Iterator[Span]:
    """Yield the parts of partitions between two of the targets."""
    last, end = len(divisions) - 2, len(targets) - 2
    for number, (low, high) in enumerate(pairwise(divisions)):
        closed = number == last or low == high
        target, placed = max(0, bisect_left(targets, low) - 1), not nullable
        while target <= end and targets[target] <= high:
            start, stop, shut = targets[target], targets[target + 1], target == end
            least, most = max(low, start), min(high, stop)
            if least < most or (
                least == most and (most < high or closed) and (most < stop or shut)
            ):
                whole = start <= low and (high < stop or (high == stop and (shut or not closed)))
                # Rows without a label are in the last partition.
                nulls = None if number < last or not nullable else shut
                whole = whole and nulls is not False
                placed = placed or shut
                yield Span(target, number, start, stop, shut, whole, nulls)
            target += 1
        if number == last and not placed:
            yield Span(end, number, targets[-1], targets[-1], False, False, True)


def rows_between(frame: Any, part: Span) -> Any:
    """Return the rows of a partition that are in a part of it.

    Raises
    ------
    UnsupportedError
        When labels are null in a partition that is not the last one.
    """
    with raise_without_traceback():
        index = frame.index
        null = index.isna()
        if part.nulls is None:
            _check_labels(index)
        kept = null & bool(part.nulls)
        labels = index[~null]
        below = labels <= part.high if part.closed else labels < part.high
        kept[~null] = np.asarray(labels >= part.low, bool) & np.asarray(below, bool)
        return frame[kept]


def _check_labels(index: pd.Index) -> None:
    if index.hasnans:
        raise UnsupportedError(
            "the index has null labels before its last partition, so its divisions are wrong; "
            "merge frame.clear_divisions() instead, which joins by hash"
        )


def rows_of(meta: Any, *parts: Any) -> Any:
    """Return the rows of parts, concatenated."""
    return pd.concat(parts) if parts else meta


class PairExpr(MergeTaskExpr):
    """Join of aligned partitions in pairs, or of two single-partition sides in one task.

    `texts` tell what is wrong when keys of a side are not unique, and are empty where they may.
    `limits` are the divisions of the result.
    """

    _parameters = ["left", "right", "plan", "texts", "limits"]  # noqa: RUF012

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.limits)

    def _task(self, name: Any, index: int) -> Task:
        left, right = self.left, self.right
        sides = (TaskRef((side._name, index)) for side in (left, right))
        is_last = left.is_last(index) if isinstance(left, BetweenExpr) else None
        return Task(name, merge_pair, *sides, self._pickled, self.texts, is_last)


def merge_pair(
    left: Any, right: Any, plan: CachedPickle[PartitionPlan], texts: tuple[str, str],
    is_last: bool | None,
) -> Any:  # fmt: skip
    """Return the merge of two partitions without rows of the same keys elsewhere.

    Of aligned sides `is_last` tells whether they are the last ones; None: they are the only ones.

    Raises
    ------
    MergeError
        When keys are not unique where they should.
    UnsupportedError
        When labels are null, but in the last partition.
    OutOfMemoryError
        When the result of the only partitions has more rows than fit the memory.
    """
    with raise_without_traceback(), memory_errors_of("merge"):
        opened, check = plan.opened(), None
        if is_last is None:
            check = functools.partial(check_size, current_worker(), frame=left, stored=right)
        elif not is_last:
            for side in (left, right):
                _check_labels(side.index)
        raise_if_repeated(opened, left, right, texts)
        return opened.merged(left, right, check)
