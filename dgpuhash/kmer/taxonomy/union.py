"""Two taxonomies made one, where they agree."""

from __future__ import annotations

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, numpy_of
from dgpuhash.kmer.taxonomy.taxa import Taxa
from dgpuhash.kmer.taxonomy.tree import Tree

_REMEDY = "they are of two taxonomies; build both with one"


def united(one: Taxa, other: Taxa) -> Taxa:
    """Return the taxa of both, numbered as those of a taxonomy that has them all.

    Raises
    ------
    TaxonomyError
        When a taxon has another parent, rank or name in the other one, or was merged in one only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rank_names = [
        *one.rank_names, *(name for name in other.rank_names if name not in one.rank_names),
    ]  # fmt: skip
    its_ranks = np.array([rank_names.index(name) for name in other.rank_names], np.uint16)
    its_ranks = its_ranks[other.ranks]
    own, its = one.tree.taxids[1:], other.tree.taxids[1:]
    own_parents, its_parents = _parents(one.tree), _parents(other.tree)

    rows = np.flatnonzero(one.tree.numbers(its))
    same = one.tree.numbers(its[rows]).astype(np.int64) - 1
    names = pc.equal(one.names.take(numbers_of(same)), other.names.take(numbers_of(rows)))
    for what, is_same in (
        ("parent", own_parents[same] == its_parents[rows]),
        ("rank", one.ranks[same] == its_ranks[rows]),
        ("name", numpy_of(names)),
    ):
        if not is_same.all():
            taxid = its[rows[np.argmin(is_same)]]
            raise TaxonomyError(f"taxid {taxid} has another {what} here than there: {_REMEDY}")

    new = np.flatnonzero(one.tree.numbers(its) == 0)
    taxids = np.concatenate([own, its[new]])
    parents = np.concatenate([own_parents, its_parents[new]])
    tree, order = Tree.of(taxids, parents, lambda row: f"taxid {taxids[row]} of two taxonomies")
    texts = (one.names, other.names.take(numbers_of(new)))
    names = pa.concat_arrays([each.cast(pa.large_string()) for each in texts])
    return Taxa(
        tree,
        names.take(numbers_of(order)),
        np.concatenate([one.ranks, its_ranks[new]])[order],
        rank_names,
        _replaced_taxids(one, other),
        np.union1d(one.deleted, other.deleted),
    )


def _parents(tree: Tree) -> np.ndarray:
    """Return the taxid of each taxon's parent, 0 of the root's."""
    return tree.taxids[tree.parents[1:]]


def _replaced_taxids(one: Taxa, other: Taxa) -> np.ndarray:
    rows = np.unique(np.concatenate([one.merged, other.merged]), axis=0)
    wrong = rows[1:][rows[1:, 0] == rows[:-1, 0], 0].tolist()
    for its, tree, beside in ((one, one.tree, other.tree), (other, other.tree, one.tree)):
        old = its.merged[:, 0]
        wrong += old[(tree.numbers(old) == 0) & (beside.numbers(old) != 0)].tolist()
    if wrong:
        raise TaxonomyError(f"taxid {wrong[0]} was merged here and not there: {_REMEDY}")
    return rows
