"""Mixed batches of sets and maps: finds, inserts and erases in one launch."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.launches import Step
from dgpuhash.errors import ShapeError, SpecError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.arguments.interop import as_argument, as_device_array, default_row, same_length
from dgpuhash.tables.commit import BrokenSlots, assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import write_locked
from dgpuhash.tables.stores.method import methods
from dgpuhash.tables.stores.rebuilds import RecipeStore
from dgpuhash.tables.stores.recipe import Recipe
from dgpuhash.typing import Array, KeysLike, Scalar, ValuesLike

_BOOL, _ROW = np.dtype(bool), np.dtype(np.int64)
OP_DTYPE = np.dtype(np.uint8)
# Words of a table's state, and what a strange code counts in kernels/launch/methods/execute.cuh.
_PENDING, _COUNTED, _STRANGE = 2, 3, 2**40


class Op(IntEnum):
    """Operation of a row in a mixed batch, for `HashMap.execute`.

    Examples
    --------
    >>> import dgpuhash
    >>> [op.name for op in dgpuhash.Op]
    ['FIND', 'INSERT', 'UPSERT', 'ERASE', 'ERASE_ALL']
    """

    FIND = 0
    """Return the key's value; the flag tells whether it is stored."""
    INSERT = 1
    """Store the pair if the key is not stored; the flag tells whether this row created it."""
    UPSERT = 2
    """Store the pair, over the value of a stored key; the flag as for an insert."""
    ERASE = 3
    """Remove the key; the flag tells whether this row removed it."""
    ERASE_ALL = 4
    """Remove all values of the key; where keys have one value, as ``ERASE``."""


@dataclass(frozen=True, slots=True)
class _MixedBatch:
    """Rows to execute, and the output arrays."""

    ops: Any
    keys: Any
    values: Any
    found: Any
    flags: Any
    default: int

    def step(self, table: Recipe, most: int, pending: Any, rows: Any = None) -> Step:
        """Return the step of all rows or of `rows`, if at most `most` may store a key."""
        table.change()
        number = len(self.keys) if rows is None else len(rows)
        return table.backend.prepared(
            table.kernel("execute"), number, table=table.storage, ops=self.ops, keys=self.keys,
            values=self.values, rows=rows, found_values=self.found, flags=self.flags,
            pending_rows=pending, default_value=self.default, most=most,
        )  # fmt: skip


