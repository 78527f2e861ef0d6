"""Check the names of mates in all common forms, and detect swapped mates."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dgpuhash.backend.native import native
from dgpuhash.errors import SequenceError

if TYPE_CHECKING:
    from dgpuhash.kmer.sequences.batches import SequenceBatch

# Between a name and the number of the mate, which R may precede: read/1, read_1, SRR1.7.1, read_R1.
_SEPARATORS = np.isin(np.arange(256), np.frombuffer(b"/_.:-|", np.uint8))
_R = np.isin(np.arange(256), np.frombuffer(b"Rr", np.uint8))
_ONE = ord("1")
_BLANK, _DOT = ord(" "), ord(".")
# What tells the mate behind a name that both have: read 1:N:0:ACGT of Casava, ERR1.7 read/1 of ENA.
_NUMBER = re.compile(r"(?:[ \t]([12]):[YN]:[0-9]|/([12])(?=[ \t]|$))", re.IGNORECASE)


def check_mates(first: SequenceBatch, second: SequenceBatch, done: int) -> None:
    """Compare the names of mates, and warn if the first pair is in the wrong order.

    Parameters
    ----------
    first, second : SequenceBatch
        As many of each.
    done : int
        Pairs before.

    Raises
    ------
    SequenceError
        When two names differ beside the number of the mate and what follows a blank.
    """
    if not len(first):
        return
    pair, numbers = _first_unlike(first, second)
    if pair < len(first):
        record = int(first.numbers[pair]) + 1
        raise SequenceError(
            f"{first.file}, record {record:,}: {first.name(pair)!r} and its mate of "
            f"{second.file}, {second.name(pair)!r}, are not one pair (pair {done + pair + 1:,}); "
            "sort both files alike and drop reads without a mate, or pass --no-name-check "
            "(name_check=False) where the files are in one order under other names"
        )
    if done == 0:
        _warn_of_order(first, second, numbers)


def _first_unlike(first: SequenceBatch, second: SequenceBatch) -> tuple[int, tuple[int, int]]:
    """Return the first pair with different names, or the number of pairs; and mate numbers."""
    pair = native().unlike_names(first.names, first.name_offsets, second.names, second.name_offsets)
    if pair > 0:
        # Some are in the usual form, and so are all, or they are no pairs.
        return pair, (0, 0)
    one, other = _Names(first), _Names(second)
    if first.file == second.file:
        # Single reads, which are numbered, are not to pass for mates that follow each other.
        one.leave_out_spots()
        other.leave_out_spots()
    # All pairs of a batch are in the form, and the order, of the first one.
    numbers = int(one.mates[0]), int(other.mates[0])
    is_alike = (one.mates == numbers[0]) & (other.mates == numbers[1]) & (0 not in numbers)
    sizes = one.ends - one.starts
    is_alike &= sizes == other.ends - other.starts
    rows = np.flatnonzero(is_alike)
    sizes = sizes[rows]
    behind = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    letters = (each.text[np.repeat(each.starts[rows], sizes) + behind] for each in (one, other))
    is_other = np.not_equal(*letters)
    is_alike[np.repeat(rows, sizes)[is_other]] = False
    return int(np.argmin(np.append(is_alike, False))), numbers


class _Names:
    """Spans of names without mate numbers, and these numbers, 0 for none."""

    def __init__(self, batch: SequenceBatch) -> None:
        self.text = batch.names
        self.starts, ends = batch.name_offsets[:-1], batch.name_offsets[1:]
        blanks = np.append(np.flatnonzero(self.text <= _BLANK), len(self.text))
        ends = np.minimum(blanks[np.searchsorted(blanks[:-1], self.starts)], ends)

        def before(n: int) -> np.ndarray:
            places = np.maximum(ends - n, self.starts)
            return self.text[np.minimum(places, len(self.text) - 1)]

        number = before(1).astype(np.int64) - _ONE + 1
        has_r = _R[before(2)]
        width = np.where(has_r, 3, 2)
        is_marked = (number == 1) | (number == 2)
        is_marked &= _SEPARATORS[np.where(has_r, before(3), before(2))]
        is_marked &= ends - self.starts > width
        self.mates = np.where(is_marked, number, 0)
        self.ends = ends - width * is_marked

    def leave_out_spots(self) -> None:
        """Treat run.1 as the first spot of a run rather than as a mate: that is run.1.1."""
        dots = np.append(0, np.cumsum(self.text == _DOT))
        is_spot = (self.text[np.minimum(self.ends, len(self.text) - 1)] == _DOT) & (
            dots[self.ends] == dots[self.starts]
        )
        self.mates[is_spot] = 0


def _warn_of_order(first: SequenceBatch, second: SequenceBatch, numbers: tuple[int, int]) -> None:
    """Warn if the first pair's names are those of second mates, or of one file."""
    if 0 in numbers:
        names = first.name(0), second.name(0)
        found = [match and int(match[1] or match[2]) for match in map(_NUMBER.search, names)]
        numbers = found[0] or 0, found[1] or 0
    said = f"the names of the first pair are {first.name(0)!r} and {second.name(0)!r}"
    is_one = first.file == second.file
    both = first.file if is_one else f"{first.file} and {second.file}"
    if not is_one and _are_one(first.file, second.file):
        _warn(f"{both} are one file; pass that of the other mates")
    elif numbers == (2, 1):
        _warn(f"{both} have second mates before first ones: {said}; pass first mates first")
    elif 0 not in numbers and numbers[0] == numbers[1]:
        _warn(f"{both} have mates number {numbers[0]} alone: {said}; pass the other mates, too")


def _are_one(first: str, second: str) -> bool:
    try:
        return Path(first).samefile(second)
    except OSError:
        return False


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=2)
