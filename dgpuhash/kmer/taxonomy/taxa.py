"""Taxa as a header and arrays, for files of a taxonomy or an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, numpy_of
from dgpuhash.kmer.taxonomy.tree import Tree
from dgpuhash.tables.serialization import Buffers

_TAXID = np.dtype(np.int64)
_TEXT = "taxonomy names"
_SHOWN = 5


class Taxa(NamedTuple):
    """Taxids, parents, names and ranks of taxa.

    Attributes
    ----------
    tree : Tree
    names : Arrow array of text
        By number, from 1.
    ranks : array of uint16
        By number, from 1: places in `rank_names`.
    rank_names : list of str
    merged : array of int64
        Of shape (n, 2): old taxids, ascending, and those that took their place.
    deleted : array of int64
        Ascending.
    """

    tree: Tree
    names: Any
    ranks: np.ndarray
    rank_names: list[str]
    merged: np.ndarray
    deleted: np.ndarray


def unknown_error(missing: np.ndarray, deleted: np.ndarray) -> TaxonomyError:
    """Return the error for unknown taxids, some of them deleted by NCBI."""
    chosen = deleted if len(deleted) else missing
    shown = ", ".join(map(str, chosen[:_SHOWN]))
    some = f"{len(chosen):,} taxid{'s' * (len(chosen) != 1)}"
    if len(deleted):
        return TaxonomyError(f"NCBI deleted {some}: {shown}; look up the current taxids")
    return TaxonomyError(
        f"{some} not in the taxonomy: {shown}; take a taxonomy of the same or a later day"
    )


def subset(taxa: Taxa, numbers: np.ndarray, merged: np.ndarray) -> Taxa:
    """Return the taxa with some numbers, and their ancestors.

    Parameters
    ----------
    taxa : Taxa
    numbers : array of uint32
    merged : array of int64
        What the old taxids of `taxa.merged` lead to.
    """
    tree = taxa.tree
    kept = tree.with_ancestors(numbers)
    new = np.zeros(len(tree.taxids), np.uint32)
    new[kept] = np.arange(1, len(kept) + 1)
    small = Tree.of_parents(
        np.append(np.int64(0), tree.taxids[kept]), np.append(np.uint32(0), new[tree.parents[kept]])
    )
    return taxa._replace(
        tree=small,
        names=taxa.names.take(numbers_of(kept - 1)),
        ranks=taxa.ranks[kept - 1],
        merged=taxa.merged[small.numbers(merged) != 0],
    )


def taxa_to(taxa: Taxa) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return taxa as JSON values and arrays."""
    import pyarrow as pa

    names = pa.concat_arrays([taxa.names.cast(pa.large_string())])
    _, offsets, text = names.buffers()
    arrays = {
        "taxonomy taxids": taxa.tree.taxids,
        "taxonomy parents": taxa.tree.parents,
        "taxonomy ranks": taxa.ranks,
        "taxonomy merged": taxa.merged,
        "taxonomy deleted": taxa.deleted,
        "taxonomy offsets": np.frombuffer(offsets, _TAXID)[: len(names) + 1],
        _TEXT: np.frombuffer(text or b"", np.uint8),
    }
    return {"taxonomy ranks": taxa.rank_names}, arrays


def taxa_from(header: Mapping[str, Any], buffers: Buffers) -> Taxa:
    """Return taxa from the output of `taxa_to`.

    Raises
    ------
    FormatError
        When an array is missing or does not fit to the others.
    """
    import pyarrow as pa

    taxids = buffers.get("taxonomy taxids", _TAXID)
    n = len(taxids) - 1
    buffers.check(
        n > 0 and taxids[0] == 0 and bool((taxids[1:] > 0).all()),
        "its taxids are no numbers above 0",
    )
    parents = buffers.get("taxonomy parents", np.dtype(np.uint32), n + 1)
    ranks = buffers.get("taxonomy ranks", np.dtype(np.uint16), n)
    offsets = buffers.get("taxonomy offsets", _TAXID, n + 1)
    text = buffers.get(_TEXT, np.dtype(np.uint8))
    rank_names = list(header["taxonomy ranks"])
    # Parents come before their children, and their numbers go up.
    buffers.check(
        not parents[:2].any()
        and bool((parents[2:] < np.arange(2, n + 1)).all())
        and bool((parents[2:] > 0).all())
        and bool((parents[2:] >= parents[1:-1]).all()),
        "its taxa are no tree",
    )
    buffers.check(
        bool((ranks < len(rank_names)).all()) and all(type(name) is str for name in rank_names),
        "it has unknown ranks",
    )
    tree = Tree.of_parents(taxids, parents)
    buffers.check(
        bool((tree.numbers(taxids) == np.arange(n + 1)).all()), "two of its taxa have one taxid"
    )
    kept = [pa.py_buffer(np.ascontiguousarray(array)) for array in (offsets, text)]
    names = pa.Array.from_buffers(pa.large_string(), n, [None, *kept])
    # Raises ValueError unless offsets go up within the text, and all text is UTF-8.
    names.validate(full=True)
    merged = buffers.get("taxonomy merged", _TAXID).reshape(-1, 2)
    buffers.check(
        bool((merged[1:, 0] >= merged[:-1, 0]).all()), "its merged taxids are not in order"
    )
    deleted = buffers.get("taxonomy deleted", _TAXID)
    return Taxa(tree, names, ranks, rank_names, merged, deleted)


_REMEDY = "they are of two taxonomies; build both with one"


def unite_taxa(one: Taxa, other: Taxa) -> Taxa:
    """Return the union of taxa, numbered as in a taxonomy with all of them.

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
