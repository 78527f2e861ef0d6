"""Expressions of merges, as Dask optimizes them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import (
    And,
    Expr,
    Filter,
    Index,
    Partitions,
    PartitionsFiltered,
    Projection,
    determine_column_projection,
    is_filter_pushdown_available,
)
from dask.tokenize import _tokenize_deterministic

from dgpuhash.distributed.merge.steps import BuildExpr, ProbeExpr, StandingExpr, StoredRows
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.partition import PartitionPlan

__all__ = ["MergeExpr", "StandingMergeExpr"]


class TailedExpr(PartitionsFiltered, Expr):
    """Merge whose partitions are those of a frame, and then hash ranges of the stored side.

    Without `probed` there are no partitions but those of `tails`, the hash ranges whose other rows
    are told (None: all of them).
    """

    @property
    @abstractmethod
    def plan(self) -> PartitionPlan:
        """How partitions are merged."""

    @property
    def _asking(self) -> str:
        """The operand whose partitions ask."""
        return "frame"

    @property
    def _tails(self) -> tuple[int, ...]:
        """The hash ranges whose rows without a match are told."""
        if not self.plan.has_tail:
            return ()
        chosen = self.operand("tails")
        return tuple(range(self.ranges)) if chosen is None else tuple(chosen)

    def _divisions(self) -> tuple[Any, ...]:
        asking = self.operand(self._asking)
        if self.plan.keeps_labels and self.operand("probed"):
            # Rows stay where they are.
            return tuple(asking.divisions)
        count = asking.npartitions if self.operand("probed") else 0
        return (None,) * (count + len(self._tails) + 1)

    def _chosen_partitions(self) -> Expr:
        """Return the merge of the partitions that are chosen.

        Now, as Dask counts them: sources may put several of theirs into one later.
        """
        count = self.operand(self._asking).npartitions if self.operand("probed") else 0
        runs = []
        for is_tail, numbers in groupby(self.operand("_partitions"), lambda each: each >= count):
            chosen = list(numbers)
            operands = dict(zip(self._parameters, self.operands, strict=True))
            operands |= {"_partitions": None, "tails": (), "probed": True}
            if is_tail:
                tails = tuple(self._tails[number - count] for number in chosen)
                operands |= {"tails": tails, "probed": False}
            else:
                operands[self._asking] = Partitions(operands[self._asking], chosen)
            runs.append(type(self)(*operands.values()))
        if len(runs) == 1:
            return runs[0]
        together: Expr = dd.concat([new_collection(run) for run in runs]).expr
        return together


class MergeExpr(TailedExpr):
    """Merge of two frames: partitions of one ask for rows of the other.

    `probing` is the side that asks, `ranges` the number of hash ranges of the other, `placement`
    says where its rows are, and `validate` which sides are to have unique keys.
    """

    _parameters = [  # noqa: RUF012
        "left", "right", "arguments", "probing", "ranges", "placement", "seeds", "validate",
        "probed", "tails", "_partitions",
    ]  # fmt: skip
    _defaults = {  # noqa: RUF012
        "validate": (False, False), "probed": True, "tails": None, "_partitions": None,
    }  # fmt: skip

    @functools.cached_property
    def plan(self) -> PartitionPlan:
        """How partitions are merged."""
        left, right = (sample(side._meta) for side in (self.left, self.right))
        return PartitionPlan.of(left, right, self.arguments, self.probing)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.plan.meta

    @property
    def _asking(self) -> str:
        return str(self.probing)

    @property
    def _npartitions(self) -> int:
        """The number of partitions, under Dask's name for what was asked for."""
        return int(self.npartitions)

    @property
    def _sides(self) -> tuple[Expr, Expr]:
        """The side that asks, and the one that is stored."""
        sides = self.left, self.right
        return sides if self.probing == "left" else sides[::-1]

    def _lower(self) -> Expr:
        if self.operand("_partitions") is not None:
            return self._chosen_partitions()
        asking, stored = self._sides
        uniques = self.validate if self.probing == "left" else self.validate[::-1]
        build = BuildExpr(
            stored,
            StoredRows(self.plan),
            self.ranges,
            self.placement,
            self.seeds,
            _not_unique(self, 1, uniques),
        )
        checks = []
        if uniques[0]:
            # The keys of the side that asks are stored as well, to find those of two rows.
            other = "right" if self.probing == "left" else "left"
            keys = PartitionPlan.of(
                self.plan.left, self.plan.right, _keys_only(self.arguments), other
            )
            text = _not_unique(self, 0, uniques)
            how = self.ranges, Placement.DISTRIBUTED, self.seeds, text
            checks.append(BuildExpr(asking, StoredRows(keys), *how))
        shown = self.operand("probed")
        return ProbeExpr(asking, build, self.plan, self.ranges, shown, self._tails, None, *checks)

    def _simplify_down(self) -> Expr | None:
        if self.operand("_partitions") is not None:
            return self._chosen_partitions()
        if not self.plan.is_filter:
            return None
        wanted = self._key_columns("right")
        if set(wanted) == set(self.right.columns) or not _are_unique(self.right.columns):
            return None
        right = self.right[[label for label in self.right.columns if label in wanted]]
        return type(self)(self.left, right, *self.operands[2:])

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if isinstance(parent, Filter):
            return self._filtered_before(parent, dependents)
        if isinstance(parent, Projection | Index):
            return self._projected_before(parent, dependents)
        return None

    def _key_columns(self, side: str) -> set[Hashable]:
        """Return the columns of a side that are keys."""
        frame = self.left if side == "left" else self.right
        labels = {getattr(pair, f"{side}_label") for pair in self.plan.keys.pairs}
        return {label for label in frame.columns if label in labels}

    def _projected_before(self, parent: Expr, dependents: Any) -> Expr | None:
        """Return the merge of the columns that are wanted."""
        sides = self.left, self.right
        if not all(_are_unique(side.columns) for side in sides) or self.arguments.columns:
            return None
        columns: Any = determine_column_projection(self, parent, dependents)
        wanted = set(columns if isinstance(columns, list) else [columns])
        plan = self.plan.plan
        kept: list[set[Hashable]] = [self._key_columns("left"), self._key_columns("right")]
        labels = plan.labels if not self.plan.is_filter else (self.left.columns, [])
        for place, (side, called) in enumerate(zip((plan.left, plan.right), labels, strict=True)):
            for label, name in zip(side.columns, called, strict=False):
                if name in wanted:
                    kept[place].add(label)
                    if label in sides[1 - place].columns and not self.plan.is_filter:
                        # Both sides have it, and its suffix says which one this is.
                        kept[1 - place].add(label)
        narrow = [
            [label for label in side.columns if label in some]
            for side, some in zip(sides, kept, strict=True)
        ]
        if all(len(some) == len(side.columns) for some, side in zip(narrow, sides, strict=True)):
            return None
        made = type(self)(sides[0][narrow[0]], sides[1][narrow[1]], *self.operands[2:])
        if isinstance(parent, Index):
            return type(parent)(made)
        return made[parent.operand("columns")]

    def _filtered_before(self, parent: Any, dependents: Any) -> Expr | None:
        """Return the merge of sides of which filters have kept some rows, and what is left of them.

        All conditions at once: Dask makes one filter of two that follow each other.
        """
        if any(self.validate) or not self.operand("probed") or self.operand("tails") is not None:
            return None
        if not is_filter_pushdown_available(self, parent, dependents):
            return None
        sides, left_over = [self.left, self.right], []
        for condition in _conditions(parent.predicate):
            places = self._sides_of(_columns_used(condition, self))
            for place in places:
                sides[place] = sides[place][
                    condition.substitute(self, (self.left, self.right)[place])
                ]
            if not places:
                left_over.append(condition)
        if sides[0] is self.left and sides[1] is self.right:
            return None
        made = type(self)(*sides, *self.operands[2:])
        rest = [condition.substitute(self, made) for condition in left_over]
        return Filter(made, functools.reduce(And, rest)) if rest else made

    def _sides_of(self, used: set[Hashable] | None) -> list[int]:
        """Return the sides whose rows a condition on some columns may leave out before."""
        arguments, plan = self.arguments, self.plan.plan
        if not used or arguments.how == "cross" or arguments.how.endswith("_anti"):
            return []
        joined, places = arguments.joined, []
        labels = (self.left.columns, ()) if self.plan.is_filter else plan.labels
        shared = set(self.plan.keys.dropped)
        for place, (side, allowed) in enumerate(
            ((plan.left, {"inner", "left"}), (plan.right, {"inner", "right"}))
        ):
            called = zip(side.columns, labels[place], strict=False)
            same = {label for label, name in called if label == name}
            # A key of one name is the left side's, and equal on both where rows match.
            if place == 1 and not self.plan.is_filter:
                same |= shared
            if joined == "right" and place == 0:
                same -= shared
            if used <= same and joined in allowed:
                places.append(place)
        return places


