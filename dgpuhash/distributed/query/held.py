"""Functions of partitions that workers hold, without tasks that only pass these on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import dask.dataframe as dd
from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import DelayedsExpr, PartitionsFiltered
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.io import BlockwiseIO, FromGraph
from distributed import Client, Future

from dgpuhash.distributed.ingest.source import persisted

__all__ = ["held_partitions", "map_held", "persist_whole"]


def held_partitions(frame: dd.DataFrame) -> list[Future] | None:
    """As `persisted`, which lays out the graph of `frame`, where that may find some."""
    return persisted(frame) if isinstance(frame.expr, FromGraph | FromDelayed) else None


def persist_whole(client: Client, frame: dd.DataFrame) -> dd.DataFrame:
    """`frame` on the workers, where Dask's `persist` may name partitions that it puts into one.

    It does with those of a source that it reads several of together, unless it was optimised
    before.
    """
    return client.persist(frame if isinstance(frame.expr, MapHeld) else frame.optimize())


def map_held(
    function: Callable[[Any], Any], partitions: Sequence[Future], meta: Any, name: str
) -> dd.DataFrame:
    """A lazy frame of what `function` gives for each partition.

    Parameters
    ----------
    function : callable
        Which Dask can make a token of.
    partitions : sequence of Future
    meta : DataFrame
        An empty frame like the results.
    name : str
        What the keys of its tasks begin with.
    """
    # One of an empty frame on a GPU takes 4 ms.
    token = tokenize(function, [each.key for each in partitions])
    held = DelayedsExpr(*partitions)
    return new_collection(MapHeld(function, held, meta, name, _determ_token=token))


class MapHeld(PartitionsFiltered, BlockwiseIO):
    """As Dask's expression for ``map_partitions``, with one task a partition.

    That takes the partitions of a persisted frame, or of one made of futures, from a task or two
    for each, which do nothing.
    """

    _parameters = ["function", "held", "meta", "prefix", "_partitions"]  # noqa: RUF012
    _defaults = {"_partitions": None}  # noqa: RUF012

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.operand('prefix')}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("held").operands) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        held = self.operand("held").operands[index]
        return Task(name, self.operand("function"), TaskRef(held.key))
