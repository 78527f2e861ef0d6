"""Interface of a backend: arrays, kernel launches and batch operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash.backend.batch.multisplit import Multisplit
from dgpuhash.backend.batch.partition import Partitioned, multisplit, partition, sort_by_hash, split
from dgpuhash.backend.constants import BLOCK_THREADS, CPU_BLOCKS, PART_ROWS, REGION_SHIFT
from dgpuhash.backend.kernel import Kernel, kernel_named
from dgpuhash.backend.launches import Launches
from dgpuhash.errors import KeyTypeError, ShapeError
from dgpuhash.typing import Device

Shape = int | tuple[int, ...]


class Backend(Launches):
    """Arrays and kernels of one device.

    Attributes
    ----------
    name : str
        ``"cpu"`` or ``"cuda"``.
    """

    name: Device

    @property
    def region_shift(self) -> int:
        """Log2 of the number of buckets in a region.

        A region is the piece of a table that one block builds in shared memory.
        """
        return REGION_SHIFT

    def check_device(self) -> Callable[[], None] | None:
        """Return a check that the current device is still the same, or None.

        The check raises DeviceError where work could not use memory that is allocated now. None
        where no check is needed.

        None where there is no such place.
        """
        return None

    @property
    def is_serial(self) -> bool:
        """Whether one thread runs all kernels."""
        return False

    @property
    def swaps_pairs(self) -> bool:
        """Whether kernels have a compare-and-swap of 128 bits."""
        return False

    @property
    def partition_threads(self) -> int:
        """Threads of a block that partitions a batch."""
        return BLOCK_THREADS

    @property
    def partition_blocks(self) -> int:
        """Segments of a batch to partition at the same time."""
        return CPU_BLOCKS

    @property
    def max_part_rows(self) -> int:
        """Most rows of a part that one block groups in its shared memory."""
        return PART_ROWS

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the backend by its name.

        Each process has its own modules and loaded kernels.
        """
        from dgpuhash.backend import get

        return get, (self.name,)

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """The array module: NumPy or CuPy."""

    def load(self, *kernels: Kernel) -> None:
        """Compile and load `kernels` now instead of at their first launch.

        Raises
        ------
        CompileError
            As for `launch`.
        DeviceError
            When the device does not take them.
        """

    @abstractmethod
    def empty(self, shape: Shape, dtype: DTypeLike) -> Any:
        """Return an uninitialised array, aligned to 64 bytes.

        Raises
        ------
        OutOfMemoryError
            With the bytes needed and free.
        """

    @abstractmethod
    def asarray(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        """Return `data` as a C-contiguous array of this device.

        `data` is an array, a Series, a DLPack or Arrow array, or a list.

        Host data is never moved to a GPU, nor back, except for lists and scalars.

        Raises
        ------
        DeviceError
            When `data` lives on another kind of device.
        ShapeError
            When `data` is masked or has nulls.
        """

    @abstractmethod
    def from_host(self, data: Any) -> Any:
        """Return a copy of a host array on this device (no copy on the CPU)."""

    @abstractmethod
    def to_host(self, data: Any) -> np.ndarray:
        """Return this device's array as a NumPy array.

        Waits for the work that fills the array.
        """

    def fetch(self, data: Any) -> Callable[[], np.ndarray]:
        """Start an asynchronous copy to the host; return a function that waits.

        The function returns the array as `to_host` does; it waits for the copy and for no later
        work.

        Do not change `data` until then.
        """
        return lambda: self.to_host(data)

    def mark(self) -> Any:
        """Record an event on the GPU's current stream and return it.

        The event covers all work given to the stream so far. None on a CPU.
        """
        return None

    @abstractmethod
    def stable_order(self, keys: Any) -> Any:
        """Return the row numbers (int64) that sort `keys`.

        Equal keys stay in input order.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the work launched on the current stream is done."""

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Return the free and total bytes of the device's memory."""

    @abstractmethod
    def cache_nbytes(self) -> int:
        """Return the bytes of the largest cache of the device."""

    @abstractmethod
    def device_name(self) -> str:
        """Return a readable name of the device."""

    def zeros(self, shape: Shape, dtype: DTypeLike) -> Any:
        """Return an array as from `empty`, with every element zero."""
        made = self.empty(shape, dtype)
        made.fill(0)
        return made

    def full(self, shape: Shape, value: Any, dtype: DTypeLike) -> Any:
        """Return an array as from `empty`, with every element `value`."""
        made = self.empty(shape, dtype)
        # CuPy takes Python integers as int64, which does not hold all of uint64.
        made.fill(np.asarray(value, made.dtype)[()])
        return made

    def fill_ones(self, words: Any) -> None:
        """Set every bit of an array of uint64."""
        words.fill(np.uint64(2**64 - 1))

    def multisplit(self, destinations: Any, parts: int) -> tuple[Any, np.ndarray]:
        """Return the row order by destination, and the rows of each destination.

        Rows of one destination stay in input order.

        Parameters
        ----------
        destinations : array of uint32
            Each below `parts`.
        parts : int
            Number of destinations.

        Returns
        -------
        order : array of int64
            Row numbers, destination by destination.
        counts : numpy.ndarray of int64
            Rows of each destination, on the host.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> order, counts = backend.get("cpu").multisplit(np.array([1, 0, 1], np.uint32), 3)
        >>> order.tolist(), counts.tolist()
        ([1, 0, 2], [1, 2, 0])
        """
        return multisplit(self, destinations, parts)

    def partition(
        self, keys: Any, values: Any = None, *, parts: int, seed: int, numbered: bool = False
    ) -> Partitioned:
        """Return a batch hash-partitioned into `parts` equal ranges of the hash.

        A row's part is the `owner_of` its key's hash (`hash_keys`); rows of one part stay in input
        order. On a GPU this takes memory for one copy of the batch and 10 MB with 256 parts, and
        for a second copy with more parts than `PASS_PARTS` of backend/constants.py.

        Parameters
        ----------
        keys : array of uint32 or uint64
            On this device.
        values : array of uint32 or uint64, optional
            Moved along.
        parts : int
            Number of ranges, up to 65,536.
        seed : int
            Of the hash.
        numbered : bool
            Whether to return the rows' numbers too.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> cpu = backend.get("cpu")
        >>> moved = cpu.partition(np.arange(6, dtype="u4"), parts=2, seed=0, numbered=True)
        >>> moved.numbers.tolist()
        [0, 3, 1, 2, 4, 5]
        """
        return partition(self, keys, values, parts=parts, seed=seed, numbered=numbered)

    def split(
        self, keys: Any, values: Any = None, *, parts: int, seed: int, numbered: bool = False
    ) -> tuple[Partitioned, Any]:
        """Partition as `partition` does; return the bounds of the parts too.

        The bounds are an array on this device: where each part begins, and where the last one ends.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> cpu = backend.get("cpu")
        >>> moved, starts = cpu.split(np.arange(6, dtype="u4"), parts=2, seed=0)
        >>> starts.tolist()
        [0, 2, 6]
        """
        return split(self, keys, values, parts=parts, seed=seed, numbered=numbered)

    def deal(
        self,
        keys: Any,
        values: Any = None,
        *,
        parts: int,
        seed: int,
        counted: Callable[[Any], object] | None = None,
    ) -> Multisplit:
        """Return the batch in the order of its keys' owners.

        The `Multisplit` also brings results back to the input order.

        Examples
        --------
        >>> from dgpuhash import backend
        >>> cpu = backend.get("cpu")
        >>> dealt = cpu.deal(np.arange(6, dtype="u4"), parts=2, seed=0)
        >>> dealt.keys.tolist(), dealt.starts.tolist()
        ([0, 3, 1, 2, 4, 5], [0, 2, 6])
        >>> squares = np.zeros(6, np.uint32)
        >>> dealt.restore_order([dealt.keys**2], [squares])
        >>> squares.tolist()
        [0, 1, 4, 9, 16, 25]
        """
        return Multisplit(self, keys, values, parts=parts, seed=seed, counted=counted)

    def sort_by_hash(self, keys: Any, values: Any, *, bits: int, seed: int) -> tuple[Any, Any]:
        """Return keys and values sorted by `bits` bits of the keys' hashes.

        The sort key is the `owner_of` each hash among ``2**bits - 1`` owners; rows of one owner
        stay in input order. Takes memory for two copies of the batch.

        Parameters
        ----------
        keys, values : array of uint32 or uint64
            On this device.
        bits : int
            1 to 32.
        seed : int
            Of the hash.
        """
        return sort_by_hash(self, keys, values, bits=bits, seed=seed)

    def hash_keys(self, keys: Any, seed: int) -> Any:
        """Return the hashes (uint64) of uint32 or uint64 keys.

        Different keys never share a hash.

        Raises
        ------
        KeyTypeError
            When the keys have another dtype.
        """
        if keys.dtype not in (np.dtype(np.uint32), np.dtype(np.uint64)):
            raise KeyTypeError(
                f"keys of dtype {keys.dtype} cannot be hashed directly; view them as uint32 or "
                "uint64 first"
            )
        keys = self.asarray(keys)
        hashes = self.empty(len(keys), np.uint64)
        kernel = kernel_named("hash_keys", keys.dtype)
        self.run(kernel, len(keys), keys=keys, hashes=hashes, seed=seed)
        return hashes

    def hash_strings(
        self, offsets: Any, chars: Any, seed: int, rows: Any = None, nulls: Any = None
    ) -> Any:
        """Return the hashes (uint64) of strings; nulls have `NULL_HASH`.

        Parameters
        ----------
        offsets : array of int64
            Positions in `chars`: string i is ``chars[offsets[i]:offsets[i + 1]]``.
        chars : array of uint8
            The strings' bytes.
        seed : int
            64 bits.
        rows : array of int64, optional
            Strings to hash, below 0 a null; default: each one, in order.
        nulls : array of bool, optional
            Which strings are null; default: none.
        """
        strings = self.asarray(offsets), self.asarray(chars), rows, nulls
        n = max(len(offsets) - 1, 0) if rows is None else len(rows)
        hashes = self.empty(n, np.uint64)
        self.run(kernel_named("hash_strings"), n, strings=strings, hashes=hashes, seed=seed)
        return hashes

    def hash_combine(self, first: Any, second: Any) -> Any:
        """Return one hash for each row from the hashes of two columns.

        The result depends on the order of the columns.

        Raises
        ------
        ShapeError
            When the columns differ in length.
        """
        if len(first) != len(second):
            raise ShapeError(
                f"hashes of {len(first)} and {len(second)} rows cannot be combined; hash columns "
                "of one frame"
            )
        hashes = self.asarray(first).copy()
        kernel = kernel_named("hash_combine")
        self.run(kernel, len(hashes), hashes=hashes, next=self.asarray(second))
        return hashes

    def owner_of(self, hashes: Any, parts: int) -> Any:
        """Return the owner (uint32) of each hash, below `parts`.

        Each owner has an equal share of the range of hashes.
        """
        hashes = self.asarray(hashes)
        owners = self.empty(len(hashes), np.uint32)
        kernel = kernel_named("owner_of")
        self.run(kernel, len(hashes), hashes=hashes, owners=owners, parts=parts)
        return owners
