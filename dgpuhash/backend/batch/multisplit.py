"""A batch dealt out to the owners of its keys, and answers brought back to its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.batch.dealt import Dealt
from dgpuhash.backend.batch.partition import digits_of, split
from dgpuhash.backend.structs.multisplit import DEAL_PARTS

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

__all__ = ["Deal"]


class Deal:
    """The rows of each owner, one owner's after the other's, each in input order.

    Of up to `DEAL_PARTS` owners a byte of each row is kept to bring back what stands in this
    order; of more their numbers.

    Parameters
    ----------
    backend : Backend
    keys : array of uint32 or uint64
        On this device.
    values : array of uint32 or uint64, optional
        Moved along.
    parts : int
        Number of owners, up to 65,536; a row's is that of `Backend.owner_of`.
    seed : int
        Of the hash.
    counted : callable, optional
        Is given `starts` once rows are counted, before they move where owners are few.

    Attributes
    ----------
    keys, values : array
        In the owners' order; `values` is None when there were none.
    starts : array of uint64
        Where each owner's rows begin, and the last one's end; on this device.
    """

    def __init__(
        self,
        backend: Backend,
        keys: Any,
        values: Any,
        *,
        parts: int,
        seed: int,
        counted: Callable[[Any], object] | None = None,
    ) -> None:
        self._backend, self._rows = backend, len(keys)
        self._dealt = self._numbers = None
        if parts <= DEAL_PARTS[backend.name]:
            (digit,) = digits_of(backend, parts, seed, spread=parts)
            self._dealt = Dealt.counted(backend, keys, digit)
            self.starts = self._dealt.starts
            if counted is not None:
                counted(self.starts)
            self.keys = self._dealt.move(keys)
            self.values = None if values is None else self._dealt.move(values)
            return
        moved, self.starts = split(backend, keys, values, parts=parts, seed=seed, numbered=True)
        if counted is not None:
            counted(self.starts)
        self.keys, self.values, self._numbers = moved.keys, moved.values, moved.numbers

    def put_back(self, columns: list[Any], to: list[Any], pads: np.ndarray | None = None) -> None:
        """Bring columns in the owners' order to the rows where their keys were.

        Parameters
        ----------
        columns : list of array
            Words of 4 or 8 bytes, flags of one byte, or rows of bytes.
        to : list of array
            Of these kinds; overwritten.
        pads : int64 array, optional
            Of each owner how many rows further on its rows stand in `columns`; on the host.
        """
        pairs = list(zip(columns, to, strict=True))
        if self._dealt is None:
            for column, target in pairs:
                target[self._numbers] = column if pads is None else column[self._padded(pads)]
            return
        wide = [pair for pair in pairs if pair[0].ndim == 2]
        if wide:
            places = self.places()
            if pads is not None:
                places = self._padded(pads)[places]
            for column, target in wide:
                target[...] = column[places]
        narrow = [pair for pair in pairs if pair[0].ndim == 1]
        self._dealt.put_back([pair[0] for pair in narrow], [pair[1] for pair in narrow], pads)

    def _padded(self, pads: np.ndarray) -> Any:
        """Where each row in the owners' order stands with these."""
        ends = self._backend.to_host(self.starts)[1:].astype(np.int64)
        owners = np.searchsorted(ends, np.arange(self._rows), side="right")
        return self._backend.from_host(np.arange(self._rows) + pads[owners])

    def moved(self, column: Any) -> Any:
        """A further column of the batch in the owners' order."""
        if self._dealt is None:
            return column[self._numbers]
        if column.ndim == 1 and column.dtype.itemsize in (4, 8):
            words = column.view(f"u{column.dtype.itemsize}")
            return self._dealt.move(words).view(column.dtype)
        made = self._backend.empty(column.shape, column.dtype)
        made[self.places()] = column
        return made

    def places(self) -> Any:
        """Where each row of the batch stands in the owners' order, int64."""
        made = self._backend.empty(self._rows, np.int64)
        self.put_back([self._backend.xp.arange(self._rows)], [made])
        return made
