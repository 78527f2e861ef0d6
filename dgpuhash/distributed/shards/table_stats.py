"""Sizes of a table's shards as its handle last saw them, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd

from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.tables import MultiMap


@dataclass(frozen=True, slots=True)
class TableShardSize:
    """Size of a shard: its entries, their distinct keys, and their bytes."""

    size: int
    n_keys: int
    nbytes: int

    @classmethod
    def by(cls, part: TableShard) -> TableShardSize:
        """Return the current size of `part`."""
        table, size = part.table, part.size
        return cls(size, table.n_keys if isinstance(table, MultiMap) else size, table.nbytes)


def format_entries(kind: str, held: Sequence[TableShardSize]) -> str:
    """Return the size of a table of this kind in words.

    Examples
    --------
    >>> parts = [TableShardSize(1500, n_keys=7, nbytes=0), TableShardSize(0, n_keys=0, nbytes=0)]
    >>> format_entries("multimap", parts), format_entries("map", parts)
    ('1,500 pairs of 7 keys', '1,500 pairs')
    """
    size, n_keys = sum(each.size for each in held), sum(each.n_keys for each in held)
    if kind == "set":
        return f"{size:,} keys"
    return f"{size:,} pairs of {n_keys:,} keys" if kind == "multimap" else f"{size:,} pairs"


def _stats_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the statistics of shards as a frame, with the details of their method as columns.

    Its attribute ``details`` has them for the whole table: counts are added, means are weighted by
    the sizes of the shards, and words that all shards agree on are kept.

    Examples
    --------
    >>> one = {"size": 2, "details": {"slabs": 3, "probes_found": 1.0}}
    >>> frame = _stats_frame([one, {"size": 6, "details": {"slabs": 5, "probes_found": 2.0}}])
    >>> frame["slabs"].tolist(), frame.attrs["details"]
    ([3, 5], {'slabs': 8, 'probes_found': 1.75})
    """
    plain = [{name: row[name] for name in row if name != "details"} for row in rows]
    details = pd.DataFrame([row["details"] for row in rows])
    frame = pd.DataFrame(plain)
    frame.insert(0, "part", range(len(rows)))
    for name in details:
        # A method may count what a table has as well, as its slots.
        frame[f"method_{name}" if name in frame else name] = details[name]
    frame.attrs["details"] = {
        str(name): figure
        for name in details
        if (figure := _of_all(details[name].tolist(), [row["size"] for row in rows])) is not None
    }
    return frame


def _of_all(figures: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return one figure for all shards; None where there is none."""
    if all(isinstance(each, int) for each in figures):
        return sum(figures)
    if all(isinstance(each, int | float) for each in figures):
        known = [pair for pair in zip(figures, sizes, strict=True) if pair[0] == pair[0]]
        total = sum(size for _, size in known)
        return sum(each * size for each, size in known) / total if total else math.nan
    return figures[0] if len(set(figures)) == 1 else None


class StatsDisplay:
    """Statistics of the shards that a handle shows without an RPC."""

    def __init__(self) -> None:
        self._told: tuple[Sequence[TableShardSize], pd.DataFrame] | None = None

    def learn(
        self, held: Sequence[TableShardSize], rows: Sequence[Mapping[str, Any]]
    ) -> pd.DataFrame:
        """Return the statistics of shards, and show them until their sizes `held` are replaced."""
        frame = _stats_frame(rows)
        self._told = held, frame.copy()
        return frame

    def html(self, title: str, workers: Sequence[str], held: Sequence[TableShardSize]) -> str:
        """Return HTML: the title, and a table with a row for each shard, if any."""
        shown = f"<p>{escape(title)}</p>"
        if not held:
            return shown
        if self._told is not None and self._told[0] is held:
            frame = self._told[1]
        else:
            parts = enumerate(zip(workers, held, strict=False))
            frame = pd.DataFrame(
                [{"part": part, "worker": each, **asdict(has)} for part, (each, has) in parts]
            )
        return shown + str(frame.to_html(index=False))
