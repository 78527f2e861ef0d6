"""Describe the merges of a lazy frame in words: sides, storage, reads and traffic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np
from distributed import Client

from dgpuhash.distributed.cluster.dask_internals import (
    DataNode,
    Expr,
    Filter,
    FromGraph,
    FromPandas,
    Projection,
    ReadParquetPyarrowFS,
    new_collection,
    optimize_until,
)
from dgpuhash.distributed.ingest.mode import known_nbytes
from dgpuhash.distributed.merge.aligned import AlignedMergeExpr
from dgpuhash.distributed.merge.expression import MergeExpr, StandingMergeExpr
from dgpuhash.distributed.merge.steps import ProbeExpr
from dgpuhash.distributed.merge.strategy import Strategy
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.query.merge_tasks import Probe
from dgpuhash.distributed.query.plan import SealedProbe
from dgpuhash.frames import frames_of
from dgpuhash.frames.merge.partition import PartitionPlan
from dgpuhash.tables.stats import format_bytes

NO_MERGE = (
    "no merge of dgpuhash: this frame was not made by dgpuhash.merge, frame.dgpuhash.merge or "
    "index.merge, or it was computed since (persist)"
)


# What is sent where keys have no owners.
_SENT = {
    "aligned": "sent: rows between two divisions to one task; nothing by hash",
    "local": "sent: nothing by hash; a side that lies on another worker",
    "broadcast": "sent: nothing: each worker has all rows; back: nothing",
}


def explain_merges(frame: dd.DataFrame, client: Client) -> str:
    """Describe in words how each merge of a frame runs; see `IndexAccessor.explain`."""
    given = list(merges_of(frame.expr))
    optimized: Any = optimize_until(frame.expr, "simplified-logical")
    merges = list(merges_of(optimized))
    # As written, to tell what the optimizer has moved.
    alike = [_kind(each) for each in given] == [_kind(each) for each in merges]
    before: Sequence[Expr | None] = given if alike else [None] * len(merges)
    builds: dict[str, int] = {}
    told = []
    for number, (merge, written) in enumerate(zip(merges, before, strict=True), start=1):
        lines = _lines(merge, written, merges, client)
        if isinstance(merge, MergeExpr):
            lowered = merge._lower()
            first = number
            if isinstance(lowered, ProbeExpr):
                first = builds.setdefault(lowered.build._name, number)
            if first != number:
                lines.insert(-1, f"shared: its shards are those of merge {first}")
        if len(merges) > 1:
            lines[0] = f"merge {number}: {lines[0]}"
        told.append("\n".join(lines))
    return "\n\n".join(told) or NO_MERGE


def merges_of(expression: Expr) -> Iterator[Expr]:
    """Yield this library's merges in an expression, inputs before their users."""
    stack, seen = [(expression, False)], set()
    while stack:
        each, visited = stack.pop()
        if visited:
            yield each
        elif each._name not in seen:
            seen.add(each._name)
            if _is_merge(each):
                stack.append((each, True))
            stack += [(part, False) for part in reversed(each.dependencies())]