class MixedBatches(RecipeStore[Recipe]):
    """Mixin of stores with the verb ``execute``."""

    def reorder(self, keys: Any) -> tuple[Any, Any]:
        """Return keys in the method's lookup order, and their rows (int64).

        Raises
        ------
        UnsupportedError
            When tables of this method look keys up in any order alike.
        """
        self._method.require("reorder", self._spec.kind)
        table: Any = self.table
        inner = words_of(self._inner(keys, None)[0])
        moved, rows = table.reorder(inner)
        return (moved if inner.dtype.itemsize == keys.dtype.itemsize else keys[rows]), rows

    def execute(self, ops: Any, keys: Any, values: Any, default: int) -> tuple[Any, Any]:
        """Execute a batch in one launch; return value words (None for sets) and flags.

        A launch before it counts the codes, and leaves on the device what keeps it from starting: a
        code that is no operation, or more rows that store than there is room for. The host learns
        of that at the end, and makes room. Rows that find no place are launched again once the
        table has room for them. Should there be no memory for that, other rows have taken effect,
        and the store is broken.

        Parameters
        ----------
        ops : array of uint8
            An `Op` for each row.
        keys, values : array
            Words; `values` may be None where no row stores one.
        default : int
            Bits of the value of rows that find nothing.

        Raises
        ------
        SpecError
            When a code is no `Op`, or there are no values to store; nothing has changed.
        """
        self._drop_marks()
        backend, kind = self.backend, self.table.plan.value
        keys, values = self._inner(keys, values)
        found = None if kind is None else backend.empty(len(keys), kind)
        batch = _MixedBatch(ops, keys, values, found, backend.empty(len(keys), _BOOL), default)
        valueless = values is None and kind is not None
        room = min(self.table.free_keys, self.table.memory_keys - self.table.bound)
        most = 0 if valueless else max(0, room)
        stored = self._execute(batch, most)
        if stored > most:
            if valueless:
                raise values_missing(stored)
            wanted = self._keys_to_grow_to(keys[stores(ops)])
            if wanted is not None:
                self._replace(self._rebuilt(wanted))
            self.table.make_ready(stored)
            self._execute(batch, stored)
        if found is not None:
            found = found.astype(self._value, copy=False)
        return found, batch.flags

    def _execute(self, batch: _MixedBatch, most: int) -> int:
        """Execute a batch unless more than `most` rows may store; return how many may.

        The table is hidden until the host knows that no row was refused.
        """
        table, backend, blank = self.table, self.backend, self.table.blank
        pending = backend.empty(len(batch.keys), np.uint64)
        table.fill()
        table.state[_PENDING : _COUNTED + 1].fill(np.uint64(0))
        rows = len(batch.keys)
        _op_counter(backend)(rows, batch.ops, table.state[_COUNTED:], rows)
        step = batch.step(table, most, pending)
        self.attempts = 0
        try:
            backend.in_one_call([assigner(self, _table=BrokenSlots(table)), step])
            strange, stored = divmod(table.count().links, _STRANGE)
            if strange or stored > most:
                table.blank = blank
            rows = table.refused(pending)
            while len(rows):
                rows = rows.copy()
                self._count_attempt(table, len(rows))
                if not table.remedy(len(rows)):
                    table = self._rebuilt(table.keys, table, again=True)
                table.watch()
                batch.step(table, stored, pending, rows)()
                rows = table.refused(pending)
            table.bound, table.erased_bound = table.count().taken, table.count().erased
            self._replace(table)
        except BaseException:
            if self.broken and table.count().pending == 0:
                self._replace(table)
            raise
        check_codes(batch.ops, strange)
        return stored

    @abstractmethod
    def _keys_to_grow_to(self, keys: Any) -> int | None:
        """Return the keys that a new table is needed for; None if the current one suffices."""


class _Executes:
    """Base of the mixins for tables that execute mixed batches."""

    def _operations(self: Any, ops: Any, keys: Any, *, in_order: bool) -> tuple[Any, Any, Any, Any]:
        """Return the keys' argument and words, the codes, and their rows."""
        methods()[self._spec.method].require("execute", self.kind)
        given = as_argument(ops, "ops")
        taken, bits = self._keys(keys)
        store = self._opened()
        codes = as_device_array(store.backend, given, OP_DTYPE, "ops")
        if len(codes) != len(bits):
            raise ShapeError(f"{len(codes):,} ops for {len(bits):,} keys; pass one for each key")
        if in_order:
            return taken, bits, codes, None
        count_stores(store.backend, codes)  # while rows have their numbers
        bits, order = store.reorder(bits)
        return taken, bits, codes[order], order


class ExecutesKeys(_Executes):
    """Mixin of sets: execute mixed batches."""

    @translates_memory_errors
    @write_locked
    def execute(self: Any, ops: KeysLike, keys: KeysLike, *, in_order: bool = True) -> Array:
        """Find, add and remove keys in one launch, concurrently.

        As `HashMap.execute`, without values.

        Returns
        -------
        array of bool
            In the row of each operation, whether the key was found, created or removed.
        array of int64
            Only with ``in_order=False``: the rows that these flags belong to.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or a code is no operation.
        UnsupportedError
            When tables of this method have no mixed batches, or do not reorder them.

        Examples
        --------
        >>> from dgpuhash import HashSet, Op
        >>> seen = HashSet("uint32", method="slab")
        >>> seen.execute([Op.INSERT, Op.FIND], [7, 8])
        array([ True, False])
        """
        taken, bits, codes, order = self._operations(ops, keys, in_order=in_order)
        flags = taken.wrap(self._opened().execute(codes, bits, None, 0)[1], _BOOL)
        return flags if in_order else (flags, taken.wrap(order, _ROW))


