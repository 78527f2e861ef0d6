"""Part of maps that looks keys up."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from dgpuhash.tables.arguments.validate import default_row, host_as_device_array
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import read_locked
from dgpuhash.tables.select import select_found
from dgpuhash.tables.stores.method import methods
from dgpuhash.typing import Array, ArrayKind, KeysLike, Scalar

_BOOL, _ROW = np.dtype(bool), np.dtype(np.int64)


class FindsPairs:
    """Part of a map that looks keys up."""

    @overload
    def find(
        self: Any, keys: ArrayKind, default: Scalar | None = None, *, in_order: Literal[True] = True
    ) -> tuple[ArrayKind, ArrayKind]: ...
    @overload
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: Literal[True] = True
    ) -> tuple[Array, Array]: ...
    @overload
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: bool
    ) -> tuple[Array, ...]: ...
    @translates_memory_errors
    @read_locked
    def find(
        self: Any, keys: KeysLike, default: Scalar | None = None, *, in_order: bool = True
    ) -> tuple[Array, ...]:
        """Return the value of each key, and whether the key is stored.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.
        default : scalar, optional
            The value where a key is absent; zero bytes when None.
        in_order : bool
            False: tables of a method that reorders batches, as ``"supernode"``, answer in the order
            of the keys' places in the table, so that rows near each other read the same memory.

        Returns
        -------
        values, found : array
            In input order and of the same kind as `keys`, or NumPy arrays where that kind lacks
            the dtype; `found` is a mask.
        rows : array of int64
            Only with ``in_order=False``: the rows of `keys` that the answers belong to, so that
            ``values[i]`` is that of ``keys[rows[i]]``. Every row occurs once.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.
        UnsupportedError
            For ``in_order=False`` when tables of this method do not reorder.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1, 2], [10, 20]).find([2, 5])
        (array([20,  0]), array([ True, False]))
        >>> prices = HashMap.from_arrays([1, 2], [10, 20], method="supernode")
        >>> values, found, rows = prices.find([2, 5], in_order=False)
        >>> dict(zip(rows.tolist(), values.tolist())) == {0: 20, 1: 0}
        True
        """
        if not in_order:
            methods()[self._spec.method].require("reorder", self.kind)
        taken, asked, bits = self._asked(keys)
        store, rows = self._opened(), None
        row = default_row(default, self._value)
        # Keys of which some are dropped are brought back to their rows, so that these are in order.
        if not in_order and asked.rows is None:
            bits, rows = store.reordered(bits)
        values, found = self._values.find(store, bits, row)
        if asked.rows is not None:
            absent = host_as_device_array(store.backend, row, self._value)
            values, found = asked.by_row(values, absent), asked.by_row(found)
        answers = taken.wrap(values, self._value), taken.wrap(found, _BOOL)
        if in_order:
            return answers
        if rows is None:
            rows = store.backend.xp.arange(len(found))
        return (*answers, taken.wrap(rows, _ROW))

    @translates_memory_errors
    @read_locked
    def _find_to(self: Any, keys: Any, default: Any, values: Any, found: Any) -> bool:
        """Look keys up as `find` does, into arrays as wide on this device.

        Returns False where that is impossible.
        """
        _, bits = self._stored_as(keys)
        store = self._opened()
        row = default_row(default, self._value)
        return self._values.find_to(store, bits, row, values, found)

    def match(self: Any, keys: KeysLike) -> tuple[Array, Array]:
        """Return the rows whose keys are stored, and their values (inner join).

        With row numbers as values, the result is the row pairs of `join_indices` with a table that
        was built before.

        Parameters
        ----------
        keys : array
            Any kind; keys that `key_dtype` does not hold are absent.

        Returns
        -------
        rows, values : array
            Row numbers (int64) in input order and the value of each of these rows; NumPy or CuPy
            arrays.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When an argument does not fit the table.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1, 2], [10, 20]).match([2, 5, 1])
        (array([0, 2]), array([20, 10]))
        """
        found: tuple[Any, Any] = self._match(keys, named=True)
        return found

    @translates_memory_errors
    @read_locked
    def _match(self: Any, keys: Any, *, named: bool) -> tuple[Any, Any]:
        """Match as `match` does; rows are None for all rows unless `named`."""
        _, asked, bits = self._asked(keys)
        store = self._opened()
        words, found = store.find(bits)
        named = named or asked.rows is not None
        rows, words = select_found(store.backend, found, words, named=named)
        return asked.numbers(rows), self._values.decode(words)
