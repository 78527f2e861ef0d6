"""One shard of an index, its staged change, and joins' marks of matched rows."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpuhash.distributed.partition.change import Change
from dgpuhash.distributed.partition.skew import HeavyKeys
from dgpuhash.distributed.pruning.worker_cache import BloomCache
from dgpuhash.distributed.shards.inbox import Inbox
from dgpuhash.frames import FrameIndex, KeyEncoder, frames_of
from dgpuhash.frames.grouped.index import GroupChange, GroupIndex


@dataclass(frozen=True, slots=True)
class HeavyKeyRepair:
    """Repair of a shard: keys to erase, and their replacement rows."""

    gone: Any
    rows: Any

    @classmethod
    def of(
        cls, index: FrameIndex, rows: Any, heavy: HeavyKeys, encoder: KeyEncoder
    ) -> HeavyKeyRepair:
        """Return the repair that replaces the `heavy` keys' rows in `index`.

        Afterwards the index has `rows` of these keys, and no others.
        """
        keys = index.frame(list(encoder.names))
        frames = frames_of(keys)
        among = heavy.among(encoder.encode_rows(keys).codes)
        return cls(frames.take(keys, frames.xp.flatnonzero(among)), rows)

    def carry_out(self, index: FrameIndex) -> None:
        """Apply the repair to `index`; an error leaves the index broken."""
        index.erase(self.gone)
        index.insert(self.rows)


@dataclass
class StagedChange:
    """Open change of a shard on this worker.

    First its `inbox` fills; once the change is prepared it is `ready`.
    """

    change: Change
    inbox: Inbox
    ready: bool = False
    index: FrameIndex | None = None
    rows: Any = None
    gone: Any = None
    """Keys alone that an upsert erases, whose rows other shards get."""
    states: GroupChange | None = None
    """States of groups after an update or a retraction."""
    added: FrameIndex | None = None
    mending: HeavyKeyRepair | None = None
    mixed: bool = False
    opened: float = field(default_factory=time.monotonic)
    """When the change was opened."""

    @property
    def kept(self) -> bool:
        """Whether the change keeps the shard's rows."""
        return self.inbox.part in self.change.kept


@dataclass
class Marks:
    """Rows of an index that joins have matched, by name of the join.

    Positions of rows stay as long as the epoch of a shard.
    """

    index: FrameIndex
    _marks: dict[str, Any] = field(default_factory=dict)
    _digests: dict[tuple[str, int], str] = field(default_factory=dict)
    _ranges: dict[tuple[str, int], tuple[Any, list[int]]] = field(default_factory=dict)

    def of(self, join: str) -> Any:
        """Return a join's marks: an array that it sets to 1 for each matched row."""
        if join not in self._marks:
            self._marks[join] = self.index.no_marks()
        return self._marks[join]

    def digest(self, join: str, partition: int, digest: str) -> str:
        """Return the first digest reported for a partition's keys."""
        return self._digests.setdefault((join, partition), digest)

    def forget(self, join: str) -> None:
        """Drop the marks of a join."""
        self._marks.pop(join, None)
        self._ranges.clear()
        for key in [key for key in self._digests if key[0] == join]:
            del self._digests[key]

    def others(
        self, join: str, copies: Any, part: int, parts: int, skip: int, nbytes: int, by_key: bool,
        since: int = 0, columns: Sequence[Hashable] | None = None,
    ) -> tuple[Any, int | None, int]:  # fmt: skip
        """Return a page of a join's unmatched rows, and the offset of the next page.

        All rows for a join without a name. They are at most `nbytes` of one of `parts` ranges of
        them; None after the last ones.
        `copies` has the marks of other copies of the rows. Ranges are those of the hashes of keys
        (`by_key`), or of positions. Of groups only those are told that changed `since` an epoch.
        `columns`: default all.
        """
        store = self.index.store
        if by_key:
            rows, edges = self._by_range(join, parts)
            start, end = edges[part], edges[part + 1]
        else:
            marks = self.of(join) if join else None
            rows = self.index.unmarked(marks if copies is None else marks | copies)
            if since and isinstance(self.index, GroupIndex):
                rows = self.index.changed_since(rows, since)
            start, end = (len(rows) * number // parts for number in (part, part + 1))
        nbytes = min(nbytes, store.page_nbytes)
        room = max(1, int(nbytes / max(1.0, store.row_nbytes(columns or list(store.meta)))))
        last = min(end, start + skip + room)
        found = store.take(rows[start + skip : last], columns)
        return found, None if last == end else last - start, end - last

    def _by_range(self, join: str, parts: int) -> tuple[Any, list[int]]:
        """Return a join's unmatched rows by hash range, and the bounds of the ranges.

        They are kept for the other ranges: nothing is found any more once one is asked for.
        """
        if (join, parts) not in self._ranges:
            rows = self.index.unmarked(self.of(join) if join else None)
            owners, xp = self._owners(rows, parts), frames_of(self.index.meta).xp
            order = xp.argsort(owners, kind="stable")
            edges = xp.searchsorted(owners[order], xp.arange(parts + 1, dtype=owners.dtype))
            self._ranges = {(join, parts): (rows[order], edges.tolist())}
        return self._ranges[join, parts]

    def _owners(self, rows: Any, parts: int) -> Any:
        """Return the hash ranges of some rows' keys."""
        encoder = self.index.encoder
        keys = self.index.store.take(rows, list(encoder.names))
        return encoder.owners(encoder.encode_rows(keys).codes, parts)


@dataclass
class Shard:
    """One shard of an index, at one epoch."""

    epoch: int
    transaction: str
    index: FrameIndex
    changed_rows: int
    mixed: bool = False
    """Whether some shards hold other numeric dtypes than the index was planned with."""
    sieve: BloomCache = field(default_factory=BloomCache)
    """Bloom filter of the keys of all shards at this epoch, and statistics of lookups."""
    marks: Marks = field(init=False)
    """Which rows the joins have found that want those without a match."""

    def __post_init__(self) -> None:
        self.marks = Marks(self.index)
