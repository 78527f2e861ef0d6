"""Verbs for running user code on a table's entries: device_view, for_each, for_all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dgpuhash.errors import CapacityError, UnsupportedError
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.arguments.interop import default_row
from dgpuhash.tables.base import Keyed
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import read_locked
from dgpuhash.tables.select import spread
from dgpuhash.tables.store import Lent
from dgpuhash.tables.user_kernels.fused import launch_fused
from dgpuhash.typing import KeysLike, Number


class DeviceView(np.ndarray):
    """A table as an argument of a user kernel: a NumPy struct of no dimension.

    `device_view` of a table gives it. CuPy passes such a struct to a ``RawKernel`` by value. Its
    fields are the addresses of the table's arrays, and numbers.

    Attributes
    ----------
    type : str
        Type of the kernel's parameter, e.g. ``dg::device::View<dg::Slab<dg::u32,dg::u32>>``. Its
        members are in ``device/view.cuh``.
    include : str
        Lines that include the headers of the type.

    Examples
    --------
    >>> from dgpuhash.tables import HashMap
    >>> view = view_of(HashMap("int32", "float32", device="cpu")._opened().lend(write=False))
    >>> view.type, view.shape
    ('dg::device::View<dg::device::Auto<dg::u32,dg::u32>>', ())
    """

    type: str
    include: str

    def __array_finalize__(self, other: Any) -> None:
        self.type, self.include = getattr(other, "type", ""), getattr(other, "include", "")


def view_of(lent: Lent) -> DeviceView:
    """Return the view of a table lent by its store."""
    struct = np.frombuffer(lent.storage, lent.layout.dtype).copy()
    view = struct.reshape(()).view(DeviceView)
    view.type = f"dg::device::View<{lent.table}>"
    files = ("device/view.cuh", *lent.files)
    view.include = "".join(f'#include "{file}"\n' for file in dict.fromkeys(files))
    return view


# Keys of a chunk; of multimaps, a chunk has all their values.
CHUNK_ROWS = 2**20


class UserKernels(Keyed):
    """Mixin of sets, maps and multimaps: views in kernels, and functions of entries."""

    @contextmanager
    def device_view(self, *, write: bool = False) -> Iterator[DeviceView]:
        """Lend the table to a user kernel for the length of a ``with`` block.

        The view has the addresses of the table's arrays; nothing is copied. Meanwhile other threads
        may read the table unless `write` is set, and nobody changes it. It does not grow: reserve
        what you insert before. Launch on CuPy's current stream. A kernel that inserts must not
        search, unless the table's method is ``"slab"``. Keys and values are words of 4 or 8 bytes;
        floats as keys need +0.0 for -0.0, and one NaN.

        Parameters
        ----------
        write : bool
            Whether kernels insert or append. Leaving the block then waits for the device.

        Yields
        ------
        DeviceView
            The argument of the kernel; its `include` and `type` are text for its source.

        Raises
        ------
        UnsupportedError
            On a CPU; for values of more than 8 bytes; for multimaps of a method that builds them at
            once; to write to multimaps of methods ``"auto"`` and ``"bucket_list"``, and to tables
            of a method whose kernels insert no single key.
        CapacityError
            When the block ends, if rows were refused for want of room; it tells how many. The
            others are stored. A block has room for 2**24 values of those two keys of multimaps
            whose bits are all ones, or all but the last.
        ReentranceError
            When this thread uses the table in a way that would wait for itself.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> with HashMap("int32", "int32", device="cpu").device_view() as view:
        ...     pass
        Traceback (most recent call last):
        ...
        dgpuhash.errors.UnsupportedError: kernels of users run on GPUs: make the table with \
