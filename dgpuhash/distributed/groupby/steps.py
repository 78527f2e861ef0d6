"""Dask expressions of a groupby: partial states, then one result per hash range."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dgpuhash.distributed.cluster.dask_internals import (
    Expr,
    Projection,
    Repartition,
    RepartitionToFewer,
    Task,
    TaskRef,
    determine_column_projection,
)
from dgpuhash.distributed.cluster.expressions import PartitionExpr, SharedExpr
from dgpuhash.distributed.cluster.serialization import Cache, CachedPickle, is_bare, note_bare
from dgpuhash.distributed.groupby.asked import Asked, Shown
from dgpuhash.distributed.groupby.categories import UnknownCategories
from dgpuhash.distributed.groupby.tasks import (
    GroupTask,
    answer_of_one,
    result_of,
    whole_groups,
)
from dgpuhash.distributed.runs.collective import RangeShares
from dgpuhash.distributed.runs.one_phase import RangesExpr, answers_in_one_phase
from dgpuhash.distributed.runs.phases import SealExpr, SinkExpr
from dgpuhash.distributed.runs.results import FewerExpr, has_objects
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.keys import Categories, recoded, unite_categories
from dgpuhash.frames.groupby.partial.result import ranked_columns

# States of all partitions that need no owners, and rows of which no states are made. Either takes
# milliseconds a partition.
_FEW_STATES = {"cpu": 2**18, "cuda": 2**20}
_FEW_NBYTES = {"cpu": 2**26, "cuda": 2**28}
# Rows of a state from which on a rank's own partitions are folded before states are sent.
_FEWER = 4


@dataclass(frozen=True)
class GroupShares(RangeShares):
    """What the ranks of a collective groupby have in common."""

    verb: ClassVar[str] = "groupby"

    def pack(self, plan: Any, states: list[Any], rows: int) -> Any:
        if _FEWER * sum(map(len, states)) <= rows and not plan.needs_rows and not plan.on_gpu:
            # Their keys are the same, mostly.
            return plan.folded(states)
        return super().pack(plan, states, rows)

    def answer(self, plan: Any, pieces: list[Any], categories: Sequence[Categories]) -> Any:
        if any(categories):
            plan = unite_categories(plan, categories)
            dtypes = plan.states_meta.dtypes.to_dict()
            pieces = [recoded(each, dtypes) for each in pieces or [plan.states_meta]]
        return super().answer(plan, pieces, categories)


class AskedExpr(SharedExpr):
    """Base of a groupby's expressions: its description and number of hash ranges.

    `seeds` are the hash seeds of the process that created the expression. They are part of its Dask
    token, so that partitions computed in separate calls use the same hash ranges.
    """

    _parameters = ["frame", "asked", "ranges", "seeds"]  # noqa: RUF012

    @functools.cached_property
    def plan(self) -> GroupPlan:
        """The plan to reduce partitions, merge states and finalize results."""
        asked: Asked = self.asked
        plan = asked.plan(self.frame._meta, self.seeds)
        # Rows have values in place of categories that only partitions know.
        return plan if self.unknown is None else replace(plan, keeps_rows=False)

    @functools.cached_property
    def unknown(self) -> UnknownCategories | None:
        """The columns with categories unknown to Dask."""
        return UnknownCategories.of(self.asked, self.frame._meta, self.seeds)

    @functools.cached_property
    def ranked(self) -> tuple[int, ...]:
        """The columns with order statistics as their only aggregates."""
        return ranked_columns(self.plan) if self.unknown is None else ()

    @functools.cached_property
    def _result(self) -> tuple[Shown, Any]:
        """The final formatting, and an empty result."""
        return _results.get_of(self.plan, self._result_of)

    def _result_of(self, plan: GroupPlan) -> tuple[Shown, Any]:
        asked, meta = self.asked, self._known_meta
        shown: Shown = asked.shown(meta)
        result = meta if asked.meta is not None else shown(meta)
        if is_bare(self.frame._meta):
            note_bare(result)
        return shown, result

    @property
    def told(self) -> Any:
        """An empty result."""
        return self._result[1]

    @property
    def shown(self) -> Shown:
        """The final formatting of results."""
        return self._result[0]

    @functools.cached_property
    def packed_shown(self) -> CachedPickle[Shown]:
        """The final formatting of results, pickled for tasks."""
        return CachedPickle.of(self.shown)

    @property
    def _known_meta(self) -> Any:
        """An empty result from the dtypes known to Dask."""
        if self.asked.meta is not None:
            return self.asked.meta
        asked, meta = replace(self.asked, on_rounding=None), self.frame._meta
        unknown = UnknownCategories.of(asked, meta, self.seeds)
        return asked.plan(meta, self.seeds).meta if unknown is None else unknown.meta()

    @functools.cached_property
    def _packed(self) -> CachedPickle[GroupTask]:
        """What tasks have in common, as they get it."""
        plan = self.plan
        device, parts = "cuda" if plan.on_gpu else "cpu", self.frame.npartitions
        # Functions of a user run where owners have the rows.
        few = 0 if self.asked.meta is not None else _FEW_STATES[device] // parts
        few_nbytes = _FEW_NBYTES[device] // parts
        name = (id(plan), self.ranges, few) if plan.on_gpu else None

        def pack() -> tuple[GroupPlan, CachedPickle[GroupTask]]:
            task = GroupTask(plan, self.ranges, self.unknown, self.ranked, few, few_nbytes)
            return plan, CachedPickle.of(task)

        # With its plan, whose id no other one has as long as it is there.
        return _tasks.get(name, pack)[1]


class ReduceExpr(AskedExpr, SinkExpr):
    """Reduce partitions to partial states.

    `fold` is the class of the expression that merges the states, the only one to read them.
    """

    _parameters = [*AskedExpr._parameters, "fold"]  # noqa: RUF012


class FoldExpr(AskedExpr, SealExpr):
    """Merge partial states on the owners of hash ranges; the only key is the seal task.

    `is_reduced`: whether the frame is a `ReduceExpr`.
    """

    _parameters = [*AskedExpr._parameters, "is_reduced"]  # noqa: RUF012
    _defaults = {"is_reduced": False}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.plan.states_meta

    def reduced(self) -> FoldExpr:
        """Return partial states of partitions from separate tasks."""
        question = self.operands[1:4]
        frame = ReduceExpr(self.frame, *question, type(self).__name__)
        return type(self)(frame, *question, True)

    def answers(self) -> list[Any] | None:
        """Return futures of the results by hash range; None unless the frame is persisted."""
        if self.unknown is not None or self.asked.meta is not None:
            return None
        return answers_in_one_phase(
            self._name,
            self.frame,
            lambda steps: GroupShares(self.plan, self.ranges, steps, self.shown),
        )


# What tasks have in common, by a plan, the number of hash ranges and that of few states: frames on
# a GPU take milliseconds to pickle, and their plans are kept.
_tasks = Cache[tuple[int, int, int], tuple[GroupPlan, CachedPickle[GroupTask]]](most=256)
# How results are shown, and an empty one, by a plan.
_results = Cache[int, tuple[Shown, Any]](most=256)


class GroupsExpr(RangesExpr):
    """Aggregates by group, one partition per hash range of the keys."""

    _parameters = ["states", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.states.told

    @property
    def ranges(self) -> int:
        """The number of hash ranges."""
        return int(self.states.ranges)

    def answers(self) -> list[Any] | None:
        """Return futures of the results by hash range; None if tasks must compute them."""
        return self.states.answers()  # type: ignore[no-any-return]

    @property
    def is_single(self) -> bool:
        """Whether one task computes the result, from one partition to one partition.

        Functions of a user run where owners have the rows, also of one range.
        """
        states, whole = self.states, self.operand("_partitions") is None
        return whole and self.ranges == states.frame.npartitions == 1 and states.asked.meta is None

    def _lower(self) -> Expr | None:
        states = self.states
        if states.is_reduced:
            return None
        return SingleGroupsExpr(*states.operands[:4]) if self.is_single else super()._lower()

    def _by_tasks(self) -> Expr:
        return type(self)(self.states.reduced(), *self.operands[1:])

    def _filtered_task(self, name: Any, index: int) -> Task:
        states = self.states
        sealed, meta = TaskRef((states._name, 0)), CachedPickle.of(states.asked.meta)
        return Task(name, result_of, sealed, index, states.packed_shown, meta)

    def _is_whole(self, parent: Expr, dependents: Any) -> bool:
        """Return whether the hash ranges are only read by a concatenation of all.

        Owners run functions of users side by side, so that each has a task.
        """
        states = self.states
        known = states.asked.meta is None and states.unknown is None
        alone = type(parent) is Repartition and len(dependents[self._name]) == 1
        several = alone and self.npartitions == self.ranges > 1
        return known and several and parent.operand("new_partitions") == 1

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if self._is_whole(parent, dependents):
            return WholeGroupsExpr(*self.states.operands)
        if not isinstance(parent, Projection) or self.ndim == 1:
            return super()._simplify_up(parent, dependents)
        columns: Any = determine_column_projection(self, parent, dependents)
        wanted: list[Hashable] = columns if isinstance(columns, list) else [columns]
        states = self.states
        asked = states.asked.narrowed(self.columns, wanted)
        if asked is None:
            return None
        made = groups_of(states.frame, asked, states.ranges, states.seeds)
        given = self.operand("_partitions")
        return type(parent)(type(self)(made.states, given), *parent.operands[1:])


class WholeGroupsExpr(FoldExpr):
    """Aggregates of all groups in one partition, from all hash ranges in one task."""

    @property
    def _meta(self) -> Any:
        return self.told

    def _lower(self) -> Expr | None:
        if self.is_reduced:
            return None
        answers = GroupsExpr(FoldExpr(*self.operands))._in_one_phase()
        fewer = FewerExpr if has_objects(self._meta) else RepartitionToFewer
        return self.reduced() if answers is None else fewer(answers, 1)

    def _last(self, key: Any, *args: Any) -> Task:
        return Task(key, whole_groups, self.packed_shown, *args)


class SingleGroupsExpr(AskedExpr, PartitionExpr):
    """Aggregates of a single-partition frame, in a task that Dask fuses with its reader."""

    @property
    def _meta(self) -> Any:
        return self.told

    def _task(self, name: Any, index: int) -> Task:
        frame = TaskRef((self.frame._name, index))
        return Task(name, answer_of_one, frame, self._packed, self.packed_shown)


def groups_of(frame: Expr, asked: Asked, ranges: int, seeds: Any) -> GroupsExpr:
    """Return the aggregates of a frame's groups, reading only the columns they need."""
    if asked.verb.name == "size" and isinstance(asked.selection, list):
        # They are not read.
        asked = replace(asked, selection=None)
    needed = set(asked.plan(frame._meta, seeds).columns)
    if frame.ndim == 2 and len(set(frame.columns)) == len(frame.columns):
        columns = [label for label in frame.columns if label in needed]
        if len(columns) < len(frame.columns):
            frame = Projection(frame, columns)
    return GroupsExpr(FoldExpr(frame, asked, ranges, seeds))
