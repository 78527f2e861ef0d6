"""Build the multimap from references' features to their locations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, strings_of
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.serialization import Buffers
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun


Batch = tuple[Any, Any, np.ndarray, np.ndarray, bool]

_LOCATION = np.dtype(np.uint64)
# Features of reads are often absent: searches for these end sooner in a table with more room.
LOAD = 0.7
# Bytes of features and locations that are held on a CPU, and at least on a GPU: a quarter there.
HELD_NBYTES = 2**28
# Lists grow where they are for less than one of so many locations; else all are stored anew.
_FEW = 8
# Letters that are sketched at once.
_BATCH_LETTERS = {"cpu": 2**20, "cuda": 2**26}


def table_settings(settings: SketchSettings, device: Device) -> dict[str, Any]:
    """Return the settings of a multimap of features."""
    return {"cap": settings.cap, "max_load": LOAD, "device": device}


def are_few(rows: int, table: MultiMap) -> bool:
    """Return whether locations are few enough to append to the lists in place."""
    return rows * _FEW < len(table)


def append(
    table: MultiMap, found: Iterable[tuple[Any, Any]], settings: SketchSettings, dropped: HashSet
) -> None:
    """Add features and locations to a table in place, as `extend` does."""
    for features, locations in found:
        if len(dropped):
            stays = ~dropped.contains(features)
            features, locations = features[stays], locations[stays]
        table.insert(features, locations)
        if settings.remove_overpopulated:
            over = features[table.count(features) >= settings.cap]
            table.erase(over)
            dropped.insert(over)


def extend(
    backend: Backend,
    table: MultiMap,
    found: Iterable[tuple[Any, Any]],
    settings: SketchSettings,
    dropped: HashSet,
) -> MultiMap:
    """Return a table extended by features and locations.

    Features in `dropped` are left out; overpopulated ones go there from the table, where the
    settings say so.
    """

    def kept() -> Iterator[tuple[Any, Any]]:
        if len(table):
            yield from table._lists.pair_slices()
        for features, locations in found:
            if len(dropped):
                stays = ~dropped.contains(features)
                features, locations = features[stays], locations[stays]
            yield features, locations

    def has_room(features: Any, counts: Any) -> Any:
        is_full = counts >= settings.cap
        dropped.insert(features[is_full])
        return ~is_full

    return MultiMap.from_batches(
        kept(), settings.feature, _LOCATION, memory=held_nbytes(backend),
        keep=has_room if settings.remove_overpopulated else None,
        **table_settings(settings, backend.name),
    )  # fmt: skip


def held_nbytes(backend: Backend) -> int:
    """Return the buffer size in bytes before features and locations are spilled."""
    if backend.name == "cpu":
        return HELD_NBYTES
    return max(backend.memory()[0] // 4, HELD_NBYTES)


def batches_of_references(
    backend: Backend, references: References | TargetRun, settings: SketchSettings
) -> Iterator[Batch]:
    """Yield letters, offsets, targets, starts of pieces, and whether the last one goes on.

    See `ReferenceBatch`.
    """
    for batch in references.batches(
        overlap=settings.window - 1,
        stride=settings.stride,
        batch_letters=_BATCH_LETTERS[backend.name],
    ):
        letters, offsets = map(backend.from_host, (batch.letters, batch.offsets))
        yield letters, offsets, batch.targets, batch.starts, batch.is_cut


def batches_of_letters(
    backend: Backend, settings: SketchSettings, letters: Any, offsets: np.ndarray, first: int
) -> Iterator[Batch]:
    """Yield the same for references in one array, with offsets on the host.

    `first` is the number of the first target.
    """
    start, total = 0, len(letters)
    while start < total:
        end = min(start + max(_BATCH_LETTERS[backend.name], 2 * settings.window), total)
        row = int(np.searchsorted(offsets, start, side="right")) - 1
        last = int(np.searchsorted(offsets, end, side="left")) - 1
        begins = offsets[row : last + 1]
        edges = np.clip(offsets[row : last + 2], start, end) - start
        is_cut = end < offsets[last + 1]
        yield (
            letters[start:end],
            backend.from_host(edges),
            np.arange(row, last + 1, dtype=np.int64) + first,
            np.maximum(start - begins, 0),
            is_cut,
        )
        # The next piece begins with the first window that is not whole yet.
        full = (end - int(begins[-1]) - settings.window) // settings.stride + 1
        start = int(begins[-1]) + max(full, 0) * settings.stride if is_cut else end


# Features that become text at once.
_PIECE_ROWS = 2**18
_HALF = np.uint64(32)
_LOCATION, _OFFSET = np.dtype(np.uint64), np.dtype(np.int64)


def size_of(table: MultiMap) -> tuple[int, int, int, int]:
    """Return numbers of features and locations, most locations of a feature, and bytes."""
    return table.n_keys, len(table), table._lists.longest_list(), table.nbytes


def joined_sizes(sizes: Sequence[tuple[int, int, int, int]]) -> dict[str, float]:
    """Return figures of tables with disjoint features, from results of `size_of`."""
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
    """Return the arrays of an index's features for a file, on the host."""
    *lists, order = table._lists.ordered_lists()
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
    """Return the same lazily, with some features on the host at a time."""
    saved = table._lists.saved_lists()
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
    """Return features, offsets and locations of a file whose locations are windows.

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
    """Return SHA-256 sums of the features' text lines in byte order.

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
    """Return the sums of lines of locations and counts from `lines_of`."""
    by_place, by_count = hashlib.sha256(), hashlib.sha256()
    for places, counts in lines:
        by_place.update(places)
        by_count.update(counts)
    return {"locations": by_place.hexdigest(), "features": by_count.hexdigest()}


def texts_of(features: np.ndarray) -> np.ndarray:
    """Return features as text in line order; see `digests_of`."""
    import pyarrow as pa

    # A blank is below all digits, so that the lines have the order of the numbers' letters.
    text = numbers_of(features).cast(pa.string())
    return np.array(text.to_pylist(), "S20")


def lines_of(
    features: np.ndarray, offsets: np.ndarray, locations: np.ndarray
) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of lines of features: with their locations, and with their counts."""
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
    """Return lines joined from columns of numbers or text and constant texts."""
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
