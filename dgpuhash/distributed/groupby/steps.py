"""Expressions of a groupby: the states of groups, and the answer of each hash range."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import (
    Expr,
    MapPartitions,
    PartitionsFiltered,
    Projection,
    determine_column_projection,
)
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.io import FromGraph

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.serialization import CachedPickle, put_in_cache
from dgpuhash.distributed.groupby.asked import Asked, called
from dgpuhash.distributed.groupby.categories import UnknownCategories
from dgpuhash.distributed.groupby.tasks import (
    GroupTask,
    open_groups,
    reduce_partition,
    result_of,
    seal_groups,
)
from dgpuhash.distributed.merge.runs import OPENING
from dgpuhash.distributed.query.groups_collective import GroupShares, collective_groups
from dgpuhash.errors import ClosedError, UnsupportedError
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.ranked import ranked_columns
from dgpuhash.frames.groupby.partial.rows import plan_of_rows

__all__ = ["FoldExpr", "GroupsExpr", "groups_of"]


class FoldExpr(Expr):
    """States of groups, which owners of hash ranges hold; its one key is their seal.

    `seeds` are those of the process that made the expression, and in its token: partitions that are
    computed one after the other are of the same hash ranges.
    """

    _parameters = ["frame", "asked", "ranges", "seeds"]  # noqa: RUF012

    @functools.cached_property
    def plan(self) -> GroupPlan:
        """How partitions are reduced, folded and told."""
        asked: Asked = self.asked
        return asked.plan(self.frame._meta, self.seeds)

    @functools.cached_property
    def unknown(self) -> UnknownCategories | None:
        """What tells results in categories that only the partitions know."""
        return UnknownCategories.of(self.asked, self.frame._meta, self.seeds)

    @functools.cached_property
    def ranked(self) -> tuple[int, ...]:
        """The columns of which only values at some places are asked for."""
        return ranked_columns(self.plan) if self.unknown is None else ()

    @functools.cached_property
    def told(self) -> Any:
        """An empty result."""
        asked: Asked = self.asked
        if asked.meta is not None:
            return asked.meta
        meta = self.plan.meta if self.unknown is None else self.unknown.meta()
        return called(meta, asked.names)

    @property
    def _meta(self) -> Any:
        return self.plan.states_meta

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> None:
        return None

    def answered(self) -> list[Any] | None:
        """Return futures of the answer of each hash range; None unless the frame is persisted."""
        if self.unknown is not None or self.asked.meta is not None:
            return None
        found = _persisted(self.frame)
        if found is None:
            return None
        try:
            client = client_of(None)
        except (ClosedError, UnsupportedError):
            return None
        frame, steps = found
        shares = _shares.get(self._name)
        if shares is None:
            shares = CachedPickle.of(
                GroupShares(
                    self.plan, plan_of_rows(self.plan), self.ranges, tuple(steps),
                    functools.partial(called, names=dict(self.asked.names)),
                )
            )  # fmt: skip
            put_in_cache(_shares, self._name, shares, _MOST_TASKS)
        return collective_groups(client, shares, new_collection(frame))

    def _packed_task(self) -> CachedPickle[GroupTask]:
        """Return what tasks have in common, as they get it."""
        plan, kept = self.plan, (id(self.plan), self.ranges)
        if plan.on_gpu and kept in _tasks:
            return _tasks[kept][1]
        by_rows = plan_of_rows(plan) if self.unknown is None else None
        made = CachedPickle.of(GroupTask(plan, self.ranges, self.unknown, self.ranked, by_rows))
        if plan.on_gpu:
            put_in_cache(_tasks, kept, (plan, made), _MOST_TASKS)
        return made

    def _layer(self) -> dict[Any, Task]:
        key, token = (self._name, 0), self.deterministic_token
        opening, task = (f"{OPENING}-{token}", 0), self._packed_task()
        opened = TaskRef(opening)
        graph: dict[Any, Task] = {opening: Task(opening, open_groups, task, key)}
        receipts = []
        for number in range(self.frame.npartitions):
            put = (f"dgpuhash-reduce-{token}", number)
            frame = TaskRef((self.frame._name, number))
            graph[put] = Task(put, reduce_partition, frame, opened, task, number, key)
            receipts.append(TaskRef(put))
        graph[key] = Task(key, seal_groups, opened, task, key, *receipts)
        return graph


# What tasks have in common, by a plan and the number of hash ranges: frames on a GPU take
# milliseconds to pickle, and their plans are kept.
_tasks: dict[tuple[int, int], tuple[GroupPlan, CachedPickle[GroupTask]]] = {}
_shares: dict[str, CachedPickle[GroupShares]] = {}
_MOST_TASKS = 64


class GroupsExpr(PartitionsFiltered, Expr):
    """Aggregates of groups, one partition a hash range of their keys."""

    _parameters = ["states", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.states.told

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.states.ranges + 1)

    def _lower(self) -> Expr | None:
        """Return the answers where one phase on all workers can make them: persisted frames."""
        layer = self.states.answered() if self._partitions_given is None else None
        if layer is None:
            return None
        keys = [future.key for future in layer]
        return FromGraph(
            dict(zip(keys, layer, strict=True)), self._meta, self._divisions(), keys,
            "dgpuhash-groups", _determ_token=keys[0][0],
        )  # fmt: skip

    def _filtered_task(self, name: Any, index: int) -> Task:
        asked = self.states.asked
        sealed, meta = TaskRef((self.states._name, 0)), CachedPickle.of(asked.meta)
        return Task(name, result_of, sealed, index, dict(asked.names), meta)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if not isinstance(parent, Projection) or self.ndim == 1:
            return None
        columns: Any = determine_column_projection(self, parent, dependents)
        wanted: list[Hashable] = columns if isinstance(columns, list) else [columns]
        states = self.states
        asked = states.asked.narrowed(self.columns, wanted)
        if asked is None:
            return None
        made = groups_of(states.frame, asked, states.ranges, states.seeds)
        return type(parent)(type(self)(made.states, self._partitions_given), *parent.operands[1:])

    @property
    def _partitions_given(self) -> Any:
        return self.operand("_partitions")


def _persisted(frame: Expr) -> tuple[Expr, list[Callable[[Any], Any]]] | None:
    """Return the persisted frame that a frame is made of, and the steps from one to the other.

    None where there is no such. Groups of a persisted frame are aggregated for that.
    """
    if isinstance(frame, FromGraph | FromDelayed):
        return frame, []
    if isinstance(frame, GroupsExpr):
        made = frame._lower()
        return None if made is None else (made, [])
    step: Callable[[Any], Any]
    if isinstance(frame, Projection):
        step = operator.itemgetter(frame.operand("columns"))
    elif isinstance(frame, MapPartitions) and frame.func.__module__.startswith("dgpuhash."):
        args = frame.args[1:]
        if any(isinstance(each, Expr) for each in [*args, *(frame.kwargs or {}).values()]):
            return None
        step = functools.partial(_mapped, frame.func, args, frame.kwargs or {})
    else:
        return None
    found = _persisted(frame.frame)
    return None if found is None else (found[0], [*found[1], step])


def _mapped(func: Callable[..., Any], args: list[Any], options: dict[str, Any], part: Any) -> Any:
    return func(part, *args, **options)


def groups_of(frame: Expr, asked: Asked, ranges: int, seeds: Any) -> GroupsExpr:
    """Return the aggregates of a frame's groups; only the columns that they need are read."""
    if asked.verb.name == "size" and isinstance(asked.selection, list):
        # They are not read.
        asked = replace(asked, selection=None)
    needed = set(asked.plan(frame._meta, seeds).columns)
    if frame.ndim == 2 and len(set(frame.columns)) == len(frame.columns):
        columns = [label for label in frame.columns if label in needed]
        if len(columns) < len(frame.columns):
            frame = Projection(frame, columns)
    return GroupsExpr(FoldExpr(frame, asked, ranges, seeds))
