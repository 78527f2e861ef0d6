"""Count equal k-mers with a CountMap."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.unnamed_file import UnnamedFile
from dgpuhash.tables import CountMap

WIDE_KMER = np.dtype([("high", "<u8"), ("low", "<u8")])
"""K-mers of more than 32 bases."""

# Slots for each k-mer: on a CPU, whose caches hold the table, searches are shorter with more.
_ROOM = {"cpu": 1.5, "cuda": 1}
# Counts below have a place each in a histogram.
_FEW = 2**16
_WORD_BASES = 32


@dataclass(slots=True)
class CountedKmers:
    """Distinct k-mers and their counts, unordered.

    Attributes
    ----------
    low : array of uint64
        The last 32 bases, or all.
    high : array of uint64 or None
        Those before; None for k of at most 32.
    counts : array of uint8, uint16, uint32 or uint64
    """

    low: Any
    high: Any
    counts: Any

    def __len__(self) -> int:
        return len(self.low)

    def rows(self, chosen: Any) -> CountedKmers:
        """Return some rows, by a mask, positions or a slice."""
        high = None if self.high is None else self.high[chosen]
        return CountedKmers(self.low[chosen], high, self.counts[chosen])

    def narrow(self) -> CountedKmers:
        """Return the k-mers with counts in the narrowest dtype."""
        most = int(self.counts.max()) if len(self) else 0
        counts = self.counts.astype(np.min_scalar_type(most), copy=False)
        return CountedKmers(self.low, self.high, counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        high = 0 if self.high is None else int(self.high.nbytes)
        return int(self.low.nbytes + self.counts.nbytes) + high


class Fold:
    """Accumulator of k-mers in a `CountMap`, with keys of one or two words.

    Parameters
    ----------
    backend : Backend
        Where the k-mers are.
    kmers : int
        How many are expected; the table has room for them.
    k : int
        Their bases.
    table : CountMap, optional
        The table of a fold of the same `k` whose result was read, to be used again.

    Attributes
    ----------
    table : CountMap
    inserts : int
        Calls of its insert.
    """

    def __init__(self, backend: Backend, kmers: int, k: int, table: CountMap | None = None) -> None:
        self._backend = backend
        room = int(kmers * _ROOM[backend.name])
        if table is None or table.capacity < room:
            table = CountMap(key_dtype(k), room, device=backend.name)
        else:
            table.clear()
        self.table = table
        self.inserts: int = 0

    def add(self, low: Any, high: Any, counts: Any = 1) -> None:
        """Count k-mers, each once or `counts` times."""
        self.inserts += 1
        self.table.insert(keys_of(self._backend, low, high), counts)

    def result(self) -> CountedKmers:
        """Return the counted k-mers."""
        keys, counts = self.table.items()
        return CountedKmers(*words_of(keys), counts)


def histogram(backend: Backend, groups: Sequence[CountedKmers]) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct counts (uint64), ascending, and the number of k-mers of each (int64)."""
    xp = backend.xp
    by_count = xp.zeros(_FEW, np.int64)
    higher: Counter[int] = Counter()
    for group in groups:
        if group.counts.dtype.itemsize <= 2:
            by_count += xp.bincount(group.counts, minlength=_FEW)
            continue
        is_few = group.counts < np.uint64(_FEW)
        by_count += xp.bincount(group.counts[is_few].astype(np.int64), minlength=_FEW)
        found, times = np.unique(backend.to_host(group.counts[~is_few]), return_counts=True)
        higher.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    numbers = backend.to_host(by_count)
    low, high = np.flatnonzero(numbers), sorted(higher)
    return (
        np.concatenate([low.astype(np.uint64), np.array(high, np.uint64)]),
        np.concatenate([numbers[low], np.array([higher[each] for each in high], np.int64)]),
    )


def key_dtype(k: int) -> np.dtype[Any]:
    """Return the dtype of k-mers as keys of tables.

    Examples
    --------
    >>> key_dtype(31), key_dtype(33).itemsize
    (dtype('uint64'), 16)
    """
    return np.dtype(np.uint64) if k <= _WORD_BASES else WIDE_KMER


def keys_of(backend: Backend, low: Any, high: Any) -> Any:
    """Return k-mers as table keys; 16-byte keys on a GPU are rows of bytes."""
    if high is None:
        return low
    words = backend.empty((len(low), 2), np.uint64)
    words[:, 0], words[:, 1] = high, low
    if backend.xp is np:
        return words.view(WIDE_KMER).reshape(len(low))
    return words.view(np.uint8)


def words_of(keys: Any) -> tuple[Any, Any]:
    """Return the last 32 bases of table keys, and the bases before or None."""
    if keys.dtype == np.uint64:
        return keys, None
    words = keys.view(np.uint64).reshape(len(keys), 2)
    return words[:, 1].copy(), words[:, 0].copy()


class KmerGroups(Sequence[CountedKmers]):
    """Groups of counted k-mers.

    Parameters
    ----------
    groups : iterable of CountedKmers
    mapped : mmap, optional
        What arrays of theirs are in. Its pages are given back between two groups of an iteration:
        they would count as memory of the process.

    Examples
    --------
    >>> one = CountedKmers(np.array([5], np.uint64), None, np.array([2], np.uint8))
    >>> KmerGroups([one, one]).rows
    2
    """

    def __init__(
        self, groups: Iterable[CountedKmers] = (), mapped: mmap.mmap | None = None
    ) -> None:
        self._groups, self._mapped = list(groups), mapped

    @property
    def rows(self) -> int:
        """Number of k-mers of all groups."""
        return sum(map(len, self._groups))

    @overload
    def __getitem__(self, at: int) -> CountedKmers: ...
    @overload
    def __getitem__(self, at: slice) -> list[CountedKmers]: ...
    def __getitem__(self, at: int | slice) -> CountedKmers | list[CountedKmers]:
        return self._groups[at]

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[CountedKmers]:
        for group in self._groups:
            yield group
            self.release()

    def release(self) -> None:
        """Release mapped pages of the file."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)


class GroupWriter:
    """Writer of groups, which spills them to an unlinked temporary file if memory is short.

    Parameters
    ----------
    memory : int or None
        Bytes of groups that stay; None: all.
    """

    def __init__(self, memory: int | None) -> None:
        self._left = memory
        self._held: list[CountedKmers] = []
        self._file = UnnamedFile("k-mers")
        self._places: list[list[tuple[int, np.dtype[Any], int] | None]] = []

    def append(self, group: CountedKmers) -> None:
        """Add a group."""
        if self._left is not None:
            self._left -= group.nbytes
            if self._left < 0:
                arrays = group.low, group.high, group.counts
                self._places.append([None if each is None else self._put(each) for each in arrays])
                return
        self._held.append(group)

    def finish(self) -> KmerGroups:
        """Return the groups in order; the writer accepts no more."""
        mapped = self._file.mapped()
        filed = [
            CountedKmers(*(None if each is None else _part_of(mapped, *each) for each in places))
            for places in self._places
        ]
        return KmerGroups([*self._held, *filed], mapped)

    def close(self) -> None:
        """Close the file; memory maps stay valid."""
        self._file.close()

    def _put(self, array: np.ndarray) -> tuple[int, np.dtype[Any], int]:
        return self._file.append(array), array.dtype, len(array)


def _part_of(mapped: mmap.mmap | None, at: int, dtype: np.dtype[Any], n: int) -> np.ndarray:
    return np.empty(0, dtype) if mapped is None or not n else np.frombuffer(mapped, dtype, n, at)
