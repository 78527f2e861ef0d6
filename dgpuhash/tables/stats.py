"""Statistics of a table, as numbers, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.structs import core
from dgpuhash.tables.open_addressing.slots import Slots

__all__ = ["TableStats", "figure_rows", "format_bytes", "html_table", "mean_buckets_read"]


@dataclass(frozen=True, slots=True)
class TableStats:
    """Statistics of one table.

    Attributes
    ----------
    size : int
        Stored keys (sets, maps) or stored pairs (multimaps).
    capacity : int
        Keys that fit before the table grows.
    slots : int
        Slots for keys.
    load : float
        Load factor: share of the slots that hold a key.
    tombstones : int
        Slots that erased keys still occupy.
    nbytes : int
        Memory held, in bytes.
    storage_density : float
        Bytes of the stored keys and values in their own dtypes, divided by `nbytes`.
    lines_per_lookup : float
        Mean number of 64-byte lines read to find a stored key.
    lines_per_absent_lookup : float
        The same for keys that are not stored.
    seed : int
        Seed of the hash function in use.
    reseeds : int
        How often the table has changed its seed because keys were clustered by the previous one.

    Examples
    --------
    >>> from dgpuhash import HashSet
    >>> stats = HashSet.from_keys(range(50)).stats()
    >>> stats.size, stats.lines_per_lookup < 2
    (50, True)
    """

    size: int
    capacity: int
    slots: int
    load: float
    tombstones: int
    nbytes: int
    storage_density: float
    lines_per_lookup: float
    lines_per_absent_lookup: float
    seed: int
    reseeds: int

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and the figures as text."""
        return figure_rows(self)

    def _repr_html_(self) -> str:
        return html_table("table statistics", self.rows())


def figure_rows(stats: Any) -> list[tuple[str, str]]:
    """Return the names of a dataclass's figures, and the figures as text."""
    made = []
    for field in fields(stats):
        figure, name = getattr(stats, field.name), field.name.replace("_", " ")
        if field.name == "nbytes":
            made.append(("memory", format_bytes(figure)))
        elif field.name == "seed":
            made.append((name, str(figure)))
        elif isinstance(figure, int):
            made.append((name, f"{figure:,}"))
        else:
            made.append((name, f"{figure:.3g}" if "rate" in name else f"{figure:.3f}"))
    return made


def html_table(title: str, rows: list[tuple[str, str]]) -> str:
    """Return a two-column HTML table with a caption."""
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:right'>{escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def format_bytes(nbytes: int) -> str:
    """Return a number of bytes as text with a binary unit.

    Examples
    --------
    >>> format_bytes(3 << 20)
    '3.0 MiB'
    """
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def mean_buckets_read(backend: Backend, slots: Slots) -> tuple[float, float]:
    """Return the mean number of buckets, 64-byte lines, read by a search.

    The first number is for stored keys (0 if there are none), the second one for absent keys.

    Of stored keys (0 where there is none), and of keys that are not there.
    """
    slots.fill()
    totals = backend.zeros(2, np.uint64)
    backend.run(
        core.open_lines(slots.key, slots.value), core.OPEN_LINES, slots.buckets,
        table=slots.storage, present=totals[:1], absent=totals[1:],
    )  # fmt: skip
    present, absent = (int(total) for total in backend.to_host(totals))
    return present / max(slots.state().occupied, 1), absent / slots.buckets
