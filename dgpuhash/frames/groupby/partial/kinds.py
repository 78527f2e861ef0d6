"""Kinds of partial states: the fields of each, and how they merge and retract.

A kind of state has some fields, arrays with an element for each group: numbers, or values of the
column. Kinds are made of the rows of a part, and two parts are combined element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.aggregates import numbers, pairs
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.aggregates.values import Values, ranks
from dgpuhash.frames.groupby.assembly import series_of
from dgpuhash.frames.groupby.groups import Groups

PAIR_FIELDS = ("count", "left", "left rest", "right", "right rest", "mixed", "squares", "others")
_SIDES = ("left", "right")
Fields = dict[str, Any]


class PairColumn:
    """A part's column of numbers, as one of a pair.

    Parameters
    ----------
    groups : Groups
    column : Series
        All rows.
    how : {"cov", "corr"}
        What the pairs are for; see `pairs.floats`.

    Attributes
    ----------
    values : float64 array
        The rows that are in a group, less `origin`.
    origin : int
    """

    def __init__(self, groups: Groups, column: pd.Series, how: str) -> None:
        self._groups = groups
        self.values: Any = pairs.floats(groups, column, how)
        self.origin: int = Values(groups.kept(column)).origin

    @functools.cached_property
    def nulls(self) -> Any:
        """A mask of the nulls."""
        return np.isnan(self.values)

    @functools.cached_property
    def sums(self) -> tuple[Any, Any]:
        """The sum of each group as compensated pairs, for a column without nulls."""
        return self._sums(slice(None), self._groups.sizes)

    def sums_of(self, rows: Any, counts: Any) -> tuple[Any, Any]:
        """Return the sum of some rows of each group, given their counts."""
        return self.sums if len(rows) == len(self.values) else self._sums(rows, counts)

    def _sums(self, rows: Any, counts: Any) -> tuple[Any, Any]:
        groups = self._groups
        total = numbers.real_sums(groups.kept_codes[rows], len(groups), self.values[rows])
        if not self.origin:
            return total
        dtype = np.uint64 if self.origin >= 2**63 else np.int64
        origin = np.full(len(groups), self.origin, dtype)
        return numbers.add_pairs(total, numbers.times(numbers.of_integers(origin), counts))


def pair_states(groups: Groups, columns: Sequence[PairColumn]) -> tuple[Any, ...]:
    """Return the fields of a pair of columns, over rows without nulls."""
    found = pairs.moments(groups, *(column.values for column in columns))
    both = np.flatnonzero(~(columns[0].nulls | columns[1].nulls))
    totals = [each for column in columns for each in column.sums_of(both, found.count)]
    return (found.count, *totals, found.mixed, found.squares, found.others)


def combined_pairs(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    """Return the merged fields of two partial states."""
    between = _between_pairs(ours, theirs)
    totals: list[Any] = []
    for side in _SIDES:
        pair = ((each[side], each[f"{side} rest"]) for each in (ours, theirs))
        totals.extend(numbers.add_pairs(*pair))
    made = []
    for name, more in zip(("mixed", "squares", "others"), between, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            both = ours[name] + theirs[name] + more
        both = np.where(ours["count"] == 0, theirs[name], both)
        made.append(np.where(theirs["count"] == 0, ours[name], both))
    return (ours["count"] + theirs["count"], *totals, *made)


def _between_pairs(ours: Fields, theirs: Fields) -> tuple[Any, Any, Any]:
    """Return the contribution of two parts' means to the sums of products."""
    off = []
    for side in _SIDES:
        means = [
            numbers.mean_of((each[side], each[f"{side} rest"]), each["count"])
            for each in (ours, theirs)
        ]
        off.append(numbers.difference(*means))
    n, m = (each["count"].astype(np.float64) for each in (ours, theirs))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = n * (m / (n + m))
        return off[0] * off[1] * share, off[0] * off[0] * share, off[1] * off[1] * share


_MOST_PARTS = 2**31
# What sums of squares are rounded by, relative to what they are of: where two are added up, and
# where one is taken off another, with all that came before.
_ROUNDED, _TAKEN_OFF = 2.0**-52, 2.0**-49
# What a sum of two floats is off by, relative to the sizes of its values and the square of their
# number: a sum and its rest have 106 bits.
_PAIR_ROUNDED = 2.0**-103
NEVER = np.iinfo(np.int64).max
# The position of a column, or those of a pair of columns.
Place: TypeAlias = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, or a pair of columns, of one part.

    Attributes
    ----------
    states : States or None
        The states of one column.
    number : int
        That of the part.
    groups : Groups or None
    columns : list of PairColumn
        Those of a pair.
    label_of : function
        Of rows of groups: their labels; of -1 any or a null.
    """

    states: Any
    number: int
    groups: Any = None
    columns: list[PairColumn] = field(default_factory=list)
    label_of: Any = None

    def places(self, rows: Any, none: int) -> Any:
        """Return row numbers that include the part's number; `none` for -1."""
        states = self.states
        places = place_of(self.number, states.groups.positions(rows))
        return states.xp.where(rows < 0, np.int64(none), places)


