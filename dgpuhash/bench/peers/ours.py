"""This package and NumPy's sorting functions, as peers."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

import dgpuhash
from dgpuhash.bench.peers.base import OURS, Grouping, Join, Library, Task, Work, same_words
from dgpuhash.bench.peers.pandas import LARGEST, Pandas, by_groups
from dgpuhash.frames.merge.distinct import distinct_rows


class Ours(Pandas):
    """``dgpuhash.merge`` of two frames, ``dgpuhash.groupby`` of one, and functions of columns."""

    package = OURS
    ours = True

    def __init__(self) -> None:
        self.name = OURS

    def join(self, join: Join, left: Any, right: Any) -> Work:
        how: Any = self.hows[join.how]
        return lambda: dgpuhash.merge(left, right, how=how, on=join.on)

    def group(self, grouping: Grouping, frame: Any) -> Work:
        return group_ours(grouping, frame)

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        hows: tuple[Any, ...] = ("inner", "left", "semi")
        return {
            how: Task(partial(dgpuhash.join_indices, left, right, how), lambda rows: rows)
            for how in hows
        }

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        return {
            "isin": Task(lambda: dgpuhash.isin(keys, others), lambda made: (made,)),
            "factorize": Task(partial(dgpuhash.factorize, keys), lambda made: made),
            "value_counts": Task(partial(dgpuhash.value_counts, keys), lambda made: made),
            "unique": Task(partial(dgpuhash.unique, keys), lambda made: (made,)),
        }

    def aggregated(self, keys: Any, values: Any, *hows: Any) -> Task:
        return Task(
            partial(dgpuhash.group_reduce, keys, values, list(hows)),
            lambda made: (made[0], *(made[1][how] for how in hows)),
        )


def group_ours(grouping: Grouping, frame: Any) -> Work:
    """Return a groupby of a frame of pandas, cuDF or Dask by this package."""
    key, column = grouping.by[0], grouping.columns[-1]

    def groupby(by: Any, **options: Any) -> Any:
        return dgpuhash.groupby(frame, by, **options)

    match grouping.how:
        case "nlargest":
            return lambda: groupby(key, sort=False)[column].nlargest(LARGEST)
        case "drop_duplicates":
            # cuDF's frames have no accessor.
            if not hasattr(frame, "dgpuhash"):
                return lambda: distinct_rows(frame, range(len(frame.columns)), "first")
            return frame.dgpuhash.drop_duplicates  # type: ignore[no-any-return]
        case "value_counts":
            return lambda: groupby(key, sort=False).size().sort_values(ascending=False)
    return by_groups(grouping, groupby)


class Standing(Ours):
    """Merges with a `FrameIndex` of the right side, built outside the time."""

    hows: ClassVar[dict[str, str]] = same_words("inner", "left", "semi", "anti")

    def __init__(self) -> None:
        self.name = f"{OURS} standing"

    def join(self, join: Join, left: Any, right: Any) -> Work:
        index, how = dgpuhash.FrameIndex.build(right, on=join.on), self.hows[join.how]
        return lambda: index.merge(left, how=how)  # type: ignore[arg-type]


class NumPy(Library):
    """NumPy on one core, by sorting."""

    package = "numpy"
    hows: ClassVar[dict[str, str]] = {}

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        return {
            "isin": Task(lambda: np.isin(keys, others), lambda made: (made,)),
            "factorize": Task(
                lambda: np.unique(keys, return_inverse=True), lambda made: made[::-1]
            ),
            "unique": Task(lambda: np.unique(keys), lambda made: (made,)),
        }
