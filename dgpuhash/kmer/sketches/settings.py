"""Settings of sketches, and options for calling reads by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.options import check_names, percentage, whole_number
from dgpuhash.kmer.taxonomy.ranks import SLOTS, slot_of

_WIDEST = 32
_MOST_FEATURES = 256
_LONGEST_WINDOW = 2**20
_HIGHEST_CAP = 2**16
_MOST_CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class SketchSettings:
    """Settings of an index's features: k, window, stride and sketch size.

    Attributes
    ----------
    k : int
        Letters of a k-mer, 1 to 32: up to 16 a feature has 32 bits, then 64.
    sketch : int
        Features of a window: the lowest distinct ones of its k-mers.
    window : int
        Letters of a window.
    stride : int
        Letters from the begin of a window to that of the next one.
    cap : int
        Locations of a feature that are kept, the first ones.
    remove_overpopulated : bool
        Whether features with that many locations are left out.
    mask, order : str
        How references are read: see `References`.

    Examples
    --------
    >>> SketchSettings.of(window=60).stride
    45
    """

    k: int = 16
    sketch: int = 16
    window: int = 127
    stride: int = 112
    cap: int = 254
    remove_overpopulated: bool = False
    mask: str = "none"
    order: str = "path"

    @classmethod
    def of(cls, *, stride: int | None = None, **given: Any) -> Self:
        """Return settings; `stride` None means ``window - k + 1``, without shared k-mers.

        Raises
        ------
        SpecError
            When a setting is unknown or impossible.
        """
        check_names(given, cls.__slots__, "a sketch index has no setting")
        if stride is None:
            window = whole_number("window", given.get("window", cls().window), 1, _LONGEST_WINDOW)
            stride = max(window - whole_number("k", given.get("k", cls().k), 1, _WIDEST) + 1, 1)
        return cls(**given, stride=stride)

    def __post_init__(self) -> None:
        ranges = {
            "k": (1, _WIDEST),
            "sketch": (1, _MOST_FEATURES),
            "window": (1, _LONGEST_WINDOW),
            "stride": (1, self.window),
            "cap": (1, _HIGHEST_CAP),
        }
        for name, (least, most) in ranges.items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, most))
        if self.window < self.k:
            raise SpecError(
                f"window={self.window} and k={self.k}; use windows of k or more letters"
            )

    @property
    def feature(self) -> np.dtype[Any]:
        """Dtype of features."""
        return np.dtype(np.uint32 if self.k <= 16 else np.uint64)

    @property
    def least_hits(self) -> int:
        """Default of `hitmin`."""
        return self.sketch // 3 if self.sketch >= 6 else 2 if self.sketch >= 4 else 1


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options for calling reads.

    Attributes
    ----------
    lowest, highest : int
        Slots of ranks: calls are at `lowest` or above, and none above `highest`.
    hitmin : int
        Hits that the best candidate of a call has.
    share : float32
        Of its hits above that: what further candidates exceed to be in the call.
    maxcand : int
        Candidates of a read.
    insertsize : int
        Letters that a pair may span, where it is more than those of both mates.
    cov_percentile : float
        Targets are left out that make up so many percent of all coverage, the least covered first.

    Examples
    --------
    >>> CallOptions.of(SketchSettings(), lowest="species").hitmin
    5
    """

    lowest: int
    highest: int
    hitmin: int
    share: np.float32
    maxcand: int
    insertsize: int
    cov_percentile: float

    @classmethod
    def of(
        cls,
        settings: SketchSettings,
        *,
        lowest: str = "sequence",
        highest: str = "domain",
        hitmin: int | None = None,
        hitdiff: float = 100,
        maxcand: int = 2,
        insertsize: int = 0,
        cov_percentile: float = 0,
        **unknown: Any,
    ) -> Self:
        """Return checked options from user arguments.

        Raises
        ------
        SpecError
            When one is unknown or impossible.
        TaxonomyError
            When a rank has no slot.
        """
        if unknown:
            raise SpecError(
                f"calls by sketches have no option {min(unknown)!r}; use some of lowest, highest, "
                "hitmin, hitdiff, maxcand, insertsize, cov_percentile"
            )
        low, high = slot_of(lowest), min(slot_of(highest), len(SLOTS) - 2)
        if low > high:
            raise SpecError(f"lowest={lowest!r} is above highest={highest!r}; swap them")
        return cls(
            low,
            high,
            settings.least_hits if hitmin is None else whole_number("hitmin", hitmin, 0, 2**31),
            np.float32(percentage("hitdiff", hitdiff) / 100),
            whole_number("maxcand", maxcand, 1, _MOST_CANDIDATES),
            whole_number("insertsize", insertsize, 0, 2**40),
            percentage("cov_percentile", cov_percentile),
        )
