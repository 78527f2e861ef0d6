"""What an index has: figures, and digests to compare indexes by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.bucket_list.storage import longest_list, ordered_lists, saved_lists

__all__ = [
    "arrays_of",
    "digests_of",
    "joined_sizes",
    "lines_of",
    "saved_arrays",
    "size_of",
    "sizes_of",
    "sums_of",
    "texts_of",
]

# Features that become text at once.
_PIECE_ROWS = 2**18
_HALF = np.uint64(32)


def sizes_of(table: MultiMap) -> dict[str, float]:
    """Return how many features and locations there are, the most of one feature, and their size."""
    return joined_sizes([size_of(table)])


def size_of(table: MultiMap) -> tuple[int, int, int, int]:
    """Return the numbers of features and of locations, the most of one feature, and bytes."""
    return table.n_keys, len(table), longest_list(table._lists), table.nbytes


def joined_sizes(sizes: Sequence[tuple[int, int, int, int]]) -> dict[str, float]:
    """Return what `sizes_of` returns, of several tables that have other features each."""
    features, locations, longest, nbytes = zip(*sizes, strict=True)
    return {
        "features": sum(features),
        "locations": sum(locations),
        "longest_list": max(longest),
        "nbytes": sum(nbytes),
        "nbytes_per_feature": round(sum(nbytes) / max(sum(features), 1), 2),
        "nbytes_per_location": round(sum(nbytes) / max(sum(locations), 1), 2),
    }


def arrays_of(backend: Backend, table: MultiMap, dropped: HashSet) -> dict[str, np.ndarray]:
    """Return what a file of an index has of its features, on the host."""
    *lists, order = ordered_lists(table._lists)
    features, offsets, locations = map(backend.to_host, lists)
    return {
        "features": features,
        "offsets": offsets,
        "locations": locations,
        "dropped": backend.to_host(dropped.items()),
        **({} if order is None else order.buffers()),
    }


def saved_arrays(
    backend: Backend, table: MultiMap, dropped: HashSet
) -> dict[str, np.ndarray | Pieces]:
    """Return the same as they are written, some features on the host at a time."""
    saved = saved_lists(table._lists)
    return {
        "features": saved.pop("keys"),
        "offsets": saved.pop("offsets"),
        "locations": saved.pop("values"),
        "dropped": backend.to_host(dropped.items()),
        **saved,
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
    return sums_of(lines_of(features, offsets, locations))


def sums_of(lines: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """Return the sums of lines of locations and of counts, as `lines_of` yields them."""
    by_place, by_count = hashlib.sha256(), hashlib.sha256()
    for places, counts in lines:
        by_place.update(places)
        by_count.update(counts)
    return {"locations": by_place.hexdigest(), "features": by_count.hexdigest()}


def texts_of(features: np.ndarray) -> np.ndarray:
    """Return features as text, whose order is that of the lines; see `digests_of`."""
    import pyarrow as pa

    # A blank is below all digits, so that the lines have the order of the numbers' letters.
    text = pa.array(features).cast(pa.string())
    return np.array(text.to_numpy(zero_copy_only=False), "S20")


def lines_of(
    features: np.ndarray, offsets: np.ndarray, locations: np.ndarray
) -> Iterator[tuple[Any, Any]]:
    """Yield lines of some features after another: of their locations, and of their counts."""
    import pyarrow as pa

    counts = np.diff(offsets)
    text = pa.array(features).cast(pa.large_string())
    order = np.argsort(texts_of(features), kind="stable")
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
        by_place, by_count = (_joined(names, " -> ", each, "\n") for each in (lists, sizes))
        yield _bytes_of(by_place), _bytes_of(by_count)


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


def _bytes_of(lines: Any) -> memoryview:
    _, ends, text = lines.buffers()
    last = int(np.frombuffer(ends, np.int64)[len(lines)])
    return memoryview(text)[:last] if last else memoryview(b"")
