"""Statistics of a FrameIndex: rows, bytes, key encoding and device."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.keyed_rows import KeyedRows
from dgpuhash.tables import HashMap, MultiMap
from dgpuhash.tables.stats import format_bytes, html_table
from dgpuhash.typing import Device


@dataclass(frozen=True, slots=True)
class FrameStats:
    """Statistics of a `FrameIndex`.

    Attributes
    ----------
    rows, erased_rows : int
        Rows that can be found, and erased rows whose memory is not yet freed.
    row_nbytes, table_nbytes : int
        Bytes of the stored columns and of the key table.
    packing : str
        How keys are encoded: ``"packed"``, ``"reserved"`` or ``"hashed"``.
    table : str
        ``"HashMap"`` (each code has one row) or ``"MultiMap"``, and the method, if one was given.
    frames : str
        ``"pandas"`` or ``"cudf"``.
    device : str
        Where the key table lives.
    """

    rows: int
    erased_rows: int
    row_nbytes: int
    table_nbytes: int
    packing: str
    table: str
    frames: str
    device: Device

    @classmethod
    def of(cls, rows: KeyedRows, packing: str, device: Device) -> FrameStats:
        """Return the statistics of an index of `rows`."""
        return cls(
            rows=len(rows),
            erased_rows=rows.erased,
            row_nbytes=rows.store.nbytes,
            table_nbytes=rows.table.nbytes,
            packing=packing,
            table=table_name(rows.table.table),
            frames=frames_of(rows.store.meta).name,
            device=device,
        )

    def title(self, meta: Any, keys: Sequence[Hashable]) -> str:
        """Return a one-line description of an index with these columns and `keys`."""
        columns = [label for label in meta if label not in keys]
        return (
            f"FrameIndex on {list(keys)!r}: {self.rows:,} rows, "
            f"{format_bytes(self.row_nbytes + self.table_nbytes)}, columns {columns!r}, "
            f"{self.frames} on {self.device}"
        )

    def html(self, meta: Any, keys: Sequence[Hashable]) -> str:
        """Return the title and all statistics as an HTML table."""
        rows = [(name.replace("_", " "), str(each)) for name, each in asdict(self).items()]
        return html_table(self.title(meta, keys), rows)


def table_name(table: HashMap | MultiMap) -> str:
    """Return the class of a table, and its method if one was given."""
    name = type(table).__name__
    return name if table.method == "auto" else f"{name} ({table.method})"
