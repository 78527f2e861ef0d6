"""All-to-all between ranks that work in lockstep: the protocol, whatever carries it."""

from __future__ import annotations

import hashlib
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dgpuhash import backend
from dgpuhash.errors import ClosedError, IndexLost, ShapeError, UnsupportedError
from dgpuhash.tables.cached import cached

__all__ = [
    "CarrierLost",
    "Collective",
    "Landing",
    "Outgoing",
    "Places",
    "Received",
    "Transfer",
    "closed",
    "given_up",
    "strange",
]

# Seconds without any progress after which a rank gives up, though all workers answer, and one is at
# work or something on its way. A rank may be busy between two calls for less.
STALL = 600.0


class CarrierLost(IndexLost):
    """What carried the columns failed between ranks that are there; another way may carry them."""


@dataclass(frozen=True, slots=True)
class Received:
    """What came from all ranks.

    Attributes
    ----------
    columns : list of array
        One for each column that was sent; rows from rank 0 first.
    counts : int64 array
        Rows from each rank, on the host.
    """

    columns: list[Any]
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Places:
    """Where to put what comes.

    Attributes
    ----------
    columns : list of array
        Contiguous, of the kinds of those that are sent.
    starts : int64 array
        Where the rows of each rank begin in them, on the host.
    free : event, optional
        Of CuPy, after which the columns may be written; None: once all is done that the current
        stream was given before the exchange is started.
    theirs : sequence of sequence of int, optional
        For each rank where its rows go in its landing memory, in bytes, one number for each column.
        The columns are in this rank's then, all ranks say so, and `free` does not count.
    put : bool
        Whether this rank's rows are put there by what the current stream was given, so that they
        only are to be told of; the columns that are sent have no rows then.
    """

    columns: list[Any]
    starts: np.ndarray
    free: Any = None
    theirs: Sequence[Sequence[int]] | None = None
    put: bool = False


