"""Interface of the all-to-all collectives, the same for every transport."""

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
from dgpuhash.backend import Backend
from dgpuhash.errors import ClosedError, IndexLost, ShapeError, UnsupportedError
from dgpuhash.tables.cached import cached
from dgpuhash.typing import Device

# Seconds without progress after which a rank aborts the group, though all workers answer and a rank
# is busy or a message is in flight. A rank may be busy for less than this between two calls.
STALL = 600.0


class TransportError(IndexLost):
    """Transport failure between ranks that are all alive.

    Another transport may still connect them.
    """


@dataclass(frozen=True, slots=True)
class Received:
    """Rows that one rank received from all ranks.

    Attributes
    ----------
    columns : list of array
        One for each column that was sent; rows from rank 0 first.
    counts : int64 array
        Numbers of rows from each rank, on the host.
    """

    columns: list[Any]
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Destination:
    """Destination columns for the received rows.

    Attributes
    ----------
    columns : list of array
        Contiguous, with the dtypes and row shapes of the columns that are sent.
    starts : int64 array
        First row of each rank in `columns`, on the host.
    free : event, optional
        CuPy event after which the columns may be written; None: once the work is done that was
        queued on the current stream before the exchange is started.
    theirs : sequence of sequence of int, optional
        For each rank, one byte offset a column in that rank's destination buffer, where its rows
        go. `columns` then lie in this rank's buffer, all ranks pass offsets, and `free` is ignored.
    put : bool
        Whether work on the current stream writes this rank's rows to their destinations, so that
        the other ranks are only notified; the columns that are sent then have no rows.
    """

    columns: list[Any]
    starts: np.ndarray
    free: Any = None
    theirs: Sequence[Sequence[int]] | None = None
    put: bool = False


class DestinationBuffers(ABC):
    """Destination buffers on all ranks, writable by the other ranks."""

    @abstractmethod
    def array(self, rank: int, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return an array `offset` bytes into the buffer of `rank`.

        The array of another rank may be written, and not read.
        """


class Transfer(ABC):
    """Exchange in flight."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated for rows whose arrival nobody has waited for yet."""
        return 0

    @abstractmethod
    def wait(self) -> Received:
        """Wait until all rows have arrived, and return them.

        The sent columns may be written to again afterwards. Transfers end in the order in which
        they were started: waiting for one waits for all earlier ones. The arrays are ready on
        CuPy's current stream.

        Raises
        ------
        IndexLost
            When a rank is lost, or has given up.
        """


class Collective(ABC):
    """One rank's endpoint of a group's collectives.

    Every rank makes the same calls in the same order, with columns of the same dtypes, also when it
    has no rows. Each transfer that is started must be waited for. All calls come from one thread
    and block it; `abort` and `close` may be called from any thread.

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
        to: Destination | None = None,
    ) -> Transfer:
        """Start an exchange; several may be in flight.

        Parameters
        ----------
        columns : sequence of array
            NumPy or CuPy arrays of the same length. Their rows may not be written to until the
            transfer has been waited for.
        counts : sequence of int
            Numbers of rows for each rank.
        starts : sequence of int, optional
            First row of each rank; None: the columns hold the rows of all ranks, in their order.
        to : Destination, optional
            Destination of the received rows, whose columns are then returned; None: new arrays,
            whose memory may belong to CuPy's current stream.

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
        """Return the values of all ranks, in the order of ranks (allgather).

        The values are small and can be pickled.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Make all ranks' calls, now and later, raise IndexLost; do not wait."""

    @abstractmethod
    def close(self) -> None:
        """Free the endpoint's resources; a waiting call raises ClosedError."""

    def lands(self, device: Device) -> bool:
        """Return whether columns on `device` may use destination buffers."""
        return False

    def landing(self, nbytes: Sequence[int]) -> DestinationBuffers | None:
        """Return destination buffers on all ranks, or None if the transport has none.

        Senders write rows at their final places in these buffers. All ranks make the same call, for
        a device that `lands`, while no transfer is in flight, and after a `gather` that each rank
        joined once it had finished with its buffer. Earlier contents of the buffers are lost.

        Parameters
        ----------
        nbytes : sequence of int
            Least size of each rank's buffer.
        """
        return None

    def with_quiet_loop(self, device: Device) -> AbstractContextManager[None]:
        """Return a context in which the event loop sleeps most of the time.

        For blocks in which the process works mainly on columns of `device`. The event loop does not
        sleep when it is what carries the columns.
        """
        return nullcontext()

    def all_to_all(self, columns: Sequence[Any], counts: Sequence[int] | np.ndarray) -> Received:
        """Send each rank its rows, and return the rows from all ranks.

        See `start` and `Transfer`.
        """
        return self.start(columns, counts).wait()

    @abstractmethod
    def _carry(self, outgoing: Outgoing) -> Transfer:
        """Start an exchange of checked columns; see `start`."""

    def __enter__(self) -> Collective:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        if raised is not None:
            self.abort(f"rank {self.rank} failed with {raised.__name__}")
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} rank {self.rank} of {self.size}>"


