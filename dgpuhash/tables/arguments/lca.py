"""Combine node numbers of a tree to their lowest common ancestor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend, struct_named
from dgpuhash.errors import DeviceError, SpecError, UnsupportedError
from dgpuhash.typing import KeysLike

_MOST_NODES = 2**32 - 1


class LcaChange(NamedTuple):
    """Effect of another node of a key on the stored one, as a kernel argument."""

    tree: bytes
    parents: Any
    """The array that `tree` has the address of."""


class Lca:
    """Combination rule: nodes of a tree to their lowest common ancestor.

    `lca` makes it. It can be pickled, and used for any number of tables and devices.

    Parameters
    ----------
    parents : array of uint32
        On the host.
    """

    def __init__(self, parents: np.ndarray) -> None:
        self._parents = parents
        self._on: dict[str, tuple[LcaChange, Callable[[], None] | None]] = {}

    @property
    def parents(self) -> np.ndarray:
        """The parent number of each node."""
        return self._parents

    def __len__(self) -> int:
        return len(self._parents) - 1

    def __repr__(self) -> str:
        return f"<lca of {len(self):,} nodes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Lca, (self._parents,)

    def on(self, backend: Backend) -> LcaChange:
        """Return the change for kernels on the current device."""
        change, check = self._on.get(backend.name, (None, None))
        if change is not None and check is not None:
            try:
                check()
            except DeviceError:
                # The parents are on another GPU.
                change = None
        if change is None:
            parents = backend.from_host(self._parents)
            tree = backend.pack(struct_named("Tree"), parents=parents, nodes=len(parents))
            change = LcaChange(tree, parents)
            self._on[backend.name] = change, backend.check_device()
        return change

    def check_nodes(self, values: Any) -> None:
        """Raise SpecError unless values are nodes or 0."""
        if not len(values):
            return
        for extreme in (int(values.max()), int(values.min())):
            if not 0 <= extreme <= len(self):
                raise SpecError(
                    f"value {extreme} is no node of a tree of {len(self):,}; values are 0 or "
                    "numbers up to that, so pass the parents of all nodes to lca"
                )


def lca(parents: KeysLike) -> Lca:
    """Return the rule for nodes of a tree: ``insert(..., combine=lca(parents))``.

    Values are numbers of nodes. 0 is no node, and changes nothing; 1 is the root, and numbers of
    parents are below those of their children, as `dgpuhash.kmer.Taxonomy.parents` has them. A key
    gets the lowest common ancestor of the value that it has, if any, and of the values of all its
    rows; in whatever order they come, it is the same.

    Parameters
    ----------
    parents : array of integers
        The number of each node's parent: 0 of 0 and of the root. NumPy, CuPy or a list.

    Raises
    ------
    SpecError
        When these are not the parents of one tree.

    Examples
    --------
    >>> import dgpuhash
    >>> #          none root  2  3  4
    >>> tree = lca([0,  0,    1, 2, 2])
    >>> taxa = dgpuhash.HashMap("uint64", "uint32", device="cpu")
    >>> taxa.insert([7, 8, 7], [3, 4, 4], combine=tree).sum()
    np.int64(2)
    >>> taxa.find([7, 8])[0]
    array([2, 4], dtype=uint32)
    """
    backend = backends.get(None, parents)
    given = backend.to_host(backend.asarray(parents))
    if given.ndim != 1 or given.dtype.kind not in "iu" or not 2 <= len(given) <= _MOST_NODES:
        raise SpecError(
            f"parents of shape {given.shape} and dtype {given.dtype}; pass one integer for 0, one "
            "for the root 1, and one for each further node"
        )
    below = np.arange(len(given))
    is_wrong = (given < 1) | (given >= below)
    is_wrong[:2] = given[:2] != 0
    if is_wrong.any():
        node = int(np.argmax(is_wrong))
        raise SpecError(
            f"the parent of node {node} is {given[node]}; use 0 for nodes 0 and 1, and for others "
            "a node of a lower number, from 1"
        )
    return Lca(given.astype(np.uint32))


def check_lca(combine: Lca, keep: str | None, dtype: np.dtype[Any] | None) -> None:
    """Raise unless values of `dtype` can be nodes.

    Raises
    ------
    SpecError
        When `keep` is given.
    UnsupportedError
        When the values are no integers.
    """
    if keep is not None:
        raise SpecError(
            f"keep={keep!r} selects one value of a key, but combine={combine!r} uses all of "
            f"them; give only one of the two"
        )
    if dtype is None or dtype.kind not in "iu":
        raise UnsupportedError(
            f"values of dtype {dtype} cannot be nodes of a tree; use a map of integers"
        )
