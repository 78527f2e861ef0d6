"""Compute features of letters and their locations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.kmer.sketches.settings import SketchSettings

# Windows of a tile: on a GPU of 32 lanes, each of which finds out where one is.
_SEGMENT_ROWS = {"cpu": 16, "cuda": 32}


def n_windows(lengths: Any, settings: SketchSettings, *, starts: Any = 0, least: int = 1) -> Any:
    """Return the number of windows of records with some lengths, or of their rests from `starts`.

    A shorter last one, of at least so many letters, is included. It follows a window that ends at
    the last letter, too, unless that is the only one of its record.
    """
    full = _n_full(lengths, settings)
    has_more = lengths - full * settings.stride >= least
    return full + (has_more & (starts + lengths != settings.window))


def _n_full(lengths: Any, settings: SketchSettings) -> Any:
    return ((lengths - settings.window) // settings.stride + 1) * (lengths >= settings.window)


def sketch_references(
    backend: Backend,
    settings: SketchSettings,
    letters: Any,
    offsets: Any,
    targets: np.ndarray,
    starts: np.ndarray,
    *,
    is_cut: bool,
) -> tuple[Any, Any]:
    """Return features of targets with locations (uint64: target << 32 | window).

    Parameters
    ----------
    backend : Backend
    settings : SketchSettings
    letters, offsets : array
        Of pieces, on the backend; each begins where a window of its target does.
    targets, starts : array of int64
        The target of each piece, and where the piece begins in it; on the host.
    is_cut : bool
        Whether the last piece goes on: only its full windows are taken.
    """
    xp = backend.xp
    lengths = xp.diff(offsets)
    counts = n_windows(lengths, settings, starts=backend.from_host(starts))
    if is_cut:
        counts[-1:] = _n_full(lengths[-1:], settings)
    windows = _sums(backend, counts)
    rows = int(windows[-1])
    found = backend.empty(rows, np.int64)
    features = _sketches(
        backend, settings, rows, windows, letters=letters, offsets=offsets, counts=found
    )
    places = _sums(backend, found)
    n = int(places[-1])
    packed, locations = backend.empty(n, settings.feature), backend.empty(n, np.uint64)
    backend.run(
        kernel_named("sketch_pack", settings.feature), rows,
        features=features, windows=windows,
        targets=backend.from_host(targets.astype(np.uint32)),
        firsts=backend.from_host(starts // settings.stride), places=places,
        features_to=packed, locations=locations, most=settings.sketch, records=len(counts),
    )  # fmt: skip
    return packed, locations


def sketch_reads(
    backend: Backend,
    settings: SketchSettings,
    letters: Any,
    offsets: Any,
    mate_letters: Any = None,
    mate_offsets: Any = None,
) -> tuple[Any, Any]:
    """Return features of reads, mates together, and each read's offset (int64).

    There are as many for each window; places that it does not need have the highest number, which
    is no feature.
    """
    lengths = backend.xp.diff(offsets)
    n, most_rows = len(lengths), len(letters) // settings.stride + len(lengths)
    if mate_letters is not None:
        both = backend.empty((n, 2), np.int64)
        both[:, 0], both[:, 1] = lengths, backend.xp.diff(mate_offsets)
        lengths = both.ravel()
        most_rows += len(mate_letters) // settings.stride + n
    counts = n_windows(lengths, settings)
    windows = _sums(backend, counts)
    # On a GPU nobody waits for their number.
    rows = int(windows[-1]) if backend.name == "cpu" else most_rows
    features = _sketches(
        backend, settings, rows, windows,
        letters=letters, offsets=offsets, mate_letters=mate_letters, mate_offsets=mate_offsets,
    )  # fmt: skip
    firsts = windows if mate_letters is None else windows[::2]
    return features, firsts * settings.sketch


def _sketches(
    backend: Backend, settings: SketchSettings, rows: int, windows: Any, **fields: Any
) -> Any:
    """Return the features of windows, `sketch` slots each."""
    features = backend.empty(rows * settings.sketch, settings.feature)
    segment_rows = _SEGMENT_ROWS[backend.name]
    backend.run(
        kernel_named("sketch_find", settings.feature), math.ceil(rows / segment_rows),
        windows=windows, features=features, k=settings.k, most=settings.sketch,
        window=settings.window, stride=settings.stride, records=len(windows) - 1, rows=rows,
        segment_rows=segment_rows, **fields,
    )  # fmt: skip
    return features


def _sums(backend: Backend, sizes: Any) -> Any:
    """Return the offset of each of these sizes, and the total last (int64)."""
    sums = backend.zeros(len(sizes) + 1, np.int64)
    backend.xp.cumsum(sizes, dtype=np.int64, out=sums[1:])
    return sums