class Outgoing:
    """Checked columns of one exchange.

    Parameters
    ----------
    columns : sequence of array
    counts : sequence of int
    size : int
        The number of ranks.
    starts : sequence of int, optional
    to : Destination, optional
    """

    def __init__(
        self,
        columns: Sequence[Any],
        counts: Sequence[int] | np.ndarray,
        size: int,
        starts: Sequence[int] | np.ndarray | None = None,
        to: Destination | None = None,
    ) -> None:
        self.counts: np.ndarray = np.asarray(counts, np.int64)
        numbers = self.counts.tolist()
        if self.counts.shape != (size,) or min(numbers) < 0:
            raise ShapeError(
                f"counts {numbers} for {size} ranks; give the rows for each, 0 or more"
            )
        lengths = {len(column) for column in columns}
        if starts is None:
            self.starts: np.ndarray = np.cumsum(self.counts) - self.counts
            fits = lengths == {0 if to is not None and to.put else sum(numbers)}
        else:
            self.starts = np.asarray(starts, np.int64)
            fits = len(lengths) == 1 and _rows_needed(self.starts, self.counts) <= min(lengths)
        if not fits:
            raise ShapeError(
                f"columns have {sorted(lengths)} rows, but the counts add up to "
                f"{self.counts.sum():,}; give one or more columns with as many rows as are counted"
            )
        if any(column.dtype.hasobject for column in columns):
            raise UnsupportedError(
                "a column of Python objects cannot be exchanged; encode it as numbers"
            )
        self.device: Backend = backend.get(None, *columns)
        self.columns: list[Any] = [
            column if column.flags.c_contiguous else self.device.xp.ascontiguousarray(column)
            for column in columns
        ]
        self._to = to

    @property
    def has_destination(self) -> bool:
        """Whether the caller gave destination columns."""
        return self._to is not None

    @property
    def theirs(self) -> Sequence[Sequence[int]] | None:
        """Byte offsets in the other ranks' buffers; see `Destination.theirs`."""
        return None if self._to is None else self._to.theirs

    @property
    def put(self) -> bool:
        """Whether this rank's rows are written by kernels; see `Destination.put`."""
        return self._to is not None and self._to.put

    @cached
    def kind(self) -> ColumnSignature:
        """Return the signature that the columns of all ranks must share."""
        rows = [(column.dtype, column.shape[1:]) for column in self.columns]
        return ColumnSignature.of(self.device.name, *rows)

    def room(self, counts: np.ndarray) -> Destination:
        """Return destination columns for rows from each rank.

        They are the caller's where it gave some, and new columns like those of this call otherwise.

        Raises
        ------
        ShapeError
            When the caller's destination does not fit the rows.
        """
        if self._to is None:
            rows = int(counts.sum())
            made = [
                self.device.empty((rows, *column.shape[1:]), column.dtype)
                for column in self.columns
            ]
            return Destination(made, np.cumsum(counts) - counts)
        places = self._to
        needed = _rows_needed(places.starts, counts)
        fits = len(places.columns) == len(self.columns) and all(
            needed <= len(place)
            and (place.dtype, place.shape[1:]) == (column.dtype, column.shape[1:])
            and place.flags.c_contiguous
            for place, column in zip(places.columns, self.columns, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"the output columns cannot receive {counts.tolist()} rows; give contiguous "
                "columns of the dtypes that are sent, with room for each rank's rows"
            )
        return places

    def part(self, rank: int) -> list[Any]:
        """Return the rows for `rank`, as views."""
        start = self.starts[rank]
        return [column[start : start + self.counts[rank]] for column in self.columns]


class ColumnSignature(NamedTuple):
    """Signature of the columns of an exchange, cached for repeated calls."""

    widths: list[int]
    """Bytes of a row of each column."""
    row_nbytes: int
    """Bytes of a row of all columns."""
    digest: int
    """Hash of device, dtypes and row shapes, which ranks compare."""

    @classmethod
    @lru_cache
    def of(cls, device: Device, *rows: tuple[np.dtype[Any], tuple[int, ...]]) -> ColumnSignature:
        """Return the signature of columns of these dtypes and row shapes."""
        widths = [dtype.itemsize * math.prod(shape) for dtype, shape in rows]
        said = [(device, dtype.str, shape) for dtype, shape in rows]
        words = hashlib.blake2b(repr(said).encode(), digest_size=8).digest()
        return cls(widths, sum(widths), int.from_bytes(words, "little", signed=True))


def _rows_needed(starts: np.ndarray, counts: np.ndarray) -> float:
    """Return the rows that a column must have for these starts and counts.

    Infinity for invalid starts, since no column is long enough for them.
    """
    # A few numbers: NumPy's reductions take 2 us each.
    firsts = starts.tolist()
    if starts.shape != counts.shape or min(firsts) < 0:
        return math.inf
    return max(map(operator.add, firsts, counts.tolist()))


def columns_differ_error(theirs: int, mine: int) -> ShapeError:
    """Return the error for a rank `theirs` whose columns differ from those of `mine`."""
    return ShapeError(
        f"rank {theirs} exchanges other columns than rank {mine}; give arrays of the same device "
        "and dtypes on all ranks"
    )


def aborted_error(reason: str, *, carrier: bool = False) -> IndexLost:
    """Return the error that all ranks of an aborted group raise.

    With `carrier` it is TransportError, as the transport failed.
    """
    kind = TransportError if carrier else IndexLost
    return kind(
        f"the exchange between the workers was given up: {reason}; nothing that was exchanged is "
        "whole, make it again from its source on the workers that are there"
    )


def closed_error() -> ClosedError:
    """Return the error of calls on a closed endpoint."""
    return ClosedError("this endpoint of the exchange was closed; form a new group")
