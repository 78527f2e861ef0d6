"""Sizes of a table's shards as its handle last saw them, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape

import pandas as pd

from dgpuhash.distributed.shards.table_shard import TableShard
from dgpuhash.tables import MultiMap

__all__ = ["StatsDisplay", "TableShardSize", "format_entries"]


@dataclass(frozen=True, slots=True)
class TableShardSize:
    """Size of a shard: its entries, their distinct keys, and their bytes."""

    size: int
    n_keys: int
    nbytes: int

    @classmethod
    def by(cls, part: TableShard) -> TableShardSize:
        """Return the current size of `part`."""
        table = part.table
        size = len(table)
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


class StatsDisplay:
    """Statistics of the shards that a handle shows without an RPC."""

    def __init__(self) -> None:
        self._told: tuple[Sequence[TableShardSize], pd.DataFrame] | None = None

    def learn(self, held: Sequence[TableShardSize], frame: pd.DataFrame) -> None:
        """Show all of `frame`, until the sizes `held` are replaced by others."""
        self._told = held, frame.copy()

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
