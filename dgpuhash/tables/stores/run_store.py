"""Store of multimaps built once: value runs, and a table of the keys' runs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.launches import Step
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.encoding import words_of
from dgpuhash.tables.bucket_list.grouping import group_by_key
from dgpuhash.tables.bucket_list.pool import list_numbers
from dgpuhash.tables.bucket_list.values import KeyedListStore
from dgpuhash.tables.commit import assigner
from dgpuhash.tables.open_addressing.wide_values import ValueRows
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.stores.moving import MovingRecipe, MovingStore

# Values that one tile copies.
_SEGMENT = {"cpu": 4096, "cuda": 256}


class _Runs(NamedTuple):
    """Immutable arrays of values, run by run."""

    starts: Any
    """Where each run begins in `words`, and the last one ends (int64), and once more."""
    words: Any
    payload: ValueRows | None
    """Values of more than 8 bytes, whose row numbers `words` has."""

    @property
    def nbytes(self) -> int:
        beside = 0 if self.payload is None else self.payload.nbytes
        return int(self.starts.nbytes + self.words.nbytes) + beside


class RunStore(KeyedListStore):
    """Store (see `ListStore`) with keys in a recipe's table (Alcantara's thesis, §6.3).

    The pairs of a batch are sorted by key, in the order in which they came, and each key is given
    the number of its run. A further batch builds all of this anew. Erasing removes keys from the
    table; their values stay until then.

    Parameters
    ----------
    recipe : type of MovingRecipe
        Of the table of keys; its values are numbers of runs.
    backend : Backend
    spec : TableSpec
        With all settings of its method.
    key : dtype
        Of the key words: uint32 or uint64.
    capacity : int
        Distinct keys that the table has slots for at least.
    """

    _keys: MovingStore

    def __init__(
        self,
        recipe: type[MovingRecipe],
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        capacity: int,
    ) -> None:
        self.backend: Backend = backend
        self._word = self._set_values(spec)
        self._keys = recipe.open(backend, spec, key, key, capacity)
        self._key = key
        self._runs = self._no_runs()
        self._known_pairs: int | None = 0

    @property
    def _payload(self) -> ValueRows | None:  # type: ignore[override]
        """Values of more than 8 bytes."""
        return self._runs.payload

    @property
    def table(self) -> MovingRecipe:
        """The table of keys."""
        table: MovingRecipe = self._keys.table  # type: ignore[assignment]
        return table

    @property
    def pairs(self) -> int:
        """Number of stored pairs."""
        if self._known_pairs is None:
            numbers = self._keys.items()[1]
            self._known_pairs = int(self._lengths(numbers.astype(np.int64)).sum())
        return self._known_pairs

    @property
    def value(self) -> np.dtype[Any] | None:
        """Dtype of the value words."""
        return self._word

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self._keys.nbytes + self._runs.nbytes

    def insert(self, bits: Any, rows: Any, *then: Step) -> None:
        """Implement `ListStore.insert`."""
        payload, words = self._store_payload(self._payload, rows)
        bits, size = words_of(bits), self.pairs + len(rows)
        if len(self):
            xp = self.backend.xp
            keys, offsets, held = self._list_words()
            owners = list_numbers(self.backend, offsets, len(held))
            bits, words = xp.concatenate([keys[owners], bits]), xp.concatenate([held, words])
        self._build(bits, words, payload, size, *then)

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Implement `ListStore.find`."""
        words, offsets = self._gather(self._numbers(bits))
        return self._decode(words), offsets

    def counts(self, bits: Any) -> Any:
        """Implement `ListStore.counts`."""
        return self._lengths(self._numbers(bits))

    def erase(self, bits: Any) -> Any:
        """Implement `AnyStore.erase`."""
        self._known_pairs = None
        return self._keys.erase(bits)

    def compact(self) -> None:
        """Implement `ListStore.compact`: drops the values of erased keys."""
        size = self.pairs
        if size < len(self._runs.words):
            keys, offsets, words = self._list_words()
            owners = list_numbers(self.backend, offsets, len(words))
            self._build(keys[owners], words, self._payload, size)

    def empty_in_place(self) -> Self:
        """Implement `AnyStore.empty_in_place`."""
        made = self._shallow()
        made._keys, made._runs, made._known_pairs = self._keys.empty_in_place(), self._no_runs(), 0
        return made

    def copy(self) -> Self:
        """Implement `AnyStore.copy`; both have the same runs, which nobody changes."""
        made = self._shallow()
        made._keys = self._keys.copy()
        return made

    def probe_counts(self, keys: Any) -> Any:
        """Return the slots read by the search for each key (uint32); see `RecipeStore`."""
        return self._keys.probe_counts(keys)

    def figures(self) -> Figures:
        """Implement `AnyStore.figures`."""
        figures, runs = self._keys.figures(), self._runs
        details = {**figures.details, "runs": len(runs.starts) - 2, "run_slots": len(runs.words)}
        return figures._replace(details=details)

    def ready(self) -> None:
        """Implement `AnyStore.ready`."""

    def _shallow(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _no_runs(self) -> _Runs:
        backend, payload = self.backend, self._no_payload()
        return _Runs(backend.zeros(2, np.int64), backend.empty(0, self._word), payload)

    def _build(
        self, bits: Any, words: Any, payload: ValueRows | None, size: int, *then: Step
    ) -> None:
        """Replace the content by pairs, in new arrays; run `then` in the same call."""
        backend = self.backend
        batch = group_by_key(backend, bits, words, self.seed)
        number, values = len(batch.keys), batch.values
        starts = backend.empty(number + 2, np.int64)
        starts[: number + 1] = (
            backend.xp.arange(number + 1) if batch.starts is None else batch.starts
        )
        starts[number + 1 :] = size
        if payload is not None:
            payload = payload.kept(values.view(np.int64))
            values = backend.xp.arange(size, dtype=np.uint64)
        keys = self._keys.like(max(number, self.capacity))
        keys.settle(batch.keys, backend.xp.arange(number, dtype=self._key))
        keys.rebuilds += len(self) > 0
        runs = _Runs(starts, values, payload)
        after = assigner(self, _keys=keys, _runs=runs, _known_pairs=size)
        backend.in_one_call([after, *then])

    def _numbers(self, bits: Any) -> Any:
        """Return the run numbers (int64) of keys; an empty run's for absent keys."""
        empty = len(self._runs.starts) - 2
        numbers: Any = self._keys.find(bits, empty)[0].astype(np.int64)
        return numbers

    def _lengths(self, numbers: Any) -> Any:
        starts = self._runs.starts
        return starts[numbers + 1] - starts[numbers]

    def _gather(self, numbers: Any) -> tuple[Any, Any]:
        """Return the value words of runs, and their offsets (int64)."""
        backend, rows = self.backend, len(numbers)
        offsets = backend.zeros(rows + 1, np.int64)
        backend.xp.cumsum(self._lengths(numbers), out=offsets[1:])
        total, segment = int(offsets[-1]), _SEGMENT[backend.name]
        words = backend.empty(total, self._word)
        if total:
            backend.run(
                kernel_named("run_gather", self._word), math.ceil(total / segment),
                runs=numbers, offsets=offsets, starts=self._runs.starts, values=self._runs.words,
                to=words, query_rows=rows, rows=total, segment_rows=segment,
            )  # fmt: skip
        return words, offsets

    def _list_words(self) -> tuple[Any, Any, Any]:
        """Implement `ListStore._list_words`."""
        keys, numbers = self._keys.items()
        words, offsets = self._gather(numbers.astype(np.int64))
        return keys, offsets, words