@dataclass(frozen=True, slots=True)
class Choice:
    """Select the second of two values where a mask is set."""

    theirs: Any


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of partial state: its fields, merge and retraction.

    Attributes
    ----------
    fields : tuple of str
    words : tuple of str
        The states of `states_of` from which it is made.
    lost : tuple of str
        The fields that lose digits when rows are removed: see `lost_fields`.
    made : function
        Computes the fields from the rows of a partition.
    combined : function
        Merges the fields of two partial states, which have all fields of the column.
    retracted : function or None
        Removes the rows of the second partial state from the first; None: not supported.
    """

    fields: tuple[str, ...]
    made: Callable[[Operand], tuple[Any, ...]]
    combined: Callable[[Fields, Fields], tuple[Any, ...]]
    retracted: Callable[[Fields, Fields], tuple[Any, ...]] | None = None
    words: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def place_of(number: int, rows: Any) -> Any:
    """Return row numbers that include the part's number."""
    if not 0 <= number < _MOST_PARTS:
        raise SpecError(f"part number {number}; give 0 to {_MOST_PARTS - 1}")
    return (number << 32) | rows


def _additive(
    fields: tuple[str, ...], made: Callable[[Operand], tuple[Any, ...]], words: Sequence[str] = ()
) -> Kind:
    """Return a kind of integer fields that merge by addition."""
    return Kind(
        fields,
        made,
        lambda ours, theirs: tuple(ours[name] + theirs[name] for name in fields),
        lambda ours, theirs: tuple(ours[name] - theirs[name] for name in fields),
        tuple(words),
    )


