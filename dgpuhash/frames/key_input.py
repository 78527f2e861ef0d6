"""Convert keys of any form to a frame, and results back to the same form."""

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
from dgpuhash.frames.dataframes import check_same_library, frames_of, make_frame, to_native
from dgpuhash.frames.dataframes.pandas_checks import check_byte_order
from dgpuhash.frames.key_columns import NUMERIC, LogicalType, check_comparable
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.frames.labels import key_names
from dgpuhash.frames.lookup import Lookup
from dgpuhash.tables.arguments.exact import cast_exactly, comparable
from dgpuhash.tables.arguments.interop import as_extension_array
from dgpuhash.tables.arguments.objects import group_by_dtype

# float64 represents every integer up to this magnitude.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class PartialKeys:
    """Keys given as lists, with the rows whose values fit the index's types.

    A key that does not fit is absent, and is left out of the query.

    Attributes
    ----------
    given : mapping of list
        The values of each key column.
    rows : int64 array
        The rows that are queried, on the host.
    """

    given: Mapping[Hashable, list[Any]]
    rows: np.ndarray

    @property
    def count(self) -> int:
        """Number of keys, queried or not."""
        return len(next(iter(self.given.values())))

    def mask(self, found: np.ndarray) -> np.ndarray:
        """Return the mask `found` of the queried rows as a mask of all keys."""
        whole = np.zeros(self.count, bool)
        whole[self.rows] = found
        return whole

    def whole(self, found: Lookup) -> Lookup:
        """Return the `Lookup` of the queried rows as a `Lookup` of all keys.

        Keys that were not queried are absent.
        """
        frames = frames_of(found.frame)
        device, xp = backend.get(frames.device), frames.xp
        asked = self.mask(device.to_host(found.found))
        others = np.setdiff1d(np.arange(self.count), self.rows)
        keys = np.concatenate([self.rows[device.to_host(found.query_rows)], others])
        order = np.argsort(keys, kind="stable")
        places = np.concatenate([np.arange(len(found.frame)), np.full(len(others), -1)])[order]
        wanted = list(found.frame.columns)
        given = set(self.given) if frames.name == "pandas" else set()
        rest = [label for label in wanted if label not in given]
        frame = frames.take_or_null(found.frame[rest], xp.asarray(places))
        for place, label in enumerate(wanted):
            if label in given:
                # Only object dtype holds all the given values.
                values = [self.given[label][row] for row in keys[order]]
                frame.insert(place, label, pd.Series(values, dtype=object))
        return Lookup(frame, xp.asarray(keys[order]), xp.asarray(asked))


def cast_list(values: list[Any], type_: LogicalType) -> tuple[Any, np.ndarray] | None:
    """Return a list as a column of the index's type and a mask of valid keys.

    None when the library's own conversion of the list is right, or raises the right error.
    """
    dtype = _dtype_of(type_)
    missing = np.array([_is_null(one) for one in values], bool)
    there = [one for one, null in zip(values, missing, strict=True) if not null]
    if dtype is None or not _needs_cast(there, type_):
        return None
    objects = np.empty(len(there), object)
    objects[:] = there
    try:
        parts = group_by_dtype(objects, "keys")
    except KeyTypeError:
        return None
    if not all(comparable(part.dtype, dtype) for _, part in parts):
        return None
    rows = np.flatnonzero(~missing)
    made, held = np.zeros(len(values), dtype), missing.copy()
    for at, part in parts:
        made[rows[at]], valid = cast_exactly(part, dtype, np)
        held[rows[at]] = True if valid is None else valid
    if dtype.kind == "M":
        made[missing] = "NaT"
    if type_.kind == "date":
        kind = pa.date32() if type_.bits == 32 else pa.date64()
        return pd.array(pa.array(made).cast(kind), pd.ArrowDtype(kind)), held
    return (_mask(made, missing) if missing.any() and dtype.kind != "M" else made), held


def _dtype_of(type_: LogicalType) -> np.dtype[Any] | None:
    if type_.kind in NUMERIC:
        kinds = {"bool": "b1", "int": f"i{type_.bits // 8}", "uint": f"u{type_.bits // 8}"}
        return np.dtype(kinds.get(type_.kind, f"f{type_.bits // 8}"))
    moments = type_.kind in {"datetime", "date"} and not type_.aware
    return np.dtype(f"M8[{type_.unit}]") if moments else None