def _conditions(predicate: Expr) -> list[Expr]:
    """Return the conditions that are all to hold."""
    if isinstance(predicate, And):
        return [*_conditions(predicate.left), *_conditions(predicate.right)]
    return [predicate]


def _keys_only(arguments: JoinArguments) -> JoinArguments:
    return JoinArguments(
        "semi", arguments.on, arguments.left_on, arguments.right_on, arguments.left_index,
        arguments.right_index,
    )  # fmt: skip


def _not_unique(merge: MergeExpr, place: int, uniques: Sequence[bool]) -> str:
    """Return what is wrong when the keys of a side are not unique; empty where they may."""
    if not uniques[place]:
        return ""
    probing_left = merge.probing == "left"
    side = ("left", "right")[place if probing_left else 1 - place]
    many = {(True, True): "one-to-one", (True, False): "one-to-many", (False, True): "many-to-one"}
    told = many[tuple(bool(each) for each in merge.validate)]  # type: ignore[index]
    return f"Merge keys are not unique in {side} dataset; not a {told} merge"


def _are_unique(labels: Any) -> bool:
    return len(set(labels)) == len(labels)


def _columns_used(predicate: Expr, merge: Expr) -> set[Hashable] | None:
    """Return the columns of a merge that a predicate reads, None unless it reads only those."""
    used: set[Hashable] = set()
    stack: list[Any] = [predicate]
    while stack:
        each = stack.pop()
        if each._name == merge._name:
            return None
        if isinstance(each, Projection) and each.frame._name == merge._name:
            used.update(each.columns)
            continue
        parts = each.dependencies()
        if not parts and each.ndim:
            # Another frame, whose rows belong to those of the merge.
            return None
        stack += parts
    return used


class StandingMergeExpr(TailedExpr):
    """Merge of a frame with a standing index, and rows of it that nothing matches.

    `known` is the probe, and `ranges` the number of shards.
    """

    _parameters = [  # noqa: RUF012
        "frame", "known", "ranges", "probed", "tails", "_partitions",
    ]  # fmt: skip
    _defaults = {"probed": True, "tails": None, "_partitions": None}  # noqa: RUF012

    @property
    def plan(self) -> PartitionPlan:
        """How partitions are merged."""
        found: PartitionPlan = self.known.plan
        return found

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    def _simplify_down(self) -> Expr | None:
        return None if self.operand("_partitions") is None else self._chosen_partitions()

    def _lower(self) -> Expr:
        if self.operand("_partitions") is not None:
            return self._chosen_partitions()
        token = _tokenize_deterministic(self.frame._name, self.known)
        return ProbeExpr(
            self.frame, StandingExpr(self.known.descriptor, token), self.plan, self.ranges,
            self.operand("probed"), self._tails, self.known,
        )  # fmt: skip
