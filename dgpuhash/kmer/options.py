"""Types of the settings of k-mer indexes, and of the options of their calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from dgpuhash.typing import Device, IndexMode


class ReferenceOptions(TypedDict, total=False):
    """How references of a k-mer index are read."""

    k: int
    mask: Literal["none", "lowercase"]
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
