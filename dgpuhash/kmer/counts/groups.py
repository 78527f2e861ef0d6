"""Counted k-mers in groups of neighbouring parts, in memory or mapped from a file."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from dgpuhash.backend.unnamed_file import UnnamedFile
from dgpuhash.kmer.counts.fold import CountedKmers


class Groups(Sequence[CountedKmers]):
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
    >>> Groups([one, one]).rows
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
        """Give pages of the file back."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)


class GroupWriter:
    """Groups that go to a file without a name where they are too many for memory.

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

    def finish(self) -> Groups:
        """Return the groups, in their order; nothing is added after that."""
        mapped = self._file.mapped()
        filed = [
            CountedKmers(*(None if each is None else _part_of(mapped, *each) for each in places))
            for places in self._places
        ]
        return Groups([*self._held, *filed], mapped)

    def close(self) -> None:
        """Close the file; what is mapped stays."""
        self._file.close()

    def _put(self, array: np.ndarray) -> tuple[int, np.dtype[Any], int]:
        return self._file.append(array), array.dtype, len(array)


def _part_of(mapped: mmap.mmap | None, at: int, dtype: np.dtype[Any], n: int) -> np.ndarray:
    return np.empty(0, dtype) if mapped is None or not n else np.frombuffer(mapped, dtype, n, at)
