"""What one worker has done of a phase that merges."""

from __future__ import annotations

from dataclasses import dataclass

from dgpuhash.distributed.bulk.lying import Lying
from dgpuhash.distributed.worker_data import Given

__all__ = ["Share", "merged"]


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank has done; or why tasks must do it.

    Of its `rows`, `spared_rows` were asked about nowhere. It knows of `absent_rows` that they have
    no match.
    """

    refused: str = ""
    rows: int = 0
    spared_rows: int = 0
    absent_rows: int = 0


def merged(given: Given, partition: Lying) -> tuple[str, int]:
    """Under which the result of a partition is kept."""
    return f"dgpuhash-merged-{given.token}", partition.number
