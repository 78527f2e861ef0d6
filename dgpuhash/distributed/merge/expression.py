"""Dask expressions of merges, and how the optimizer lowers them."""

from __future__ import annotations

from abc import abstractmethod
from itertools import groupby
from typing import Any

import dask.dataframe as dd

from dgpuhash.distributed.cluster.dask_internals import (
    Blockwise,
    Expr,
    LoweredExpr,
    Partitions,
    new_collection,
    tokenize_deterministic,
)
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.merge.aligned import PairExpr
from dgpuhash.distributed.merge.broadcast import StoredRows, broadcast
from dgpuhash.distributed.merge.sides import SidesExpr, not_unique
from dgpuhash.distributed.merge.steps import (
    BuildExpr,
    GatedExpr,
    ProbeExpr,
    RowsExpr,
    StandingExpr,
)
from dgpuhash.distributed.merge.tasks import Built
from dgpuhash.distributed.merge.typed import TypedExpr, has_unknown_categories
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.runs.results import ResultExpr
from dgpuhash.frames.keys.seeds import KeySeeds
from dgpuhash.frames.merge.arguments import JoinArguments
from dgpuhash.frames.merge.partition import PartitionPlan


class TailedExpr(ResultExpr, LoweredExpr):
    """Merge with one partition per probe partition, then one per hash range of the build side.

    Without `probed` there are no partitions but those of `tails`, the hash ranges whose other rows
    are told (None: all of them).
    """

    @property
    @abstractmethod
    def plan(self) -> PartitionPlan:
        """The merge plan for partitions."""

    @property
    def _asking(self) -> str:
        """The operand on the probe side."""
        return "frame"

    @property
    def _tails(self) -> tuple[int, ...]:
        """The hash ranges whose unmatched rows are in the result."""
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
        """Return the merge of the selected partitions.

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


class MergeExpr(SidesExpr, TailedExpr):
    """Merge of two frames: partitions of the probe side look up rows of the build side.

    `strategy` says how, and `validate` which sides are to have unique keys.
    """

    _parameters = [  # noqa: RUF012
        "left", "right", "arguments", "strategy", "seeds", "validate", "probed", "tails",
        "_partitions",
    ]  # fmt: skip
    _defaults = {  # noqa: RUF012
        "validate": (False, False), "probed": True, "tails": None, "_partitions": None,
    }  # fmt: skip

    @property
    def _asking(self) -> str:
        return self.probing

    @property
    def ranges(self) -> int:
        """The number of hash ranges of the build side."""
        return int(self.strategy.ranges)

    @property
    def _npartitions(self) -> int:
        """The requested number of partitions, under Dask's name for it."""
        return int(self.npartitions)

    @property
    def _sides(self) -> tuple[Expr, Expr]:
        """The probe side and the build side."""
        sides = self.left, self.right
        return sides if self.probing == "left" else sides[::-1]

    @property
    def _tails(self) -> tuple[int, ...]:
        return super()._tails if self.strategy.kind == "shuffle" else ()

    def _lower(self) -> Expr:
        if self.operand("_partitions") is not None:
            return self._chosen_partitions()
        plan, strategy, texts = self.plan, self.strategy, not_unique(self.validate)
        asking, stored = self._sides
        if strategy.kind == "local":
            return PairExpr(self.left, self.right, plan, texts, self.divisions)
        if strategy.kind == "broadcast":
            merged = broadcast(asking, stored, plan)
            return self._with_types(merged) if merged.holds else merged
        told, other_told = texts if self.probing == "left" else texts[::-1]
        how = strategy.ranges, self.seeds, other_told, strategy.late_nbytes
        build = BuildExpr(stored, StoredRows(plan), *how).put()
        checks = []
        if told:
            other = "right" if self.probing == "left" else "left"
            checks.append(_uniqueness_check(asking, plan, other, self.ranges, self.seeds, told))
        if isinstance(asking, Blockwise):
            asking = GatedExpr(asking, build)
        shown = self.operand("probed"), self._tails
        return self._with_types(ProbeExpr(asking, build, plan, self.ranges, *shown, None, *checks))

    def _with_types(self, merged: Expr) -> Expr:
        """Return a merge with one categorical dtype in all partitions."""
        typed = has_unknown_categories(self.plan)
        return TypedExpr(merged, self.plan, self.left, self.right) if typed else merged

    def _simplify_down(self) -> Expr | None:
        if self.operand("_partitions") is not None:
            return self._chosen_partitions()
        return self._narrow()

    @property
    def _takes_filters(self) -> bool:
        whole = self.operand("probed") and self.operand("tails") is None
        return whole and super()._takes_filters


def _uniqueness_check(
    side: Expr, plan: PartitionPlan, other: str, ranges: int, seeds: KeySeeds, text: str
) -> BuildExpr:
    """Return a build of the keys on the side opposite `other`, to check their uniqueness."""
    given = plan.arguments
    keys = JoinArguments(
        "semi", given.on, given.left_on, given.right_on, given.left_index, given.right_index
    )
    stored = StoredRows(PartitionPlan.of(plan.left, plan.right, keys, other))
    return BuildExpr(side, stored, ranges, seeds, text).put()


class StandingMergeExpr(TailedExpr):
    """Merge of a frame with a standing index that returns unmatched rows of the index too.

    `known` is the probe, and `ranges` the number of shards. `validate` tells of the frame and of
    the index whether keys are to be unique, and `seeds` are those of the keys of these checks.
    """

    _parameters = [  # noqa: RUF012
        "frame", "known", "ranges", "validate", "seeds", "probed", "tails", "_partitions",
    ]  # fmt: skip
    _defaults = {  # noqa: RUF012
        "validate": (False, False), "seeds": None, "probed": True, "tails": None,
        "_partitions": None,
    }  # fmt: skip

    @property
    def plan(self) -> PartitionPlan:
        """The merge plan for partitions."""
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
        token = tokenize_deterministic(self.frame._name, self.known)
        stored = StandingExpr(self.known.descriptor, token)
        checks = [
            _uniqueness_check(side, self.plan, other, self.ranges, self.seeds, text)
            for side, other, text in zip(
                (self.frame, stored_rows(self.known.descriptor)), ("right", "left"),
                not_unique(self.validate), strict=True,
            )
            if text
        ]  # fmt: skip
        return ProbeExpr(
            self.frame, stored, self.plan, self.ranges, self.operand("probed"), self._tails,
            self.known, *checks,
        )  # fmt: skip


def stored_rows(descriptor: Descriptor) -> RowsExpr:
    """Return the rows of a standing index, one partition per shard."""
    built = Built("", "", CachedPickle.of(descriptor))
    return RowsExpr(built, None, descriptor.meta, len(descriptor.whole))
