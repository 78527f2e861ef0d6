"""Totals by group: of numbered groups, or together with their keys in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.structs import groups as args
from dgpuhash.seeds import draw_seed
from dgpuhash.tables.columns.distinct import Estimate, fill
from dgpuhash.tables.columns.group_table import GroupTable

__all__ = ["Reduced", "adds_at_once", "group_counts", "reduce_groups", "reduce_keys"]

# Columns that fit beside a key and its first row in 64 bytes.
_MOST_AT_ONCE = 6
# Up to here totals of each block's own are faster: on an H200 2^27 rows of 4,096 groups take 4.3 ms
# and 5.4 without; of 65,536 groups 4.5 without.
_FEW_GROUPS = 2**12
# From so many groups on totals do not stay in the L2 cache: rows are put in order of regions of the
# table first, where there are enough to fill a GPU many times.
_SCATTERED_GROUPS, _SCATTERED_ROWS, _REGIONS_OF_TABLE = 2**21, 2**24, 64
_WORDS = {4: np.uint32, 8: np.uint64}
# From here on a CPU adds up beside the keys faster than by number: 2^16 groups of 8 million rows
# take 155 ms of both cores and not 166, 2^18 groups 163 and not 534.
_CPU_MANY_GROUPS = 2**15

_CPU_SEGMENTS = 16
# On a CPU a region's totals stay in its caches.
_REGION_BITS, _REGIONS = 12, 2**10
# On a GPU enough tiles to fill it, and their rows; each has its own totals of up to so many groups.
_GPU_TILES, _GPU_ROWS, _GPU_OWN_GROUPS = 2**12, 256, 2**11


@dataclass(frozen=True, slots=True)
class Reduced:
    """A column and what is done to it; the words are those of `args.READINGS` and so on."""

    values: Any
    """On the backend's device; None where only rows count."""
    reading: str
    term: str
    fold: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """How rows are cut into segments of one tile each."""

    segment_rows: int
    segments: int
    copies: int
    """Of the totals: one, or one for each segment."""
    alone: bool
    """No two tiles update one total."""
    region_bits: int | None = None
    """Where segments are the rows of a region: the logarithm of its groups."""


def reduce_groups(
    backend: Backend, codes: Any, groups: int, columns: Sequence[Reduced]
) -> list[Any]:
    """For each column the totals (uint64 words) of the groups that `codes` (int64) number."""
    plan = _plan(backend.name, len(codes), groups)
    if backend.name == "cpu" and plan.alone:
        columns = [
            replace(column, fold="compensated") if column.fold == "real_sum" else column
            for column in columns
        ]
    totals = []
    for column in columns:
        shape = (plan.copies, groups, 2) if column.fold == "compensated" else (plan.copies, groups)
        totals.append(backend.full(shape, 2**64 - 1 if column.fold == "least" else 0, np.uint64))
    if groups and columns:
        _launch(backend, plan, codes, groups, columns, totals)
    return [_combined(each, column.fold) for each, column in zip(totals, columns, strict=True)]


def group_counts(backend: Backend, codes: Any, groups: int) -> Any:
    """Rows of each group, int64."""
    counted = Reduced(None, "u1", "one", "sum")
    return reduce_groups(backend, codes, groups, [counted])[0].view(np.int64)


def adds_at_once(backend: Backend, estimate: Estimate, columns: Sequence[Reduced]) -> bool:
    """Whether `reduce_keys` is fast, and gives what is promised: where few floats are added up, the
    same bits in every run."""
    if not 0 < len(columns) <= _MOST_AT_ONCE:
        return False
    unordered = any(column.fold == "real_sum" for column in columns)
    if backend.name == "cpu":
        return estimate.least > _CPU_MANY_GROUPS and not unordered
    return estimate.least > _GPU_OWN_GROUPS or not unordered


def reduce_keys(
    backend: Backend, bits: Any, estimate: Estimate, columns: Sequence[Reduced]
) -> tuple[Any, Any, list[Any]]:
    """The first rows (int64) of distinct keys, in order; the keys; for each column their totals."""
    table = _added(backend, bits, estimate, columns)
    first_rows = table.first_rows(len(bits))
    return first_rows, *table.totals(bits, first_rows, len(columns))


