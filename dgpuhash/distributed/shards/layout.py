"""Layout: the encoding of a table's keys and values while they travel between workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import (
    carrier_dtype,
    key_words,
    value_words,
    values_of,
    word_dtype,
)
from dgpuhash.tables.arguments.interop import ArrayArgument, as_argument
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.tables.arguments.validate import as_device_array, default_row, host_as_device_array
from dgpuhash.tables.count_map import terms_of
from dgpuhash.tables.stores.mixed import OP_DTYPE


@dataclass(frozen=True, slots=True)
class Layout:
    """Encoding of a table's columns while they travel.

    Keys travel as their canonical words, so that equal keys have one owner whatever their form;
    values of 1, 2, 4 or 8 bytes travel as words, and others as rows of bytes.
    """

    key: np.dtype[Any]
    value: np.dtype[Any] | None

    @classmethod
    def of(cls, spec: TableSpec) -> Layout:
        """Return the layout of the tables that `spec` describes."""
        return cls(spec.key, spec.value)

    @property
    def stored_key(self) -> np.dtype[Any]:
        """Dtype of the keys in the owners' tables."""
        return word_dtype(self.key)

    @property
    def stored_value(self) -> np.dtype[Any]:
        """Dtype of the values in the owners' tables."""
        assert self.value is not None
        return np.dtype(f"V{self.value.itemsize}") if self._wide else word_dtype(self.value)

    def keys(self, backend: Backend, chunk: Any) -> Any:
        """Return the words of a chunk of keys, which may be on the host."""
        return key_words(backend, _taken(backend, chunk, self.key, "keys"))

    def asked(self, backend: Backend, chunk: Any) -> LookupKeys:
        """Return the words of lookup keys that fit the dtype, and their rows."""
        taken = as_argument(chunk, "keys")
        home = backends.get(taken.location)
        asked = as_lookup_keys(home, taken, self.key, "keys")
        keys, rows = asked.keys, asked.rows
        if home is not backend:
            keys = host_as_device_array(backend, keys, self.key)
            rows = None if rows is None else backend.from_host(rows)
        return LookupKeys(key_words(backend, keys), asked.count, rows)

    def values(self, backend: Backend, chunk: Any) -> Any:
        """Return the column of a chunk of values, which may be on the host."""
        assert self.value is not None
        rows = _taken(backend, chunk, self.value, "values")
        if not self._wide:
            return value_words(rows, self.value)
        return rows if rows.ndim == 2 else _bytes_of(rows)

    def ops(self, backend: Backend, chunk: Any) -> Any:
        """Return the column of a chunk of operations, from any device."""
        return _taken(backend, chunk, OP_DTYPE, "ops")

    def counts(self, backend: Backend, chunk: Any) -> Any:
        """Return the column of a chunk of integers that are added to counts.

        Raises
        ------
        KeyTypeError, SpecError
            When they are no integers, or some are negative.
        """
        taken = as_argument(chunk, "counts")
        home = backends.get(taken.location)
        terms = terms_of(home, taken)
        return terms if home is backend else backend.from_host(home.to_host(terms))

    def to_store(self, column: Any) -> Any:
        """Return a column of values as the owner's table takes it."""
        if self._wide and isinstance(column, np.ndarray):
            return column.view(self.stored_value).reshape(len(column))
        return column

    def from_store(self, values: Any) -> Any:
        """Return values of the owner's table as a column."""
        return _bytes_of(values) if self._wide and values.ndim == 1 else values

    def answer(self, backend: Backend, column: Any) -> Any:
        """Return a column of values in the dtype that carries it on `backend`."""
        assert self.value is not None
        if not self._wide:
            return values_of(backend, column, self.value)
        carried = carrier_dtype(backend, self.value)
        if carried.itemsize != self.value.itemsize:
            return column
        return column.view(carried).reshape(len(column))

    def column(self, backend: Backend, rows: int) -> Any:
        """Allocate a column of values."""
        if self._wide:
            assert self.value is not None
            return backend.empty((rows, self.value.itemsize), np.uint8)
        return backend.empty(rows, self.stored_value)

    def filled(self, backend: Backend, rows: int, default: Any) -> Any:
        """Return a column of values that are all `default`."""
        made, value = self.column(backend, rows), self.default(default)
        if self._wide:
            made[...] = backend.from_host(np.frombuffer(value.tobytes(), np.uint8))
        else:
            made.fill(made.dtype.type(value))
        return made

    def default(self, default: Any) -> Any:
        """Return `default` as the owners' tables take it.

        Raises
        ------
        KeyTypeError
            When `default` is no value of the table's dtype.
        """
        assert self.value is not None
        row = default_row(default, self.value)
        return row.view(self.stored_value)[0] if self._wide else _word_of(row)

    @property
    def _wide(self) -> bool:
        return self.value is not None and self.value.itemsize not in (1, 2, 4, 8)


def _taken(backend: Backend, chunk: Any, dtype: np.dtype[Any], what: str) -> Any:
    """Return the chunk as an array of `dtype` on `backend`, copied if needed."""
    taken = as_argument(chunk, what)
    if taken.location != backend.name:
        taken = ArrayArgument(taken.data, None)
    return as_device_array(backend, taken, dtype, what)


def _bytes_of(rows: Any) -> Any:
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _word_of(row: np.ndarray) -> int:
    words = row.view(f"u{row.dtype.itemsize}")
    return int(words[0])
