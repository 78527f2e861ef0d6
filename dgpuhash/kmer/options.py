"""Types and checks of k-mer index settings and call options."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from dgpuhash.errors import SpecError
from dgpuhash.typing import Device, IndexMode


class ReferenceOptions(TypedDict, total=False):
    """Options for reading the references of a k-mer index."""

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
    """Options of a `SketchIndex` for calling reads."""

    lowest: str
    highest: str
    hitmin: int | None
    hitdiff: float
    maxcand: int
    insertsize: int
    cov_percentile: float


class MinimizerCallOptions(TypedDict, total=False):
    """Options of a `MinimizerIndex` for calling reads."""

    confidence: float
    minimum_hit_groups: int
    minimum_base_quality: int
    quick: bool
    ignore_ambiguous: bool


class CallOptionsOfEither(SketchCallOptions, MinimizerCallOptions, total=False):
    """Options of `Classification`: the call options of either rule."""


class BuildOptions(TypedDict, total=False):
    """Taxonomy placement of references, and the device or cluster of a build."""

    accessions: Sequence[str | os.PathLike[str]]
    allow_unplaced: int
    device: Device | None
    mode: IndexMode
    progress: Callable[[int], object] | None


class SketchBuildOptions(BuildOptions, SketchOptions, total=False):
    """Keyword arguments of `SketchIndex.build` besides references, taxonomy and client."""


class MinimizerBuildOptions(BuildOptions, MinimizerOptions, total=False):
    """Keyword arguments of `MinimizerIndex.build` besides references, taxonomy and client."""

    distributions: Sequence[int]
    max_db_size: int | None


def check_names(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Raise SpecError for an unknown option name."""
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise SpecError(f"{what} {unknown[0]!r}; use some of {', '.join(known)}")


def whole_number(name: str, given: Any, least: int, most: int) -> int:
    """Return an option's value as an integer within bounds, or raise SpecError."""
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