device='cuda', or give for_each a Python function
        """
        with self._turns.hold(self, "device_view", write=write):
            lent = self._lend(write=write, what="kernels of users run on GPUs")
            try:
                yield view_of(lent)
            finally:
                refused = lent.settle() if write else 0
            if refused:
                raise CapacityError(
                    f"{refused:,} rows found no place in the table while a kernel inserted; "
                    "reserve room for them before device_view, and insert them again"
                )

    @translates_memory_errors
    @read_locked
    def for_each(
        self,
        keys: KeysLike,
        fn: Callable[..., object] | str,
        args: Sequence[KeysLike | Number] = (),
    ) -> None:
        """Call a function for the stored ones of some keys.

        Parameters
        ----------
        keys : array
            As those of `find`.
        fn : callable or str
            A callable gets arrays ``(keys, values, rows)``, one chunk of at most 2**20 queries
            after another: the keys, their values (None for sets), and the rows of `keys` (int64).
            A multimap's key is there once for each value. Text is a lambda in C++, ``[](auto key,
            auto value, auto row) {…}`` without value for sets, that one kernel on a GPU calls in
            parallel.
        args : sequence
            Of text: up to 8 arrays and numbers that the lambda gets behind the row, arrays as
            pointers.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When the keys do not fit the table.
        UnsupportedError
            For text on a CPU, for a multimap, or for values of more than 8 bytes.
        CompileError
            For text that does not compile; with the compiler's log.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1, 2], [10, 20]).for_each([3, 2], print)
        [2] [20] [1]
        """
        _, asked, bits = self._asked(keys)
        if isinstance(fn, str):
            backend, lent = self._lend_fused()
            if asked.rows is not None:
                raise UnsupportedError(
                    "for_each in C++ takes keys of the table's dtype; cast them, or give a function"
                )
            words = words_of(bits)
            if self._spec.method != "auto":
                words, _ = self._opened()._inner(words, None)
            launch_fused(backend, lent, self._dtypes(), fn, args, words)
            return
        for first in range(0, len(bits), CHUNK_ROWS):
            part = bits[first : first + CHUNK_ROWS]
            rows, values = self._found(part)
            found = self._stored_keys(words_of(part)[rows])
            if len(rows):
                fn(found, values, asked.numbers(rows + first))

    @translates_memory_errors
    @read_locked
    def for_all(
        self, fn: Callable[..., object] | str, args: Sequence[KeysLike | Number] = ()
    ) -> None:
        """Call a function for all entries, as `for_each` without row numbers.

        A callable gets arrays ``(keys, values)``, one chunk of at most 2**20 entries after another.

        Raises
        ------
        UnsupportedError, CompileError
            As `for_each`.

        Examples
        --------
        >>> from dgpuhash import HashMap
        >>> HashMap.from_arrays([1], [10]).for_all(print)
        [1] [10]
        """
        if isinstance(fn, str):
            backend, lent = self._lend_fused()
            launch_fused(backend, lent, self._dtypes(), fn, args)
            return
        keys, values = self._all_items()
        for first in range(0, len(keys), CHUNK_ROWS):
            chunk = slice(first, first + CHUNK_ROWS)
            fn(keys[chunk], None if values is None else values[chunk])

    def _dtypes(self) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        return self._key, self._spec.value

    def _lend_fused(self) -> tuple[Any, Lent]:
        lent = self._lend(write=False, what="functions in C++ run on GPUs")
        if self.kind == "multimap":
            raise UnsupportedError("a MultiMap cannot call a C++ function; give a Python function")
        return self._opened().backend, lent

    def _lend(self, *, write: bool, what: str) -> Lent:
        store = self._opened()
        if store.backend.name == "cpu":
            raise UnsupportedError(
                f"{what}: make the table with device='cuda', or give for_each a Python function"
            )
        if self._key.names is not None:
            raise UnsupportedError(
                f"kernels take keys of at most 8 bytes, not {self._key}; give for_each a Python "
                "function"
            )
        value = self._spec.value
        if value is not None and value.itemsize not in (1, 2, 4, 8):
            raise UnsupportedError(
                f"kernels take values of 1, 2, 4 or 8 bytes, not {value}; give for_each a Python "
                "function"
            )
        if not hasattr(store, "lend"):
            raise UnsupportedError(
                f"a MultiMap of method {self._spec.method!r} has no view in kernels; use method "
                "'auto', 'cops', 'slab' or 'bucket_list'"
            )
        lent: Lent = store.lend(write=write)
        return lent

    def _found(self, bits: Any) -> tuple[Any, Any]:
        """Return the rows of stored key words, and their values, one row for each."""
        store = self._opened()
        xp = store.backend.xp
        if self.kind == "multimap":
            values, offsets = store.find(words_of(bits))
            return spread(store.backend, xp.arange(len(bits)), offsets, len(values)), values
        if self.kind == "set":
            return xp.flatnonzero(store.contains(bits)), None
        value: Any = self._spec.value
        values, found = self._values.find(store, bits, default_row(None, value))  # type: ignore[attr-defined]
        rows = xp.flatnonzero(found)
        return rows, values[rows]

    def _all_items(self) -> tuple[Any, Any]:
        """Return all keys and values."""
        items = self.items()  # type: ignore[attr-defined]
        return (items, None) if self.kind == "set" else items
