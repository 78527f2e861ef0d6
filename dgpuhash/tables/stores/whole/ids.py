"""Stores of `KeyIds`: keys to numbers and back, over the table of `factorize` or maps."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.seeds import seed_of_generation
from dgpuhash.spec import TableSpec
from dgpuhash.tables.columns.distinct import DistinctKeys
from dgpuhash.tables.columns.group_table import GroupTable
from dgpuhash.tables.select import gather_rows
from dgpuhash.tables.stats import Figures
from dgpuhash.tables.stores.method import Opens
from dgpuhash.tables.stores.rebuilds import RecipeStore

# A table with more records for a key was made for rows that turned out to be copies.
_ROOMY, _FEWEST = 3, 32


class GroupIds:
    """Store (see `IdStore`) over the table of `factorize`: ids by first appearance.

    Parameters
    ----------
    backend : Backend
    key : dtype
        Of the key words: uint32 or uint64.
    seed : int
        Of the first table that is tried.
    """

    def __init__(self, backend: Backend, key: np.dtype[Any], seed: int) -> None:
        self.backend: Any = backend
        self._first_seed = seed
        self.build(backend.empty(0, key))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Implement `IdStore.nbytes`."""
        return self._table.nbytes + int(self.keys.nbytes)

    @property
    def seed(self) -> int:
        """Implement `IdStore.seed`."""
        return self._table.seed

    def build(self, bits: Any) -> None:
        """Implement `IdStore.build`."""
        table, first_rows, _ = self._numbered(bits)
        keys = gather_rows(bits, first_rows)
        if table.records > _ROOMY * max(len(keys), _FEWEST):
            table = self._numbered(keys)[0]
        self.keys: Any = keys
        self._table = table

    def _numbered(self, bits: Any) -> tuple[GroupTable, Any, Any]:
        return DistinctKeys(self.backend, bits, seed=self._first_seed).numbers()

    def restore(self, bits: Any) -> None:
        """Implement `IdStore.restore`: they appear in the order of their ids."""
        self.build(bits)

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Implement `IdStore.find`."""
        ids = self._table.find(bits)
        return ids, ids >= 0

    def figures(self) -> Figures:
        """Implement `IdStore.figures`."""
        seeds = [seed_of_generation(self._first_seed, again) for again in range(3)]
        return Figures(
            slots=self._table.records,
            occupied=len(self),
            tombstones=0,
            lines=math.nan,
            absent_lines=math.nan,
            seed=self.seed,
            reseeds=seeds.index(self.seed),
            details={},
        )

    def copy(self) -> Self:
        """Implement `IdStore.copy`."""
        return copy.copy(self)

    def __getstate__(self) -> tuple[Any, ...]:
        # The table has addresses.
        return self.backend, self._first_seed, self.keys

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.backend, self._first_seed, keys = state
        self.build(keys)


class NumberedStore:
    """Store (see `IdStore`) over a method's map, with ids from its kernel ``number``.

    Alcantara's thesis (2011), §6.3, and §5.3 for two levels: build, count, prefix sum, compact.

    Parameters
    ----------
    maps : RecipeStore
        Empty store of a map whose values are as wide as its keys.
    key : dtype
        Of the key words: uint32 or uint64.
    """

    def __init__(self, maps: Any, key: np.dtype[Any]) -> None:
        self._maps = maps
        self._key = key
        self.backend: Any = maps.backend
        self.keys: Any = self.backend.empty(0, key)

    def __len__(self) -> int:
        return len(self._maps)

    @property
    def nbytes(self) -> int:
        """Implement `IdStore.nbytes`."""
        return int(self._maps.nbytes) + int(self.keys.nbytes)

    @property
    def seed(self) -> int:
        """Implement `IdStore.seed`."""
        seed: int = self._maps.seed
        return seed

    def build(self, bits: Any) -> None:
        """Implement `IdStore.build`."""
        maps: RecipeStore[Any] = self._maps
        if len(bits):
            self._maps.add(bits, self.backend.zeros(len(bits), self._key))
            self.keys = maps.table.number()

    def restore(self, bits: Any) -> None:
        """Implement `IdStore.restore`."""
        self._maps.add(bits, self.backend.xp.arange(len(bits), dtype=self._key))
        self.keys = bits

    def find(self, bits: Any) -> tuple[Any, Any]:
        """Implement `IdStore.find`."""
        words, found = self._maps.find(bits, np.iinfo(self._key).max)
        if self._key.itemsize == 8:
            return words.view(np.int64), found
        return self.backend.xp.where(found, words.astype(np.int64), np.int64(-1)), found

    def figures(self) -> Figures:
        """Implement `IdStore.figures`."""
        figures: Figures = self._maps.figures()
        return figures

    def copy(self) -> Self:
        """Implement `IdStore.copy`."""
        return copy.copy(self)


class Numbered:
    """Opener of a method's two-way indexes, from the opener of its maps.

    Parameters
    ----------
    maps : Opens
        Opens a `RecipeStore` whose tables have the kernel ``number``.
    """

    def __init__(self, maps: Opens) -> None:
        self._maps = maps

    def open(
        self,
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> NumberedStore:
        """Implement `Opens.open` with values as wide as keys."""
        inner = replace(spec, kind="map", value_dtype=key.str)
        return NumberedStore(self._maps.open(backend, inner, key, key, capacity), key)

    def check(
        self, key: np.dtype[Any], value: np.dtype[Any] | None, settings: Mapping[str, Any]
    ) -> None:
        """Implement `Recipe.check`."""
        check = getattr(self._maps, "check", None)
        if check is not None:
            check(key, key, settings)
