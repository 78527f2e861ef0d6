"""Columns in the order of the parts that their rows go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpuhash import backend
from dgpuhash.frames import EncodedKeys
from dgpuhash.tables.columns.select import all_rows

__all__ = ["Parted", "parted"]


@dataclass(frozen=True, slots=True)
class Parted:
    """Columns in the order of the parts that their rows go to.

    Attributes
    ----------
    columns : list of array
    numbers : int64 array or None
        Where the rows stood, ascending for each part; None where that was not asked for.
    counts : numpy.ndarray of int64
        Rows of each part.
    """

    columns: list[Any]
    numbers: Any
    counts: np.ndarray


def parted(
    columns: Sequence[Any],
    key: int | None,
    encoded: EncodedKeys,
    owned: Sequence[Any] | int,
    *,
    owner_seed: int,
    numbered: bool,
) -> Parted:
    """Rows without nulls in the order of their parts, by one pass over them where that can be.

    Parameters
    ----------
    columns : list of array
    key : int or None
        Which of `columns` the codes are the bits of.
    encoded : EncodedKeys
        The keys of the rows.
    owned : list of int64 arrays, or int
        The rows of each part; or how many parts own the keys, all rows going to owners.
    owner_seed : int
        Of the hash of codes that chooses their owners.
    numbered : bool
        Whether to tell where rows stood.
    """
    device = backend.get(None, encoded.codes)
    if not isinstance(owned, int):
        rows = device.xp.concatenate(list(owned))
        counts = np.array([len(each) for each in owned], np.int64)
        return Parted([column[rows] for column in columns], rows, counts)
    if owned == 1:
        rows = all_rows(device, len(encoded)) if numbered else None
        return Parted(list(columns), rows, np.array([len(encoded)]))
    others = [number for number in range(len(columns)) if number != key]
    # One column moves with the codes; more follow by row numbers.
    beside = others[0] if key is not None and len(others) == 1 else None
    if beside is not None and columns[beside].dtype.itemsize not in (4, 8):
        beside = None
    words = None if beside is None else _words(columns[beside])
    follow = [number for number in others if number != beside]
    moved, starts = device.split(
        encoded.codes, words,
        parts=owned, seed=owner_seed, numbered=numbered or bool(follow),
    )  # fmt: skip
    found = {number: columns[number][moved.numbers] for number in follow}
    if key is not None:
        found[key] = moved.keys.view(columns[key].dtype)
    if beside is not None:
        found[beside] = moved.values.view(columns[beside].dtype)
    ends = device.to_host(starts).astype(np.int64)
    return Parted([found[number] for number in range(len(columns))], moved.numbers, np.diff(ends))


def _words(column: Any) -> Any:
    return column.view(f"u{column.dtype.itemsize}")
