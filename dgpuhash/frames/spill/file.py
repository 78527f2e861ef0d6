"""SpillFile: columns of rows in an unlinked temporary file, read by position."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.backend.unnamed_file import WholeWrites, told_if_full
from dgpuhash.errors import IndexLost, KeyTypeError, UnsupportedError
from dgpuhash.frames.dataframes import frames_of

_ROWS = "rows"
_REMEDY = "give the workers a local_directory= on a larger disk, or let more workers hold the rows"


@dataclass(slots=True)
class Block:
    """One column of the rows of one write.

    Attributes
    ----------
    like : DataFrame
        A row of it, in its dtype.
    rows : int
    schema : pyarrow.Schema or None
        Of the Arrow stream in the file; None where `held` has the rows.
    plain : bool
        Whether the stream has the numbers of a NumPy column alone.
    span : slice
        The bytes of the stream in the file.
    held : DataFrame or None
        The rows, of values that Arrow would change.
    """

    like: Any
    rows: int
    schema: Any
    plain: bool
    span: slice
    held: Any = None
    table: Any = None
    mapped: mmap.mmap | None = None

    def alike(self, other: Block) -> bool:
        """Return whether both have the same dtype and storage form."""
        own, its = self.like.dtypes.iloc[0], other.like.dtypes.iloc[0]
        if own != its or (self.held is None) != (other.held is None) or self.plain != other.plain:
            return False
        if isinstance(own, pd.CategoricalDtype) and not own.categories.equals(its.categories):
            return False
        return self.held is not None or self.schema.equals(other.schema, check_metadata=True)


class SpillFile:
    """Rows of some columns in a file, in order of appending.

    Each column of what is appended is an Arrow IPC stream of its own. The file has no name: it is
    gone when this object is, also when the process is killed. Its pages are mapped into memory
    while rows are taken, and given back at once: they would count as memory of the process.

    Parameters
    ----------
    like : DataFrame
        An empty frame with the columns.
    folder : str

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": ["x", None, "z"]})
    >>> file = SpillFile(frame[:0], tempfile.gettempdir())
    >>> file.append(frame), file.append(frame[:1])
    (0, 3)
    >>> file.take(np.array([3, 1, 2]))
         a    b
    0  1.5    x
    1  2.5  NaN
    2  3.5    z
    """

    def __init__(self, like: Any, folder: str) -> None:
        self._frames = frames_of(like)
        self.meta: Any = like.iloc[:0]
        self._folder = folder
        with told_if_full(folder, 0, _ROWS, _REMEDY):
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._starts: list[int] = []
        self._pieces: dict[Hashable, list[Block]] = {label: [] for label in like}
        self._nbytes = dict.fromkeys(self._pieces, 0)
        self._rows = self._end = self._held = 0
        self._mapped: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._end

    @property
    def held_nbytes(self) -> int:
        """Bytes of rows kept in memory because Arrow cannot represent them."""
        return self._held

    def close(self) -> None:
        """Close the file once no reader uses it; later reads and appends fail."""
        self._file.close()
        # A reader of now goes on with the pieces that it has.
        self._pieces, self._mapped = {}, None

    def row_nbytes(self, label: Hashable) -> float:
        """Return the average bytes of a row's value in a column, in memory."""
        return self._nbytes[label] / max(1, self._rows)

    def likes(self, label: Hashable) -> list[Any]:
        """Return one-row frames for each dtype in which a column was written."""
        return [piece.like for piece in _kinds(self._pieces[label])]

    def columns(self, label: Hashable) -> Iterator[Any]:
        """Yield the written frames of a column, in their dtypes."""
        for piece in self._pieces[label]:
            yield self._rows_of(piece, np.arange(piece.rows))
            self._let_go(piece)

    def append(self, frame: Any) -> int:
        """Write the rows of a frame with these columns; return the position of the first.

        Raises
        ------
        OutOfMemoryError
            When the disk is full; the file is as before.
        """
        first = self._rows
        if not len(frame):
            return first
        nbytes = {label: self._frames.rows_nbytes(frame[[label]]) for label in self._pieces}
        pieces, end = {}, self._end
        try:
            with told_if_full(self._folder, sum(nbytes.values()), _ROWS, _REMEDY):
                for label in self._pieces:
                    pieces[label] = self._written(frame[[label]])
        except BaseException:
            self._end = end
            os.ftruncate(self._file.fileno(), end)
            raise
        for label, piece in pieces.items():
            self._pieces[label].append(piece)
            self._nbytes[label] += nbytes[label]
            self._held += 0 if piece.held is None else nbytes[label]
        self._starts.append(first)
        self._rows += len(frame)
        return first

    def take(self, rows: Any, columns: Sequence[Hashable] | None = None) -> Any:
        """Return the rows at positions `rows`, numbered from 0, with `columns` (default: all).

        Raises IndexLost once the file is closed.
        """
        pieces = self._pieces
        labels = list(pieces if columns is None else columns)
        if self._file.closed:
            raise _free()
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        edges = np.searchsorted(ascending, [*self._starts, self._rows])
        found = [
            (number, ascending[start:end] - self._starts[number], order[start:end])
            for number, (start, end) in enumerate(pairwise(edges))
            if end > start
        ]
        made = {n: self._column(pieces[label], label, found) for n, label in enumerate(labels)}
        frame = pd.DataFrame(made, copy=False)
        frame.columns = self.meta[labels].columns
        # Arrow's allocator keeps for each thread what it has freed.
        pa.default_memory_pool().release_unused()
        return frame

    def _column(
        self, pieces: Sequence[Block], label: Hashable, found: Sequence[tuple[int, Any, Any]]
    ) -> Any:
        """Return a column of the rows that are `found`: pieces, their rows, output positions."""
        kinds = _kinds(pieces)
        if len(kinds) == 1 and kinds[0].plain:
            made: Any = None
            for number, rows, places in found:
                values = self._values(pieces[number])
                if made is None:
                    made = np.empty(sum(len(each) for _, each, _ in found), values.dtype)
                made[places] = values[rows]
                self._let_go(pieces[number])
            like = kinds[0].like.iloc[:0]
            if made is None:
                return like.iloc[:, 0]
            return self._frames.from_arrays([made], like).iloc[:, 0]
        # A row of each dtype comes first: the result's is the same one whichever rows are taken.
        frames: list[Any] = [kind.like for kind in kinds] if len(kinds) > 1 else []
        order, first = [], len(frames)
        for kind in kinds:
            tables = []
            for number, rows, places in found:
                piece = pieces[number]
                if not piece.alike(kind):
                    continue
                order.append(places)
                if piece.held is None and not piece.plain:
                    tables.append(self._table(piece).take(pa.array(rows)))
                else:
                    frames.append(self._rows_of(piece, rows))
                self._let_go(piece)
            if tables:
                together = pa.concat_tables(tables).combine_chunks()
                tables.clear()
                frames.append(self._frames.from_arrow(together))
                del together
        if not frames:
            return (kinds[0].like.iloc[:0] if kinds else self.meta[[label]]).iloc[:, 0]
        whole = self._frames.concat(frames)
        frames.clear()
        count = sum(map(len, order))
        places = np.empty(count, np.int64)
        if order:
            places[np.concatenate(order)] = np.arange(first, first + count)
        return self._frames.take(whole, places).iloc[:, 0]

    def _rows_of(self, piece: Block, rows: Any) -> Any:
        """Return some rows of a piece as a frame."""
        if piece.held is not None:
            return self._frames.take(piece.held, rows)
        if piece.plain:
            return self._frames.from_arrays([self._values(piece)[rows]], piece.like.iloc[:0])
        return self._frames.from_arrow(self._table(piece).take(pa.array(rows)))

    def _written(self, column: Any) -> Block:
        """Write a frame of one column at the end of the file."""
        like = detach(column.iloc[:1])
        arrays = self._frames.arrays(column)
        try:
            if arrays is not None:
                (values,) = arrays
                values = values.view(np.uint8) if values.dtype == bool else values
                table = pa.table({"": pa.array(values)})
            elif _has_other_nulls(column.iloc[:, 0]):
                raise UnsupportedError("Arrow has only one kind of null")
            else:
                table = self._frames.to_arrow(column).combine_chunks()
        except (UnsupportedError, KeyTypeError):
            return Block(like, len(column), None, False, slice(0, 0), held=detach(column))
        start = -(-self._end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        os.lseek(self._file.fileno(), start, os.SEEK_SET)
        sink = WholeWrites(self._file)
        with pa.PythonFile(sink, "w") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        self._end = start + sink.written
        span = slice(start, self._end)
        return Block(like, len(column), table.schema, arrays is not None, span)

    def _table(self, piece: Block) -> Any:
        """Return a piece of the file, mapped into memory."""
        if piece.table is None:
            mapped = self._mapped
            if mapped is None or len(mapped) < piece.span.stop:
                # What was mapped before stays so while pieces refer to it.
                try:
                    mapped = mmap.mmap(self._file.fileno(), self._end, access=mmap.ACCESS_READ)
                except ValueError:
                    raise _free() from None
                self._mapped = mapped
            piece.mapped, whole = mapped, pa.py_buffer(mapped)
            stream = whole.slice(piece.span.start, piece.span.stop - piece.span.start)
            piece.table = pa.ipc.open_stream(stream).read_all()
        return piece.table

    def _values(self, piece: Block) -> Any:
        values = self._table(piece).column(0).chunk(0).to_numpy()
        dtype = piece.like.dtypes.iloc[0]
        return values.view(bool) if dtype.kind == "b" else values

    @staticmethod
    def _let_go(piece: Block) -> None:
        """Release the mapped memory of a piece; the page cache keeps it."""
        if piece.mapped is not None:
            start, end = piece.span.start, piece.span.stop
            piece.mapped.madvise(mmap.MADV_DONTNEED, start, end - start)


def _free() -> IndexLost:
    return IndexLost("the rows of a merge were freed; compute it again")


def _kinds(pieces: Sequence[Block]) -> list[Block]:
    """Return the first piece of each storage form of a column."""
    found: list[Block] = []
    for piece in pieces:
        if not any(map(piece.alike, found)):
            found.append(piece)
    return found


def _has_other_nulls(column: Any) -> bool:
    """Return whether objects have a null other than None, which Arrow would change."""
    if column.dtype != object:
        return False
    return any(value is not None for value in column[column.isna()])


def detach(frame: Any) -> Any:
    """Return a copy of a frame in its own memory, so that a larger buffer can be freed."""
    rows = np.arange(len(frame))
    columns = {}
    for place, dtype in enumerate(frame.dtypes):
        columns[place] = pd.Series(frame.iloc[:, place].array.take(rows), dtype=dtype)
    made = pd.DataFrame(columns, copy=False)
    made.columns = frame.columns
    return made