class Landing(ABC):
    """Memory of each rank that all others put rows into."""

    @abstractmethod
    def array(self, rank: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array `offset` bytes from the beginning of a rank's; another one's is only written."""


class Transfer(ABC):
    """An exchange under way."""

    @property
    def nbytes(self) -> int:
        """Of the arrays that were made for what comes and was not waited for."""
        return 0

    @abstractmethod
    def wait(self) -> Received:
        """What came, when all of it is there, and what was sent may be written to again.

        Transfers end in the order in which they were started: waiting for one waits for those
        before it. The arrays are ready on CuPy's current stream.

        Raises
        ------
        IndexLost
            When a rank is lost, or has given up.
        """


class Collective(ABC):
    """One rank's end of the exchanges of a group.

    Every rank makes the same calls in the same order, also with no rows, with columns of the same
    dtypes; a transfer that was started is waited for. All calls come from one thread, which they
    block; `abort` and `close` may come from any.

    Attributes
    ----------
    rank : int
    size : int
        The number of ranks.
    """

    rank: int
    size: int

    def start(
        self,
        columns: Sequence[Any],
        counts: Sequence[int] | np.ndarray,
        *,
        starts: Sequence[int] | np.ndarray | None = None,
        to: Places | None = None,
    ) -> Transfer:
        """Begin an exchange; several may be under way.

        Parameters
        ----------
        columns : sequence of array
            NumPy or CuPy arrays of the same length. Their rows may not be written to until the
            transfer has been waited for.
        counts : sequence of int
            Rows for each rank.
        starts : sequence of int, optional
            Where each rank's rows begin; None: one rank's after the other's, all of the columns.
        to : Places, optional
            Where to put what comes, which is then what comes; None: into arrays of its own, whose
            memory may be that of CuPy's current stream.

        Raises
        ------
        ShapeError, UnsupportedError
            When the columns and counts do not fit together.
        IndexLost
            When a rank is lost, or has given up.
        """
        return self._carry(Outgoing(columns, counts, self.size, starts, to))

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """The values that all ranks gave, in the order of ranks; small ones that can be pickled."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Let all ranks' calls, now and later, raise IndexLost; does not wait."""

    @abstractmethod
    def close(self) -> None:
        """Free what this end holds; a call that waits raises ClosedError."""

    def lands(self, device: str) -> bool:
        """Whether columns of `device` may go to landing memory."""
        return False

    def landing(self, nbytes: Sequence[int]) -> Landing | None:
        """Memory that others put rows into where they belong; None where there is none.

        All ranks ask alike where columns `lands`, after a `gather` before which each was done with
        what it had there, and while nothing is under way. What stood in it is lost.

        Parameters
        ----------
        nbytes : sequence of int
            Of each rank, at least.
        """
        return None

    def undisturbed(self, device: str) -> AbstractContextManager[None]:
        """A block in which the process has little to do but to work on columns of `device`.

        Its event loop rests, unless it is what carries them.
        """
        return nullcontext()

    def all_to_all(self, columns: Sequence[Any], counts: Sequence[int] | np.ndarray) -> Received:
        """Send each rank its rows, and return what comes from all; see `start` and `Transfer`."""
        return self.start(columns, counts).wait()

    @abstractmethod
    def _carry(self, outgoing: Outgoing) -> Transfer:
        """As `start`."""

    def __enter__(self) -> Collective:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        if raised is not None:
            self.abort(f"rank {self.rank} failed with {raised.__name__}")
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rank {self.rank} of {self.size}>"


class Outgoing:
    """The columns of one call, checked.

    Parameters
    ----------
    columns : sequence of array
    counts : sequence of int
    size : int
        The number of ranks.
    starts : sequence of int, optional
    to : Places, optional
    """

    def __init__(
        self,
        columns: Sequence[Any],
        counts: Sequence[int] | np.ndarray,
        size: int,
        starts: Sequence[int] | np.ndarray | None = None,
        to: Places | None = None,
    ) -> None:
        self.counts = np.asarray(counts, np.int64)
        numbers = self.counts.tolist()
        if self.counts.shape != (size,) or min(numbers) < 0:
            raise ShapeError(
                f"counts {numbers} for {size} ranks; give the rows for each, 0 or more"
            )
        lengths = {len(column) for column in columns}
        if starts is None:
            self.starts = np.cumsum(self.counts) - self.counts
            fits = lengths == {0 if to is not None and to.put else sum(numbers)}
        else:
            self.starts = np.asarray(starts, np.int64)
            fits = len(lengths) == 1 and _needed(self.starts, self.counts) <= min(lengths)
        if not fits:
            raise ShapeError(
                f"columns of {sorted(lengths)} rows, but counts of {self.counts.sum():,}; give one "
                "column or more, all with the rows that are counted"
            )
        if any(column.dtype.hasobject for column in columns):
            raise UnsupportedError(
                "a column of Python objects cannot be exchanged; encode it as numbers"
            )
        self.device = backend.get(None, *columns)
        self.columns = [
            column if column.flags.c_contiguous else self.device.xp.ascontiguousarray(column)
            for column in columns
        ]
        self._to = to

    @property
    def has_places(self) -> bool:
        """Whether it is given where to put what comes."""
        return self._to is not None

    @property
    def theirs(self) -> Sequence[Sequence[int]] | None:
        """As of `Places`."""
        return None if self._to is None else self._to.theirs

    @property
    def put(self) -> bool:
        """As of `Places`."""
        return self._to is not None and self._to.put

    @cached
    def kind(self) -> Kind:
        """What all ranks' columns have in common."""
        rows = [(column.dtype, column.shape[1:]) for column in self.columns]
        return Kind.of(self.device.name, *rows)

    def room(self, counts: np.ndarray) -> Places:
        """Columns like these for the rows that come, and where those of each rank begin.

        Raises
        ------
        ShapeError
            When there are places, and they do not fit.
        """
        if self._to is None:
            rows = int(counts.sum())
            made = [
                self.device.empty((rows, *column.shape[1:]), column.dtype)
                for column in self.columns
            ]
            return Places(made, np.cumsum(counts) - counts)
        places = self._to
        needed = _needed(places.starts, counts)
        fits = len(places.columns) == len(self.columns) and all(
            needed <= len(place)
            and (place.dtype, place.shape[1:]) == (column.dtype, column.shape[1:])
            and place.flags.c_contiguous
            for place, column in zip(places.columns, self.columns, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"{counts.tolist()} rows come, for which the given places have no room; give "
                "contiguous columns of the kinds that are sent, and room for each rank's rows"
            )
        return places

    def part(self, rank: int) -> list[Any]:
        """The rows for `rank`: views."""
        start = self.starts[rank]
        return [column[start : start + self.counts[rank]] for column in self.columns]


class Kind(NamedTuple):
    """What the columns of an exchange are; the same ones are exchanged again and again."""

    widths: list[int]
    """Bytes of a row of each column."""
    row_nbytes: int
    """Of a row of all columns."""
    digest: int
    """By which ranks see that they exchange columns of the same device, dtypes and widths."""

    @classmethod
    @lru_cache
    def of(cls, device: str, *rows: tuple[np.dtype[Any], tuple[int, ...]]) -> Kind:
        """That of columns of these dtypes, and shapes of a row."""
        widths = [dtype.itemsize * math.prod(shape) for dtype, shape in rows]
        said = [(device, dtype.str, shape) for dtype, shape in rows]
        words = hashlib.blake2b(repr(said).encode(), digest_size=8).digest()
        return cls(widths, sum(widths), int.from_bytes(words, "little", signed=True))


def _needed(starts: np.ndarray, counts: np.ndarray) -> float:
    """How many rows a column must have for those; no column is long enough for bad ones."""
    # A few numbers: NumPy's reductions take 2 us each.
    firsts = starts.tolist()
    if starts.shape != counts.shape or min(firsts) < 0:
        return math.inf
    return max(map(operator.add, firsts, counts.tolist()))


def strange(theirs: int, mine: int) -> ShapeError:
    """The error when rank `theirs` exchanges other columns than rank `mine`."""
    return ShapeError(
        f"rank {theirs} exchanges other columns than rank {mine}; give arrays of the same device "
        "and dtypes on all ranks"
    )


def given_up(reason: str, *, carrier: bool = False) -> IndexLost:
    """The error of all ranks of a group that was aborted, perhaps for what carried its columns."""
    kind = CarrierLost if carrier else IndexLost
    return kind(
        f"the exchange between the workers was given up: {reason}; nothing that was exchanged is "
        "whole, make it again from its source on the workers that are there"
    )


def closed() -> ClosedError:
    """The error of calls on an end that was closed."""
    return ClosedError("this end of the exchange was closed; form a group anew")
