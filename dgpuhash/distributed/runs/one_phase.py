"""Expressions with one partition per hash range, computed by one collective if possible."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.dask_internals import (
    Expr,
    FromDelayed,
    FromGraph,
    MapPartitions,
    Projection,
    ToFrame,
    new_collection,
)
from dgpuhash.distributed.cluster.serialization import Cache, CachedPickle
from dgpuhash.distributed.runs.collective import RangeShares, Step, answers_of_ranges
from dgpuhash.distributed.runs.results import ResultExpr
from dgpuhash.errors import ClosedError, UnsupportedError

# What ranks have in common, by the name of the expression.
_shares = Cache[str, CachedPickle[RangeShares]](most=64)


class RangesExpr(ResultExpr):
    """Expression with a partition per hash range; it has a parameter ``_partitions``."""

    @property
    def ranges(self) -> int:
        """The number of hash ranges."""
        return int(self.operand("ranges"))

    def answers(self) -> list[Any] | None:
        """Return futures of the results by hash range; None if tasks must compute them."""
        return None

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.ranges + 1)

    def _lower(self) -> Expr | None:
        answers = self._in_one_phase()
        return self._by_tasks() if answers is None else answers

    def _by_tasks(self) -> Expr | None:
        """Return the expression that computes the results by tasks; None if it is this one."""
        return None

    def _in_one_phase(self) -> Expr | None:
        """Return the results for persisted frames, by a collective on all workers."""
        layer = self.answers() if self.operand("_partitions") is None else None
        if layer is None:
            return None
        keys = [future.key for future in layer]
        return FromGraph(
            dict(zip(keys, layer, strict=True)), self._meta, self._divisions(), keys,
            "dgpuhash-groups", _determ_token=keys[0][0],
        )  # fmt: skip


def answers_in_one_phase(
    name: str, frame: Expr, shares_by: Callable[[tuple[Step, ...]], RangeShares]
) -> list[Any] | None:
    """Return futures of the results by hash range; None unless the frame is persisted.

    Parameters
    ----------
    name : str
        Of the expression.
    frame : Expr
        Its rows.
    shares_by : callable
        What ranks have in common, by the steps from what is persisted to these rows.
    """
    found = _source_of(frame)
    if found is None:
        return None
    try:
        client = client_of(None)
    except (ClosedError, UnsupportedError):
        return None
    source, steps = found
    shares = _shares.get(name, lambda: CachedPickle.of(shares_by(tuple(steps))))
    return answers_of_ranges(client, shares, new_collection(source))


def _source_of(frame: Expr) -> tuple[Expr, list[Step]] | None:
    """Return the persisted frame below an expression, and the steps between them.

    None where there is no such. Answers of a persisted frame are made for that.
    """
    if isinstance(frame, FromGraph | FromDelayed):
        return frame, []
    if isinstance(frame, RangesExpr):
        made = frame._in_one_phase()
        return (made, []) if isinstance(made, FromGraph) else None
    step: Step
    if isinstance(frame, Projection):
        step = operator.itemgetter(frame.operand("columns"))
    elif type(frame) is ToFrame:
        step = functools.partial(_apply, ToFrame.operation, frame._args[1:], frame._kwargs)
    elif isinstance(frame, MapPartitions) and frame.func.__module__.startswith("dgpuhash."):
        args = frame.args[1:]
        if any(isinstance(each, Expr) for each in [*args, *(frame.kwargs or {}).values()]):
            return None
        step = functools.partial(_apply, frame.func, args, frame.kwargs or {})
    else:
        return None
    found = _source_of(frame.frame)
    return None if found is None else (found[0], [*found[1], step])


def _apply(func: Callable[..., Any], args: list[Any], options: dict[str, Any], part: Any) -> Any:
    return func(part, *args, **options)
