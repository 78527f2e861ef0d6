"""Compute aggregates by group: of numbered groups, or of keys in one pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named, struct_named
from dgpuhash.backend.constants import FOLDS, READINGS, TERMS
from dgpuhash.backend.native import native
from dgpuhash.seeds import draw_seed
from dgpuhash.tables.columns.distinct import DistinctEstimate, build_group_table
from dgpuhash.tables.columns.group_table import GroupTable
from dgpuhash.typing import Device

# Columns whose aggregates fit in 64 bytes with a key and its first row.
_MOST_AT_ONCE = 6
# Folds of two words: a sum, and what it is too large by.
_PAIRS = frozenset({"compensated", "pair"})
# Up to this number of groups block-local aggregates are faster: on an H200 2^27 rows of 4,096
# groups take 4.3 ms, and 5.4 without them; 65,536 groups take 4.5 without.
_FEW_GROUPS = 2**12
# From this number of groups on, aggregates do not stay in the L2 cache: rows are first partitioned
# by table region, if there are enough rows to fill a GPU many times.
_SCATTERED_GROUPS, _SCATTERED_ROWS, _REGIONS_OF_TABLE = 2**21, 2**24, 64
_WORDS = {4: np.uint32, 8: np.uint64}
# From this number of groups on, a CPU aggregates faster in the key table than by group number: 2^16
# groups of 8 million rows take 155 instead of 166 ms on two cores, 2^18 groups 163 instead of 534.
_CPU_MANY_GROUPS = 2**15

# Segments with aggregates of their own: as many as have many rows for each group.
_CPU_SEGMENTS = (16, 8, 4)
# On a CPU the aggregates of a region stay in the caches.
_REGION_BITS, _REGIONS = 12, 2**10
# Tiles that fill a GPU, least rows of a tile, most groups for which a tile has its own aggregates.
_GPU_TILES, _GPU_ROWS, _GPU_OWN_GROUPS = 2**12, 256, 2**11


@dataclass(frozen=True, slots=True)
class ColumnReduction:
    """Reduction of one column: how to read, map and fold its values.

    `reading`, `term` and `fold` are words of `READINGS`, `TERMS` and `FOLDS`.
    """

    values: Any
    """Array on the backend's device; None where only row numbers or counts matter."""
    reading: str
    term: str
    fold: str


@dataclass(frozen=True, slots=True)
class _SegmentPlan:
    """Split of rows into segments, each processed by one tile."""

    segment_rows: int
    segments: int
    copies: int
    """Copies of the aggregates: one, or one for each segment."""
    alone: bool
    """Whether no two tiles update the same aggregate."""
    region_bits: int | None = None
    """Binary logarithm of the groups of a region, where segments are the rows of a region."""


def reduce_groups(
    backend: Backend, codes: Any, groups: int, columns: Sequence[ColumnReduction]
) -> list[Any]:
    """Return, for each column, the aggregate (uint64 words) of each group.

    `codes` (int64) are the group numbers of the rows. The fold ``pair``, of float64, gives two
    words for each group: a sum, and what it is too large by.
    """
    folds = [column.fold for column in columns]
    plan = _plan(backend.name, len(codes), groups)
    if backend.name == "cpu" and plan.alone:
        columns = [
            replace(column, fold="compensated") if column.fold == "real_sum" else column
            for column in columns
        ]
        folds = [column.fold for column in columns]
    if backend.name == "cuda":
        columns = list(map(_compensating, columns))
    totals = []
    for column in columns:
        # Each sum has its excess beside it.
        shape = (plan.copies, groups, 2) if column.fold in _PAIRS else (plan.copies, groups)
        totals.append(backend.full(shape, 2**64 - 1 if column.fold == "least" else 0, np.uint64))
    if groups and columns:
        _launch(backend, plan, codes, groups, columns, totals)
    return [_combine(backend, each, fold) for each, fold in zip(totals, folds, strict=True)]


def _compensating(column: ColumnReduction) -> ColumnReduction:
    """Return a reduction in GPU form, with compensated sums as pairs."""
    return replace(column, fold="compensated") if column.fold == "pair" else column


def group_counts(backend: Backend, codes: Any, groups: int) -> Any:
    """Return the number of rows in each group (int64)."""
    counted = ColumnReduction(None, "u1", "one", "sum")
    return reduce_groups(backend, codes, groups, [counted])[0].view(np.int64)


def one_pass_pays(
    backend: Backend, estimate: DistinctEstimate, columns: Sequence[ColumnReduction]
) -> bool:
    """Return whether `reduce_keys` is fast and as reproducible as promised.

    Where floats are added up in few groups, the result has the same bits in every run.
    """
    if not 0 < len(_in_records(columns)) <= _MOST_AT_ONCE:
        return False
    unordered = any(column.fold == "real_sum" or column.fold in _PAIRS for column in columns)
    if backend.name == "cpu":
        return estimate.least > _CPU_MANY_GROUPS and not unordered
    if estimate.least <= _FEW_GROUPS and any(each.fold in _PAIRS for each in columns):
        # Blocks have no compensated sums of their own.
        return False
    return estimate.least > _GPU_OWN_GROUPS or not unordered


