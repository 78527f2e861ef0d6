"""A graph whose edges come and go in mixed batches; its triangles, as many as SciPy counts."""

import argparse

import numpy as np
import pandas as pd
from scipy.sparse import coo_array

from dgpuhash import HashSet, Op, backend


def triangles(xp, edges: HashSet) -> int:
    """Return how many pairs of edges, from one node to greater ones, have their ends joined."""
    codes = xp.sort(edges.items())  # smaller node << 32 | greater node
    later = xp.searchsorted(codes, (codes >> 32) + 1 << 32) - xp.arange(len(codes)) - 1
    pairs, stops = xp.arange(int(later.sum())), xp.cumsum(later)  # with each later edge of a node
    first = xp.searchsorted(stops, pairs, side="right")
    second = first + 1 + pairs - (stops - later)[first]
    return int(edges.contains((codes[first] & 0xFFFFFFFF) << 32 | codes[second] & 0xFFFFFFFF).sum())


def triangles_of_scipy(codes: np.ndarray, n: int) -> int:
    graph = coo_array((np.ones(len(codes)), (codes >> 32, codes & 0xFFFFFFFF)), (n, n)).tocsr()
    return int((graph @ graph).multiply(graph).sum())


def main(device: str, nodes: int = 2000, batches: int = 8, rows: int = 20_000) -> None:
    used, random, lines = backend.get(device), np.random.default_rng(7), []
    edges, stored = HashSet("int64", method="slab", device=device), np.empty(0, "int64")
    for _ in range(batches):
        low, high = np.sort(random.integers(0, nodes, (2, rows)), axis=0)
        codes = np.append((low << 32 | high)[low < high], random.permutation(stored)[:rows])
        codes = np.unique(codes)  # as operations on one edge have no order in a batch
        ops = random.choice([Op.INSERT, Op.ERASE, Op.FIND], len(codes)).astype("uint8")
        flags = used.to_host(edges.execute(used.from_host(ops), used.from_host(codes)))
        assert (flags == np.isin(codes, stored) ^ (ops == Op.INSERT)).all()
        stored = np.setdiff1d(np.union1d(stored, codes[ops == Op.INSERT]), codes[ops == Op.ERASE])
        done = [int(flags[ops == op].sum()) for op in (Op.INSERT, Op.ERASE, Op.FIND)]
        counts = len(edges), triangles(used.xp, edges), triangles_of_scipy(stored, nodes)
        lines.append((*done, *counts))
    names = ["inserted", "erased", "found", "edges", "triangles", "SciPy's"]
    print((table := pd.DataFrame(lines, columns=names)).to_string(index=False))
    print("Equal." if table["triangles"].equals(table["SciPy's"]) else "Different!")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default=backend.default_device())
    main(**vars(parser.parse_args()))
