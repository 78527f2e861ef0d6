"""Keys and values of a table as the columns that travel between workers, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import carrier, key_bits, value_bits, values_of, word
from dgpuhash.tables.arguments.interop import Taken, take
from dgpuhash.tables.arguments.lookup_keys import Asked, ask
from dgpuhash.tables.arguments.validate import adopt, adopt_host, default_row

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table's columns are on the way.

    Keys travel as their canonical words, so that the same key has one owner whatever it looked
    like; values of 1, 2, 4 or 8 bytes as words, and others as rows of bytes.
    """

    key: np.dtype[Any]
    value: np.dtype[Any] | None

    @classmethod
    def of(cls, spec: TableSpec) -> Layout:
        """The layout of the tables that `spec` describes."""
        return cls(spec.key, spec.value)

    @property
    def stored_key(self) -> np.dtype[Any]:
        """The dtype of the keys of the owners' tables."""
        return word(self.key)

    @property
    def stored_value(self) -> np.dtype[Any]:
        """The dtype of the values of the owners' tables."""
        assert self.value is not None
        return np.dtype(f"V{self.value.itemsize}") if self._wide else word(self.value)

    def keys(self, backend: Backend, chunk: Any) -> Any:
        """The words of a chunk of keys, which may be on the host."""
        return key_bits(backend, _taken(backend, chunk, self.key, "keys"))

    def asked(self, backend: Backend, chunk: Any) -> Asked:
        """As `keys`, of a question: the words of those that are keys, and which these are."""
        taken = take(chunk, "keys")
        home = backends.get(taken.location)
        asked = ask(home, taken, self.key, "keys")
        keys, rows = asked.keys, asked.rows
        if home is not backend:
            keys = adopt_host(backend, keys, self.key)
            rows = None if rows is None else backend.from_host(rows)
        return Asked(key_bits(backend, keys), asked.count, rows)

    def values(self, backend: Backend, chunk: Any) -> Any:
        """The column of a chunk of values, which may be on the host."""
        assert self.value is not None
        rows = _taken(backend, chunk, self.value, "values")
        if not self._wide:
            return value_bits(rows, self.value)
        return rows if rows.ndim == 2 else _bytes_of(rows)

    def to_store(self, column: Any) -> Any:
        """A column of values as the owner's table takes it."""
        if self._wide and isinstance(column, np.ndarray):
            return column.view(self.stored_value).reshape(len(column))
        return column

    def from_store(self, values: Any) -> Any:
        """What the owner's table gives, as a column."""
        return _bytes_of(values) if self._wide and values.ndim == 1 else values

    def answer(self, backend: Backend, column: Any) -> Any:
        """A column of values as arrays of this backend carry them."""
        assert self.value is not None
        if not self._wide:
            return values_of(backend, column, self.value)
        carried = carrier(backend, self.value)
        if carried.itemsize != self.value.itemsize:
            return column
        return column.view(carried).reshape(len(column))

    def column(self, backend: Backend, rows: int) -> Any:
        """Room for a column of values."""
        if self._wide:
            assert self.value is not None
            return backend.empty((rows, self.value.itemsize), np.uint8)
        return backend.empty(rows, self.stored_value)

    def filled(self, backend: Backend, rows: int, default: Any) -> Any:
        """A column of values that are all `default`."""
        made, value = self.column(backend, rows), self.default(default)
        if self._wide:
            made[...] = backend.from_host(np.frombuffer(value.tobytes(), np.uint8))
        else:
            made.fill(made.dtype.type(value))
        return made

    def default(self, default: Any) -> Any:
        """`default` as the owners' tables take it.

        Raises
        ------
        KeyTypeError
            When it is no value of the table's.
        """
        assert self.value is not None
        row = default_row(default, self.value)
        return row.view(self.stored_value)[0] if self._wide else _word_of(row)

    @property
    def _wide(self) -> bool:
        return self.value is not None and self.value.itemsize not in (1, 2, 4, 8)


def _taken(backend: Backend, chunk: Any, dtype: np.dtype[Any], what: str) -> Any:
    """The chunk as what carries `dtype` on this backend; host arrays are brought there."""
    taken = take(chunk, what)
    if taken.location != backend.name:
        taken = Taken(taken.data, None)
    return adopt(backend, taken, dtype, what)


def _bytes_of(rows: Any) -> Any:
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)


def _word_of(row: np.ndarray) -> int:
    words = row.view(f"u{row.dtype.itemsize}")
    return int(words[0])
