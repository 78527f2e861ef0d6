"""Dask expressions of a merge's tasks: builds, standing indexes and probes."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, ClassVar

from dgpuhash.distributed.cluster.dask_internals import (
    Blockwise,
    Expr,
    Projection,
    Task,
    TaskRef,
    determine_column_projection,
    tokenize_deterministic,
)
from dgpuhash.distributed.cluster.expressions import SharedExpr
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.merge.tails import stored_rows, tail
from dgpuhash.distributed.merge.tasks import (
    BuildTask,
    ProbeTask,
    confirm,
    open_marks,
)
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.runs.collective import RangeShares
from dgpuhash.distributed.runs.kept import RECEIPT
from dgpuhash.distributed.runs.one_phase import RangesExpr, answers_in_one_phase
from dgpuhash.distributed.runs.phases import SealExpr, SinkExpr
from dgpuhash.frames import frames_of
from dgpuhash.frames.grouped.aggregation import LabelledResults
from dgpuhash.frames.merge.distinct import DistinctPlan, DistinctRows


class StoringExpr(SharedExpr):
    """Expression of the build side of a merge.

    `seeds` are the hash seeds of the process that created the expression. They are part of its Dask
    token, so that partitions computed in separate calls use the same hash ranges. A build
    side of at most `held_nbytes` is broadcast to the probe tasks and gets no shards.
    """

    _parameters = [  # noqa: RUF012
        "frame", "stored", "ranges", "seeds", "unique", "held_nbytes",
    ]  # fmt: skip
    _defaults = {"held_nbytes": 0}  # noqa: RUF012

    @functools.cached_property
    def _packed(self) -> CachedPickle[BuildTask]:
        """Common arguments of the tasks, pickled."""
        how = self.ranges, self.seeds, self.unique, self.frame.npartitions, self.held_nbytes
        return CachedPickle.of(BuildTask(self.stored.plan, *how))


class PutExpr(StoringExpr, SinkExpr):
    """Send partitions of the build side to the owners of their rows."""


class BuildExpr(StoringExpr, SealExpr):
    """Shards of a frame's rows for probes; the only key is the seal task.

    `is_put`: whether the frame is a `PutExpr`.
    """

    _parameters = [*StoringExpr._parameters, "is_put"]  # noqa: RUF012
    _defaults = {**StoringExpr._defaults, "is_put": False}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.stored.plan.stored_meta

    def put(self) -> BuildExpr:
        """Return shards filled by put tasks, one per partition."""
        how = self.operands[1:6]
        return BuildExpr(PutExpr(self.frame, *how), *how, True)


class GatedExpr(Blockwise):
    """Probe partitions, read only after the build has ended.

    Dask fuses this expression with the tasks that read the partitions. Otherwise idle workers would
    read them while the last build rows are being sent, and keep them in memory.
    """

    _parameters = ["frame", "build"]  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.frame._meta

    def _broadcast_dep(self, dep: Expr) -> bool:
        return bool(dep._name == self.build._name)

    @staticmethod
    def operation(frame: Any, sealed: Any) -> Any:
        """Return the partition."""
        del sealed
        return frame


class StandingExpr(Expr):
    """A standing index, for probes that mark the rows they match."""

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


class ProbeExpr(SharedExpr):
    """Probe tasks, one per partition, and tail tasks for unmatched rows.

    Operands after the parameters are builds that the probes wait for; `known` is the probe of a
    standing index.
    """

    _parameters = [  # noqa: RUF012
        "frame", "build", "plan", "ranges", "probed", "tails", "known",
    ]  # fmt: skip

    @property
    def _meta(self) -> Any:
        return self.plan.meta

    def _divisions(self) -> tuple[Any, ...]:
        if self.plan.keeps_labels and self.probed:
            return tuple(self.frame.divisions)
        count = self.frame.npartitions if self.probed else 0
        return (None,) * (count + len(self.tails) + 1)

    def _lower(self) -> None:
        return None

    def _layer(self) -> dict[Any, Task]:
        plan, count, name = self.plan, self.frame.npartitions, self._name
        # One for all choices of partitions of a merge: their probes mark for the same tails.
        checks = [check._name for check in self.operands[len(self._parameters) :]]
        token = tokenize_deterministic(
            self.frame._name, self.build._name, plan.arguments, plan.probing, self.ranges, checks
        )
        probe = ProbeTask(CachedPickle.of(self.known or plan), token, bool(self.tails))
        sealed = TaskRef((self.build._name, 0))
        waited = [TaskRef((check, 0)) for check in checks]
        graph: dict[Any, Task] = {}
        receipts = []
        for number in range(count):
            key = (name, number) if self.probed else (f"dgpuhash-probe-{token}", number)
            frame = TaskRef((self.frame._name, number))
            graph[key] = Task(key, probe, frame, sealed, *waited)
            if self.tails:
                receipt = (f"{RECEIPT}-{token}", number)
                graph[receipt] = Task(
                    receipt, confirm, frame, TaskRef(key), sealed, probe, number
                )  # fmt: skip
                receipts.append(TaskRef(receipt))
        for place, number in enumerate(self.tails, start=count if self.probed else 0):
            key = (name, place)
            graph[key] = Task(key, tail, sealed, probe, number, self.ranges, *receipts)
        return graph


class DistinctShares(RangeShares):
    """What the ranks have in common that keep one row of each key, in one collective phase."""

    verb: ClassVar[str] = "drop_duplicates"


class RowsExpr(RangesExpr):
    """Rows of a build or of a standing index, one partition per hash range."""

    _parameters = ["build", "plan", "meta", "ranges", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @property
    def _meta(self) -> Any:
        return self.meta

    def answers(self) -> list[Any] | None:
        """Return futures of the distinct rows by hash range; None if tasks must compute them."""
        build, plan = self.build, self.plan
        is_build = isinstance(build, BuildExpr) and not build.is_put
        if not is_build or frames_of(self.meta).device != "cpu":
            return None
        assert isinstance(plan, DistinctPlan)
        encoder = replace(plan.encoder(), seeds=build.seeds)
        return answers_in_one_phase(
            self._name, build.frame,
            lambda steps: DistinctShares(DistinctRows(plan, encoder), self.ranges, steps),
        )  # fmt: skip

    def _by_tasks(self) -> Expr | None:
        build = self.build
        if not isinstance(build, BuildExpr) or build.is_put:
            return None
        return type(self)(build.put(), *self.operands[1:])

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        """Read only the selected results of groups."""
        plan = self.plan
        if not isinstance(parent, Projection) or not isinstance(plan, LabelledResults):
            return super()._simplify_up(parent, dependents)
        columns: Any = determine_column_projection(self, parent, dependents)
        wanted = tuple(columns) if isinstance(columns, list) else (columns,)
        if plan.columns is not None or set(wanted) >= set(plan.wanted):
            return None
        plan = replace(plan, columns=tuple(label for label in plan.wanted if label in wanted))
        built = replace(self.build, columns=(*plan.groups.by, *plan.wanted))
        given = built, plan, plan.meta, *self.operands[3:]
        return type(parent)(type(self)(*given), *parent.operands[1:])

    def _filtered_task(self, name: Any, index: int) -> Task:
        build = self.build
        built = TaskRef((build._name, 0)) if isinstance(build, Expr) else build
        plan = None if self.plan is None else CachedPickle.of(self.plan)
        return Task(name, stored_rows, built, plan, index, self.ranges)
