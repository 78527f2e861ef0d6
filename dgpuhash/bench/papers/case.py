"""What every figure of the papers needs: sizes, floors, timing, and what others reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.bench.figure import rate
from dgpuhash.bench.keys import unique_keys, values_of
from dgpuhash.bench.limits import Floors
from dgpuhash.bench.timing import median_time

# On a CPU each figure has this share of a GPU's rows.
_CPU_SHARE = 2**7


@dataclass(frozen=True)
class Case:
    """One run of a figure: where, how often, and with which share of its rows.

    Parameters
    ----------
    backend : Backend
        The device to measure.
    repeats : int
        Runs whose median counts.
    divisor : int
        Divides the rows of each figure, so that a small machine can run it.
    """

    backend: Backend
    repeats: int
    divisor: int = 1

    def rows(self, most: int) -> int:
        """Return the rows of a figure that has `most` on a GPU; 1,024 at least."""
        share = self.divisor * (1 if self.backend.name == "cuda" else _CPU_SHARE)
        return max(2**10, most // share)

    @cached_property
    def floors(self) -> Floors:
        """Bare accesses of this run."""
        return Floors(self.backend, self.repeats)

    def keys(self, first: int, n: int, bits: int = 32) -> Any:
        """Return `n` distinct random keys; keys of other numbers are other keys."""
        return unique_keys(self.backend, first, n, np.dtype(f"u{bits // 8}"))

    def values(self, keys: Any) -> Any:
        """Return the value of each key, of the same dtype."""
        return values_of(keys, keys.dtype)

    def time(self, work: Callable[[], Any], **settings: Any) -> tuple[float, Any]:
        """Return the median seconds of `work`, and its last result."""
        return median_time(self.backend, work, repeats=self.repeats, **settings)

    def row(
        self, figure: str, verb: str, n: int, seconds: float, floor: float | None, *,
        theirs: float | None = None, source: str = "", **what: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the row of one figure.

        Parameters
        ----------
        figure, verb : str
            Which figure, and what was timed.
        n : int
            Rows.
        seconds : float
            Their time.
        floor : float or None
            Rows a second of bare accesses.
        theirs : float, optional
            G/s that `source` reached.
        source : str
            Whose figure `theirs` is, and where it was measured.
        **what
            The settings.
        """
        beside: dict[str, Any] = {} if theirs is None else {"peer": theirs, "source": source}
        return rate(n / seconds, floor, figure=figure, verb=verb, n=n, **what, **beside)