class ExecutesPairs(_Executes):
    """Mixin of maps: execute mixed batches."""

    @translates_memory_errors
    @write_locked
    def execute(
        self: Any,
        ops: KeysLike,
        keys: KeysLike,
        values: ValuesLike | None = None,
        default: Scalar | None = None,
        *,
        in_order: bool = True,
    ) -> tuple[Array, ...]:
        """Find, store and remove pairs in one launch, concurrently (SlabHash §VI-C).

        Operations on the same key happen one after another, in no particular order: all together
        answer as if they had been called one by one.

        Parameters
        ----------
        ops : array of uint8
            An `Op` for each row.
        keys : array
            Keys of any number of rows may be equal.
        values : array, optional
            A value for each row; only those of rows that store are read. None where none does.
        default : scalar, optional
            The value of rows that find nothing; zero bytes when None.
        in_order : bool
            False: tables of a method that reorders batches, as ``"supernode"``, may execute and
            answer rows in the order of their keys' places in the table.

        Returns
        -------
        values : array
            Values that were found, and the default in all other rows.
        flags : array of bool
            Whether the row's key was found, created or removed.
        rows : array of int64
            Only with ``in_order=False``: the rows that the answers belong to, so that ``flags[i]``
            is that of ``ops[rows[i]]``. Every row occurs once.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError, SpecError
            When an argument does not fit the table, or a code is no operation.
        UnsupportedError
            When tables of this method have no mixed batches, or do not reorder them.
        OutOfMemoryError
            When the table cannot grow; it is unchanged, or says that it is broken.

        Examples
        --------
        >>> from dgpuhash import HashMap, Op
        >>> stock = HashMap("uint32", "uint32", method="slab")
        >>> stock.insert([1, 2], [10, 20]).all()
        np.True_
        >>> ops = [Op.FIND, Op.UPSERT, Op.ERASE, Op.FIND]
        >>> values, flags = stock.execute(ops, [1, 3, 2, 9], [0, 30, 0, 0])
        >>> values, flags
        (array([10,  0,  0,  0], dtype=uint32), array([ True,  True,  True, False]))
        """
        taken, bits, codes, order = self._operations(ops, keys, in_order=in_order)
        rows = None
        if values is not None:
            same_length(keys, values)
            given = as_argument(values, "values")
            rows = as_device_array(self._opened().backend, given, self._value, "values")
        row, store = default_row(default, self._value), self._opened()
        if rows is not None and self._values.words_of(rows[:0]) is None:
            # Wide values take memory before the launch.
            rows = rows if count_stores(store.backend, codes) else None
        moved = rows if rows is None or order is None else rows[order]
        found, flags = self._values.execute(store, codes, bits, moved, row)
        answers = taken.wrap(found, self._value), taken.wrap(flags, _BOOL)
        return answers if in_order else (*answers, taken.wrap(order, _ROW))


def stores(codes: Any) -> Any:
    """Return a mask of the operations that may store a key."""
    # CuPy compares with no member of an enumeration.
    return (codes == int(Op.INSERT)) | (codes == int(Op.UPSERT))


def count_stores(backend: Backend, codes: Any, first: int = 0) -> int:
    """Return the number of operations that may store a key; `first` is the number of row 0.

    Raises
    ------
    SpecError
        When a code is no `Op`.
    """
    counted = backend.zeros(1, np.uint64)
    _op_counter(backend)(len(codes), codes, counted, len(codes))
    strange, stored = divmod(int(backend.to_host(counted)[0]), _STRANGE)
    check_codes(codes, strange, first)
    return stored


def check_codes(codes: Any, strange: int, first: int = 0) -> None:
    """Raise SpecError if `strange` codes are not an `Op`; `first` is the number of row 0."""
    if strange:
        row = int((codes > int(max(Op))).argmax())
        raise SpecError(
            f"ops[{first + row}] is {int(codes[row])}, which is not an operation; use dgpuhash.Op: "
            + ", ".join(f"{op.name} {op.value}" for op in Op)
        )


@functools.cache
def _op_counter(backend: Backend) -> Callable[..., None]:
    """Return a count of rows that may store, plus `_STRANGE` for each invalid code."""
    return backend.bound(kernel_named("op_counts"))


def values_missing(stored: int) -> SpecError:
    """Return the error for a batch that stores `stored` pairs without values."""
    return SpecError(f"{stored:,} rows of ops store a pair, and there are no values; pass values=")
