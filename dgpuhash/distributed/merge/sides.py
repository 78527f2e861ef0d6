"""Base of merge expressions: push projections and filters down to both sides."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

from dgpuhash.distributed.cluster.dask_internals import (
    And,
    Expr,
    Filter,
    Index,
    Projection,
    determine_column_projection,
    is_filter_pushdown_available,
)
from dgpuhash.distributed.cluster.expressions import token_of
from dgpuhash.distributed.cluster.serialization import Cache, note_bare, schema_key
from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.distributed.runs.results import ResultExpr
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.keys import MergeError
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.frames.merge.rows import first_repeat


class SidesExpr(ResultExpr):
    """Merge expression with both sides, arguments and a strategy as first operands."""

    @property
    def probing(self) -> str:
        """The probe side."""
        return str(self.strategy.probing)

    @functools.cached_property
    def plan(self) -> PartitionPlan:
        """The merge plan for partitions."""
        return plan_of(self.left._meta, self.right._meta, self.arguments, self.probing)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.plan.meta

    @property
    def _takes_filters(self) -> bool:
        """Whether filters may be pushed down to the sides."""
        return not any(self.validate)

    def _narrow(self) -> Expr | None:
        """Return a semi or anti join that reads only the right side's keys, or None."""
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
        return super()._simplify_up(parent, dependents)

    def _key_columns(self, side: str) -> set[Hashable]:
        """Return the key columns of a side."""
        frame = self.left if side == "left" else self.right
        labels = {getattr(pair, f"{side}_label") for pair in self.plan.keys.pairs}
        return {label for label in frame.columns if label in labels}

    def _projected_before(self, parent: Expr, dependents: Any) -> Expr | None:
        """Return the merge with its sides projected to the needed columns."""
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
        """Return the merge with filters pushed down to its sides, and the remaining filter.

        All conditions at once: Dask makes one filter of two that follow each other.
        """
        if not self._takes_filters or not is_filter_pushdown_available(self, parent, dependents):
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
        """Return the sides to which a condition on some columns can be pushed down."""
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


def plan_of(left: Any, right: Any, arguments: JoinArguments, probing: str = "") -> PartitionPlan:
    """Return the plan for partitions like two empty frames; raises as `PartitionPlan.of`."""
    schemas = schema_key(left), schema_key(right)
    name = None if None in schemas else (token_of(arguments), probing, *schemas)

    def plan() -> PartitionPlan:
        made = PartitionPlan.of(sample(left), sample(right), arguments, probing)
        note_bare(made.meta)
        if name is not None:
            token_of(made, name)
        return made

    # It takes milliseconds to try it, and optimisation asks again and again.
    return _plans.get(name, plan)


_plans = Cache[tuple[str | None, ...], PartitionPlan](most=256)


def not_unique(validate: tuple[bool, bool]) -> tuple[str, str]:
    """Return error texts for each side in case its keys repeat; empty where they may."""
    many = {(True, True): "one-to-one", (True, False): "one-to-many", (False, True): "many-to-one"}
    ours, theirs = (
        f"Merge keys are not unique in {side} dataset; not a {many[validate]} merge" if one else ""
        for side, one in zip(("left", "right"), validate, strict=True)
    )
    return ours, theirs


def raise_if_repeated(plan: PartitionPlan, left: Any, right: Any, texts: tuple[str, str]) -> None:
    """Raise MergeError with a side's text if its keys repeat."""
    if any(texts) and plan.arguments.how != "cross":
        for text, keys in zip(texts, plan.arguments.keys(left, right).sides, strict=True):
            if text and first_repeat(keys) >= 0:
                raise MergeError(text)


def _conditions(predicate: Expr) -> list[Expr]:
    """Return the conditions of a conjunction."""
    if isinstance(predicate, And):
        return [*_conditions(predicate.left), *_conditions(predicate.right)]
    return [predicate]


def _are_unique(labels: Any) -> bool:
    return len(set(labels)) == len(labels)


def _columns_used(predicate: Expr, merge: Expr) -> set[Hashable] | None:
    """Return the columns of a merge that a predicate reads; None if it reads more."""
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
