"""Files of calls, read a block at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from dgpuhash.errors import FormatError
from dgpuhash.kmer.sequences.arrow_arrays import numpy_of
from dgpuhash.kmer.sequences.files import text_of

_PARQUET = b"PAR1"
_ROWS = 2**16
_IN_NAME = r"\(taxid (?P<taxid>-?[0-9]+)\)$"
_REMEDY = "pass what classify wrote as tsv, kraken or parquet"


def read_calls(path: str | os.PathLike[str]) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield ids of reads, as Arrow arrays of bytes, and their calls (int64), in order.

    Parameters
    ----------
    path : path, URL or "-"
        Calls in the format tsv, kraken or parquet; text may be compressed.

    Raises
    ------
    FormatError
        When the file is another one.
    OSError
        When it cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "calls.tsv")
    >>> _ = path.write_text("read1\\t562\\nread2\\t0\\n")
    >>> [(ids.to_pylist(), calls.tolist()) for ids, calls in read_calls(path)]
    [([b'read1', b'read2'], [562, 0])]
    """
    name = os.fspath(path)
    rest, row, columns = b"", 0, 0
    for text in text_of(name):
        if not row and text.startswith(_PARQUET):
            yield from _of_parquet(name)
            return
        whole, newline, rest = (rest + text).rpartition(b"\n")
        if newline:
            columns = columns or whole.partition(b"\n")[0].count(b"\t") + 1
            yield _block(name, whole + newline, row, columns)
            row += whole.count(b"\n") + 1
    if rest:
        yield _block(name, rest + b"\n", row, columns or rest.count(b"\t") + 1)


def _of_parquet(name: str) -> Iterator[tuple[Any, np.ndarray]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(name) as file:
            for batch in file.iter_batches(_ROWS, columns=["read", "taxid"]):
                ids = batch["read"].cast(pa.large_string()).cast(pa.large_binary())
                yield ids, numpy_of(batch["taxid"])
    except (pa.ArrowInvalid, KeyError) as error:
        raise FormatError(f"{name} has no calls: {error}; {_REMEDY}") from error


def _block(name: str, text: bytes, row: int, columns: int) -> tuple[Any, np.ndarray]:
    """Return ids and calls of lines, of which the first is that of a row from 0."""
    import pyarrow as pa
    from pyarrow import csv

    # The line of Kraken 2 begins with a status.
    at = 1 if columns >= 5 else 0
    titles = [str(column) for column in range(columns)]
    kinds = {title: pa.binary() for title in titles}
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(column_names=titles, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types=kinds, include_columns=titles[at : at + 2], strings_can_be_null=False
            ),
        )
        ids, calls = (column.combine_chunks() for column in table.columns)
        return ids.cast(pa.large_binary()), _taxids(calls)
    except (pa.ArrowInvalid, ValueError) as error:
        raise FormatError(
            f"{name}, lines from {row + 1:,} on: no calls ({error}); {_REMEDY}"
        ) from error


def _taxids(calls: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = calls.cast(pa.string()).dictionary_encode()
    distinct = encoded.dictionary
    try:
        taxids = distinct.cast(pa.int64())
    except pa.ArrowInvalid:
        found = pc.extract_regex(distinct, _IN_NAME)
        inner = pc.struct_field(found, "taxid")
        taxids = pc.coalesce(inner, distinct).cast(pa.int64())
    return numpy_of(taxids)[numpy_of(encoded.indices)]


class CallStream:
    """Calls of a file, taken as many at a time as reads are read.

    Parameters
    ----------
    path : path, URL or "-"
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._blocks = read_calls(path)
        self._ids: Any = None
        self._calls = np.empty(0, np.int64)
        self._row = 0

    def take(self, ids: Any) -> np.ndarray:
        """Return the calls of the next reads, whose ids the file must have.

        Raises
        ------
        FormatError
            When the file has other reads, or no more.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        while len(self._calls) < len(ids):
            more = next(self._blocks, None)
            if more is None:
                raise FormatError(
                    f"{self._path} has {self._row + len(self._calls):,} calls, and there are more "
                    "reads; pass the reads that were classified, in their order"
                )
            self._ids = more[0] if self._ids is None else pa.concat_arrays([self._ids, more[0]])
            self._calls = np.concatenate([self._calls, more[1]])
        n = len(ids)
        if n:
            same = numpy_of(pc.equal(self._ids[:n], ids))
            if not same.all():
                row = int(np.argmin(same))
                here, there = (each[row].as_py().decode() for each in (self._ids, ids))
                raise FormatError(
                    f"{self._path}, read {self._row + row + 1:,}: it is {here!r} here and "
                    f"{there!r} among the reads; pass the reads that were classified, in their "
                    "order"
                )
            self._ids = self._ids[n:]
        found, self._calls = self._calls[:n], self._calls[n:]
        self._row += n
        return found

    def finish(self) -> None:
        """Raise FormatError when calls are left."""
        if len(self._calls) or next(self._blocks, None) is not None:
            raise FormatError(
                f"{self._path} has calls of more than {self._row:,} reads; pass all reads that "
                "were classified, in their order"
            )