def _added_pairs(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    other = theirs["real"], theirs["rest"]
    return numbers.add_pairs((ours["real"], ours["rest"]), other)


def _fewer_pairs(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    other = -theirs["real"], -theirs["rest"]
    made = numbers.add_pairs((ours["real"], ours["rest"]), other)
    return made if "nonzero" not in ours else _of_nonzero(ours, theirs, *made)


def _added_magnitudes(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    with np.errstate(over="ignore"):
        both = ours["magnitude"] + theirs["magnitude"]
    return both, ours["nonzero"] + theirs["nonzero"]


def _fewer_magnitudes(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    with np.errstate(invalid="ignore"):
        left = np.maximum(ours["magnitude"] - theirs["magnitude"], 0)
    return *_of_nonzero(ours, theirs, left), ours["nonzero"] - theirs["nonzero"]


def _of_nonzero(ours: Fields, theirs: Fields, *left: Any) -> tuple[Any, ...]:
    """Return sums after a retraction, exactly 0 for groups without nonzero values."""
    none = ours["nonzero"] == theirs["nonzero"]
    return tuple(np.where(none, 0.0, each) for each in left)


def total_of(fields: Fields) -> tuple[Any, Any]:
    """Return the sum of a column's groups as pairs of floats."""
    if "real" in fields:
        return fields["real"], fields["rest"]
    if "high" in fields:
        return numbers.of_words(fields["high"], fields["low"])
    return numbers.of_integers(fields["sum"])


def _between(ours: Fields, theirs: Fields) -> tuple[Any, Any, Any]:
    """Return two parts' counts, and the contribution of their means to both squares."""
    means = [
        numbers.mean_of(total_of(each), each["count"]) for each in (ours, theirs)
    ]  # fmt: skip
    n, m = (each["count"].astype(np.float64) for each in (ours, theirs))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        off = numbers.difference(*means)
        return n, m, off * off * (n * (m / (n + m)))


def _moments(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    n, m, between = _between(ours, theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        both = ours["moment"] + theirs["moment"] + between
    return (np.where(n == 0, theirs["moment"], np.where(m == 0, ours["moment"], both)),)


def _fewer_moments(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    sums = [kind for kind in ("real", "wide", "sum") if KINDS[kind].fields[0] in ours]
    left = retract(["count", *sums], ours, theirs)
    n, m, between = _between(left, theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        rest = np.maximum(ours["moment"] - theirs["moment"] - between, 0)
    return (np.where(n <= 1, 0.0, np.where(m == 0, ours["moment"], rest)),)


def _extreme(name: str) -> Kind:
    def reduce_part(part: Operand) -> tuple[Any, ...]:
        states = part.states
        if states.values.is_number:
            return (states.extreme(name),)
        return (states.value_of(name, states.void(1, Options())),)

    def combined(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
        before, _ = _extreme_masks(name, ours, theirs)
        return (Choice(before),)

    return Kind((name,), reduce_part, combined, words=(name,))


def _extreme_masks(name: str, ours: Fields, theirs: Fields) -> tuple[Any, Any]:
    """Return masks of groups in which the second part's extreme wins or ties."""
    old, new = ours[name], theirs[name]
    if isinstance(old, pd.api.extensions.ExtensionArray) or old.dtype.kind == "O":
        rank = ranks(pd.concat([series_of(each, None) for each in (old, new)], ignore_index=True))
        old, new = rank[: len(old)], rank[len(old) :]
    # A NaN that is no null has no order.
    here, there = (each["count"] - each.get("stray", 0) > 0 for each in (ours, theirs))
    less = new < old if name == "least" else new > old
    return there & (less | ~here), there & here & (new == old)


def _label(how: str, name: str) -> Kind:
    """Return the kind for index labels of the first rows with an extreme."""

    def reduce_part(part: Operand) -> tuple[Any, ...]:
        rows = part.states.rows_with(name)
        return part.label_of(rows), part.places(rows, NEVER)

    def combined(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
        old, new = ours[f"{how} row"], theirs[f"{how} row"]
        wins, ties = _extreme_masks(name, ours, theirs)
        wins |= ties & (new < old)
        return Choice(wins), np.where(wins, new, old)

    return Kind((how, f"{how} row"), reduce_part, combined, words=(name,))


def _end(name: str, *, nulls: bool = False) -> Kind:
    """Return the kind for first or last values, with nulls if they count."""
    field = f"{name} of all" if nulls else name
    first = name == "first"

    def reduce_part(part: Operand) -> tuple[Any, ...]:
        states = part.states
        rows = states.groups.ends(name) if nulls else states.row(name)
        return states.values.at(rows), part.places(rows, NEVER if first else -1)

    def combined(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
        old, new = ours[f"{field} row"], theirs[f"{field} row"]
        chosen = Choice(new < old if first else new > old)
        return chosen, np.minimum(old, new) if first else np.maximum(old, new)

    return Kind((field, f"{field} row"), reduce_part, combined, words=() if nulls else (name,))


def _truth(name: str) -> Kind:
    def combined(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
        fold = np.maximum if name == "any" else np.minimum
        return (fold(ours[name], theirs[name]),)

    def reduce_part(part: Operand) -> tuple[Any, ...]:
        return ((part.states.words[name] != 0).astype(np.uint8),)

    return Kind((name,), reduce_part, combined, words=(name,))


def _product(ours: Fields, theirs: Fields) -> tuple[Any, ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        return (ours["prod"] * theirs["prod"],)


def _pair(part: Operand) -> tuple[Any, ...]:
    return pair_states(part.groups, part.columns)


_EXTREMES = {"min": "least", "max": "greatest", "idxmin": "least", "idxmax": "greatest"}

_PAIR = Kind(PAIR_FIELDS, _pair, combined_pairs)
KIND_OF_PAIRS = {"cov": "pair", "corr": "finite pair"}
"""The kinds of states of pairs of columns, by what they are for."""

KINDS: dict[str, Kind] = {
    "count": _additive(("count",), lambda part: (part.states.count.astype(np.int64, copy=False),)),
    "stray": _additive(("stray",), lambda part: (part.states.strays,)),
    "sum": _additive(("sum",), lambda part: (part.states.sum,), ("sum",)),
    "real": Kind(
        ("real", "rest"), lambda part: part.states.pairs, _added_pairs, _fewer_pairs
    ),
    "magnitude": Kind(
        ("magnitude", "nonzero"), lambda part: part.states.magnitudes, _added_magnitudes,
        _fewer_magnitudes, lost=("real",),
    ),
    "wide": _additive(("high", "low"), lambda part: part.states.wide),
    "decimal": _additive(
        tuple(f"part {place}" for place in range(4)), lambda part: part.states.decimal_parts
    ),
    "moment": Kind(
        ("moment",), lambda part: (part.states.squares,), _moments, _fewer_moments,
        ("moment",), ("moment",),
    ),
    "least": _extreme("least"),
    "greatest": _extreme("greatest"),
    "first": _end("first"),
    "last": _end("last"),
    "first of all": _end("first", nulls=True),
    "last of all": _end("last", nulls=True),
    "idxmin": _label("idxmin", "least"),
    "idxmax": _label("idxmax", "greatest"),
    "any": _truth("any"),
    "all": _truth("all"),
    "pair": _PAIR,
    "finite pair": _PAIR,
    "prod": Kind(("prod",), lambda part: (part.states.products,), _product),
}  # fmt: skip
"""Every kind by its name; `moment` is combined before the counts and sums that it needs."""


ADDED_UP = frozenset({"count", "stray", "sum", "real", "wide", "decimal"})
"""The kinds of which each field is a sum."""


def kinds_for(values: Values, how: str, options: Options) -> tuple[str, ...] | None:
    """Return the kinds of states for an aggregate of a column; None if it needs rows."""
    kind = values.kind
    if how in {"size", "count"}:
        return ("count",)
    if how in {"first", "last"}:
        return ("count", how if options.skipna else f"{how} of all")
    if how in {"any", "all"}:
        return ("count", how) if values.is_number or kind == "text" else None
    if how in _EXTREMES:
        known = values.is_number or kind in {"text", "category", "arrow", "decimal"}
        own = [how] if how.startswith("idx") else []
        stray = ["stray"] if kind == "float" and values.storage != "numpy" else []
        return ("count", *stray, _EXTREMES[how], *own) if known else None
    if kind == "decimal" and how in {"sum", "mean"}:
        return ("count", "decimal")
    if not values.is_number or how not in {"sum", "prod", "mean", "var", "std", "sem"}:
        return None
    made = ["count"]
    if kind == "float":
        made += ["real"] if how != "prod" else []
        made += ["stray"] if values.storage != "numpy" else []
    elif how != "prod":
        wide = values.are_ticks or (kind != "bool" and values.numbers_dtype.itemsize == 8)
        made += ["sum"] if how == "sum" or not wide else []
        made += ["wide"] if wide and (how != "sum" or kind == "timedelta") else []
    if how == "prod":
        made.append("prod")
    elif how in {"var", "std", "sem"}:
        made.append("moment")
    return tuple(made)


def prefix_of(place: Place) -> str:
    """Return the prefix of a field in the labels of states.

    Examples
    --------
    >>> prefix_of(2), prefix_of((2, 5))
    ('2 ', '2*5 ')
    """
    return f"{place} " if isinstance(place, int) else f"{place[0]}*{place[1]} "


def fields_of(kinds: Iterable[str]) -> list[str]:
    """Return the fields of some kinds."""
    return [field for kind in kinds for field in KINDS[kind].fields]


def lost_fields(kinds: Iterable[str]) -> list[str]:
    """Return the names of the fields with rounding-error bounds of some kinds.

    States may lack these fields. The bounds are absolute errors. They cover the rounding since rows
    were first removed; for sums of floats, the rounding of all earlier additions, too.
    """
    return [f"{field} lost" for kind in kinds for field in KINDS[kind].lost]


def words_of(kinds: Iterable[str]) -> list[str]:
    """Return the names of the states of `states_of` read by some kinds."""
    return [word for kind in kinds for word in KINDS[kind].words]


def combine(kinds: Iterable[str], ours: Fields, theirs: Fields) -> Fields:
    """Return the merged fields of two partial states."""
    made: Fields = {}
    for kind in kinds:
        made.update(zip(KINDS[kind].fields, KINDS[kind].combined(ours, theirs), strict=True))
        for name in KINDS[kind].lost:
            if (lost := f"{name} lost") in ours:
                if name != "real":
                    made[lost] = ours[lost] + theirs[lost] + _ROUNDED * np.abs(made[name])
                elif ours[lost].any() or theirs[lost].any():
                    made[lost] = ours[lost] + theirs[lost]
    return made


def retract(kinds: Iterable[str], ours: Fields, theirs: Fields) -> Fields:
    """Return the fields of groups after removing the rows of other states."""
    made: Fields = {}
    for kind in kinds:
        back = KINDS[kind].retracted
        assert back is not None, kind
        made.update(zip(KINDS[kind].fields, back(ours, theirs), strict=True))
        for name in KINDS[kind].lost:
            if (lost := f"{name} lost") in ours:
                by = _lost_of_sums if name == "real" else _lost_by_retraction
                made[lost] = by(name, ours, theirs)
    return made


def _lost_of_sums(_: str, ours: Fields, theirs: Fields) -> Any:
    """Return the error bound of float sums after removing rows.

    The bound holds whether rows were added one by one or all at once.
    """
    count = ours["count"].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = ours["magnitude"] + theirs["magnitude"]
        more = ours["real lost"] + theirs["real lost"] + _PAIR_ROUNDED * count * count * sizes
    (left,) = _of_nonzero(ours, theirs, more)
    return np.where(theirs["nonzero"] == 0, ours["real lost"], left)


def _lost_by_retraction(name: str, ours: Fields, theirs: Fields) -> Any:
    """Return the error bound of a field after removing rows."""
    with np.errstate(invalid="ignore", over="ignore"):
        more = ours[f"{name} lost"] + theirs[f"{name} lost"] + _TAKEN_OFF * ours[name]
    # One value has no deviation, and no values take nothing off.
    more = np.where(ours["count"] - theirs["count"] <= 1, 0.0, more)
    return np.where(theirs["count"] == 0, ours[f"{name} lost"], more)
