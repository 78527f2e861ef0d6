"""Query: keys in any form as a frame, and answers in the form of the keys."""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash import backend
from dgpuhash.errors import ColumnError, KeyTypeError, ShapeError, UnsupportedError
from dgpuhash.frames.dataframes import check_same_library, frames_of, make_frame, native
from dgpuhash.frames.dataframes.pandas_checks import check_byte_order
from dgpuhash.frames.key_columns import NUMERIC, LogicalType, check_comparable
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.labels import key_names
from dgpuhash.frames.lookup import Lookup
from dgpuhash.tables.arguments.exact import comparable, exactly
from dgpuhash.tables.arguments.interop import extended
from dgpuhash.tables.arguments.objects import parts_of

__all__ = ["Listed", "Query", "keys_frame", "typed"]

# Up to it, floats of 64 bits hold all integers.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Listed:
    """Lists of which some keys are no values of the index's types, and are not asked for.

    Attributes
    ----------
    given : mapping of list
        By key column.
    rows : int64 array
        The rows that are asked for, on the host.
    """

    given: Mapping[Hashable, list[Any]]
    rows: np.ndarray

    @property
    def count(self) -> int:
        """The rows of all keys."""
        return len(next(iter(self.given.values())))

    def mask(self, found: np.ndarray) -> np.ndarray:
        """What was told of the rows that were asked for as what is to be told of all."""
        whole = np.zeros(self.count, bool)
        whole[self.rows] = found
        return whole

    def whole(self, found: Lookup) -> Lookup:
        """What an index has for all keys: nothing for those that were not asked for."""
        frames = frames_of(found.frame)
        device, xp = backend.get(frames.device), frames.xp
        asked = self.mask(device.to_host(found.found))
        others = np.setdiff1d(np.arange(self.count), self.rows)
        keys = np.concatenate([self.rows[device.to_host(found.query_rows)], others])
        order = np.argsort(keys, kind="stable")
        places = np.concatenate([np.arange(len(found.frame)), np.full(len(others), -1)])[order]
        frame = frames.take_or_null(found.frame, xp.asarray(places))
        for label, values in self.given.items():
            if label in frame.columns and frames.name == "pandas":
                # No other dtype has all of them.
                column = pd.Series([values[row] for row in keys[order]], dtype=object)
                frame[label] = column
        return Lookup(frame, xp.asarray(keys[order]), xp.asarray(asked))


def typed(values: list[Any], type_: LogicalType) -> tuple[Any, np.ndarray] | None:
    """A list as a column of the type of the index's, and a mask of the keys that it has.

    None where what the library makes of the list will do, or says what is wrong with it.
    """
    dtype = _dtype_of(type_)
    missing = np.array([_is_null(one) for one in values], bool)
    there = [one for one, null in zip(values, missing, strict=True) if not null]
    if dtype is None or not _needs(there, type_):
        return None
    objects = np.empty(len(there), object)
    objects[:] = there
    try:
        parts = parts_of(objects, "keys")
    except KeyTypeError:
        return None
    if not all(comparable(part.dtype, dtype) for _, part in parts):
        return None
    rows = np.flatnonzero(~missing)
    made, held = np.zeros(len(values), dtype), missing.copy()
    for at, part in parts:
        made[rows[at]], valid = exactly(part, dtype, np)
        held[rows[at]] = True if valid is None else valid
    if dtype.kind == "M":
        made[missing] = "NaT"
    if type_.kind == "date":
        kind = pa.date32() if type_.bits == 32 else pa.date64()
        return pd.array(pa.array(made).cast(kind), pd.ArrowDtype(kind)), held
    return (_masked(made, missing) if missing.any() and dtype.kind != "M" else made), held


def _dtype_of(type_: LogicalType) -> np.dtype[Any] | None:
    if type_.kind in NUMERIC:
        kinds = {"bool": "b1", "int": f"i{type_.bits // 8}", "uint": f"u{type_.bits // 8}"}
        return np.dtype(kinds.get(type_.kind, f"f{type_.bits // 8}"))
    moments = type_.kind in {"datetime", "date"} and not type_.aware
    return np.dtype(f"M8[{type_.unit}]") if moments else None


def _needs(values: Sequence[Any], type_: LogicalType) -> bool:
    """Whether the library would change some of them, or take none."""
    if type_.kind not in NUMERIC:
        plain = [isinstance(one, datetime.date | np.datetime64) for one in values]
        days = any(not isinstance(one, datetime.datetime | np.datetime64) for one in values)
        return all(plain) and (days or type_.kind == "date")
    whole = [int(one) for one in values if isinstance(one, int | np.integer)]
    if not whole or not all(isinstance(one, int | float | np.number) for one in values):
        return False
    low, high = min(whole), max(whole)
    beyond = low < -(2**63) or high >= 2**64 or (low < 0 and high >= 2**63)
    return beyond or (len(whole) < len(values) and max(-low, high) > _EXACT)


