"""Describe the merges and groupbys of a lazy frame in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed import Client

from dgpuhash.distributed.cluster.dask_internals import Expr, optimize_until
from dgpuhash.distributed.groupby.steps import FoldExpr, GroupsExpr
from dgpuhash.distributed.merge.explain import NO_MERGE, amount, size_of
from dgpuhash.distributed.merge.explain import explain_merges as merges_explained

_NOTHING = (
    "no merge or groupby of dgpuhash: this frame was not made by dgpuhash.merge, dgpuhash.groupby, "
    "their methods or index.merge, or it was computed since (persist)"
)


def explain_frame(frame: Any, client: Client) -> str:
    """Describe in words how merges and groupbys of a frame run; see `IndexAccessor.explain`."""
    merges = merges_explained(frame, client)
    optimized: Any = optimize_until(frame.expr, "simplified-logical")
    groups = ["\n".join(_lines(each, client)) for each in _groups_of(optimized)]
    told = [*([] if merges == NO_MERGE else [merges]), *groups]
    return "\n\n".join(told) or _NOTHING


def _groups_of(expression: Expr) -> list[GroupsExpr]:
    """Return this library's groupbys in an expression, inputs before their users."""
    found: list[Any] = list(expression.find_operations(GroupsExpr))
    return list({each._name: each for each in reversed(found)}.values())


def _lines(groups: Any, client: Client) -> Iterator[str]:
    """Yield the lines about a groupby."""
    states: FoldExpr = groups.states
    plan, source = states.plan, states.frame
    columns = list(source.columns)
    names = [states.asked.names.get(key.name, key.name) for key in plan.keys]
    by = ", ".join("the index" if name is None else repr(name) for name in names)
    parts = source.npartitions
    size = size_of(source, columns, client) if source.ndim == 2 else ""
    read = f"source: {amount(parts, 'partition')}, {size}columns {columns!r}"
    order = "in the order of their keys" if plan.sort else "in order of appearance"
    result = f"result: {amount(groups.npartitions, 'partition')}, groups {order}"
    if groups.is_single:
        yield f"{plan.verb.name} by {by}: the source is one partition, whose groups one task makes"
        yield from (read, "sent: nothing", result)
        return
    yield (
        f"{plan.verb.name} by {by}: {amount(parts, 'partition')} "
        f"{'is' if parts == 1 else 'are'} reduced where {'it lies' if parts == 1 else 'they lie'}"
    )
    if plan.needs_rows:
        yield "reduced: to the rows that are in a group, as the verb needs them side by side"
    else:
        told = [label for label in plan.states_meta if label not in {*plan.key_labels, "at"}]
        yield f"reduced: to a row a group, with {amount(len(told), 'state')} beside its keys"
    yield f"placed: {amount(states.ranges, 'hash range')} of the keys, each with one worker"
    yield read
    what = "rows" if plan.needs_rows else "states"
    yield f"sent: {what} to the owners of their hash ranges, few of them to one task"
    if states.ranked:
        yield "not sent: rows of heavy keys, whose values are found by rounds of counts"
    yield f"{result} in each"
