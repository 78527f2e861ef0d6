"""Expressions of merges: what Dask optimizes, and the tasks that it becomes."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.dataframe.dask_expr._expr import (
    And,
    Expr,
    Filter,
    Index,
    PartitionsFiltered,
    Projection,
    determine_column_projection,
    is_filter_pushdown_available,
)
from dask.tokenize import _tokenize_deterministic

from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.merge.runs import OPENING, RECEIPT
from dgpuhash.distributed.merge.tasks import (
    BuildTask,
    ProbeTask,
    confirm,
    open_build,
    open_marks,
    put_rows,
    seal,
    tail,
)
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.query.merge_tasks import sample
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.partition import PartitionPlan

__all__ = ["BuildExpr", "MergeExpr", "ProbeExpr", "StandingExpr"]


class StoredRows:
    """A plan, as far as it decides what is stored: its token names builds that can be shared."""

    def __init__(self, plan: PartitionPlan) -> None:
        self.plan = plan

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("dgpuhash-stored", self.plan.probing, *self.plan.stored_description)


class MergeExpr(PartitionsFiltered, Expr):
    """Merge of two frames: partitions of one ask for rows of the other.

    `probing` is the side that asks, `ranges` the number of hash ranges of the other, `placement`
    says where its rows are, and `validate` which sides are to have unique keys.
    """

    _parameters = [  # noqa: RUF012
        "left", "right", "arguments", "probing", "ranges", "placement", "validate", "_partitions",
    ]  # fmt: skip
    _defaults = {"validate": (False, False), "_partitions": None}  # noqa: RUF012

    @functools.cached_property
    def plan(self) -> PartitionPlan:
        """How partitions are merged."""
        left, right = (sample(side._meta) for side in (self.left, self.right))
        return PartitionPlan.of(left, right, self.arguments, self.probing)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.plan.meta

    @property
    def _sides(self) -> tuple[Expr, Expr]:
        """The side that asks, and the one that is stored."""
        sides = self.left, self.right
        return sides if self.probing == "left" else sides[::-1]

    def _divisions(self) -> tuple[None, ...]:
        tails = self.ranges if self.plan.has_tail else 0
        return (None,) * (self._sides[0].npartitions + tails + 1)

    def _lower(self) -> Expr:
        asking, stored = self._sides
        uniques = self.validate if self.probing == "left" else self.validate[::-1]
        build = BuildExpr(
            stored,
            StoredRows(self.plan),
            self.ranges,
            self.placement,
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
            placed = Placement.DISTRIBUTED
            checks.append(BuildExpr(asking, StoredRows(keys), self.ranges, placed, text))
        return ProbeExpr(
            asking, build, self.plan, self.ranges, self.operand("_partitions"), None, *checks
        )

    def _simplify_down(self) -> Expr | None:
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
        """Return the merge of a side of which the filter has kept some rows."""
        if self.operand("_partitions") is not None or any(self.validate):
            return None
        if not is_filter_pushdown_available(self, parent, dependents):
            return None
        predicate = parent.predicate
        if isinstance(predicate, And):
            first = Filter(self, predicate.left)
            return Filter(first, predicate.right.substitute(self, first))
        used = _columns_used(predicate, self)
        if not used:
            return None
        joined, how = self.arguments.joined, self.arguments.how
        plan, sides = self.plan.plan, [self.left, self.right]
        labels = plan.labels if not self.plan.is_filter else (self.left.columns, ())
        pushed = False
        shared = set(self.plan.keys.dropped)
        for place, (side, allowed) in enumerate(
            ((plan.left, {"inner", "left"}), (plan.right, {"inner", "right"}))
        ):
            same = {
                label for label, name in zip(side.columns, labels[place], strict=False)
                if label == name
            }  # fmt: skip
            if place == 1:
                # Columns of one name are the left side's, and equal on both where rows match.
                same |= shared if how in ("inner", "right") else set()
            elif joined == "right":
                same -= shared
            if used <= same and joined in allowed and not how.endswith("_anti"):
                sides[place] = sides[place][predicate.substitute(self, sides[place])]
                pushed = True
        if not pushed or how == "cross":
            return None
        return type(self)(*sides, *self.operands[2:])


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


class BuildExpr(Expr):
    """Shards with the rows of a frame while probes ask them; its one key is their seal."""

    _parameters = ["frame", "stored", "ranges", "placement", "unique"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.stored.plan.stored_meta

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        key, count = (self._name, 0), self.frame.npartitions
        opening = f"{OPENING}-{self.deterministic_token}"
        task = CachedPickle.of(
            BuildTask(self.stored.plan, self.ranges, self.placement, self.unique, count)
        )
        opened = TaskRef(opening)
        graph: dict[Any, Task] = {opening: Task(opening, open_build, task, key)}
        puts = [(f"dgpuhash-put-{self.deterministic_token}", number) for number in range(count)]
        for number, put in enumerate(puts):
            frame = TaskRef((self.frame._name, number))
            graph[put] = Task(put, put_rows, frame, opened, task, number, key)
        graph[key] = Task(key, seal, opened, task, key, *map(TaskRef, puts))
        return graph


class StandingExpr(Expr):
    """A standing index, as probes ask it that mark what they find."""

    _parameters = ["descriptor", "merge"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.descriptor.meta

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        key, descriptor = (self._name, 0), self.descriptor
        assert isinstance(descriptor, Descriptor)
        return {key: Task(key, open_marks, CachedPickle.of(descriptor), key)}


class ProbeExpr(PartitionsFiltered, Expr):
    """Tasks of a merge: a probe for each partition, and a tail for each hash range.

    Operands after the parameters are builds that the probes wait for; `probe` is that of a standing
    index.
    """

    _parameters = ["frame", "build", "plan", "ranges", "_partitions", "probe"]  # noqa: RUF012
    _defaults = {"_partitions": None, "probe": None}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    def _divisions(self) -> tuple[None, ...]:
        tails = self.ranges if self.plan.has_tail else 0
        return (None,) * (self.frame.npartitions + tails + 1)

    def _lower(self) -> None:
        return None

    @property
    def _checks(self) -> list[Any]:
        return self.operands[len(self._parameters) :]

    def _layer(self) -> dict[Any, Task]:
        plan, count, name = self.plan, self.frame.npartitions, self._name
        # Probes of other partitions of the same merge, in the same run, mark for the same tails.
        token = _tokenize_deterministic(
            self.frame._name, self.build._name, plan.arguments, plan.probing, self.ranges
        )
        known = self.operand("probe") or plan
        probe = ProbeTask(CachedPickle.of(known), token, plan.has_tail)
        graph: dict[Any, Task] = {}
        sealed = TaskRef((self.build._name, 0))
        checks = [TaskRef((check._name, 0)) for check in self._checks]
        tails = any(number >= count for number in self._partitions)
        places = {number: (name, place) for place, number in enumerate(self._partitions)}
        wanted = range(count) if tails else [n for n in self._partitions if n < count]
        for number in wanted:
            key = places.get(number, (f"dgpuhash-probe-{token}", number))
            graph[key] = Task(key, probe, TaskRef((self.frame._name, number)), sealed, *checks)
            if tails:
                receipt = (f"{RECEIPT}-{token}", number)
                graph[receipt] = Task(
                    receipt, confirm, TaskRef((self.frame._name, number)), TaskRef(key), sealed,
                    probe, number,
                )  # fmt: skip
        receipts = [TaskRef((f"{RECEIPT}-{token}", number)) for number in range(count)]
        for number, key in places.items():
            if number >= count:
                graph[key] = Task(key, tail, sealed, probe, number - count, self.ranges, *receipts)
        return graph
