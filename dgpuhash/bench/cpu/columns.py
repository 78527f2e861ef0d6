"""Columns of keys that libraries are measured on, and what is true of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.errors import SpecError

KINDS = ("arange", "shuffled", "random")
_SEED = 34
_ROWS_PER_GROUP = 10
# Sums of quarters are exact.
_SCALE = 4


class KeyColumns:
    """Columns of int64 keys of one kind, the same ones for each number of rows.

    Parameters
    ----------
    rows : int
        Rows of each column.
    kind : {"arange", "shuffled", "random"}
        Keys 0, 1, 2 and so on in order; the same in random order; or random 63 bits.
    number : int
        Of several such columns, which are drawn anew.

    Attributes
    ----------
    keys : array
        Distinct keys.
    probes : array
        The same keys, in another order where they are not in order.
    positions : array
        Where in `keys` each of `probes` is.
    others : array
        Half of the keys, and as many that are not in `keys`.
    grouped : array
        As many rows, of a tenth of as many keys.
    values : array of float64
        Beside `grouped`.

    Raises
    ------
    SpecError
        When the kind is unknown.

    Examples
    --------
    >>> columns = KeyColumns(20, "arange")
    >>> columns.keys[:3], columns.grouped[[0, 9, 10]]
    (array([0, 1, 2]), array([0, 0, 1]))
    >>> bool((columns.keys[columns.positions] == columns.probes).all())
    True
    """

    def __init__(self, rows: int, kind: str, number: int = 0) -> None:
        if kind not in KINDS:
            raise SpecError(f"--keys {kind}; use {', '.join(KINDS)}")
        random = np.random.default_rng((_SEED, number))
        self.rows: int = rows
        self.kind = kind
        # As many again that the columns do not hold.
        all_keys = _random_keys(random, 2 * rows) if kind == "random" else np.arange(2 * rows)
        numbers = np.arange(rows)
        self.positions: np.ndarray = numbers
        order = numbers
        if kind != "arange":
            order, self.positions = random.permutation(rows), random.permutation(rows)
        self.keys: np.ndarray = all_keys[order]
        self.probes: np.ndarray = self.keys[self.positions]
        self.others: np.ndarray = np.concatenate(
            [self.keys[::2], all_keys[rows : rows + rows // 2]]
        )
        self.groups: int = max(rows // _ROWS_PER_GROUP, 1)
        self.numbers: np.ndarray = numbers * self.groups // max(rows, 1)
        if kind == "shuffled":
            self.numbers = random.permutation(self.numbers)
        elif kind == "random":
            self.numbers = random.integers(0, self.groups, rows)
        self.grouped: np.ndarray = all_keys[self.numbers]
        self.values: np.ndarray = random.integers(0, 1000, rows) / _SCALE
        self.new: np.ndarray = all_keys[rows:]

    def __len__(self) -> int:
        return self.rows

    def sums(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the keys of `grouped`, ascending, their sums and their means."""
        kinds, numbers = np.unique(self.numbers, return_inverse=True)
        keys = self.grouped[np.unique(self.numbers, return_index=True)[1]]
        sums = np.bincount(numbers, self.values, len(kinds))
        order = np.argsort(keys)
        return keys[order], sums[order], (sums / np.bincount(numbers))[order]


def _random_keys(random: np.random.Generator, count: int) -> np.ndarray:
    """Return distinct keys of 63 random bits."""
    while True:
        keys: Any = random.integers(0, 2**63 - 1, count)
        if len(np.unique(keys)) == count:
            return np.asarray(keys)