def _needs_cast(values: Sequence[Any], type_: LogicalType) -> bool:
    """Return whether the library would change some values, or accept none."""
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


def _mask(values: np.ndarray, missing: np.ndarray) -> Any:
    arrays: dict[str, Any] = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return arrays.get(values.dtype.kind, pd.arrays.IntegerArray)(values, missing)


def _is_null(one: Any) -> bool:
    return one is None or one is pd.NA or one is pd.NaT or (isinstance(one, float) and one != one)


class Form(Enum):
    """Form of the given keys."""

    FRAME = "DataFrame"
    SERIES = "Series"
    ARRAY = "array"
    ARRAYS = "mapping of arrays"
    VALUES = "scalar, list or tuples"


def form_of(keys: Any) -> Form:
    """Return the form of `keys`, whose arrays are `to_native`."""
    if hasattr(keys, "iloc"):
        return Form.FRAME if keys.ndim == 2 else Form.SERIES
    if isinstance(keys, Mapping):
        return Form.ARRAYS
    is_array = backend.device_of(keys) is not None and getattr(keys, "ndim", 0) > 0
    return Form.ARRAY if is_array else Form.VALUES


@dataclass(frozen=True, slots=True)
class Query:
    """Keys of a query, and the conversion of its result to their form.

    Attributes
    ----------
    keys
        The keys as given.
    form : Form
    frame : DataFrame
        The key columns, one row per key.
    stored : tuple of labels
        The columns that the index has beside its key columns.
    listed : Listed or None
        Set for lists when some keys do not fit the index's types and are left out of `frame`.
    """

    keys: Any
    form: Form
    frame: Any
    stored: tuple[Hashable, ...]
    listed: PartialKeys | None = None

    @classmethod
    def of(cls, keys: Any, encoder: KeyEncoder, index_meta: Any) -> Query:
        """Return the query for `keys`; parameters and errors as for `keys_frame`.

        Raises
        ------
        DeviceError
            When the keys are on the host and the rows on the GPU, or the other way round.
        """
        asked, listed = _key_columns(keys, encoder, index_meta)
        check_same_library(asked, frames_of(index_meta))
        names = set(encoder.names)
        stored = tuple(label for label in index_meta.columns if label not in names)
        return cls(keys, form_of(to_native(keys)), asked, stored, listed)

    @property
    def keyed(self) -> bool:
        """Whether the result has the key columns."""
        return not self.stored or self.form not in {Form.SERIES, Form.ARRAY}

    def answer(self, found: Lookup) -> Any:
        """Return the rows of a lookup in the form of the keys.

        Parameters
        ----------
        found : Lookup
            A lookup whose frame has the key columns if the answer is `keyed`.
        """
        found = self.whole(found)
        frame, frames = found.frame, frames_of(found.frame)
        if self.form in {Form.FRAME, Form.VALUES}:
            return frame
        if self.form is Form.ARRAYS:
            like = next(
                (a for a in self.keys.values() if form_of(to_native(a)) is Form.ARRAY), None
            )
            return {label: frames.array(frame[label], like) for label in frame.columns}
        if not self.stored:
            # An index of key columns alone answers with the keys that are stored, else null.
            there = found.found[found.query_rows]
            frame = frames.take_or_null(
                frame, frames.xp.where(there, frames.xp.arange(len(frame)), -1)
            )
        if self.form is Form.SERIES:
            (first, *others) = frame
            answer = frame if others else frame[first]
            answer.index = self._labels(found)
            return answer
        arrays = {label: frames.array(frame[label], self.keys) for label in frame.columns}
        return arrays.popitem()[1] if len(arrays) == 1 else arrays

    def whole(self, found: Lookup) -> Lookup:
        """Return the lookup of the rows of `frame` as a lookup of all keys."""
        return found if self.listed is None else self.listed.whole(found)

    def mask(self, found: Any) -> Any:
        """Return the mask `found` in the form of the keys."""
        frames = frames_of(self.frame)
        if self.form is Form.FRAME:
            return frames.series(found, self.keys.index)
        dtype = getattr(self.keys, "dtype", None)
        if self.form is Form.SERIES:
            # As Series.isin: nullable booleans for masked dtypes, plain ones for Arrow.
            arrow = hasattr(dtype, "pyarrow_dtype")
            return frames.series(
                found if arrow else as_extension_array(found, dtype), self.keys.index
            )
        if self.form is Form.VALUES:
            told = backend.get(frames.device).to_host(found)
            return told if self.listed is None else self.listed.mask(told)
        return frames.array(frames.series(as_extension_array(found, dtype)), self.keys)

    def _labels(self, found: Lookup) -> Any:
        # Each key has at least one row, so equal counts mean one row per key.
        same = len(found.query_rows) == len(self.keys)
        return (self.keys if same else self.keys.take(found.query_rows)).index


