"""Stable hash partition of a batch, in up to two passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend.constants import BLOCK_ROWS, BLOCK_THREADS, PASS_PARTS, PASS_ROWS
from dgpuhash.backend.kernel import kernel_named
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.backend.base import Backend

# Segments have a multiple of this number of rows: on a GPU, whole steps of a block.
_LEAST_ROWS = {"cpu": 2**12, "cuda": 2**13}
# Candidate numbers of segments per block.
_TURNS = range(1, 17)
# Overhead of a segment in steps: it splits granules where it begins and ends.
_CUT_STEPS = 2


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A batch in the order of its parts."""

    keys: Any
    values: Any
    """None if the batch has none."""
    numbers: Any
    """The rows' numbers in the batch (int64); None if not requested."""


@dataclass(frozen=True, slots=True)
class Digit:
    """Radix digit that selects a key's part in a pass; see `Digit` in C++."""

    seed: int
    spread: int
    shift: int
    mask: int
    parts: int
    """Parts of a pass, or of each group of a pass with several groups."""

    @property
    def words(self) -> tuple[int, ...]:
        """The fields as kernels take them."""
        return self.seed, self.spread, self.shift, self.mask


@dataclass(frozen=True, slots=True)
class Route:
    """Map from digits to parts by owner and range; see `Route` in C++."""

    owners: int = 0
    seed: int = 0
    ranges: int = 0
    scale: int = 0

    @property
    def words(self) -> tuple[int, ...]:
        """The fields as kernels take them."""
        return self.owners, self.seed, self.ranges, self.scale


@dataclass(frozen=True, slots=True)
class PassLayout:
    """Row positions after a pass, by group, part and segment."""

    places: Any
    """First row by group, part and segment; then the end of the last."""
    pieces: int
    """Segments of one group of one share."""
    shares: int

    @property
    def starts(self) -> Any:
        """Where each part of each group begins, and where the last one ends."""
        return self.places[:: self.pieces * self.shares]


NOWHERE = Route()
# Larger than any row number.
NO_MORE = 2**64 - 1


def run_pass(
    backend: Backend, keys: Any, values: Any, digit: Digit, **options: Any
) -> tuple[Partitioned, Any]:
    """Run one pass as `move` does; return the rows and the parts' bounds."""
    moved, segments = move(backend, keys, values, digit, **options)
    return moved, segments.starts


def move(
    backend: Backend,
    keys: Any,
    values: Any,
    digit: Digit,
    *,
    keyed: bool = True,
    numbered: bool = False,
    in_order: bool = True,
    route: Route = NOWHERE,
    bounds: Any = None,
    shares: int = 1,
    digits: tuple[int, int] = (0, 0),
    counted: Callable[[PassLayout], object] | None = None,
    more: Partitioned | None = None,
    to: Partitioned | None = None,
) -> tuple[Partitioned, PassLayout]:
    """Return the batch ordered by one digit, and the rows' positions.

    Parameters
    ----------
    keyed, numbered : bool
        Whether to return the keys, and the rows' numbers.
    in_order : bool
        Whether rows of one part stay in input order; if not, no row numbers are returned.
    route : Route
        Map from digits to parts, for rows in any order; by default a digit is a part.
    bounds : array of uint64, optional
        Where groups of rows begin, and where the last one ends. Each group is ordered by itself
        and has all parts.
    shares : int
        Number of times that the sequence of groups occurs, one share after the other.
    digits : (int, int)
        The least digit of the first group, and the step to the least digit of the next one.
    counted : callable, optional
        Called with the rows' positions before rows move.
    more : Partitioned, optional
        The rows of the last share or shares, in other arrays; `keys` and `values` only have room
        for them.
    to : Partitioned, optional
        Arrays to write the result to.
    """
    rows = len(keys)
    runs = 1 if bounds is None else len(bounds) - 1
    groups = runs // shares

    def made() -> Partitioned:
        return to or Partitioned(
            backend.empty(rows, keys.dtype) if keyed else None,
            None if values is None else backend.empty(rows, values.dtype),
            backend.empty(rows, np.int64) if numbered else None,
        )

    if rows == 0:
        nowhere = backend.zeros(groups * digit.parts + 1, np.uint64)
        laid_out = PassLayout(nowhere, 1, 1)
        if counted is not None:
            counted(laid_out)
        return made(), laid_out
    if rows > PASS_ROWS:
        raise SpecError(
            f"{rows:,} rows; {PASS_ROWS:,} at most are partitioned at once: split the batch"
        )
    threads = backend.partition_threads
    least = _least_rows(backend, threads, keys, values)
    pieces = _pieces(runs, rows / runs / least, backend.partition_blocks)
    segment_rows = least * math.ceil(rows / runs / pieces / least)
    counters = backend.empty(runs * digit.parts * pieces, np.uint64)
    told = {
        "digit": digit.words, "route": route.words, "keys": keys, "bounds": bounds,
        "rows": rows, "more_keys": None if more is None else more.keys,
        "more_first": NO_MORE if more is None else rows - len(more.keys),
        "parts": digit.parts, "shares": shares, "groups": groups,
        "digit_first": digits[0], "digit_step": digits[1],
        "pieces": pieces, "step_rows": least, "segment_rows": segment_rows,
    }  # fmt: skip
    segments = runs * pieces
    backend.run(
        kernel_named("partition_count", keys.dtype, width=threads), segments,
        counters=counters, **told,
    )  # fmt: skip
    # A GPU counts while the host allocates.
    places, moved = backend.zeros(len(counters) + 1, np.uint64), made()
    backend.xp.cumsum(counters, out=places[1:])
    laid_out = PassLayout(places, pieces, shares)
    if counted is not None:
        counted(laid_out)
    value = None if values is None else values.dtype
    name = "partition_scatter" if in_order else "partition_strew"
    backend.run(
        kernel_named(name, keys.dtype, value, width=threads), segments, counters=places,
        values=values, more_values=None if more is None else more.values,
        keys_to=moved.keys, values_to=moved.values,
        numbers_to=moved.numbers, **told,
    )  # fmt: skip
    return moved, laid_out