def _masked(values: np.ndarray, missing: np.ndarray) -> Any:
    arrays: dict[str, Any] = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values, missing)


def _is_null(one: Any) -> bool:
    return one is None or one is pd.NA or one is pd.NaT or (isinstance(one, float) and one != one)


class Form(Enum):
    """How keys were given."""

    FRAME = "DataFrame"
    SERIES = "Series"
    ARRAY = "array"
    ARRAYS = "mapping of arrays"
    VALUES = "scalar, list or tuples"


def form_of(keys: Any) -> Form:
    """The form of `keys`, of which arrays are `native`."""
    if hasattr(keys, "iloc"):
        return Form.FRAME if keys.ndim == 2 else Form.SERIES
    if isinstance(keys, Mapping):
        return Form.ARRAYS
    is_array = backend.device_of(keys) is not None and getattr(keys, "ndim", 0) > 0
    return Form.ARRAY if is_array else Form.VALUES


@dataclass(frozen=True, slots=True)
class Query:
    """Keys as they were given, and how an answer takes their form.

    Attributes
    ----------
    keys
        As given.
    form : Form
    frame : DataFrame
        The key columns, one row a key.
    stored : tuple of labels
        The columns that the index has beside its key columns.
    listed : Listed or None
        Of lists of which some keys are not in `frame`, as the index's types lack them.
    """

    keys: Any
    form: Form
    frame: Any
    stored: tuple[Hashable, ...]
    listed: Listed | None = None

    @classmethod
    def of(cls, keys: Any, encoder: KeyEncoder, index_meta: Any) -> Query:
        """The query for `keys`; parameters and errors as for `keys_frame`.

        Raises
        ------
        DeviceError
            When keys on the host meet rows on the GPU, or the other way round.
        """
        asked, listed = _asked(keys, encoder, index_meta)
        check_same_library(asked, frames_of(index_meta))
        names = set(encoder.names)
        stored = tuple(label for label in index_meta.columns if label not in names)
        return cls(keys, form_of(native(keys)), asked, stored, listed)

    @property
    def columns(self) -> list[Hashable]:
        """The columns of the left merge that the answer is made of."""
        names = list(self.frame.columns)
        if self.form in {Form.SERIES, Form.ARRAY}:
            return list(self.stored) or names
        return [*names, *self.stored]

    def answer(self, found: Lookup) -> Any:
        """What was found, in the form of the keys.

        Parameters
        ----------
        found : Lookup
            Its frame has at least `columns`.
        """
        found = self.whole(found)
        frame, frames = found.frame[self.columns], frames_of(found.frame)
        if self.form in {Form.FRAME, Form.VALUES}:
            return frame
        if self.form is Form.ARRAYS:
            like = next((a for a in self.keys.values() if form_of(native(a)) is Form.ARRAY), None)
            return {label: frames.array(frame[label], like) for label in frame.columns}
        if not self.stored:
            # The keys stand for themselves, where they are stored.
            there = found.found[found.query_rows]
            frame = frames.take_or_null(
                frame, frames.xp.where(there, frames.xp.arange(len(frame)), -1)
            )
        if self.form is Form.SERIES:
            answer = frame[self.columns[0]] if len(self.columns) == 1 else frame
            answer = answer.copy(deep=False)
            answer.index = self._labels(found)
            return answer
        arrays = {label: frames.array(frame[label], self.keys) for label in frame.columns}
        return arrays[self.columns[0]] if len(arrays) == 1 else arrays

    def whole(self, found: Lookup) -> Lookup:
        """What was found for `frame` as what is to be told of all keys."""
        return found if self.listed is None else self.listed.whole(found)

    def mask(self, found: Any) -> Any:
        """A mask of the keys, in their form."""
        frames = frames_of(self.frame)
        if self.form is Form.FRAME:
            return frames.series(found, self.keys.index)
        dtype = getattr(self.keys, "dtype", None)
        if self.form is Form.SERIES:
            # As Series.isin has it: nullable for masks, and plain for Arrow.
            arrow = hasattr(dtype, "pyarrow_dtype")
            return frames.series(found if arrow else extended(found, dtype), self.keys.index)
        if self.form is Form.VALUES:
            told = backend.get(frames.device).to_host(found)
            return told if self.listed is None else self.listed.mask(told)
        return frames.array(frames.series(extended(found, dtype)), self.keys)

    def _labels(self, found: Lookup) -> Any:
        # Each key has a row or more, so as many rows as keys are one row a key.
        same = len(found.query_rows) == len(self.keys)
        return (self.keys if same else self.keys.take(found.query_rows)).index


def keys_frame(keys: Any, encoder: KeyEncoder, index_meta: Any) -> Any:
    """Keys in any form as a frame of the key columns, of lists those that the index may have.

    Parameters
    ----------
    keys : scalar, list, array, Series, DataFrame, list of tuples, or mapping of arrays
        Scalars, lists, arrays and Series serve an index on one column; tuples have one value for
        each key column.
    encoder : KeyEncoder
        That of the index.
    index_meta : DataFrame
        An empty frame like the index's rows; lists and scalars become frames of its library.

    Raises
    ------
    ColumnError
        When a key column is missing.
    ShapeError
        When keys have not one value for each key column.
    UnsupportedError
        When they are lazy.
    """
    return _asked(keys, encoder, index_meta)[0]


