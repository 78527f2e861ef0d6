"""Settings of minimizers, and options for calling reads by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from dgpuhash.backend import Backend, struct_named
from dgpuhash.errors import SpecError
from dgpuhash.kmer.options import check_names, whole_number

_LONGEST = 31
# As kernels/kmer/minimizers.cuh has it.
MOST_LMERS = 32
_SPACED_SHARE = 4
_TOGGLE = 0xE37E28C4271B5A2D
_HIGHEST_QUALITY = 93
_AMBIGUOUS = ("kraken2", "exact")


@dataclass(frozen=True, slots=True)
class MinimizerSettings:
    """Settings of an index's minimizers: k, window, spaced seed and sampling.

    Attributes
    ----------
    k : int
        Letters of a k-mer, `l` to ``l + 31``.
    l : int
        Letters of its minimizer, 1 to 31.
    spaces : int
        Letters of a minimizer that are left out, every other one at its end: up to a quarter.
    toggle : int
        What mixes the order of minimizers; its lowest ``2 * l`` bits count.
    mask, order : str
        How references are read: see `References`.
    ambiguous : {"kraken2", "exact"}
        What a k-mer is whose first letter alone is no base: as in Kraken 2 one with the lowest of
        its other ``k - l`` l-mers, or as any other with such a letter. Kraken 2 takes ``k - 1``
        letters for a k-mer, too, where a block of 16,384 letters of a reference begins.
    least_hash : int
        Minimizers whose hash, MurmurHash3's finalizer, is lower are left out.

    Examples
    --------
    >>> settings = MinimizerSettings.of(k=12, l=8, spaces=2)
    >>> f"{settings.spaced:016b}"
    '1111111100110011'
    """

    k: int = 35
    l: int = 31  # noqa: E741
    spaces: int = 7
    toggle: int = _TOGGLE
    mask: str = "none"
    order: str = "path"
    ambiguous: str = "kraken2"
    least_hash: int = 0

    @classmethod
    def of_saved(cls, given: Mapping[str, Any]) -> Self:
        """Return the settings of a file; files without `ambiguous` are exact.

        Raises
        ------
        SpecError
            When a setting is unknown or impossible.
        """
        return cls.of(**{"ambiguous": "exact", **given})

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return checked settings from user arguments.

        Raises
        ------
        SpecError
            When a setting is unknown or impossible.
        """
        check_names(given, cls.__slots__, "a minimizer index has no setting")
        return cls(**given)

    def __post_init__(self) -> None:
        ranges = {
            "l": (1, _LONGEST),
            "k": (self.l, self.l + MOST_LMERS - 1),
            "spaces": (0, self.l // _SPACED_SHARE),
            "toggle": (0, 2**64 - 1),
            "least_hash": (0, 2**64 - 1),
        }
        for name, (least, most) in ranges.items():
            whole_number(name, getattr(self, name), least, most)
        if self.ambiguous not in _AMBIGUOUS:
            raise SpecError(f"ambiguous={self.ambiguous!r}; use one of {', '.join(_AMBIGUOUS)}")

    @property
    def spaced(self) -> int:
        """Mask of the minimizer's bits: two per letter, the last letter lowest."""
        digits = "1" * (self.l - 2 * self.spaces) + "01" * self.spaces
        return int("".join(2 * digit for digit in digits), 2)

    @property
    def density(self) -> float:
        """Expected share of k-mers that start a new minimizer, for random letters."""
        return 2 / (self.k - self.l + 2)

    @property
    def sample(self) -> float:
        """Share of minimizers kept by down-sampling."""
        return 1 - self.least_hash / 2**64

    def rule(self, backend: Backend) -> bytes:
        """Return the rule as a kernel argument."""
        return backend.pack(
            struct_named("MinimizerRule"),
            k=self.k, l=self.l, spaced=self.spaced, toggle=self.toggle & 4**self.l - 1,
            early=int(self.ambiguous == "kraken2" and self.k > self.l),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options for calling reads.

    Attributes
    ----------
    confidence : float
        Share of a read's k-mers that are in the clade of its call, 0 to 1.
    minimum_hit_groups : int
        Minimizers found of a read with a call; equal ones that follow each other are one.
    minimum_base_quality : int
        Letters of a lower quality are no bases.
    quick : bool
        Whether the first taxon that comes with so many minimizers is the call, as Kraken 2's manual
        has it; Kraken 2.1.2 itself calls by the k-mers before that one.
    ignore_ambiguous : bool
        Whether k-mers with other letters than bases are left out of the share.

    Examples
    --------
    >>> CallOptions.of(confidence=0.1).minimum_hit_groups
    2
    """

    confidence: float = 0.0
    minimum_hit_groups: int = 2
    minimum_base_quality: int = 0
    quick: bool = False
    ignore_ambiguous: bool = False

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return checked options from user arguments.

        Raises
        ------
        SpecError
            When an option is unknown or impossible.
        """
        check_names(given, cls.__slots__, "calls by minimizers have no option")
        made = cls(**given)
        confidence = made.confidence
        if not (isinstance(confidence, int | float) and math.isfinite(confidence)):
            raise SpecError(f"confidence={confidence!r}; use a number from 0 to 1")
        if not 0 <= confidence <= 1:
            raise SpecError(f"confidence={confidence}; use 0 to 1")
        whole_number("minimum_hit_groups", made.minimum_hit_groups, 0, 2**31)
        whole_number("minimum_base_quality", made.minimum_base_quality, 0, _HIGHEST_QUALITY)
        return made
