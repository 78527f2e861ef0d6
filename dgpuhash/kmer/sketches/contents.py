"""What an index has: figures, and digests to compare indexes by."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables import HashSet, MultiMap

__all__ = ["arrays_of", "digests_of", "sizes_of"]

# Features that become text at once.
_PIECE_ROWS = 2**18
_HALF = np.uint64(32)


def sizes_of(table: MultiMap) -> dict[str, int]:
    """Return how many features and locations there are, and the most of one feature."""
    _, offsets, _ = table.lists()
    sizes = offsets[1:] - offsets[:-1]
    return {
        "features": table.n_keys,
        "locations": len(table),
        "longest_list": int(sizes.max()) if len(sizes) else 0,
        "nbytes": table.nbytes,
    }


def arrays_of(backend: Backend, table: MultiMap, dropped: HashSet) -> dict[str, np.ndarray]:
    """Return what a file of an index has of its features, on the host."""
    features, offsets, locations = map(backend.to_host, table.lists())
    return {
        "features": features,
        "offsets": offsets,
        "locations": locations,
        "dropped": backend.to_host(dropped.items()),
    }


def digests_of(features: np.ndarray, offsets: np.ndarray, locations: np.ndarray) -> dict[str, str]:
    """Return the SHA-256 sums of lines of features, in the order of the lines' bytes.

    Parameters
    ----------
    features : array
    offsets : array of int64
        Where the locations of each begin, and the last one's end.
    locations : array of uint64
        target << 32 | window.

    Returns
    -------
    dict
        ``locations``: of lines ``feature -> (target,window)...``; ``features``: of lines
        ``feature -> count``.
    """
    import pyarrow as pa

    by_place, by_count = hashlib.sha256(), hashlib.sha256()
    counts = np.diff(offsets)
    # A blank is below all digits, so that the lines have the order of the numbers' letters.
    text = pa.array(features).cast(pa.large_string())
    order = np.argsort(np.array(text.to_numpy(zero_copy_only=False), "S20"), kind="stable")
    for start in range(0, len(order), _PIECE_ROWS):
        rows = order[start : start + _PIECE_ROWS]
        names, sizes = text.take(pa.array(rows)), counts[rows]
        ends = np.append(0, np.cumsum(sizes))
        owners = np.repeat(np.arange(len(rows)), sizes)
        found = locations[np.arange(ends[-1]) + (offsets[rows] - ends[:-1])[owners]]
        found = found[np.lexsort((found, owners))]
        pairs = _joined("(", found >> _HALF, ",", found.astype(np.uint32), ")")
        # The text of a list is that of its pairs, one behind the other.
        _, edges, letters = pairs.buffers()
        edges = np.frombuffer(edges, np.int64)[: len(pairs) + 1][ends]
        lists = pa.Array.from_buffers(pairs.type, len(rows), [None, pa.py_buffer(edges), letters])
        _add(by_place, _joined(names, " -> ", lists, "\n"))
        _add(by_count, _joined(names, " -> ", sizes, "\n"))
    return {"locations": by_place.hexdigest(), "features": by_count.hexdigest()}


def _joined(*parts: Any) -> Any:
    """Return text of which the parts are columns of numbers or text, or single texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.large_string()
    columns = [
        pa.scalar(part, text)
        if isinstance(part, str)
        else (pa.array(part) if isinstance(part, np.ndarray) else part).cast(text)
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, pa.scalar("", text))


def _add(digest: Any, lines: Any) -> None:
    _, ends, text = lines.buffers()
    last = np.frombuffer(ends, np.int64)[len(lines)]
    if last:
        digest.update(memoryview(text)[:last])
