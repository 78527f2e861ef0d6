"""SketchIndex on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from distributed import Future

from dgpuhash import backend as backends
from dgpuhash.kmer.sketches.building import lines_of, sums_of, texts_of
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.kmer.sketches.rule import SketchPart, SketchRule
from dgpuhash.kmer.worker_index import WorkerIndex

# Locations that a task makes lines of.
_LINES_OF_TASK = 2**20


class DistributedSketchIndex(WorkerIndex):
    """A `SketchIndex` on the workers of a Dask cluster; `SketchIndex.build` makes it.

    Calls are those of the index on one device. For its modes see `WorkerIndex`.
    """

    rule = SketchIndex.rule
    _rule_type = SketchRule
    local = SketchIndex

    def __len__(self) -> int:
        return len(self.targets.names)

    def _settled(self, rule: Future, parts: list[Future]) -> list[Future]:
        """Return parts limited to the first locations of each feature over all targets."""
        workers = self._workers
        least = -(-self.settings.cap // len(parts))
        crowded = workers.submit(
            unite_features, [workers.submit(features_with, part, least) for part in parts]
        )
        counts = workers.submit(
            stack_counts, [workers.submit(counts_in, part, crowded) for part in parts]
        )
        return [
            workers.submit(limit_part, rule, part, at, crowded, counts)
            for at, part in enumerate(parts)
        ]

    def digests(self) -> dict[str, str]:
        """Return the sums of `SketchIndex.digests`, from runs sorted on workers."""
        return sums_of(self._lines())

    def _lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield blocks of lines of features in order; see `lines_of`."""
        workers = self._workers
        runs = [workers.submit(text_run, part) for part in self._dealt()]
        locations = sum(workers.results([workers.submit(len, run) for run in runs]))
        n = max(-(-locations // _LINES_OF_TASK), 1)
        marks = np.sort(np.concatenate(
            workers.results([workers.submit(marks_in, run, n) for run in runs])
        ))[len(runs) // 2 :: len(runs)]  # fmt: skip
        edges = [b"", *marks.tolist(), None]

        def begin(number: int, edge: tuple[bytes, bytes | None]) -> list[Future]:
            pieces = [workers.submit(run_between, run, *edge) for run in runs]
            return [workers.submit(lines_of_runs, pieces)]

        for _, take in workers.in_order(pairwise(edges), begin):
            (lines,) = take()
            yield from lines


def features_with(part: SketchPart, least: int) -> np.ndarray:
    """Return a part's features with a minimum number of locations, on the host."""
    backend = backends.get(part.table.device)
    features, offsets, _ = part.table.lists()
    return backend.to_host(features[offsets[1:] - offsets[:-1] >= least])


def unite_features(features: list[np.ndarray]) -> np.ndarray:
    """Return the union of features, ascending."""
    return np.unique(np.concatenate(features))


def counts_in(part: SketchPart, features: np.ndarray) -> np.ndarray:
    """Return the number of a part's locations of each feature."""
    backend = backends.get(part.table.device)
    counts = part.table.count(backend.from_host(features))
    return backend.to_host(counts).astype(np.int64, copy=False)


def stack_counts(counts: list[np.ndarray]) -> np.ndarray:
    """Return counts of parts as rows of an array."""
    return np.stack(counts)


def limit_part(
    rule: SketchRule, part: SketchPart, at: int, crowded: np.ndarray, counts: np.ndarray
) -> SketchPart:
    """Return a part with crowded features cut to the locations left by earlier parts."""
    settings, backend = rule.settings, rule.backend
    allowed = np.maximum(settings.cap - counts[:at].sum(axis=0), 0)
    over = np.zeros(len(crowded), bool)
    if settings.remove_overpopulated:
        over = counts.sum(axis=0) >= settings.cap
        allowed[over] = 0
    dropped, cut = part.dropped, counts[at] > allowed
    put = backend.from_host
    if over.any():
        dropped = dropped.copy()
        dropped.insert(put(crowded[over]))
    if not cut.any():
        return SketchPart(part.table, part.found, dropped)
    # Few lists are cut. Their locations are in order, and those that stay the first ones.
    table, features = part.table.copy(), put(crowded[cut])
    locations, offsets = table.find(features)
    host_offsets = backend.to_host(offsets)
    sizes, left = np.diff(host_offsets), allowed[cut]
    places = np.arange(host_offsets[-1]) - np.repeat(host_offsets[:-1], sizes)
    stays = put(np.flatnonzero(places < np.repeat(left, sizes)))
    table.erase(features)
    table.insert(put(np.repeat(crowded[cut], left)), locations[stays])
    return SketchPart(table, part.found, dropped)


@dataclass(frozen=True, slots=True)
class TextRun:
    """Lists of a part sorted by the features' text, on the host; a task's result."""

    texts: np.ndarray
    features: np.ndarray
    offsets: np.ndarray
    locations: np.ndarray

    def __len__(self) -> int:
        return len(self.locations)

    def between(self, low: bytes, high: bytes | None) -> TextRun:
        """Return the lists of features with text in the range [low, high)."""
        first = int(np.searchsorted(self.texts, low))
        last = len(self.texts) if high is None else int(np.searchsorted(self.texts, high))
        begin, end = self.offsets[first], self.offsets[last]
        # Copies: the rest goes elsewhere, or stays.
        return TextRun(
            self.texts[first:last].copy(), self.features[first:last].copy(),
            self.offsets[first : last + 1] - begin, self.locations[begin:end].copy(),
        )  # fmt: skip


def text_run(part: SketchPart) -> TextRun:
    """Return the lists of a part sorted by the features' text."""
    host = backends.get(part.table.device).to_host
    features, offsets, locations = map(host, part.table.lists())
    texts = texts_of(features)
    order = np.argsort(texts, kind="stable")
    sizes = np.diff(offsets)[order]
    ends = np.append(0, np.cumsum(sizes))
    rows = np.arange(ends[-1]) + np.repeat(offsets[:-1][order] - ends[:-1], sizes)
    return TextRun(texts[order], features[order], ends, locations[rows])


def marks_in(run: TextRun, n: int) -> np.ndarray:
    """Return the texts that divide a run into n parts of about equally many locations."""
    wanted = np.arange(1, n) * (len(run.locations) / n)
    return run.texts[np.searchsorted(run.offsets[1:], wanted)] if len(run.texts) else run.texts


def run_between(run: TextRun, low: bytes, high: bytes | None) -> TextRun:
    """Return a piece of a run."""
    return run.between(low, high)


def lines_of_runs(runs: list[TextRun]) -> list[tuple[bytes, bytes]]:
    """Return the lines of runs with disjoint features, as `lines_of` yields them."""
    before = np.cumsum([0, *(len(run.locations) for run in runs)])
    offsets = [run.offsets[:-1] + start for run, start in zip(runs, before, strict=False)]
    found = lines_of(
        np.concatenate([run.features for run in runs]),
        np.concatenate([*offsets, before[-1:]]),
        np.concatenate([run.locations for run in runs]),
    )
    return [(bytes(places), bytes(counts)) for places, counts in found]
