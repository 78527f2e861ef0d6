"""BloomFilter: a fast test for absent keys, in a few bits a key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self, Unpack, overload

import numpy as np
from numpy.typing import DTypeLike

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import DeviceError
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.arguments.interop import as_argument, natural_dtype
from dgpuhash.tables.base import Keyed
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, BloomBlocks, bounds
from dgpuhash.tables.bloom.spec import FilterSize, bloom_spec, check_same_shape
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import read_locked, write_locked
from dgpuhash.tables.serialization import Buffers
from dgpuhash.tables.stats import figure_rows, format_bytes, html_table
from dgpuhash.typing import Array, ArrayKind, Device, FilterSettings, KeysLike

# Keys of at most four bytes are words below this one.
_BEYOND_KEYS = 2**32


@dataclass(frozen=True, slots=True)
class BloomStats:
    """Statistics of one Bloom filter.

    Attributes
    ----------
    keys : int
        About how many distinct keys were inserted, as the share of set bits tells.
    capacity : int
        Distinct keys for which the filter was made.
    blocks : int
        Blocks of 32 bytes.
    fill : float
        Share of the bits that are set.
    rate : float
        Expected share of keys that were not inserted and yet pass, from the bits of each block.
    nbytes : int
        Memory held, in bytes.
    seed : int
        Seed of the hash function.

    Examples
    --------
    >>> from dgpuhash import BloomFilter
    >>> stats = BloomFilter.from_keys(range(10_000), rate=0.02, seed=1).stats()
    >>> abs(stats.keys - 10_000) < 200, 0.017 < stats.rate < 0.023
    (True, True)
    """

    keys: int
    capacity: int
    blocks: int
    fill: float
    rate: float
    nbytes: int
    seed: int

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and the figures as text."""
        return figure_rows(asdict(self))

    def _repr_html_(self) -> str:
        return html_table("Bloom filter statistics", self.rows())


