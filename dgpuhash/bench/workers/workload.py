"""Frames of random keys on the workers, and what an index must answer, all made of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.bench.keys import keys_of, shares, values_of
from dgpuhash.frames import make_frame

__all__ = ["Seen", "Workload"]

_INT = np.dtype(np.int64)
# Rows of an index that every worker has a copy of: with its table it fits the L2 cache.
_FEW = 2**20
# Numbers from here on are never stored.
_ABSENT = 2**40


@dataclass(frozen=True, slots=True)
class Seen:
    """What a partition of an answer holds; partitions add up.

    Attributes
    ----------
    rows : int
    digest : int
        The sum of the rows' numbers, mixed, modulo 2**64.
    right : bool
        Whether each row is one of the answer.
    """

    rows: int
    digest: int
    right: bool = True

    def __add__(self, other: Seen) -> Seen:
        digest = (self.digest + other.digest) % 2**64
        return Seen(self.rows + other.rows, digest, self.right and other.right)


@dataclass(frozen=True, slots=True)
class Workload:
    """The rows of one run; each method makes or checks one worker's, on that worker.

    Pairs are the keys of the numbers from 1 on and the values that follow from the keys. A worker
    asks for every `workers`-th key, so for keys of all workers.

    Attributes
    ----------
    workers : int
    rows : int
        Of each worker.
    frac_match : float
        The share of rows of a merge that have a partner.
    multiplicity : int
        How many rows a key has in the index with several.
    """

    workers: int
    rows: int
    frac_match: float
    multiplicity: int

    def stored(self, device: str, rank: int, batch: int = 0) -> Any:
        """Unique pairs; another `batch` has others."""
        first = 1 + (batch * self.workers + rank) * self.rows
        keys = keys_of(_range(device, first, self.rows), _INT)
        return make_frame({"key": keys, "value": values_of(keys, _INT)})

    def keys(self, device: str, rank: int) -> Any:
        """The keys of `stored`, an array."""
        return keys_of(_range(device, 1 + rank * self.rows, self.rows), _INT)

    def values(self, device: str, rank: int) -> Any:
        """The values that go with `keys`."""
        return values_of(self.keys(device, rank), _INT)

    def asked_keys(self, device: str, rank: int) -> Any:
        """Those of `asked`, an array."""
        return keys_of(self._numbers(device, rank), _INT)

    def values_right(self, device: str, rank: int, values: Any, found: Any) -> bool:
        """Whether these are the answers to `asked_keys`."""
        keys = self.asked_keys(device, rank)
        return bool(found.all()) and bool((values == values_of(keys, _INT)).all())

    def asked(self, device: str, rank: int, batch: int = 0) -> Any:
        """Keys that are stored."""
        return make_frame({"key": keys_of(self._numbers(device, rank, batch), _INT)})

    def found(self, device: str, rank: int, answer: Any, batch: int = 0) -> Seen:
        """The answer to `asked`: a value for each key, in the order of the keys."""
        keys = keys_of(self._numbers(device, rank, batch), _INT)
        right = len(answer) == self.rows and bool(
            (_column(device, answer, "key") == keys).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )
        return Seen(len(answer), 0, right)

    def left(self, device: str, rank: int) -> Any:
        """Keys of which `frac_match` are stored, and as payload the numbers they are made of."""
        numbers = self._numbers(device, rank)
        absent = shares(backend.get(device), self.rows, 16 + rank) >= self.frac_match
        numbers[absent] += _ABSENT
        return make_frame({"key": keys_of(numbers, _INT), "payload": numbers})

    def partners(self, device: str, rank: int) -> Seen:
        """What the inner merge of `left` with `stored` has for this worker's rows."""
        numbers = _column(device, self.left(device, rank), "payload")
        return _seen(numbers[numbers < _ABSENT])

    def merged(self, device: str, rank: int, answer: Any) -> Seen:
        """A partition of that merge."""
        payload, keys = _column(device, answer, "payload"), _column(device, answer, "key")
        seen = _seen(payload)
        right = bool(
            (payload < _ABSENT).all()
            and (keys == keys_of(payload, _INT)).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )
        return Seen(seen.rows, seen.digest, right)

    @property
    def few_rows(self) -> int:
        """Rows of an index that every worker has a copy of."""
        return min(_FEW, self.workers * self.rows)

    def few(self, device: str, rank: int) -> Any:
        """This worker's part of them: unique pairs."""
        first, end = (self.few_rows * each // self.workers for each in (rank, rank + 1))
        keys = keys_of(_range(device, 1 + first, end - first), _INT)
        return make_frame({"key": keys, "value": values_of(keys, _INT)})

    def asking_few(self, device: str, rank: int) -> Any:
        """Keys of them in any order, and as payload the numbers they are made of."""
        mixed = keys_of(_range(device, rank * self.rows, self.rows), np.dtype(np.uint64))
        numbers = (mixed % np.uint64(self.few_rows)).astype(_INT) + 1
        return make_frame({"key": keys_of(numbers, _INT), "payload": numbers})

    def few_right(self, device: str, left: Any, answer: Any) -> bool:
        """Whether that is the merge of `asking_few`, in its order."""
        keys, payload = (_column(device, left, name) for name in ("key", "payload"))
        return len(answer) == self.rows and bool(
            (_column(device, answer, "key") == keys).all()
            and (_column(device, answer, "payload") == payload).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )

    @property
    def lists(self) -> int:
        """Keys for each worker where a key has several rows."""
        return self.rows // self.multiplicity

    def several(self, device: str, rank: int) -> Any:
        """Rows of which `multiplicity` have the same key, spread over the workers."""
        rows = self.lists * self.multiplicity
        values = _range(device, rank * rows, rows)
        keys = keys_of(values % (self.workers * self.lists) + 1, _INT)
        return make_frame({"key": keys, "value": values})

    def asked_lists(self, device: str, rank: int) -> Any:
        """Each of these keys once."""
        numbers = 1 + rank + self.workers * _range(device, 0, self.lists)
        return make_frame({"key": keys_of(numbers, _INT)})

    def all_values(self, device: str, rank: int) -> Seen:
        """What the lists of all keys hold of this worker's rows."""
        return _seen(_column(device, self.several(device, rank), "value"))

    def found_lists(self, device: str, rank: int, answer: Any) -> Seen:
        """The answer to `asked_lists`: all values of each key."""
        values = _column(device, answer, "value")
        seen = _seen(values)
        keys = keys_of(values % (self.workers * self.lists) + 1, _INT)
        return Seen(seen.rows, seen.digest, bool((_column(device, answer, "key") == keys).all()))

    def _numbers(self, device: str, rank: int, batch: int = 0) -> Any:
        first = 1 + batch * self.workers * self.rows + rank
        return first + self.workers * _range(device, 0, self.rows)


def _range(device: str, first: int, rows: int) -> Any:
    return backend.get(device).xp.arange(first, first + rows, dtype=np.int64)


def _column(device: str, frame: Any, name: str) -> Any:
    return backend.get(device).xp.asarray(frame[name].values)


def _seen(numbers: Any) -> Seen:
    mixed = keys_of(numbers, np.dtype(np.uint64))
    return Seen(len(numbers), int(mixed.sum(dtype=np.uint64)) % 2**64)