def reduce_keys(
    backend: Backend, bits: Any, estimate: DistinctEstimate, columns: Sequence[ColumnReduction]
) -> tuple[Any, Any, list[Any]]:
    """Return first rows, distinct keys and aggregates in one pass.

    The first rows (int64) of the distinct keys are in order; there is one array of aggregates for
    each column.
    """
    stored = _in_records(columns)
    table, first_rows = _aggregates_table(backend, bits, estimate, [each for _, each in stored])
    keys, words = table.totals(bits, first_rows, len(stored))
    totals: list[Any] = [None] * len(columns)
    for (place, column), found in zip(stored, words, strict=True):
        if column.fold == "excess":
            pair = backend.xp.stack([totals[place], found], axis=1)
            totals[place] = _combine(backend, pair[None], columns[place].fold)
        else:
            totals[place] = found
    return first_rows, keys, totals


def _in_records(columns: Sequence[ColumnReduction]) -> list[tuple[int, ColumnReduction]]:
    """Return columns with their offsets in records of a table.

    Compensated sums come first, each with a column for its excess.
    """
    stored = []
    for place, column in enumerate(columns):
        if column.fold in _PAIRS:
            stored.append((place, _compensating(column)))
            stored.append((place, ColumnReduction(None, "u1", "one", "excess")))
    others = [each for each in enumerate(columns) if each[1].fold not in _PAIRS]
    return [*stored, *others]


def _aggregates_table(
    backend: Backend, bits: Any, estimate: DistinctEstimate, columns: Sequence[ColumnReduction]
) -> tuple[GroupTable, Any]:
    """Return a table of the keys with the aggregated columns, and the first rows of keys."""
    seed = draw_seed()
    ordered = _by_region(backend, bits, estimate, columns, seed)
    described = _column_structs(backend, ordered.columns, [None] * len(columns))
    few = None
    if ordered.rows is None and estimate.expected <= _FEW_GROUPS:
        few = estimate.expected

    def add(table: GroupTable, repeats: bool) -> Any | None:
        return table.add(
            ordered.bits, described, len(columns), rows=ordered.rows, repeats=repeats, few=few
        )

    return build_group_table(
        backend, bits, estimate, add, [each.fold for each in columns], seed=seed
    )


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Batch in aggregation order."""

    bits: Any
    columns: Sequence[ColumnReduction]
    rows: Any = None
    """Row numbers in the original batch; None when the order is the original one."""


def _by_region(
    backend: Backend,
    bits: Any,
    estimate: DistinctEstimate,
    columns: Sequence[ColumnReduction],
    seed: int,
) -> _Ordered:
    """Return the batch partitioned by table regions that fit the L2 cache.

    Returns the batch unchanged when the table or the batch is small, when it has several columns of
    values (one pass moves one column of 4 or 8 bytes), or when memory is short.
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


def _column_structs(
    backend: Backend, columns: Sequence[ColumnReduction], totals: Sequence[Any]
) -> Any:
    """Return the array of column structs for kernels, on the device."""
    described = np.zeros(len(columns), struct_named("ReduceColumn").dtype)
    for row, column, total in zip(described, columns, totals, strict=True):
        row["values"] = backend.pointer(column.values)
        row["totals"] = backend.pointer(total)
        row["reading"] = READINGS.index(column.reading)
        row["term"] = TERMS.index(column.term)
        row["fold"] = FOLDS.index(column.fold)
    return backend.from_host(described.view(np.uint64))


def _plan(device: Device, rows: int, groups: int) -> _SegmentPlan:
    if device == "cpu":
        return _cpu_plan(rows, groups)
    if groups > _GPU_OWN_GROUPS:
        return _SegmentPlan(_GPU_ROWS, math.ceil(rows / _GPU_ROWS), copies=1, alone=False)
    segment_rows = max(_GPU_ROWS, math.ceil(rows / _GPU_TILES))
    segments = max(1, math.ceil(rows / segment_rows))
    return _SegmentPlan(segment_rows, segments, copies=segments, alone=True)


