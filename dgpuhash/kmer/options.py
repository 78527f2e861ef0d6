"""Types and checks of the settings of k-mer indexes, and of the options of their calls."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from dgpuhash.errors import SpecError
from dgpuhash.typing import Device, IndexMode


class ReferenceOptions(TypedDict, total=False):
    """How references of a k-mer index are read."""

    k: int
    mask: Literal["none", "lowercase", "dust"]
    order: Literal["path", "given"]


class SketchOptions(ReferenceOptions, total=False):
    """Settings of a `SketchIndex`."""

    sketch: int
    window: int
    stride: int | None
    cap: int
    remove_overpopulated: bool


class MinimizerOptions(ReferenceOptions, total=False):
    """Settings of a `MinimizerIndex`."""

    l: int  # noqa: E741
    spaces: int
    toggle: int
    ambiguous: Literal["kraken2", "exact"]
    least_hash: int


class SketchCallOptions(TypedDict, total=False):
    """How a `SketchIndex` calls reads."""

    lowest: str
    highest: str
    hitmin: int | None
    hitdiff: float
    maxcand: int
    insertsize: int
    cov_percentile: float


class MinimizerCallOptions(TypedDict, total=False):
    """How a `MinimizerIndex` calls reads."""

    confidence: float
    minimum_hit_groups: int
    minimum_base_quality: int
    quick: bool
    ignore_ambiguous: bool


class CallOptionsOfEither(SketchCallOptions, MinimizerCallOptions, total=False):
    """Options of `Classification`: those of the rule of its index."""


class BuildOptions(TypedDict, total=False):
    """Where the references of an index belong, and where it is built."""

    accessions: Sequence[str | os.PathLike[str]]
    allow_unplaced: int
    device: Device | None
    mode: IndexMode
    progress: Callable[[int], object] | None


class SketchBuildOptions(BuildOptions, SketchOptions, total=False):
    """What `SketchIndex.build` takes beside references, taxonomy and client."""


class MinimizerBuildOptions(BuildOptions, MinimizerOptions, total=False):
    """What `MinimizerIndex.build` takes beside references, taxonomy and client."""

    distributions: Sequence[int]
    max_db_size: int | None


def check_names(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Raise SpecError when options have another name than those known."""
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise SpecError(f"{what} {unknown[0]!r}; use some of {', '.join(known)}")


def whole_number(name: str, given: Any, least: int, most: int) -> int:
    """Return the value of an option as a whole number within bounds, or raise SpecError."""
    try:
        made = operator.index(given)
    except TypeError as error:
        raise SpecError(f"{name}={given!r}; use a whole number") from error
    if not least <= made <= most:
        raise SpecError(f"{name}={made:,}; use {least:,} to {most:,}")
    return made


def percentage(name: str, given: Any) -> float:
    """Return the value of an option as a number from 0 to 100, or raise SpecError."""
    try:
        made = float(given)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{name}={given!r}; use a number") from error
    if not (math.isfinite(made) and 0 <= made <= 100):
        raise SpecError(f"{name}={given!r}; use percent, from 0 to 100")
    return made
