"""Covariances and correlations of pairs of columns by group."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups


@dataclass(frozen=True, slots=True)
class Moments:
    """Counts, means and sums of products of two columns, by group, without nulls.

    Attributes
    ----------
    count : int64 array
    mixed, squares, others : float64 array
        The sums of products of deviations from the means: of both columns, of the left one and of
        the right one alone.
    """

    count: Any
    mixed: Any
    squares: Any
    others: Any


def matrices(
    groups: Any, columns: int, of: Callable[[int, int], Moments], how: str, least: int, ddof: int
) -> Any:
    """Return one matrix of all pairs of columns for each group.

    Rows with a null in one of both columns are left out of a pair.

    Parameters
    ----------
    groups : Groups or CudfGroups
    columns : int
        How many there are.
    of : function
        The moments of two columns by number, the first of which is not above the second.
    how : {"cov", "corr"}
    least : int
        Fewer rows of a pair give NaN.
    ddof : int
    """
    made = groups.xp.full((len(groups), columns, columns), np.nan)
    for place in range(columns):
        for other in range(place, columns):
            found = _aggregate(of(place, other), how, least, ddof)
            made[:, place, other] = made[:, other, place] = found
    return made


def _finite(column: pd.Series) -> pd.Series:
    """Return a column of numbers with nulls in place of infinities."""
    values = Values(column)
    if values.kind == "object":
        mask = np.array([each in (math.inf, -math.inf) for each in column.where(column.notna(), 0)])
    else:
        mask = np.isinf(values.numbers) if values.kind == "float" else np.zeros(0, bool)
    return column.mask(mask) if mask.any() else column


def floats(groups: Groups, column: pd.Series, how: str) -> Any:
    """Return a column's rows in groups as float64, less one of the column's values.

    As pandas does, `corr` leaves infinities out.
    """
    values = Values(groups.kept(_finite(column) if how == "corr" else column))
    if not values.is_number and values.kind != "object":
        raise SpecError(f"could not convert {column.dtype} to float; use numeric_only=True")
    if values.kind == "object":
        return values.series.astype(np.float64).to_numpy()
    made = values.floats
    if values.nulls is not None and not values.skips_nan:
        made = made.copy()
        made[values.nulls] = np.nan
    return made


def moments(groups: Groups, left: Any, right: Any) -> Moments:
    """Return the moments of two columns of floats in each group.

    Means are taken in a first pass, products of deviations from them in a second one.
    """
    codes = groups.kept_codes
    both = np.flatnonzero(~(np.isnan(left) | np.isnan(right)))
    codes, left, right = codes[both], left[both], right[both]
    words = _sums(codes, len(groups), [left, right])
    count = np.bincount(codes, minlength=len(groups))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ours, theirs = left - (words[0] / count)[codes], right - (words[1] / count)[codes]
        products = [ours * theirs, ours * ours, theirs * theirs, ours, theirs]
        mixed, squares, others, off, rest = _sums(codes, len(groups), products)
        # Kernels leave NaN out, which deviations from what is infinite are.
        off, rest = (
            np.where(np.isfinite(total), each, np.nan)
            for total, each in zip(words, (off, rest), strict=True)
        )
        return Moments(
            count, mixed - off * rest / count, squares - off * off / count,
            others - rest * rest / count,
        )  # fmt: skip


def moments_of_all(groups: Groups, columns: Sequence[Any]) -> Callable[[int, int], Moments]:
    """Return a function of the moments of two columns by number, in ascending order.

    Without nulls all pairs share the means and the deviations from them.
    """
    if any(bool(np.isnan(column).any()) for column in columns):
        return lambda ours, theirs: moments(groups, columns[ours], columns[theirs])
    codes, count = groups.kept_codes, groups.sizes
    off, totals = [], _sums(codes, len(groups), list(columns))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for column, total in zip(columns, totals, strict=True):
            means = (total / count)[codes]
            off.append(np.subtract(column, means, out=means))
    rests = [
        np.where(np.isfinite(total), each, np.nan)
        for total, each in zip(totals, _sums(codes, len(groups), off), strict=True)
    ]

    @functools.cache
    def mixed(place: int) -> list[Any]:
        """Return the sums of products of a column's deviations and those of each column behind."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            sums = _sums(codes, len(groups), [off[place] * other for other in off[place:]])
            return [
                each - rests[place] * rest / count
                for each, rest in zip(sums, rests[place:], strict=True)
            ]

    def of(ours: int, theirs: int) -> Moments:
        return Moments(count, mixed(ours)[theirs - ours], mixed(ours)[0], mixed(theirs)[0])

    return of


def _aggregate(found: Moments, how: str, least: int, ddof: int) -> Any:
    """Return covariances or correlations; NaN for fewer than `least` rows."""
    count = found.count
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if how == "cov":
            made = found.mixed / (count - ddof)
            return np.where((count >= max(least, 1)) & (count > ddof), made, np.nan)
        made = np.clip(found.mixed / np.sqrt(found.squares * found.others), -1, 1)
        return np.where(count >= max(least, 1), made, np.nan)


def _sums(codes: Any, groups: int, columns: list[Any]) -> list[Any]:
    reductions = [
        ColumnReduction(each if each.flags.c_contiguous else each.copy(), "f8", "real", "real_sum")
        for each in columns
    ]
    return [
        each.view(np.float64)
        for each in reduce_groups(backend.get(None, codes), codes, groups, reductions)
    ]