class BloomFilter(Keyed):
    """Bloom filter on a CPU or a GPU: reports keys that were certainly not inserted.

    A split block Bloom filter as Apache Parquet and Impala have it (blocked filters: Putze,
    Sanders, Singler 2007, §3). A key has one bit in each of the eight 32-bit words of one block of
    32 bytes, so that both verbs touch one sector of memory for each key. No inserted key is ever
    denied; of the other keys a share, the *rate*, passes.

    Parameters
    ----------
    key_dtype : dtype
        Any bool, integer, float, datetime64 or timedelta64 of at most 8 bytes, as for `HashSet`.
    capacity : int, optional
        Distinct keys for which `rate` holds. A filter does not grow: more keys raise its rate.
    rate : float
        Expected share of other keys that pass when `capacity` keys were inserted, from 0.0005 to
        0.25. It takes 19.3 bits a key for 0.0005, 16.9 for 0.001, 10.5 for 0.01, 6.0 for 0.1, and
        4.4 for 0.25.
    nbytes : int, optional
        Bytes of memory, instead of `capacity`; whole blocks of 32 bytes are used.
    device : {"cpu", "cuda"}, optional
        None: the device of the first arrays.
    seed : int, optional
        Seed of the hash function, from 0 to 2**64 - 1; drawn anew when None, unless the variable
        ``DGPUHASH_SEED`` fixes it. Filters that are to be united need the same one.

    Raises
    ------
    KeyTypeError
        When the dtype cannot be a key.
    SpecError
        When the size or the rate is impossible, or both `capacity` and `nbytes` are given, or none.
    DeviceError
        When there is no such device.
    OutOfMemoryError
        When the filter does not fit.

    Notes
    -----
    Threads may share a filter as they may share a `HashSet`.

    Blocks get keys by chance, some more than others, and the formula counts with that: the rate is
    the mean over a Poisson distribution of the keys of a block. Eight bits a key are best from
    0.0005 to 0.02. Four would save 11 % at 0.05 and 26 % at 0.25, where a filter is small in any
    case.

    Examples
    --------
    >>> import numpy as np
    >>> seen = BloomFilter("int64", capacity=1000, rate=0.01, seed=1)
    >>> seen.insert(np.arange(1000))
    >>> bool(seen.contains(np.arange(1000)).all())
    True
    >>> seen.contains(np.arange(1000, 101_000)).mean() < 0.02
    np.True_
    >>> seen.nbytes
    1344
    """

    kind = "bloom_filter"
    _store: BloomBlocks | None
    _range = (0, 1)
    """Which of how many equal ranges of the hashes it holds."""

    def __init__(
        self,
        key_dtype: DTypeLike,
        capacity: int | None = None,
        *,
        rate: float = 0.01,
        nbytes: int | None = None,
        device: Device | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(bloom_spec(key_dtype, capacity, rate, nbytes, seed), device)

    @classmethod
    def from_keys(
        cls, keys: KeysLike, *, rate: float = 0.01, **settings: Unpack[FilterSettings]
    ) -> BloomFilter:
        """Return a filter of `keys`, of their dtype and on their device.

        Its capacity is their number unless `settings`, those of the class, say otherwise.

        Examples
        --------
        >>> BloomFilter.from_keys([2.5, 3.5]).contains([2.5, float("nan")]).tolist()
        [True, False]
        """
        taken = as_argument(keys, "keys")
        if not settings.keys() & {"capacity", "nbytes"}:
            settings["capacity"] = len(taken.data)
        made = cls(natural_dtype(taken, "keys"), rate=rate, **settings)
        made.insert(keys)
        return made

    @property
    def capacity(self) -> int:
        """Number of distinct keys that the filter is sized for."""
        return FilterSize.of(self._spec).capacity

    @property
    def nbytes(self) -> int:
        """Memory of the blocks, in bytes."""
        first, end = bounds(FilterSize.of(self._spec).blocks, *self._range)
        return (end - first) * BLOCK_NBYTES

    @property
    def rate(self) -> float:
        """Expected false-positive rate at the present fill; reads the whole filter."""
        return self.stats().rate

    @translates_memory_errors
    @write_locked
    def insert(self, keys: KeysLike) -> None:
        """Insert keys.

        Raises
        ------
        KeyTypeError, ShapeError, DeviceError
            When the keys do not fit the filter.

        Examples
        --------
        >>> seen = BloomFilter("int8", capacity=100)
        >>> seen.insert([5, 7, 5])
        >>> seen.contains([5, 7]).tolist()
        [True, True]
        """
        _, bits = self._keys(keys)
        self._opened().insert(bits)

    @overload
    def contains(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def contains(self, keys: KeysLike) -> Array: ...
    @translates_memory_errors
    @read_locked
    def contains(self, keys: KeysLike) -> Array:
        """Return a mask of keys that may have been inserted, in input order.

        It is of the kind of `keys`, and true for every key that was inserted. Keys of other dtypes
        are compared by value: a key that `key_dtype` does not hold was not inserted.
        """
        taken, asked, bits = self._asked(keys)
        passed = self._opened().contains(words_of(bits)).view(bool)
        return taken.wrap(asked.by_row(passed), np.dtype(bool))

    @write_locked
    def clear(self) -> None:
        """Remove every key."""
        self._turns.begin()
        if self._store is not None:
            self._store.words.fill(0)

    def union(self, *others: BloomFilter) -> Self:
        """Return a new filter of the keys of this one and of `others`; also ``a | b``.

        ``a |= b`` takes the keys of `b` into `a`. Rate and capacity are those of a filter of this
        size: inserting all keys into one filter gives the same bits.

        Raises
        ------
        SpecError
            When filters differ in key dtype, size or seed.
        DeviceError
            When they are on different devices.

        Examples
        --------
        >>> odd, even = (BloomFilter("int64", 100, seed=3) for _ in range(2))
        >>> odd.insert([1, 3])
        >>> even.insert([2])
        >>> odd.union(even).contains([1, 2, 3]).all()
        np.True_
        """
        made = self.copy()
        for other in others:
            made |= other
        return made

    def __or__(self, other: BloomFilter) -> Self:
        return self.union(other) if isinstance(other, BloomFilter) else NotImplemented

    def __ior__(self, other: BloomFilter) -> Self:
        if not isinstance(other, BloomFilter):
            return NotImplemented
        if other is not self:
            self._take(other)
        return self

    @translates_memory_errors
    @read_locked
    def stats(self) -> BloomStats:
        """Return fill, expected rate and memory; read the whole filter.

        Examples
        --------
        >>> BloomFilter("int64", nbytes=2**20).stats().capacity
        796696
        """
        ones, rate = self._opened().fill()
        blocks, bits = self._entries(), 8 * self.nbytes
        # Of n keys, each leaves a bit of its block's words unset with probability 31/32.
        load = -32 * math.log1p(-min(ones, bits - 1) / bits)
        return BloomStats(
            keys=round(load * blocks),
            capacity=self.capacity,
            blocks=blocks,
            fill=ones / bits,
            rate=rate,
            nbytes=self.nbytes,
            seed=self._seed,
        )

    @translates_memory_errors
    @read_locked
    def measured_rate(self, keys: int = 2**20, *, seed: int | None = None) -> float:
        """Return the false-positive rate for `keys` random keys that were not inserted.

        They are drawn from all 64-bit words but those of short keys, whatever the dtype: a filter
        of bools can be measured, too.

        Examples
        --------
        >>> BloomFilter("int64", capacity=1000).measured_rate(1000)
        0.0
        """
        count = check_capacity(keys, "keys")
        drawn = np.random.default_rng(seed).integers(
            _BEYOND_KEYS, 2**64 - 1, max(count, 1), np.uint64, endpoint=True
        )
        store = self._opened()
        return float(store.contains(store.backend.from_host(drawn)).mean())

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        return html_table(self._title(), [] if self._store is None else self.stats().rows())

    def _title(self) -> str:
        return (
            f"{type(self).__name__} {self._key}: for {self.capacity:,} keys, "
            f"{format_bytes(self.nbytes)}, {self.device or 'no device yet'}, seed {self._seed}"
        )

    @write_locked
    def _take(self, other: BloomFilter) -> None:
        """Add the bits of another filter."""
        check_same_shape(self._spec, other._spec)
        if None not in (self.device, other.device) and self.device != other.device:
            raise DeviceError(
                f"filters on {self.device!r} and {other.device!r} cannot be united; save one and "
                "load it on the other's device"
            )
        if self._store is None:
            if other._store is None:
                return
            self._open(other._store.backend)
        other._give(self)

    @read_locked
    def _give(self, other: BloomFilter) -> None:
        """Add this filter's bits to another one, which no other thread uses."""
        if self._store is not None:
            words = other._opened().words
            other._turns.begin()
            self._store.backend.xp.bitwise_or(words, self._store.words, out=words)

    @classmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        made = object.__new__(cls)
        Keyed.__init__(made, spec, None)
        # Opened later: a file may hold fewer words than it claims.
        made._backend = None if device is None else backends.get(device)
        return made

    @classmethod
    def _range_of(cls, spec: TableSpec, device: Device, part: int, parts: int) -> Self:
        """Return an empty filter of one of `parts` equal ranges of the hashes."""
        made = cls._of(spec, 0, device)
        made._range = part, parts
        made._open(backends.get(device))
        return made

    @classmethod
    def _check_spec(cls, spec: TableSpec) -> TableSpec:
        FilterSize.of(spec)
        return spec

    def _open(self, backend: Backend) -> None:
        part, parts = self._range
        blocks = FilterSize.of(self._spec).blocks
        store = BloomBlocks(backend, blocks, seed=self._spec.seed, part=part, parts=parts)
        guarding = assigner(self._turns, check_device=backend.check_device())
        backend.in_one_call([guarding, assigner(self, _store=store, _backend=backend)])

    def _entries(self) -> int:
        return self.nbytes // BLOCK_NBYTES

    def _saved_buffers(self) -> Mapping[str, np.ndarray]:
        store = self._opened()
        return {"words": store.backend.to_host(store.words)}

    def _restore(self, buffers: Buffers, size: int) -> None:
        words = buffers.get("words", np.dtype(np.uint64), self.nbytes // 8)
        backend = self._home()
        self._open(backend)
        self._opened().words[:] = backend.from_host(words)
