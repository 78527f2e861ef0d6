"""Reduce columns by key in one pass: sums, means and extremes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import ColumnError, KeyTypeError, SpecError
from dgpuhash.spec import native_dtype
from dgpuhash.tables.arguments.casts import as_float
from dgpuhash.tables.arguments.encoding import carrier_dtype
from dgpuhash.tables.arguments.interop import (
    ArrayArgument,
    as_argument,
    as_device_array,
    natural_dtype,
    same_length,
)
from dgpuhash.tables.columns.aggregates import ColumnReduction
from dgpuhash.tables.columns.factorize import GroupedKeys
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.typing import Array, KeysLike, Reduction, ValuesLike

_HOWS = get_args(Reduction)
_OF_ANYTHING = ("count", "first", "last")
_OF_DATES = (*_OF_ANYTHING, "min", "max")
_FOLD = {"min": "least", "max": "greatest", "all": "least", "any": "greatest"}
_SIGN = np.uint64(1 << 63)


@function_translates_memory_errors
def group_reduce(
    keys: KeysLike,
    values: ValuesLike | Mapping[Hashable, ValuesLike],
    how: Reduction | Sequence[Reduction] | Mapping[Hashable, Reduction | Sequence[Reduction]],
) -> tuple[Array, Array]:
    """Reduce values by key, for any number of columns in one pass over the rows.

    Parameters
    ----------
    keys : array
        Array of any kind on a CPU or a GPU, of a dtype that tables accept as keys.
    values : array or mapping of arrays
        One value for each key, or several columns of values by name.
    how : str, sequence of str, or mapping
        ``"sum"``, ``"count"``, ``"min"``, ``"max"``, ``"mean"``, ``"first"``, ``"last"``,
        ``"any"`` or ``"all"``; several of them; or a mapping from column names to one or several
        of them. Columns that a mapping does not name are left out.

    Returns
    -------
    uniques : array
        The distinct keys in order of first appearance, of the same kind as `keys`.
    results : array or dict
        One element for each distinct key. A dict by reduction where `how` names several; a dict by
        column name where `values` is a mapping.

    Raises
    ------
    KeyTypeError
        When values of this dtype do not have the reduction.
    ColumnError
        When `how` names a column that `values` does not have.
    SpecError
        When `how` is unknown, or there is nothing to reduce: no columns, or no reductions.
    ShapeError
        When there are more or fewer values than keys.

    Notes
    -----
    As in pandas, NaN and NaT are skipped: for a group of only NaN or NaT, sum and count are 0,
    "any" is False, "all" is True, and other reductions give NaN or NaT.

    The sum of bools and integers is int64 or uint64 and wraps around; the mean of anything but
    floats is float64. All other results keep the dtype of their column. Dates have count, min, max,
    first and last; other values that are not numbers have count, first and last.

    Floats are added up as float64. On a CPU sums are compensated as pandas' are (Kahan, 1965): for
    any number of values, sums (also the sums behind means) are within about 2^-52 Σ|x| of the exact
    sum of the values x, then rounded; a sum beyond the range of floats is infinite. A group's rows
    are added up in row order, in 16 equal parts of the batch where the groups are few: the bits are
    the same in every run, for any number of threads. On a GPU sums are not compensated: a sum of n
    values is within n 2^-53 Σ|x|. Up to 2,048 groups are added up in the same order in every run;
    with more groups and many rows, tiles add to one sum in no particular order, and the last bits
    of sums and means may differ from run to run. All other results are the same in every run.

    Examples
    --------
    >>> import numpy as np
    >>> uniques, sums = group_reduce(np.array([7, 5, 7]), np.array([1, 2, 3]), "sum")
    >>> uniques, sums
    (array([7, 5]), array([4, 2]))
    >>> _, results = group_reduce(
    ...     np.array([7, 5, 7]),
    ...     {"price": np.array([1.5, 2.5, 3.5]), "code": np.array([b"x", b"y", b"z"])},
    ...     {"price": ["min", "mean"], "code": "last"},
    ... )
    >>> results["price"]["mean"], results["code"]
    (array([2.5, 2.5]), array([b'z', b'y'], dtype='|S1'))
    """
    named = values if isinstance(values, Mapping) else {None: values}
    wanted = _requested_reductions(named, how, isinstance(values, Mapping))
    taken = {name: as_argument(named[name], _title(name)) for name in wanted}
    others = [each.data for each in taken.values() if each.location is not None]
    grouped = GroupedKeys(keys, *others)
    columns = {name: _Column(grouped, each, _title(name)) for name, each in taken.items()}
    reduced: dict[tuple[Any, str, str], ColumnReduction] = {}
    for name, hows in wanted.items():
        for each in _several(hows):
            for term, fold in columns[name].needs(each):
                reduced[name, term, fold] = columns[name].reduced(term, fold)
    totals = dict(zip(reduced, grouped.totals(list(reduced.values())), strict=True))
    results = {}
    for name, hows in wanted.items():
        made = {
            each: columns[name].result(
                each, *(totals[name, *need] for need in columns[name].needs(each))
            )
            for each in _several(hows)
        }
        results[name] = made[hows] if isinstance(hows, str) else made
    return grouped.uniques(), results if isinstance(values, Mapping) else results[None]


def _title(name: Any) -> str:
    return "values" if name is None else f"values {name!r}"


def _several(hows: Any) -> list[Any]:
    return list(hows) if isinstance(hows, Iterable) and not isinstance(hows, str) else [hows]


def _requested_reductions(
    named: Mapping[Any, Any], how: str | Sequence[str] | Mapping[Any, Any], by_name: bool
) -> dict[Any, Any]:
    """Return the reductions requested for each column, after checks."""
    if isinstance(how, Mapping):
        if not by_name:
            raise ColumnError(
                "how names columns, and values is one array; pass values as a mapping, or how as "
                f"one of {', '.join(_HOWS)}"
            )
        missing = [name for name in how if name not in named]
        if missing:
            raise ColumnError(
                f"there are no values {missing[0]!r} to reduce; the columns are "
                f"{', '.join(map(repr, named)) or 'none'}"
            )
        wanted = {
            name: each if isinstance(each, str) else _several(each) for name, each in how.items()
        }
    else:
        wanted = dict.fromkeys(named, _several(how) if not isinstance(how, str) else how)
    if not wanted:
        raise SpecError(
            f"there is nothing to reduce: {'values' if not named else 'how'} names no columns; "
            "give one at least, or use unique(keys)"
        )
    for name, hows in wanted.items():
        if not _several(hows):
            raise SpecError(
                f"how names no reductions of {_title(name)}; use one or more of {', '.join(_HOWS)}"
            )
        for each in _several(hows):
            if each not in _HOWS:
                raise SpecError(f"how={each!r}; use {', '.join(_HOWS)}")
    return wanted


class _Column:
    """Column of values, with its requested reductions and their results."""

    def __init__(self, grouped: GroupedKeys, taken: ArrayArgument, title: str) -> None:
        self._backend: Backend = grouped.backend
        self._taken, self._title = taken, title
        self._dtype = native_dtype(natural_dtype(taken, title if taken.location is None else None))
        self._values = as_device_array(self._backend, taken, self._dtype, title)
        same_length(grouped.bits, self._values)

    def needs(self, how: str) -> list[tuple[str, str]]:
        """Return the pairs of term and fold needed for a result.

        Raises
        ------
        KeyTypeError
            When values of this dtype do not have the reduction.
        """
        kind = self._dtype.kind
        if kind == "f" and self._dtype.itemsize > 8:
            raise KeyTypeError(
                f"{self._title} of dtype {self._dtype} cannot be reduced; convert them with "
                ".astype('float64')"
            )
        allowed = _HOWS if kind in "biuf" else _OF_DATES if kind in "mM" else _OF_ANYTHING
        if how not in allowed:
            raise KeyTypeError(
                f"{self._title} of dtype {self._dtype} have no {how}; use one of "
                f"{', '.join(allowed)}, or convert them to numbers (dates: .view('int64'))"
            )
        if how == "sum":
            return [("real", "real_sum") if kind == "f" else ("integer", "sum")]
        if how == "mean":
            return [("real", "real_sum"), ("one", "sum")]
        if how == "count":
            return [("one", "sum")]
        if how in ("first", "last"):
            return [("row", "least" if how == "first" else "greatest")]
        return [("rank" if how in ("min", "max") else "truth", _FOLD[how])]

    def reduced(self, term: str, fold: str) -> ColumnReduction:
        """Return the column as a reduction for kernels."""
        kind = self._dtype.kind
        if kind in "mM":
            return ColumnReduction(self._values.view(np.int64), "date", term, fold)
        if kind not in "biuf" or (kind != "f" and term in ("one", "row")):
            return ColumnReduction(None, "u1", term, fold)
        values = self._values.astype(np.float32) if self._dtype == np.float16 else self._values
        return ColumnReduction(
            values, f"{'u' if kind == 'b' else kind}{values.dtype.itemsize}", term, fold
        )

    def result(self, how: str, totals: Any, counts: Any = None) -> Any:
        """Return the result from `totals`, and for a mean also from `counts`."""
        result, dtype = self._decoded(how, totals, counts)
        own = how in ("min", "max", "first", "last")
        return self._taken.wrap(result, dtype, by_row=False, own=own)

    def _decoded(self, how: str, totals: Any, counts: Any) -> tuple[Any, np.dtype[Any]]:
        dtype = self._dtype
        if how == "count":
            return totals.view(np.int64), np.dtype(np.int64)
        if how in ("any", "all"):
            return totals != 0, np.dtype(bool)
        if how in ("first", "last"):
            rows = totals.view(np.int64)
            return self._at(rows if how == "first" else rows - 1), dtype
        if how in ("min", "max"):
            return self._rank(totals, how), dtype
        if how == "sum" and dtype.kind != "f":
            whole: np.dtype[Any] = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
            return totals.view(whole), whole
        made: np.dtype[Any] = dtype if dtype.kind == "f" else np.dtype(np.float64)
        sums = totals.view(np.float64)
        if how == "mean":
            counted = counts.astype(np.float64)
            with np.errstate(invalid="ignore"):
                sums = sums / counted
        return as_float(sums, made), made

    def _at(self, rows: Any) -> Any:
        """Return the values in `rows`; NaN or NaT for row -1."""
        values = self._values[rows.clip(0)]
        if self._dtype.kind == "f":
            values[rows < 0] = np.nan
        elif self._dtype.kind in "mM":
            # On a GPU dates are stored as int64.
            values.view(np.int64)[rows < 0] = np.iinfo(np.int64).min
        return values

    def _rank(self, ranks: Any, how: str) -> Any:
        """Return the values from order-preserving ranks, inverting the kernel's mapping.

        The initial rank, to which nothing was folded, becomes NaN or NaT.
        """
        dtype = self._dtype
        if dtype.kind == "f":
            words = self._backend.xp.where(ranks >= _SIGN, ranks ^ _SIGN, ~ranks)
            return as_float(words.view(np.float64), dtype)
        if dtype.kind in "mM":
            words = (ranks + np.uint64(how == "min")) ^ _SIGN
            return words.view(np.int64).view(carrier_dtype(self._backend, dtype))
        if dtype.kind == "i":
            return (ranks ^ _SIGN).view(np.int64).astype(dtype)
        return ranks.astype(dtype)
