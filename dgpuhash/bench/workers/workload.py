"""Generate random frames on the workers, and the correct answers for an index.

Both are made of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.bench.keys import keys_of, uniform_floats, values_of
from dgpuhash.bench.method import AUTO, MeasuredMethod
from dgpuhash.frames import make_frame
from dgpuhash.typing import Device

_INT = np.dtype(np.int64)
# Rows of the replicated index: with its table it fits the L2 cache.
_FEW = 2**20
# Numbers from here on are never stored.
_ABSENT = 2**40


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """Summary of one partition of an answer; summaries add up.

    Attributes
    ----------
    rows : int
    digest : int
        The sum of the rows' numbers, mixed, modulo 2**64.
    right : bool
        Whether each row belongs to the answer.
    """

    rows: int
    digest: int
    right: bool = True

    def __add__(self, other: AnswerSummary) -> AnswerSummary:
        digest = (self.digest + other.digest) % 2**64
        return AnswerSummary(self.rows + other.rows, digest, self.right and other.right)


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows of one run; each method makes or checks one worker's rows.

    Methods run on that worker. Pairs are the keys of the numbers from 1 on and the values that
    follow from the keys. A worker looks up every `workers`-th key, so keys that all workers stored.

    Attributes
    ----------
    workers : int
    rows : int
        Rows of each worker.
    frac_match : float
        The share of rows of a merge that have a partner.
    multiplicity : int
        Rows of a key in the index with several values a key.
    method : MeasuredMethod
        Of all tables.
    """

    workers: int
    rows: int
    frac_match: float
    multiplicity: int
    method: MeasuredMethod = AUTO

    def stored(self, device: Device, rank: int, batch: int = 0) -> Any:
        """Return a frame of unique pairs, others for each `batch`."""
        first = 1 + (batch * self.workers + rank) * self.rows
        keys = keys_of(_range(device, first, self.rows), _INT)
        return make_frame({"key": keys, "value": values_of(keys, _INT)})

    def keys(self, device: Device, rank: int) -> Any:
        """Return the keys of `stored` as an array."""
        return keys_of(_range(device, 1 + rank * self.rows, self.rows), _INT)

    def values(self, device: Device, rank: int) -> Any:
        """Return the values of `keys` as an array."""
        return values_of(self.keys(device, rank), _INT)

    def asked_keys(self, device: Device, rank: int) -> Any:
        """Return the keys of `asked` as an array."""
        return keys_of(self._numbers(device, rank), _INT)

    def check_values(self, device: Device, rank: int, values: Any, found: Any) -> bool:
        """Return whether `values` and `found` answer `asked_keys`."""
        keys = self.asked_keys(device, rank)
        return bool(found.all()) and bool((values == values_of(keys, _INT)).all())

    def asked(self, device: Device, rank: int, batch: int = 0) -> Any:
        """Return a frame of stored keys to look up."""
        return make_frame({"key": keys_of(self._numbers(device, rank, batch), _INT)})

    def found(self, device: Device, rank: int, answer: Any, batch: int = 0) -> AnswerSummary:
        """Check the answer to `asked`: each key's value, in the order of keys."""
        keys = keys_of(self._numbers(device, rank, batch), _INT)
        right = len(answer) == self.rows and bool(
            (_column(device, answer, "key") == keys).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )
        return AnswerSummary(len(answer), 0, right)

    def left(self, device: Device, rank: int) -> Any:
        """Return a frame of keys, with the share `frac_match` of stored ones.

        The payload is the numbers that the keys are made of.
        """
        numbers = self._numbers(device, rank)
        absent = uniform_floats(backend.get(device), self.rows, 16 + rank) >= self.frac_match
        numbers[absent] += _ABSENT
        return make_frame({"key": keys_of(numbers, _INT), "payload": numbers})

    def partners(self, device: Device, rank: int) -> AnswerSummary:
        """Return the summary of this worker's inner merge of `left` with `stored`."""
        numbers = _column(device, self.left(device, rank), "payload")
        return _seen(numbers[numbers < _ABSENT])

    def merged(self, device: Device, rank: int, answer: Any) -> AnswerSummary:
        """Check one partition of the inner merge of `left` with `stored`."""
        payload, keys = _column(device, answer, "payload"), _column(device, answer, "key")
        seen = _seen(payload)
        right = bool(
            (payload < _ABSENT).all()
            and (keys == keys_of(payload, _INT)).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )
        return AnswerSummary(seen.rows, seen.digest, right)

    @property
    def few_rows(self) -> int:
        """Rows of the replicated index."""
        return min(_FEW, self.workers * self.rows)

    def few(self, device: Device, rank: int) -> Any:
        """Return this worker's share of the replicated index's unique pairs."""
        first, end = (self.few_rows * each // self.workers for each in (rank, rank + 1))
        keys = keys_of(_range(device, 1 + first, end - first), _INT)
        return make_frame({"key": keys, "value": values_of(keys, _INT)})

    def replicated_keys(self, device: Device, rank: int) -> Any:
        """Return a frame of keys of `few`, in any order.

        The payload is the numbers that the keys are made of.
        """
        mixed = keys_of(_range(device, rank * self.rows, self.rows), np.dtype(np.uint64))
        numbers = (mixed % np.uint64(self.few_rows)).astype(_INT) + 1
        return make_frame({"key": keys_of(numbers, _INT), "payload": numbers})

    def check_replicated(self, device: Device, left: Any, answer: Any) -> bool:
        """Return whether `answer` is the merge of `left` with `few`, in order.

        `left` is the frame of `replicated_keys`.
        """
        keys, payload = (_column(device, left, name) for name in ("key", "payload"))
        return len(answer) == self.rows and bool(
            (_column(device, answer, "key") == keys).all()
            and (_column(device, answer, "payload") == payload).all()
            and (_column(device, answer, "value") == values_of(keys, _INT)).all()
        )

    @property
    def lists(self) -> int:
        """Number of distinct keys of each worker, for keys with several rows."""
        return self.rows // self.multiplicity

    def several(self, device: Device, rank: int) -> Any:
        """Return rows with `multiplicity` rows per key.

        The rows of a key are spread over the workers.
        """
        rows = self.lists * self.multiplicity
        values = _range(device, rank * rows, rows)
        keys = keys_of(values % (self.workers * self.lists) + 1, _INT)
        return make_frame({"key": keys, "value": values})

    def multi_keys(self, device: Device, rank: int) -> Any:
        """Return a frame of this worker's share of the keys of `several`.

        Each key occurs once.
        """
        numbers = 1 + rank + self.workers * _range(device, 0, self.lists)
        return make_frame({"key": keys_of(numbers, _INT)})

    def all_values(self, device: Device, rank: int) -> AnswerSummary:
        """Return the summary of the values of this worker's `several`."""
        return _seen(_column(device, self.several(device, rank), "value"))

    def check_multi(self, device: Device, rank: int, answer: Any) -> AnswerSummary:
        """Check the answer to `multi_keys`: all values of each key."""
        values = _column(device, answer, "value")
        seen = _seen(values)
        keys = keys_of(values % (self.workers * self.lists) + 1, _INT)
        return AnswerSummary(
            seen.rows, seen.digest, bool((_column(device, answer, "key") == keys).all())
        )

    def _numbers(self, device: Device, rank: int, batch: int = 0) -> Any:
        first = 1 + batch * self.workers * self.rows + rank
        return first + self.workers * _range(device, 0, self.rows)


def _range(device: Device, first: int, rows: int) -> Any:
    return backend.get(device).xp.arange(first, first + rows, dtype=np.int64)


def _column(device: Device, frame: Any, name: str) -> Any:
    return backend.get(device).xp.asarray(frame[name].values)


def _seen(numbers: Any) -> AnswerSummary:
    mixed = keys_of(numbers, np.dtype(np.uint64))
    return AnswerSummary(len(numbers), int(mixed.sum(dtype=np.uint64)) % 2**64)
