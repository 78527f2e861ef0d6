"""Tree of numbered taxa as arrays, with vectorized ancestor queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dgpuhash.errors import TaxonomyError

_NUMBER = np.dtype(np.uint32)
_MOST_PLACES_A_TAXON = 8


def steps_within(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the positions ``start, start + 1, ...`` of all runs, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


class Tree:
    """Taxa numbered level by level: 0 none, 1 the root, parents before children.

    Children of a taxon have neighbouring numbers, in the order of their taxids.

    Parameters
    ----------
    taxids : array of int64
        By number; taxid 0 is none's.
    parents : array of uint32
        By number; the root's parent is none, and so is none's.
    edges : array of int64
        The first number of each level below none, then the number of all.
    """

    def __init__(self, taxids: np.ndarray, parents: np.ndarray, edges: np.ndarray) -> None:
        self.taxids: np.ndarray = taxids
        self.parents: np.ndarray = parents
        self.edges: np.ndarray = edges

    @classmethod
    def of(
        cls, taxids: np.ndarray, parents: np.ndarray, at: Callable[[int], str]
    ) -> tuple[Tree, np.ndarray]:
        """Return the tree of rows of taxids, and the rows in the order of their numbers.

        Parameters
        ----------
        taxids, parents : array of int64
            Of each row; the root's parent is itself or 0.
        at : callable
            Returns the place of a row, for errors.

        Raises
        ------
        TaxonomyError
            When a taxid is no number above 0 or comes twice, a parent is missing, there is no root
            or a second one, or taxa are their own ancestors.
        """
        above = _rows_above(taxids, parents, at)
        is_root = above == np.arange(len(taxids))
        children = np.flatnonzero(~is_root)
        children = children[np.lexsort((taxids[children], above[children]))]
        counts = np.bincount(above[children], minlength=len(taxids))
        starts = np.cumsum(counts) - counts
        level = np.flatnonzero(is_root)
        levels = []
        while len(level):
            levels.append(level)
            level = children[steps_within(starts[level], counts[level])]
        rows = np.concatenate(levels)
        if len(rows) < len(taxids):
            left = np.ones(len(taxids), bool)
            left[rows] = False
            row = int(np.argmax(left))
            raise TaxonomyError(
                f"{at(row)}: taxid {taxids[row]} is its own ancestor, or below one that is; "
                "download the taxonomy again"
            )
        numbers = np.empty(len(taxids), _NUMBER)
        numbers[rows] = np.arange(1, len(rows) + 1)
        tree_parents = np.concatenate([np.zeros(2, _NUMBER), numbers[above[rows[1:]]]])
        edges = np.cumsum([1, *map(len, levels)])
        return cls(np.concatenate([[0], taxids[rows]]), tree_parents, edges), rows

    @classmethod
    def of_parents(cls, taxids: np.ndarray, parents: np.ndarray) -> Tree:
        """Return the tree from another tree's arrays."""
        edges, end = [1], 2
        while end <= len(parents) and end > edges[-1]:
            edges.append(end)
            # Numbers go up level by level, and so do those of parents.
            end = int(np.searchsorted(parents[1:], end)) + 1
        return cls(taxids, parents, np.array(edges, np.int64))

    def __len__(self) -> int:
        return len(self.taxids) - 1

    def numbers(self, taxids: np.ndarray) -> np.ndarray:
        """Return the number of each taxid, 0 if it is unknown."""
        if (table := self._number_of) is not None:
            return table[np.where((taxids < 0) | (taxids >= len(table)), 0, taxids)]
        ordered, by_taxid = self._in_order
        found = by_taxid[np.minimum(np.searchsorted(ordered, taxids), len(ordered) - 1)]
        return np.where(self.taxids[found] == taxids, found, 0).astype(_NUMBER)

    @cached_property
    def _number_of(self) -> np.ndarray | None:
        """Array from taxids to numbers, or None if it would be mostly empty."""
        n = int(self.taxids.max()) + 1
        if n > _MOST_PLACES_A_TAXON * len(self.taxids):
            return None
        table = np.zeros(n, _NUMBER)
        table[self.taxids] = np.arange(len(self.taxids))
        return table

    @cached_property
    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Taxids, ascending, and the number of each."""
        by_taxid = np.argsort(self.taxids, kind="stable")
        return self.taxids[by_taxid], by_taxid

    @cached_property
    def sizes(self) -> np.ndarray:
        """The number of taxa in the clade of each taxon, itself included."""
        return self.sums(np.ones(len(self.taxids), np.int64))

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """Return the sum of amounts over the clade of each taxon; number 0 keeps its own."""
        totals = amounts.copy()
        for low, high in zip(self.edges[-2:0:-1], self.edges[:1:-1], strict=True):
            np.add.at(totals, self.parents[low:high], totals[low:high])
        return totals

    @cached_property
    def preorder(self) -> np.ndarray:
        """Preorder position of each taxon, from 0; -1 for number 0."""
        return self.places(np.arange(1, len(self.taxids)), self.sizes)

    @cached_property
    def _by_preorder(self) -> np.ndarray:
        found = np.empty(len(self), _NUMBER)
        found[self.preorder[1:]] = np.arange(1, len(self.taxids))
        return found

    def places(self, ordered: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the preorder position of each taxon, from 0.

        Parameters
        ----------
        ordered : array of int
            All numbers but none's by those of their parents, children in the order they get.
        sizes : array of int64
            How many places the clade of each taxon takes.
        """
        taken = sizes[ordered]
        before = np.cumsum(taken) - taken
        parents = self.parents[ordered]
        is_first = np.concatenate([[True], parents[1:] != parents[:-1]])
        firsts = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
        places = np.full(len(self.taxids), -1, np.int64)
        places[ordered] = before - before[firsts]
        for low, high in zip(self.edges[1:-1], self.edges[2:], strict=True):
            places[low:high] += places[self.parents[low:high]] + 1
        return places

    def lca(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the lowest common ancestor of each pair of numbers; 0 is neutral."""
        left, right = np.broadcast_arrays(left, right)
        found = np.where(left == 0, right, left).ravel()
        others = np.where(right == 0, left, right).ravel()
        apart = np.flatnonzero(found != others)
        while len(apart):
            one, other = found[apart], others[apart]
            # The higher number cannot be an ancestor of the lower one.
            is_lower = one > other
            one, other = (
                np.where(is_lower, self.parents[one], one),
                np.where(is_lower, other, self.parents[other]),
            )
            found[apart], others[apart] = one, other
            apart = apart[one != other]
        return found.reshape(left.shape)

    def lca_of_runs(self, numbers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the lowest common ancestor of each run of numbers, 0 for empty runs.

        Of many taxa it is that of the first and the last by their places in `preorder`.
        """
        found = np.zeros(len(offsets) - 1, _NUMBER)
        is_taxon = numbers != 0
        ends = np.concatenate([[0], np.cumsum(is_taxon)])[offsets]
        filled = np.flatnonzero(ends[1:] > ends[:-1])
        if not len(filled):
            return found
        places = self.preorder[numbers[: offsets[-1]][is_taxon[: offsets[-1]]]]
        starts = ends[filled]
        first, last = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
        found[filled] = self.lca(self._by_preorder[first], self._by_preorder[last])
        return found

    def is_within(self, numbers: Any, clade: Any) -> np.ndarray:
        """Return whether each number is in the clade of a taxon; 0 is in none."""
        start = self.preorder[clade]
        places = self.preorder[numbers]
        return (places >= start) & (places < start + self.sizes[clade]) & (places >= 0)

    def with_ancestors(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers and those of all their ancestors, ascending."""
        is_kept = np.zeros(len(self.taxids), bool)
        is_kept[numbers] = True
        for low, high in zip(self.edges[-2:0:-1], self.edges[:1:-1], strict=True):
            is_kept[self.parents[low:high][is_kept[low:high]]] = True
        is_kept[:2] = False, True
        return np.flatnonzero(is_kept)


def _rows_above(taxids: np.ndarray, parents: np.ndarray, at: Callable[[int], str]) -> np.ndarray:
    """Return the row of each row's parent; the root's own for the root."""
    remedy = "download the taxonomy again"
    if (taxids < 1).any():
        row = int(np.argmax(taxids < 1))
        raise TaxonomyError(f"{at(row)}: taxid {taxids[row]} is not above 0; {remedy}")
    by_taxid = np.argsort(taxids, kind="stable")
    ordered = taxids[by_taxid]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        row = int(by_taxid[twice + 1].min())
        raise TaxonomyError(f"{at(row)}: taxid {taxids[row]} is there already; {remedy}")
    is_root = (parents == taxids) | (parents == 0)
    roots = np.flatnonzero(is_root)
    if len(roots) != 1:
        raise TaxonomyError(
            f"{at(int(roots[1]))}: taxid {taxids[roots[1]]} is a second root beside "
            f"{taxids[roots[0]]}; {remedy}"
            if len(roots)
            else f"{at(0).partition(',')[0]}: no taxid is its own parent, so there is no root; "
            f"{remedy}"
        )
    wanted = np.where(is_root, taxids, parents)
    above = by_taxid[np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)]
    missing = taxids[above] != wanted
    if missing.any():
        row = int(np.argmax(missing))
        raise TaxonomyError(
            f"{at(row)}: the parent of taxid {taxids[row]}, {parents[row]}, is not there; {remedy}"
        )
    return above
