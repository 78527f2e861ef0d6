"""What an index has: figures, and digests to compare indexes by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, strings_of
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.bucket_list.storage import longest_list, ordered_lists, saved_lists
from dgpuhash.tables.serialization import Buffers

# Features that become text at once.
_PIECE_ROWS = 2**18
_HALF = np.uint64(32)
_LOCATION, _OFFSET = np.dtype(np.uint64), np.dtype(np.int64)


def size_of(table: MultiMap) -> tuple[int, int, int, int]:
    """Return the numbers of features and of locations, the most of one feature, and bytes."""
    return table.n_keys, len(table), longest_list(table._lists), table.nbytes


def joined_sizes(sizes: Sequence[tuple[int, int, int, int]]) -> dict[str, float]:
    """Return figures of tables that have other features each, from what `size_of` returns."""
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


def lists_in(
    arrays: Buffers, feature: np.dtype[Any], windows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, offsets and locations of a file, in which each location is a window.

    Parameters
    ----------
    arrays : Buffers
    feature : dtype
    windows : array of int64
        How many each target has.

    Raises
    ------
    FormatError
        When the file is damaged.
    """
    features = arrays.get("features", feature)
    offsets = arrays.get("offsets", _OFFSET, len(features) + 1)
    locations = arrays.get("locations", _LOCATION)
    arrays.check(
        bool(offsets[0] == 0 and offsets[-1] == len(locations))
        and bool((offsets[1:] > offsets[:-1]).all()),
        "its lists of locations have no ends",
    )
    # A location has 32 bits of the window.
    arrays.check(bool((windows <= 2**32).all()), "its targets are too long")
    for start in range(0, len(locations), _PIECE_ROWS):
        piece = locations[start : start + _PIECE_ROWS]
        targets = piece >> _HALF
        arrays.check(
            int(targets.max()) < len(windows)
            and bool((piece.astype(np.uint32) < windows[targets.view(np.int64)]).all()),
            "its locations are no windows of its targets",
        )
    return features, offsets, locations


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
    text = numbers_of(features).cast(pa.string())
    return np.array(text.to_pylist(), "S20")


def lines_of(
    features: np.ndarray, offsets: np.ndarray, locations: np.ndarray
) -> Iterator[tuple[Any, Any]]:
    """Yield lines of some features after another: of their locations, and of their counts."""
    import pyarrow as pa

    counts = np.diff(offsets)
    text = numbers_of(features).cast(pa.large_string())
    order = np.argsort(texts_of(features), kind="stable")
    for start in range(0, len(order), _PIECE_ROWS):
        rows = order[start : start + _PIECE_ROWS]
        names, sizes = text.take(numbers_of(rows)), counts[rows]
        ends = np.append(0, np.cumsum(sizes))
        owners = np.repeat(np.arange(len(rows)), sizes)
        found = locations[np.arange(ends[-1]) + (offsets[rows] - ends[:-1])[owners]]
        found = found[np.lexsort((found, owners))]
        pairs = _join("(", found >> _HALF, ",", found.astype(np.uint32), ")")
        # The text of a list is that of its pairs, one behind the other.
        _, edges, letters = pairs.buffers()
        edges = np.frombuffer(edges, np.int64)[: len(pairs) + 1][ends]
        lists = pa.Array.from_buffers(pairs.type, len(rows), [None, pa.py_buffer(edges), letters])
        by_place, by_count = (_join(names, " -> ", each, "\n") for each in (lists, sizes))
        yield _bytes_of(by_place), _bytes_of(by_count)


def _join(*parts: Any) -> Any:
    """Return text of which the parts are columns of numbers or text, or single texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pa.large_string()
    columns = [
        strings_of([part]).cast(text)[0]
        if isinstance(part, str)
        else (numbers_of(part) if isinstance(part, np.ndarray) else part).cast(text)
        for part in parts
    ]
    return pc.binary_join_element_wise(*columns, strings_of([""]).cast(text)[0])


def _bytes_of(lines: Any) -> memoryview:
    _, ends, text = lines.buffers()
    last = int(np.frombuffer(ends, np.int64)[len(lines)])
    return memoryview(text)[:last] if last else memoryview(b"")
