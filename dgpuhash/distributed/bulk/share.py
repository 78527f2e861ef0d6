"""What one worker has done of a phase that merges."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank has done: the bytes of its results; or why tasks must do it.

    Of its `rows`, `spared_rows` were asked about nowhere. It knows of `absent_rows` that they have
    no match.
    """

    nbytes: list[int] = field(default_factory=list)
    refused: str = ""
    rows: int = 0
    spared_rows: int = 0
    absent_rows: int = 0
