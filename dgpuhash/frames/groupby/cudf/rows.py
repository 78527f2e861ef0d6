"""Rows of each group of a cuDF frame, and pairs of its columns, as methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dgpuhash.frames.groupby import selections
from dgpuhash.frames.groupby.cudf.functions import NotOfferedError


class RowMethods(ABC):
    """Methods that choose rows."""

    # CudfGroups, which pandas' functions of rows take for theirs.
    _groups: Any

    @property
    @abstractmethod
    def _chosen(self) -> Any:
        """What rows are chosen of: the frame with its keys, or the columns that were asked for."""

    def head(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the first `n` rows of each group; without the last ones if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_before(self._groups, n), preserve_order)

    def tail(self, n: int = 5, *, preserve_order: bool = True) -> Any:
        """Return the last `n` rows of each group; without the first ones if negative.

        In the order of the frame, or by group.
        """
        return self._rows(selections.rows_behind(self._groups, n), preserve_order)

    @property
    def nth(self) -> Nth:
        """The rows at places of their group: ``nth(n)`` or ``nth[n]``.

        A number, a slice, or a list of these.
        """
        return Nth(self)

    def _rows(self, mask: Any, preserve_order: bool = True) -> Any:
        groups = self._groups
        if preserve_order:
            rows = groups.xp.flatnonzero(mask)
        else:
            # By the order of keys, whatever that of groups.
            rows = groups.in_key_order().rows_by_group
            rows = rows[mask[rows]]
        return self._chosen.take(rows)


class Nth:
    """The rows at places of their group, by a call or by an index."""

    def __init__(self, groups: RowMethods) -> None:
        self._groups = groups

    def __call__(self, n: Any, dropna: str | None = None) -> Any:
        """Return the rows at places of their group: a number, a slice, or a list of these."""
        if dropna is not None:
            raise NotOfferedError("nth with dropna=; group frame.dropna()")
        return self[n]

    def __getitem__(self, n: Any) -> Any:
        groups = self._groups
        return groups._rows(selections.rows_at(groups._groups, n))