def keys_frame(keys: Any, encoder: KeyEncoder, index_meta: Any) -> Any:
    """Return keys in any form as a frame of the key columns.

    Keys of lists whose values do not fit the index's types are left out.

    Parameters
    ----------
    keys : scalar, list, array, Series, DataFrame, list of tuples, or mapping of arrays
        Scalars, lists, arrays and Series serve an index on one column; tuples have one value for
        each key column.
    encoder : KeyEncoder
        The encoder of the index.
    index_meta : DataFrame
        An empty frame like the index's rows; lists and scalars become frames of its library.

    Raises
    ------
    ColumnError
        When a key column is missing.
    ShapeError
        When a key does not have one value for each key column.
    UnsupportedError
        When the keys are lazy.
    """
    return _key_columns(keys, encoder, index_meta)[0]


def _key_columns(keys: Any, encoder: KeyEncoder, index_meta: Any) -> tuple[Any, PartialKeys | None]:
    """Return the frame of `keys_frame`, and the `PartialKeys` keys or None.

    None when every key is in the frame.
    """
    names = encoder.names
    if hasattr(keys, "__dask_graph__"):
        raise UnsupportedError(
            f"a lazy {type(keys).__name__} cannot be looked up; compute() it first, or merge a "
            "Dask DataFrame with the index"
        )
    keys = to_native(keys)
    form = form_of(keys)
    if form is Form.FRAME:
        asked = keys[list(key_names(keys, list(names)))]
        check_byte_order(asked, frames_of(asked).dtypes(asked))
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
        columns, listed = _cast_lists(columns, encoder)
    asked = _typed_nulls(_made(columns, index_meta), index_meta)
    if listed is not None:
        asked = frames_of(asked).take(asked, frames_of(asked).xp.asarray(listed.rows))
    if not len(asked):
        asked = _empty(asked, encoder, index_meta)
    return (_cast_datetimes(asked, index_meta) if form is Form.VALUES else asked), listed


def _cast_lists(
    columns: dict[Hashable, Any], encoder: KeyEncoder
) -> tuple[dict[Hashable, Any], PartialKeys | None]:
    """Return lists as columns of the index's types, where a cast is needed.

    The second result tells which keys do not fit the types; None when all fit.
    """
    made, held = dict(columns), None
    for (name, values), type_ in zip(columns.items(), encoder.types, strict=True):
        read = cast_list(values, type_) if isinstance(values, list) else None
        if read is not None:
            made[name], own = read
            held = own if held is None else held & own
    if held is None or held.all():
        return made, None
    return made, PartialKeys(columns, np.flatnonzero(held))


def _empty(asked: Any, encoder: KeyEncoder, index_meta: Any) -> Any:
    """Return an empty frame of keys that is comparable with the index.

    Columns that could not be compared, or have no type, take the index's dtype.
    """
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
        # A frame made from columns has no MultiIndex: take the labels of the index.
        asked.columns = index_meta[list(columns)].columns
    return asked


def _typed_nulls(asked: Any, index_meta: Any) -> Any:
    """Return the keys with untyped all-null columns in the index's dtype."""
    frames = frames_of(asked)
    for name in asked:
        column = asked[name]
        if not frames.is_typed(column) and column.isna().all():
            nowhere = frames.xp.full(len(asked), -1)
            asked[name] = frames.take_or_null(index_meta[[name]], nowhere)[name]
    return asked


def _cast_datetimes(asked: Any, index_meta: Any) -> Any:
    """Return the keys of lists with datetimes in the index's kind of dtype.

    See `Frames.moments`.
    """
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
