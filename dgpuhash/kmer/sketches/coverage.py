"""Which targets reads cover, for leaving out the least covered ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.kmer.sketches.candidates import TopLists
from dgpuhash.kmer.sketches.settings import CallOptions

_BITS = np.dtype(np.uint32)
_WORD_BITS = 32


class Coverage:
    """Windows of targets in which reads found their candidates.

    Parameters
    ----------
    backend : Backend
    windows : array of int64
        How many each target has.
    """

    def __init__(self, backend: Backend, windows: np.ndarray) -> None:
        self._backend, self._windows = backend, windows
        self._firsts = np.append(0, np.cumsum(windows))
        words = int(self._firsts[-1]) // _WORD_BITS + 1
        self._on_device = backend.from_host(self._firsts)
        self._bits = backend.zeros(words, _BITS)

    def add(self, top: TopLists, options: CallOptions) -> None:
        """Mark the windows of the best runs of candidates with hits enough."""
        self._backend.run(
            kernel_named("candidate_cover"), top.targets.size,
            targets=top.targets, counts=top.counts, firsts=top.firsts, lasts=top.lasts,
            windows=self._on_device, covered=self._bits, least=options.hitmin,
        )  # fmt: skip

    def kept(self, percentile: float) -> Any:
        """Return whether each target stays (uint8).

        Those go that make up `percentile` percent of the sum of all shares of windows, the least
        covered first, and those without a window.
        """
        words = self._backend.to_host(self._bits)
        before = np.append(0, np.cumsum(np.bitwise_count(words), dtype=np.int64))
        at, bit = np.divmod(self._firsts, _WORD_BITS)
        lower = words[at] & ((np.int64(1) << bit) - 1).astype(_BITS)
        marked = np.diff(before[at] + np.bitwise_count(lower))
        shares = marked / np.maximum(self._windows, 1)
        order = np.argsort(shares, kind="stable")
        sums_of_shares = np.cumsum(shares[order])
        total = sums_of_shares[-1] if len(order) else 0.0
        goes = (sums_of_shares <= percentile / 100 * total) | (shares[order] == 0)
        stays = np.ones(len(order), np.uint8)
        stays[order[goes]] = 0
        return self._backend.from_host(stays)
