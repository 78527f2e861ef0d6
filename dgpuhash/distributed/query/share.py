"""What one worker has done of a phase that merges."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from dgpuhash.distributed.cluster.locality import Given
from dgpuhash.distributed.cluster.lying import Lying
from dgpuhash.frames import FrameIndex, Matches

__all__ = ["Share", "matches_of", "merged"]


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


def matches_of(
    index: FrameIndex, keys: Any, how: str, columns: Sequence[Hashable], *, named: bool = True
) -> Matches:
    """All that an index has for `keys`, a frame or a tuple of arrays.

    A tuple of arrays, not a frame, where its columns are plain. Unless all are `named`,
    `query_rows` may be None for those of all keys, in order.
    """
    if how in {"semi", "anti"}:
        return index.match(keys, how=how)
    page = index.page(keys, nbytes=sys.maxsize, columns=columns, plain=True, named=named)
    return page.matches
