"""Statistics of a table or filter, as numbers, as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from html import escape
from typing import NamedTuple


class Figures(NamedTuple):
    """A store's figures for its table's statistics."""

    slots: int
    """Slots for keys."""
    occupied: int
    """Slots that hold a key."""
    tombstones: int
    """Slots that erased keys still occupy."""
    lines: float
    """Mean number of 64-byte lines read to find a stored key; NaN where unknown."""
    absent_lines: float
    """The same for keys that are not stored."""
    seed: int
    """Seed of the hash function in use."""
    reseeds: int
    """How often the store changed its seed by itself."""
    details: Mapping[str, int | float | str]
    """The method's own figures."""


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
    details : mapping
        Figures of the table's method, by name; empty for ``method="auto"``. Equality leaves them
        out.

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
    details: Mapping[str, int | float | str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls, figures: Figures, *, size: int, capacity: int, nbytes: int, payload: int
    ) -> TableStats:
        """Return the statistics of a table with `payload` bytes per key and value."""
        return cls(
            size=size,
            capacity=capacity,
            slots=figures.slots,
            load=figures.occupied / figures.slots,
            tombstones=figures.tombstones,
            nbytes=nbytes,
            storage_density=payload / nbytes,
            lines_per_lookup=figures.lines,
            lines_per_absent_lookup=figures.absent_lines,
            seed=figures.seed,
            reseeds=figures.reseeds,
            details=figures.details,
        )

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and the figures as text."""
        own = {each.name: getattr(self, each.name) for each in fields(self)[:-1]}
        return figure_rows(own | dict(self.details))

    def _repr_html_(self) -> str:
        return html_table("table statistics", self.rows())


def figure_rows(figures: Mapping[str, int | float | str]) -> list[tuple[str, str]]:
    """Return names for people, and figures as text."""
    made = []
    for name, figure in figures.items():
        if name == "nbytes":
            made.append(("memory", format_bytes(int(figure))))
        elif name == "seed" or isinstance(figure, str):
            made.append((name.replace("_", " "), str(figure)))
        else:
            # Rates may be small.
            places = "3g" if name == "rate" else "3f"
            text = f"{figure:,}" if isinstance(figure, int) else f"{figure:.{places}}"
            made.append((name.replace("_", " "), text))
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
