"""Merges with an index that stands: rows of an index that nothing matches are told, too."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keys.order import sorted_rows
from dgpuhash.frames.matches import with_unmatched
from dgpuhash.frames.merge.agreement import IncomparableError
from dgpuhash.frames.merge.arguments import JoinArguments, Suffixes
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.result import MergePlan
from dgpuhash.frames.merge.rows import RowPairs, sorted_by_key
from dgpuhash.typing import Frame

__all__ = ["StandingPlan", "are_merged", "merge_all_rows"]


class StandingPlan(PartitionPlan):
    """How partitions are merged with the rows of an index, which keeps them as they are."""

    @classmethod
    def to_index(
        cls, left: pd.DataFrame, right: pd.DataFrame, how: str, left_on: Sequence[Hashable],
        right_on: Sequence[Hashable], suffixes: Suffixes,
    ) -> StandingPlan | None:  # fmt: skip
        """Return the plan for samples of the partitions and of the index.

        None for a left merge by keys that pandas does not compare, as objects of nulls alone with
        moments. Raises as `PartitionPlan.of`.
        """
        arguments = JoinArguments(
            how, left_on=list(left_on), right_on=list(right_on), suffixes=suffixes
        )
        try:
            made = cls.of(left, right, arguments, "left")
        except IncomparableError:
            if how != "left":
                raise
            return None
        assert isinstance(made, StandingPlan)
        return made

    @functools.cached_property
    def key_labels(self) -> list[Hashable]:
        """Labels of the index's key columns."""
        return [pair.right_label for pair in self.keys.pairs]

    @functools.cached_property
    def stored_meta(self) -> pd.DataFrame:
        """An empty frame like the index's rows."""
        return self.right.iloc[:0]

    def _stored_label(self, place: int) -> Hashable:
        label: Hashable = self.right.columns[place]
        return label


def are_merged(
    left: Frame, right: Frame, left_on: Sequence[Hashable], right_on: Sequence[Hashable]
) -> bool:  # fmt: skip
    """Return whether pandas compares the keys of two frames as they are."""
    return all(
        left[ours].dtype == right[theirs].dtype
        for ours, theirs in zip(left_on, right_on, strict=True)
    )


def merge_all_rows(
    left: Any, stored: Any, matches: tuple[Any, Any], how: str,
    left_on: Sequence[Hashable], right_on: Sequence[Hashable], suffixes: Suffixes,
) -> Any:  # fmt: skip
    """Return the left, right or outer merge of a frame with the rows of an index, as pandas does.

    Integers of a cuDF side that lacks rows have nulls.

    Parameters
    ----------
    left, stored : DataFrame
    matches : pair of int64 arrays
        Positions of equal keys in `left`, ascending, and in `stored`. Of a left merge, the first
        may be None: each row of `left` has one row of `stored`, or -1 for none.
    how : {"left", "right", "outer"}
    left_on, right_on : sequence of labels
    suffixes : pair of str or None
    """
    arguments = JoinArguments(
        how, left_on=list(left_on), right_on=list(right_on), suffixes=suffixes
    )
    keys = arguments.keys(left, stored)
    plan = MergePlan.of(left, stored, keys, how, suffixes=suffixes, promotes=False)
    asked, found = matches
    xp = frames_of(left).xp
    if how == "left" and asked is None:
        return plan.frame(RowPairs(None, found), plan.index(RowPairs(None, found)))
    asked = xp.arange(len(found)) if asked is None else asked
    if how == "left":
        pairs = RowPairs(*with_unmatched(len(left), asked, found, xp))
    elif how == "right":
        order = sorted_rows([found]) if xp is np else xp.argsort(found, kind="stable")
        theirs, ours = with_unmatched(len(stored), found[order], asked[order], xp)
        pairs = RowPairs(ours, theirs)
    else:
        mine, theirs = with_unmatched(len(left), asked, found, xp)
        mine = xp.arange(len(left)) if mine is None else mine
        there = xp.zeros(len(stored), bool)
        there[found] = True
        others = xp.flatnonzero(~there)
        ours = xp.concatenate([mine, xp.full(len(others), -1)])
        pairs = sorted_by_key(RowPairs(ours, xp.concatenate([theirs, others])), keys)
    return plan.frame(pairs, plan.index(pairs))