def _least_rows(backend: Backend, threads: int, keys: Any, values: Any) -> int:
    if threads < BLOCK_THREADS or backend.name == "cpu":
        return _LEAST_ROWS[backend.name]
    widest = max(keys.itemsize, 0 if values is None else values.itemsize)
    return BLOCK_ROWS[widest]


def _pieces(runs: int, steps: float, blocks: int) -> int:
    """Return the number of pieces per run for which blocks finish together.

    `runs` runs of `steps` steps each are cut for `blocks` blocks.
    """

    def cost(pieces: int) -> float:
        return math.ceil(runs * pieces / blocks) * (max(1, steps / pieces) + _CUT_STEPS)

    # No piece of a run of mean length is empty.
    most = max(1, math.ceil(steps))
    return min((min(most, max(1, number * blocks // runs)) for number in _TURNS), key=cost)


MAX_PARTS = 2**16


def partition(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> Partitioned:
    """Return the batch in the order of parts; see `Backend.partition`."""
    low, *high = digits_of(backend, parts, seed, spread=parts)
    if not high:
        return run_pass(backend, keys, values, low, numbered=numbered)[0]
    if not numbered:
        moved = run_pass(backend, keys, values, low)[0]
        return run_pass(backend, moved.keys, moved.values, high[0])[0]
    # A pass moves one column beside the keys: here the row numbers, which then order the values.
    moved = run_pass(backend, keys, None, low, numbered=True)[0]
    moved = run_pass(backend, moved.keys, moved.numbers.view(np.uint64), high[0])[0]
    numbers = moved.values.view(np.int64)
    return Partitioned(moved.keys, None if values is None else values[numbers], numbers)


def split(
    backend: Backend, keys: Any, values: Any, *, parts: int, seed: int, numbered: bool
) -> tuple[Partitioned, Any]:
    """Return the partitioned batch and its bounds; see `Backend.split`."""
    low, *high = digits_of(backend, parts, seed, spread=parts)
    if not high:
        return run_pass(backend, keys, values, low, numbered=numbered)
    moved = partition(backend, keys, values, parts=parts, seed=seed, numbered=numbered)
    owners = backend.owner_of(backend.hash_keys(moved.keys, seed), parts)
    edges = backend.xp.arange(parts + 1, dtype=np.uint32)
    return moved, backend.xp.searchsorted(owners, edges)


def sort_by_hash(
    backend: Backend, keys: Any, values: Any, *, bits: int, seed: int
) -> tuple[Any, Any]:
    """Return the batch sorted by hash; see `Backend.sort_by_hash`."""
    return _sort_by_digits(backend, keys, values, bits, seed, 2**bits - 1)


def sort_by_word(backend: Backend, keys: Any, values: Any, *, bits: int) -> tuple[Any, Any]:
    """Return the batch in ascending order of keys (uint32) below ``2**bits``; stable."""
    return _sort_by_digits(backend, keys, values, bits, 0, 0)


def _sort_by_digits(
    backend: Backend, keys: Any, values: Any, bits: int, seed: int, spread: int
) -> tuple[Any, Any]:
    """Return the batch sorted: one pass by each digit, beginning with the lowest."""
    most = PASS_PARTS[backend.name].bit_length() - 1
    width = math.ceil(bits / math.ceil(bits / most))
    for shift in range(0, bits, width):
        parts = 2 ** min(width, bits - shift)
        digit = Digit(seed, spread, shift, parts - 1, parts)
        moved = run_pass(backend, keys, values, digit)[0]
        keys, values = moved.keys, moved.values
    return keys, values


def multisplit(backend: Backend, destinations: Any, parts: int) -> tuple[Any, np.ndarray]:
    """Return row order and counts by destination; see `Backend.multisplit`."""
    low, *high = digits_of(backend, parts, seed=0, spread=0)
    destinations = backend.asarray(destinations, np.uint32)
    moved, starts = run_pass(backend, destinations, None, low, keyed=bool(high), numbered=True)
    order = moved.numbers
    if high:
        moved, _ = run_pass(backend, moved.keys, order.view(np.uint64), high[0])
        order = moved.values.view(np.int64)
        edges = backend.xp.arange(parts + 1, dtype=np.uint32)
        starts = backend.xp.searchsorted(moved.keys, edges)
    return order, np.diff(backend.to_host(starts).astype(np.int64))


def digits_of(backend: Backend, parts: int, seed: int, spread: int) -> list[Digit]:
    """Return the digits of the passes, the lowest digit first."""
    if not 1 <= parts <= MAX_PARTS:
        raise SpecError(f"{parts:,} parts; a batch is split into 1 to {MAX_PARTS:,} parts")
    if parts <= PASS_PARTS[backend.name]:
        return [Digit(seed, spread, 0, 2**32 - 1, parts)]
    bits = math.ceil((parts - 1).bit_length() / 2)
    low = Digit(seed, spread, 0, 2**bits - 1, 2**bits)
    return [low, Digit(seed, spread, bits, 2**32 - 1, math.ceil(parts / 2**bits))]