def amount(number: int, what: str) -> str:
    """Return a count with its noun as text.

    Examples
    --------
    >>> amount(1, "partition"), amount(2000, "partition")
    ('1 partition', '2,000 partitions')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def sent_to_shards(placement: Placement) -> str:
    """Describe what a merge sends to rows with this placement."""
    if placement is Placement.REPLICATED:
        return "nothing: each worker has all rows"
    if placement is Placement.INDEPENDENT:
        return "keys to all shards"
    return "keys to their owners"


def _is_merge(each: Expr) -> bool:
    ours = isinstance(each, MergeExpr | AlignedMergeExpr | StandingMergeExpr)
    return ours or _probe_of(each) is not None


def _kind(merge: Expr) -> tuple[Any, ...]:
    """Return the properties of a merge that the optimizer does not change."""
    if isinstance(merge, MergeExpr | AlignedMergeExpr):
        return type(merge), repr(merge.arguments)
    return (type(merge),)


def _probe_of(each: Expr) -> Probe | None:
    """Return the probe of a merge with a standing index."""
    if isinstance(each, StandingMergeExpr):
        probe: Probe = each.known
        return probe
    sealed = [one for one in each.operands if isinstance(one, SealedProbe)]
    return sealed[0].seal.opened() if sealed else None


def _lines(merge: Expr, written: Expr | None, merges: Sequence[Expr], client: Client) -> list[str]:
    if isinstance(merge, MergeExpr | AlignedMergeExpr):
        return list(_of_frames(merge, written, merges, client))
    probe = _probe_of(merge)
    assert probe is not None
    return _of_an_index(merge, probe)


def _of_frames(
    merge: Any, written: Expr | None, merges: Sequence[Expr], client: Client
) -> Iterator[str]:
    """Yield the lines about a merge of two frames, by its strategy."""
    plan, strategy = merge.plan, merge.strategy
    begin = f"{merge.arguments.how} merge{_by(plan)}: "
    stored = "right" if plan.probing == "left" else "left"
    read = _read(merge, written, merges, client)
    if strategy.kind in ("local", "aligned"):
        yield begin + strategy.why
        if strategy.kind == "aligned":
            yield f"indexed: the {stored} side, in each task by itself"
        yield from read
        yield _SENT[strategy.kind]
    else:
        parts = getattr(merge, plan.probing).npartitions
        yield begin + (
            f"{amount(parts, 'partition')} of the {plan.probing} side ask"
            f"{'s, in its' if parts == 1 else ', in their'} order"
        )
        yield f"indexed: the {stored} side, {strategy.indexed}"
        yield f"placed: {_place(strategy)}"
        yield f"stored: {_stored_columns(plan)}"
        yield from read
        back = _answer(plan.is_filter, _names(plan, plan.fetched))
        sent = sent_to_shards(Placement.DISTRIBUTED)
        yield _SENT.get(strategy.kind) or f"sent: {sent}; back: {back}"
    yield from _checked_sides(merge)
    if tails := len(getattr(merge, "_tails", ())):
        alone = "then" if merge.operand("probed") else "chosen alone"
        yield (
            f"{alone}: {amount(tails, 'partition')} with rows of the {stored} side that nothing "
            "matches"
        )
    yield _result(merge)


def _checked_sides(merge: MergeExpr | StandingMergeExpr) -> Iterator[str]:
    """Yield the sides whose keys are checked for uniqueness."""
    sides = [side for side, one in zip(("left", "right"), merge.validate, strict=True) if one]
    if sides:
        yield f"checked before: keys of the {' and the '.join(sides)} side are unique"


def _of_an_index(merge: Expr, probe: Probe) -> list[str]:
    """Return the lines about a merge of a frame with a standing index."""
    descriptor, tails = probe.descriptor, len(getattr(merge, "_tails", ()))
    parts = merge.npartitions - tails
    back = _answer(probe.how in ("semi", "anti"), list(probe.moved))
    lines = [
        f"{probe.how} merge by {_key_names(probe.left_on, descriptor.encoder.names)}: "
        f"{amount(parts, 'partition')} of the left side ask{'s' if parts == 1 else ''} the index "
        f"{descriptor.name!r}, in {'its' if parts == 1 else 'their'} order",
        f"stored: {amount(len(descriptor.shards), 'shard')}, {descriptor.placement.value}, epoch "
        f"{descriptor.epoch:,}, columns {list(descriptor.meta)!r}",
        f"sent: {sent_to_shards(descriptor.placement)}; back: {back}",
    ]
    if isinstance(merge, StandingMergeExpr):
        lines += _checked_sides(merge)
    if tails:
        lines.append(
            f"then: {amount(tails, 'partition')} with rows of the index that nothing matches"
        )
    return [*lines, _result(merge)]


def _by(plan: PartitionPlan) -> str:
    if plan.arguments.how == "cross":
        return ""
    pairs = plan.keys.pairs
    labels = [[pair.left_label for pair in pairs], [pair.right_label for pair in pairs]]
    return f" by {_key_names(*labels)}"


def _key_names(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> str:
    """Return the names of keys, with both names where the sides differ."""
    named = [["the index" if label is None else repr(label) for label in each]
             for each in (ours, theirs)]  # fmt: skip
    pairs = zip(*named, strict=True)
    return ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)


def _place(strategy: Strategy) -> str:
    if strategy.kind == "broadcast":
        return f"replicated, all rows on each worker, {strategy.why}"
    ranges = amount(strategy.ranges, "hash range")
    return f"distributed over {ranges} of its keys{strategy.why and ', '}{strategy.why}"


def _answer(filters: bool, columns: list[Hashable]) -> str:
    """Describe the answer of shards."""
    return "which keys are there" if filters else repr(columns)


def _stored_columns(plan: PartitionPlan) -> str:
    """Return the columns kept from the build side."""
    columns = _names(plan, [label for label in plan.stored_meta if str(label)[0] == "c"])
    beside = f" and columns {columns!r}" if columns else " alone"
    labels = any(str(label)[0] == "i" for label in plan.stored_meta)
    keys = "no keys" if plan.arguments.how == "cross" else "its keys"
    return f"{keys}{beside}{', and the labels of rows' if labels else ''}"


def _names(plan: PartitionPlan, labels: Sequence[Hashable]) -> list[Hashable]:
    """Return the names that columns of stored rows have in their frame."""
    found: list[Hashable] = []
    keys: list[Hashable | None] = []
    for pair, columns in zip(plan.keys.pairs, plan.keys.columns, strict=True):
        label = pair.right_label if plan.probing == "left" else pair.left_label
        keys += [label] * len(columns)
    for kind, place in ((str(label)[0], int(str(label)[1:])) for label in labels):
        if kind == "c":
            found.append(plan.storing.columns[place])
        elif kind == "k" and keys[place] is not None:
            found.append(keys[place])
        elif kind == "i":
            found.append(plan.storing.index.names[place] or "its labels")
    return found


def _read(merge: Any, written: Any, merges: Sequence[Expr], client: Client) -> Iterator[str]:
    """Yield what is read of each side after optimization."""
    names = [each._name for each in merges]
    for side in ("left", "right"):
        now = getattr(merge, side)
        columns = list(now.columns)
        told = f"columns {columns!r}"
        if written is not None:
            then = getattr(written, side)
            if len(then.columns) > len(columns):
                told += f" of {len(then.columns)}"
            moved = len(_filters(now)) - len(_filters(then))
            if moved > 0:
                told += f", {amount(moved, 'condition')} before the merge"
        made = next((f"merge {names.index(each._name) + 1}" for each in _chain(now)
                     if each._name in names), "")  # fmt: skip
        size = f"{made}, " if made else size_of(now, columns, client)
        yield f"{side} side: {amount(now.npartitions, 'partition')}, {size}{told}"


def size_of(side: Expr, columns: list[Hashable], client: Client) -> str:
    """Return the bytes of some columns of a side as text, with a comma."""
    nbytes = _nbytes(side, columns, client)
    return "bytes unknown before it is read, " if nbytes is None else f"{format_bytes(nbytes)}, "


def _chain(expression: Expr) -> Iterator[Expr]:
    """Yield an expression and the chain of its inputs that select columns and rows."""
    yield expression
    while isinstance(expression, Projection | Filter):
        expression = expression.frame
        yield expression


def _filters(expression: Expr) -> list[Any]:
    return list(expression.find_operations(Filter))


def _nbytes(side: Expr, columns: list[Hashable], client: Client) -> int | None:
    """Return the bytes of some columns of a side, if they are known without reading it."""
    source = side
    if len(set(columns)) < len(columns):
        return None
    while isinstance(source, Projection):
        source = source.frame
    if isinstance(source, FromPandas) and source.operand("_partitions") is None:
        frame = source.operand("frame")._data
        return int(frames_of(frame).nbytes(frame[columns]))
    if isinstance(source, ReadParquetPyarrowFS) and source.filters is None:
        found = source.approx_statistics()["columns"]
        read = [each["total_uncompressed_size"] for each in found
                if each["path_in_schema"] in columns]  # fmt: skip
        return int(np.sum(read) * len(source._dataset_info["all_files"]))
    if isinstance(source, FromGraph):
        held = source.operand("layer").values()
        if all(isinstance(each, DataNode) for each in held):
            frames = [each.value for each in held]
            return sum(int(frames_of(frame).nbytes(frame[columns])) for frame in frames)
    if source.ndim == 2:
        return known_nbytes(client, new_collection(source), columns)
    return None


def _result(merge: Expr) -> str:
    told = "known" if merge.known_divisions else "unknown"
    return f"result: {amount(merge.npartitions, 'partition')}, divisions {told}"