def _asked(keys: Any, encoder: KeyEncoder, index_meta: Any) -> tuple[Any, Listed | None]:
    """As `keys_frame`; also which keys of lists these are, unless all."""
    names = encoder.names
    if hasattr(keys, "__dask_graph__"):
        raise UnsupportedError(
            f"a lazy {type(keys).__name__} cannot be looked up; compute() it first, or merge a "
            "Dask DataFrame with the index"
        )
    keys = native(keys)
    form = form_of(keys)
    if form is Form.FRAME:
        asked = keys[list(key_names(keys, list(names)))]
        check_byte_order(asked)
        return asked if len(asked) else _empty(asked.copy(deep=False), encoder, index_meta), None
    if form is Form.ARRAYS:
        if not set(names) <= set(keys):
            raise ColumnError(f"keys name {list(keys)!r}; the index is on {list(names)!r}")
        asked = _made({name: keys[name] for name in names}, index_meta)
        return asked if len(asked) else _empty(asked, encoder, index_meta), None
    if getattr(keys, "ndim", 1) == 0 and not isinstance(keys, str | bytes):
        keys = keys[()]
    if (
        isinstance(keys, str | bytes)
        or not hasattr(keys, "__len__")
        or (isinstance(keys, tuple) and len(names) > 1)
    ):
        keys = [keys]
    if len(keys) == 0 and not hasattr(keys, "dtype"):
        return index_meta[list(names)], None
    if len(names) == 1:
        columns = {names[0]: keys if hasattr(keys, "dtype") else list(keys)}
    else:
        columns = _columns(list(keys), names)
    listed = None
    if form is Form.VALUES:
        columns, listed = _listed(columns, encoder)
    asked = _typed_nulls(_made(columns, index_meta), index_meta)
    if listed is not None:
        asked = frames_of(asked).take(asked, frames_of(asked).xp.asarray(listed.rows))
    if not len(asked):
        asked = _empty(asked, encoder, index_meta)
    return (_moments(asked, index_meta) if form is Form.VALUES else asked), listed


def _listed(
    columns: dict[Hashable, Any], encoder: KeyEncoder
) -> tuple[dict[Hashable, Any], Listed | None]:
    """Lists as columns of the index's types where that is needed; what these types lack."""
    made, held = dict(columns), None
    for (name, values), type_ in zip(columns.items(), encoder.types, strict=True):
        read = typed(values, type_) if isinstance(values, list) else None
        if read is not None:
            made[name], own = read
            held = own if held is None else held & own
    if held is None or held.all():
        return made, None
    return made, Listed(columns, np.flatnonzero(held))


def _empty(asked: Any, encoder: KeyEncoder, index_meta: Any) -> Any:
    """No keys, whose columns are those of the index where theirs would not compare with them."""
    frames = frames_of(asked)
    for name, type_ in zip(encoder.names, encoder.types, strict=True):
        try:
            check_comparable(name, type_, frames.key_column(asked[name], name).type)
            untyped = not frames.is_typed(asked[name])
        except KeyTypeError:
            untyped = True
        if untyped:
            asked[name] = frames.take(index_meta[[name]], frames.xp.zeros(0, int))[name]
    return asked


def _made(columns: dict[Hashable, Any], index_meta: Any) -> Any:
    asked = make_frame(columns, index_meta)
    if any(isinstance(label, tuple) for label in columns):
        # Labels of several levels, of which a frame made of columns does not know.
        asked.columns = index_meta[list(columns)].columns
    return asked


def _typed_nulls(asked: Any, index_meta: Any) -> Any:
    """The keys, of which columns of nulls alone, which have no type, take the index's."""
    frames = frames_of(asked)
    for name in asked.columns:
        if not frames.is_typed(asked[name]) and asked[name].isna().all():
            nowhere = frames.xp.full(len(asked), -1)
            asked[name] = frames.take_or_null(index_meta[[name]], nowhere)[name]
    return asked


def _moments(asked: Any, index_meta: Any) -> Any:
    """The values of lists, of which dates and times are of the kind that the index has."""
    for name in asked.columns:
        asked[name] = frames_of(asked).moments(asked[name], index_meta[name])
    return asked


def _columns(rows: Sequence[Any], names: Sequence[Hashable]) -> dict[Hashable, list[Any]]:
    fit = [isinstance(row, tuple | list) and len(row) == len(names) for row in rows]
    if not fit or not all(fit):
        raise ShapeError(
            f"the index is on {list(names)!r}; give a DataFrame with these columns, or for each "
            f"key one tuple of {len(names)} values"
        )
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return {name: list(column) for name, column in columns}
