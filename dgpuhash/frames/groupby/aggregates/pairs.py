"""Covariances and correlations of pairs of columns by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.tables.columns.aggregates import ColumnReduction, reduce_groups

__all__ = ["matrices", "pair"]


def matrices(groups: Groups, columns: Sequence[pd.Series], how: str, least: int, ddof: int) -> Any:
    """Return one matrix of all pairs of columns for each group.

    Rows with a null in one of both columns are left out of a pair.

    Parameters
    ----------
    groups : Groups
    columns : list of Series
        Of numbers, numbered from 0.
    how : {"cov", "corr"}
    least : int
        Fewer rows of a pair give NaN.
    ddof : int
    """
    floats = [_floats(groups, column) for column in columns]
    made = np.full((len(groups), len(columns), len(columns)), np.nan)
    for place, ours in enumerate(floats):
        for other in range(place, len(floats)):
            found = pair(groups, ours, floats[other], how, least, ddof)
            made[:, place, other] = made[:, other, place] = found
    return made


def _floats(groups: Groups, column: pd.Series) -> Any:
    """Return the rows of a column that are in a group as float64, less a value of the column."""
    values = Values(groups.kept(column))
    if not values.is_number and values.kind != "object":
        raise SpecError(f"could not convert {column.dtype} to float; use numeric_only=True")
    if values.kind == "object":
        return column.astype(np.float64).to_numpy()
    made = values.floats.copy()
    if values.nulls is not None:
        made[values.nulls] = np.nan
    return made


def pair(groups: Groups, left: Any, right: Any, how: str, least: int, ddof: int) -> Any:
    """Return the covariance or correlation of two columns of floats in each group.

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
        mixed = mixed - off * rest / count
        if how == "cov":
            made = mixed / (count - ddof)
            return np.where((count >= max(least, 1)) & (count > ddof), made, np.nan)
        squares, others = squares - off * off / count, others - rest * rest / count
        made = np.clip(mixed / np.sqrt(squares * others), -1, 1)
        return np.where(count >= max(least, 1), made, np.nan)


def _sums(codes: Any, groups: int, columns: list[Any]) -> list[Any]:
    reductions = [
        ColumnReduction(np.ascontiguousarray(column), "f8", "real", "real_sum")
        for column in columns
    ]
    return [
        each.view(np.float64)
        for each in reduce_groups(backend.get("cpu"), codes, groups, reductions)
    ]