def _added(
    backend: Backend, bits: Any, estimate: Estimate, columns: Sequence[Reduced]
) -> GroupTable:
    """A table of the keys in which the columns are added up."""
    seed = draw_seed()
    ordered = _by_region(backend, bits, estimate, columns, seed)
    described = _described(backend, ordered.columns, [None] * len(columns))
    few = ordered.rows is None and estimate.least <= _FEW_GROUPS

    def add(table: GroupTable, repeats: bool) -> bool | None:
        added = table.add(
            ordered.bits,
            described,
            len(columns),
            rows=ordered.rows,
            repeats=repeats,
            few=estimate.least if few else None,
        )
        return added or None

    return fill(backend, bits, estimate, add, [each.fold for each in columns], seed=seed)[0]


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A batch in the order in which it is added up."""

    bits: Any
    columns: Sequence[Reduced]
    rows: Any = None
    """Their numbers in the batch as it was given; None when they stand as given."""


def _by_region(
    backend: Backend, bits: Any, estimate: Estimate, columns: Sequence[Reduced], seed: int
) -> _Ordered:
    """The batch by regions of the table, each of which fits the L2 cache, where all do not.

    A pass moves one column of values along; batches of more columns stay as they are.
    """
    read = {id(each.values): each.values for each in columns if each.values is not None}
    values = next(iter(read.values()), None)
    movable = values is None or values.dtype.itemsize in _WORDS
    scattered = estimate.expected >= _SCATTERED_GROUPS and len(bits) >= _SCATTERED_ROWS
    if not scattered or len(read) > 1 or not movable:
        return _Ordered(bits, columns)
    words = None if values is None else values.view(_WORDS[values.dtype.itemsize])
    try:
        moved = backend.partition(bits, words, parts=_REGIONS_OF_TABLE, seed=seed, numbered=True)
    except MemoryError:
        return _Ordered(bits, columns)
    there = None if values is None else moved.values.view(values.dtype)
    kept = [each if each.values is None else replace(each, values=there) for each in columns]
    return _Ordered(moved.keys, kept, moved.numbers)


def _described(backend: Backend, columns: Sequence[Reduced], totals: Sequence[Any]) -> Any:
    """The columns on the device, as kernels get them."""
    described = np.zeros(len(columns), args.REDUCE_COLUMN)
    for row, column, total in zip(described, columns, totals, strict=True):
        row["values"] = backend.pointer(column.values)
        row["totals"] = backend.pointer(total)
        row["reading"] = args.READINGS.index(column.reading)
        row["term"] = args.TERMS.index(column.term)
        row["fold"] = args.FOLDS.index(column.fold)
    return backend.from_host(described.view(np.uint64))


def _plan(device: str, rows: int, groups: int) -> _Plan:
    if device == "cpu":
        return _cpu_plan(rows, groups)
    if groups > _GPU_OWN_GROUPS:
        return _Plan(_GPU_ROWS, math.ceil(rows / _GPU_ROWS), copies=1, alone=False)
    segment_rows = max(_GPU_ROWS, math.ceil(rows / _GPU_TILES))
    segments = max(1, math.ceil(rows / segment_rows))
    return _Plan(segment_rows, segments, copies=segments, alone=True)


def _cpu_plan(rows: int, groups: int) -> _Plan:
    few_rows = rows <= 2**_REGION_BITS
    if few_rows or _CPU_SEGMENTS * groups <= rows // 4:
        segments = 1 if few_rows else _CPU_SEGMENTS
        return _Plan(max(1, math.ceil(rows / segments)), segments, copies=segments, alone=True)
    bits = max(_REGION_BITS, math.ceil(groups / _REGIONS - 1).bit_length())
    regions = (groups - 1 >> bits) + 1
    return _Plan(math.ceil(rows / regions), regions, copies=1, alone=True, region_bits=bits)


def _launch(
    backend: Backend,
    plan: _Plan,
    codes: Any,
    groups: int,
    columns: Sequence[Reduced],
    totals: list[Any],
) -> None:
    order = edges = None
    if plan.region_bits is not None and plan.segments > 1:
        regions = (codes >> plan.region_bits).astype(np.uint32)
        order, counts = backend.multisplit(regions, plan.segments)
        edges = backend.from_host(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    on_device = _described(backend, columns, totals)
    # The greatest word of 32 bits is left for lanes without a row.
    wide = groups >= 2**32
    backend.run(
        args.group_reduce(), args.REDUCE, plan.segments,
        batch=(codes, order, on_device, len(columns), plan.alone, wide),
        edges=edges, rows=len(codes), segment_rows=plan.segment_rows, groups=groups,
        copies=plan.copies,
    )  # fmt: skip


def _combined(totals: Any, fold: str) -> Any:
    """The totals of all segments, added up in the order of the segments."""
    if fold == "compensated":
        return _compensated(totals.view(np.float64)).view(np.uint64)
    if len(totals) == 1:
        return totals[0]
    if fold == "sum":
        return totals.sum(axis=0, dtype=np.uint64)
    if fold == "real_sum":
        with np.errstate(invalid="ignore", over="ignore"):
            return totals.view(np.float64).sum(axis=0).view(np.uint64)
    return totals.min(axis=0) if fold == "least" else totals.max(axis=0)


def _compensated(totals: np.ndarray) -> np.ndarray:
    """Sums of all segments, of each of which it is told what it is too large by."""
    sums, excess = np.ascontiguousarray(totals[0, :, 0]), totals[0, :, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        for each in totals[1:]:
            wanted = each[:, 0] - (excess + each[:, 1])
            made = sums + wanted
            excess = made - sums - wanted
            excess[~np.isfinite(excess)] = 0
            sums = made
    return sums