def _cpu_plan(rows: int, groups: int) -> _SegmentPlan:
    few_rows = rows <= 2**_REGION_BITS
    able = (1,) if few_rows else _CPU_SEGMENTS
    segments = next((each for each in able if few_rows or each * groups <= rows // 2), None)
    if segments is not None:
        return _SegmentPlan(
            max(1, math.ceil(rows / segments)), segments, copies=segments, alone=True
        )
    if native().threads() == 1:
        # Regions are for several threads; each group's rows come in the same order without them.
        return _SegmentPlan(rows, 1, copies=1, alone=True)
    bits = max(_REGION_BITS, math.ceil(groups / _REGIONS - 1).bit_length())
    regions = (groups - 1 >> bits) + 1
    return _SegmentPlan(math.ceil(rows / regions), regions, copies=1, alone=True, region_bits=bits)


def _launch(
    backend: Backend,
    plan: _SegmentPlan,
    codes: Any,
    groups: int,
    columns: Sequence[ColumnReduction],
    totals: list[Any],
) -> None:
    order = edges = None
    if plan.region_bits is not None and plan.segments > 1:
        regions = (codes >> plan.region_bits).astype(np.uint32)
        order, counts = backend.multisplit(regions, plan.segments)
        edges = backend.from_host(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    # The greatest 32-bit word marks lanes without a row.
    wide = groups >= 2**32
    # The totals of one column stay in a CPU's caches.
    at_once = 1 if backend.name == "cpu" else len(columns)
    for first in range(0, len(columns), at_once):
        some = slice(first, first + at_once)
        on_device = _column_structs(backend, columns[some], totals[some])
        backend.run(
            kernel_named("group_reduce"), plan.segments,
            batch=(codes, order, on_device, len(columns[some]), plan.alone, wide),
            edges=edges, rows=len(codes), segment_rows=plan.segment_rows, groups=groups,
            copies=plan.copies,
        )  # fmt: skip


def _combine(backend: Backend, totals: Any, fold: str) -> Any:
    """Return the aggregates of all segments, combined in segment order."""
    if fold == "compensated":
        if backend.name == "cpu":
            return _compensated_sums(totals.view(np.float64)).view(np.uint64)
        sums, excess = _settle(backend, totals)
        return (sums - excess).view(np.uint64)
    if fold == "pair":
        if backend.name == "cpu":
            return _sum_pairs(totals.view(np.float64)).view(np.uint64)
        return backend.xp.stack(_settle(backend, totals), axis=1).view(np.uint64)
    if len(totals) == 1:
        return totals[0]
    if fold == "sum":
        return totals.sum(axis=0, dtype=np.uint64)
    if fold == "real_sum":
        with np.errstate(invalid="ignore", over="ignore"):
            return totals.view(np.float64).sum(axis=0).view(np.uint64)
    return totals.min(axis=0) if fold == "least" else totals.max(axis=0)


def _compensated_sums(totals: np.ndarray) -> np.ndarray:
    """Return compensated sums over all segments, equal to pandas'.

    Each segment has a sum, and the excess of this sum over the exact one.
    """
    sums, excess = np.ascontiguousarray(totals[0, :, 0]), totals[0, :, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        for each in totals[1:]:
            wanted = each[:, 0] - (excess + each[:, 1])
            made = sums + wanted
            excess = made - sums - wanted
            excess[~np.isfinite(excess)] = 0
            sums = made
    return sums


def _sum_pairs(totals: np.ndarray) -> np.ndarray:
    """Return the sums of all segments, and their rounding errors (Knuth 1969)."""
    sums, excess = totals[0, :, 0], totals[0, :, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        for each in totals[1:]:
            made = sums + each[:, 0]
            part = made - sums
            lost = (sums - (made - part)) + (each[:, 0] - part)
            excess = excess + each[:, 1] - lost
            sums = made
    return np.stack([sums, excess], axis=1)


def _settle(backend: Backend, totals: Any) -> tuple[Any, Any]:
    """Return sums of a GPU's segments, and their accumulated rounding errors.

    Sums of segments are added up as rows are.
    """
    xp, (copies, groups, _) = backend.xp, totals.shape
    sums, excess = totals.view(np.float64)[..., 0], totals.view(np.float64)[..., 1]
    if copies == 1:
        return sums[0], excess[0]
    codes = xp.tile(xp.arange(groups, dtype=np.int64), copies)
    columns = [
        ColumnReduction(xp.ascontiguousarray(sums).reshape(-1), "f8", "real", "compensated"),
        ColumnReduction(xp.ascontiguousarray(excess).reshape(-1), "f8", "real", "real_sum"),
    ]
    shapes = (1, groups, 2), (1, groups)
    made = [backend.full(shape, 0, np.uint64) for shape in shapes]
    plan = _SegmentPlan(_GPU_ROWS, math.ceil(len(codes) / _GPU_ROWS), copies=1, alone=False)
    _launch(backend, plan, codes, groups, columns, made)
    pair, rest = made[0].view(np.float64)[0], made[1].view(np.float64)[0]
    # The sum of opposite infinities is no number, which rows leave out.
    none = (sums != sums).any(axis=0)
    return xp.where(none, np.nan, pair[:, 0]), pair[:, 1] + rest
