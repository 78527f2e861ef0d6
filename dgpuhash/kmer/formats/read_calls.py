"""Read files of calls, a block at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from dgpuhash.errors import FormatError
from dgpuhash.kmer.calls import AMBIGUOUS, MATE_BORDER, CalledReads, Calls
from dgpuhash.kmer.formats.labels import Labels, distinct_of
from dgpuhash.kmer.formats.outputs import (
    at_places,
    bytes_of,
    in_lists,
    join_text,
    take_text,
    text_scalar,
    texts_of,
)
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, numpy_of
from dgpuhash.kmer.sequences.files import text_of
from dgpuhash.kmer.taxonomy.ranks import SLOTS, slots_of

_PARQUET = b"PAR1"
_ROWS = 2**16
_IN_NAME = r"\(taxid (?P<taxid>-?[0-9]+)\)$"
_REMEDY = "pass what classify wrote as table, tsv, kraken or parquet"
# The first line of format table begins so; the second one has the titles.
TABLE_MARK = b"# --format table"
_HEAD_LINES = 2


def read_calls(path: str | os.PathLike[str]) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield ids of reads, as Arrow arrays of bytes, and their calls (int64), in order.

    Parameters
    ----------
    path : path, URL or "-"
        Calls in the format table, tsv, kraken or parquet; text may be compressed.

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
    rest, columns = b"", 0
    row, texts = _past_head(text_of(name))
    for text in texts:
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


def _past_head(texts: Iterator[bytes]) -> tuple[int, Iterator[bytes]]:
    """Return the number of header lines (0 without a header), and the text behind them."""
    first, lines = b"", 0
    for text in texts:
        first += text
        if first.count(b"\n") >= _HEAD_LINES:
            break
    if first.startswith(TABLE_MARK):
        lines = _HEAD_LINES
        first = b"".join(first.split(b"\n", lines)[lines:])
    return lines, chain([first], texts)


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
    """Return ids and calls of lines, numbered from a first row."""
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
    """Calls of a file, read in step with batches of reads.

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
        """Return the calls of the next reads, checking their ids.

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
        """Raise FormatError if calls are left over."""
        if len(self._calls) or next(self._blocks, None) is not None:
            raise FormatError(
                f"{self._path} has calls of more than {self._row:,} reads; pass all reads that "
                "were classified, in their order"
            )


def kraken_lines(
    reads: CalledReads,
    labels: Labels,
    *,
    has_runs: bool = True,
    is_quick: bool = False,
    use_names: bool = False,
) -> bytes:
    """Return a line for each read: C or U, id, taxid, letters and details.

    Parameters
    ----------
    reads : CalledReads
        With details, unless `is_quick`.
    labels : Labels
    has_runs : bool
        Whether details are runs of k-mers, in which numbers below 0 are ambiguous k-mers and
        borders of mates. False: candidates.
    is_quick : bool
        Whether Q stands in place of details, as calls do not depend on all k-mers then.
    use_names : bool
        Whether names stand beside taxids.
    """
    if not len(reads):
        return b""
    calls = reads.calls
    # The newline is that of the line before: one text less to join.
    status = take_text(["\nU", "\nC"], (calls.taxids != 0).astype(np.int8))
    column = labels.column(calls.taxids, lambda each: labels.texts(each, use_names=use_names))
    details = (
        labels.column(calls.taxids, lambda each: [f"{taxid}:Q" for taxid in each.tolist()])
        if is_quick
        else _details(calls, has_runs)
    )
    columns = [status, reads.ids, column, _letters(reads), details]
    return b"".join([bytes_of(join_text(columns))[1:], b"\n"])


def _letters(reads: CalledReads) -> Any:
    first = texts_of(np.diff(reads.reads.offsets))
    if reads.mates is None:
        return first
    return join_text([first, texts_of(np.diff(reads.mates.offsets))], b"|")


def _details(calls: Calls, has_runs: bool) -> Any:
    offsets = calls.detail_offsets
    distinct, places = distinct_of(calls.detail_taxids)
    first = distinct.astype(str).astype(object)
    if has_runs:
        first[distinct == AMBIGUOUS] = "A"
        first[distinct == MATE_BORDER] = "|"
    # Many reads have the same details: each is written once.
    both, each = distinct_of(places.astype(np.int64) << 32 | calls.detail_counts)
    places, counts = both >> 32, texts_of(both & 0xFFFFFFFF)
    if has_runs:
        counts = _instead(counts, distinct[places] == MATE_BORDER, b"|")
    pairs = join_text([take_text(first.tolist(), places), counts], b":")
    texts = in_lists(at_places(pairs, each), offsets, b" ")
    return _instead(texts, offsets[1:] == offsets[:-1], b"0:0")


def _instead(texts: Any, is_other: np.ndarray, other: bytes) -> Any:
    """Return texts with some replaced by another one."""
    import pyarrow.compute as pc

    if not is_other.any():
        return texts
    return pc.if_else(numbers_of(is_other), text_scalar(other), texts)


_BETWEEN = "\t|\t"
METACACHE_HEAD = f"# TABLE_LAYOUT: query_header{_BETWEEN}top_hits{_BETWEEN}rank:taxname\n".encode()


def metacache_lines(reads: CalledReads, labels: Labels, *, use_names: bool = False) -> memoryview:
    """Return a line for each read: id, candidates with hits, rank and name.

    Ranks are the levels of ranked lineages, such as domain for superkingdom. Candidates that are
    sequences have their ids; ``--`` stands for no call.

    Parameters
    ----------
    reads : CalledReads
        With details, which are candidates.
    labels : Labels
    use_names : bool
        Whether taxids stand beside names.
    """

    def called(calls: np.ndarray) -> list[str]:
        return [f"{text}\n" for text in _rank_texts(labels, calls, with_taxids=use_names)]

    calls = reads.calls
    columns = [reads.ids, _candidates(reads, labels), labels.column(calls.taxids, called)]
    return bytes_of(join_text(columns, _BETWEEN.encode()))


def _candidates(reads: CalledReads, labels: Labels) -> Any:
    calls = reads.calls
    distinct, places = distinct_of(calls.detail_taxids)
    sequences = labels.names(np.minimum(distinct, 0))
    first = [
        str(taxid) if taxid >= 0 else name
        for taxid, name in zip(distinct.tolist(), sequences, strict=True)
    ]
    pairs = join_text([take_text(first, places), texts_of(calls.detail_counts)], b":")
    return in_lists(pairs, calls.detail_offsets, b",")


def _rank_texts(labels: Labels, calls: np.ndarray, *, with_taxids: bool = False) -> list[str]:
    ranks = labels.ranks(calls)
    slots = slots_of(ranks).tolist()
    levels = [SLOTS[slot] if slot >= 0 else rank for slot, rank in zip(slots, ranks, strict=True)]
    columns = zip(calls.tolist(), levels, labels.names(calls), strict=True)
    return [
        f"{rank}:{name}" + (f"({call})" if with_taxids else "") if call else "--"
        for call, rank, name in columns
    ]


def abundance_lines(
    labels: Labels, calls: np.ndarray, counts: np.ndarray, title: Iterable[str] = ()
) -> Iterator[str]:
    """Yield lines of rank and name, taxid, number of reads and their share.

    Parameters
    ----------
    labels : Labels
    calls : array of int64
        Distinct, in the order of the lines; 0 last, for reads without a taxon.
    counts : array of int or float
        How many reads each has.
    title : iterable of str
        Lines before.
    """
    yield from title
    yield f"# rank:name{_BETWEEN}taxid{_BETWEEN}number of reads{_BETWEEN}abundance"
    total = float(counts.sum())
    taxids = labels.lift(calls).tolist()
    columns = zip(_rank_texts(labels, calls), taxids, counts.tolist(), strict=True)
    for text, taxid, count in columns:
        share = f"{100 * count / total if total else 0:.6g}%"
        if taxid or text != "--":
            yield _BETWEEN.join([text, str(taxid), f"{count:.15g}", share])
        else:
            yield _BETWEEN.join(["unclassified", "--", "0", f"{count:.15g}", share])


def lineage_lines(labels: Labels) -> Iterator[str]:
    """Yield a line for each target: name, number and taxids up to the domain."""
    yield "\t".join(["name", *SLOTS[:-1]])
    numbers = -1 - np.arange(len(labels.targets.names))
    rows = labels.lineages(numbers)[:, :-1].tolist()
    for name, row in zip(labels.targets.names, rows, strict=True):
        yield "\t".join([name, *map(str, row)])
