"""Rows of heavy keys, kept as sorted words on the worker of their partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.distributed.shards.spilling import range_of
from dgpuhash.distributed.shards.worker_memory import Spillable, WorkerMemory
from dgpuhash.errors import IndexLost
from dgpuhash.frames import frames_of
from dgpuhash.frames.dataframes import as_series
from dgpuhash.frames.dataframes.order import values_in_order, words_of_numbers
from dgpuhash.frames.groupby.aggregates.values import Values
from dgpuhash.frames.groupby.groups import Groups
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.frames.groupby.partial.result import numbers_dtype
from dgpuhash.frames.spill.file import SpillFile


@dataclass(frozen=True, slots=True)
class Held:
    """Location of a partition's rows of heavy keys.

    Attributes
    ----------
    worker : str
    attempt : str
    codes : tuple of int
        Those of the keys; rows of other keys with one of these codes are there as well.
    """

    worker: str
    attempt: str
    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Search range of a value: all words of a key with the same leading bits.

    Attributes
    ----------
    key : int
    column : int
    low : int
        The least of these words.
    bits : int
        How many of their last bits differ.
    """

    key: int
    column: int
    low: int
    bits: int


@dataclass(slots=True)
class HeavyRows:
    """Rows of one partition: keys, and each key's values as sorted words.

    Attributes
    ----------
    keys : DataFrame
        As in `places_asked`, and the least and greatest word of each column.
    words : DataFrame or None
        By the position of a column, key by key; behind its values there is one for each null or
        NaN. None where a file has them, from row `first` on.
    """

    keys: pd.DataFrame
    words: pd.DataFrame | None
    first: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the words in memory."""
        return 0 if self.words is None else self.words.size * 8


class HeldRows(Spillable):
    """Rows of heavy keys of one run on one worker.

    Parameters
    ----------
    plan : GroupPlan
    columns : sequence of int
        The positions of the columns whose values are asked for.
    memory : WorkerMemory, optional
        None where the rows stay in memory.
    """

    def __init__(
        self, plan: GroupPlan, columns: Sequence[int], memory: WorkerMemory | None
    ) -> None:
        self._plan, self._columns = plan, columns
        self._pieces: dict[tuple[int, str], HeavyRows] = {}
        self._chosen: list[HeavyRows] = []
        super().__init__(memory)

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for piece in list(self._pieces.values()))

    def add(self, partition: int, attempt: str, rows: pd.DataFrame) -> None:
        """Store rows in the form to which a plan reduces a partition."""
        with self.with_file():
            if not self._freed:
                self._pieces[partition, attempt] = piece_of(self._plan, self._columns, rows)

    def spill(self) -> None:
        with self.with_file():
            for piece in self._pieces.values():
                if piece.words is None or self._freed:
                    continue
                if self._file is None:
                    self._file = SpillFile(piece.words.iloc[:0], self._memory.folder)
                piece.first, piece.words = self._file.append(piece.words), None

    def chosen(self, attempts: Sequence[tuple[int, str]]) -> pd.DataFrame:
        """Choose the task attempts that count; return the keys of each, concatenated.

        Raises
        ------
        IndexLost
            When one is not here.
        """
        if missing := [each for each in attempts if each not in self._pieces]:
            raise IndexLost(
                f"rows of partition {missing[0][0]} are gone from a worker; compute them again"
            )
        self._chosen = [self._pieces[each] for each in attempts]
        none = [piece_of(self._plan, self._columns, self._plan.states_meta)]
        keys: pd.DataFrame = frames_of(none[0].keys).concat([p.keys for p in self._chosen or none])
        return keys

    def counts(self, numbers: Any, targets: Sequence[Target], bits: int) -> Any:
        """Return histograms of the next `bits` bits or fewer, for each target.

        Parameters
        ----------
        numbers : int64 array
            The number of each key that `chosen` told.
        targets : sequence of Target
        bits : int
        """
        made = np.zeros((len(targets), 1 << bits), np.int64)
        by_key: dict[int, list[int]] = {}
        for place, target in enumerate(targets):
            by_key.setdefault(target.key, []).append(place)
        own = iter(numbers.tolist())
        for piece in self._chosen:
            # Pieces take their numbers one after the other.
            for words, key in zip(self._words(piece), own, strict=False):
                for place in by_key.get(key, ()):
                    target = targets[place]
                    made[place] += bit_histogram(words[target.column], target, bits)
        return made

    def _words(self, piece: HeavyRows) -> Iterator[dict[int, Any]]:
        """Yield the words of the values of each key, by column."""
        frame = piece.words
        if frame is None:
            assert self._file is not None
            frame = self._file.take(range_of(piece.first, int(piece.keys["n"].sum())))
        arrays = {column: frame[column].to_numpy() for column in self._columns}
        start = 0
        counts = [piece.keys[f"n{column}"].to_numpy() for column in self._columns]
        for key, size in enumerate(piece.keys["n"].to_numpy()):
            yield {
                column: arrays[column][start : start + values[key]]
                for column, values in zip(self._columns, counts, strict=True)
            }
            start += size


def bit_histogram(words: Any, target: Target, bits: int) -> Any:
    """Return a histogram of the next bits of those sorted words that are in a target."""
    step = min(bits, target.bits)
    shift = target.bits - step
    edges = np.uint64(target.low) + (np.arange(1 << step, dtype=np.uint64) << np.uint64(shift))
    last = np.uint64(target.low + ((1 << target.bits) - 1))
    ends = np.append(np.searchsorted(words, edges), np.searchsorted(words, last, "right"))
    made = np.zeros(1 << bits, np.int64)
    made[: 1 << step] = np.diff(ends)
    return made


def piece_of(plan: GroupPlan, columns: Sequence[int], rows: pd.DataFrame) -> HeavyRows:
    """Return rows as keys and sorted words."""
    groups = Groups(
        plan.keys_of_states(rows), len(rows), sort=False, dropna=False, observed=True
    )  # fmt: skip
    codes, sizes = groups.codes, groups.sizes
    starts = np.cumsum(sizes) - sizes
    keys: dict[str, Any] = dict(zip(plan.key_labels, groups.columns, strict=True))
    keys["n"] = sizes.astype(np.int64)
    places = values_in_order(codes, rows["at"].to_numpy())
    keys["at"] = np.minimum.reduceat(places, starts) if len(starts) else places
    made = {}
    for column in columns:
        values = Values(as_series(rows[f"c{column}"]))
        numbers, unordered = values.numbers, values.unordered
        words = words_of_numbers(numbers.astype(numbers_dtype(plan, column), copy=False))
        counts = keys["n"]
        if unordered is not None:
            words[unordered] = ~np.uint64(0)
            counts = counts - np.bincount(codes[unordered], minlength=len(sizes))
        keys[f"nan{column}"] = np.zeros(len(sizes), np.int64)
        if values.stray is not None:
            keys[f"nan{column}"] += np.bincount(codes[values.stray], minlength=len(sizes))
        words = values_in_order(codes, words)
        for start, size in zip(starts, sizes, strict=True):
            words[start : start + size].sort()
        made[column] = words
        keys[f"n{column}"] = counts
        # Of no values they mean nothing.
        keys[f"low{column}"] = words[starts]
        keys[f"high{column}"] = words[starts + np.maximum(counts, 1) - 1]
    return HeavyRows(pd.DataFrame(keys, copy=False), pd.DataFrame(made, copy=False))
