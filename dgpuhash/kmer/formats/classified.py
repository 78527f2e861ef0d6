"""Write classified and unclassified reads as sequence files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.calls import CalledReads
from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.formats.outputs import bytes_of, in_lists, join_text, opened_output, text_scalar
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, spans_of
from dgpuhash.kmer.sequences.batches import SequenceBatch

_MATE = "#"


def mates_targets(target: str | os.PathLike[str], *, paired: bool) -> list[str]:
    """Return the output files for a name; for pairs ``#`` becomes ``_1`` and ``_2``.

    Raises
    ------
    SpecError
        When there is a ``#`` and reads are single, or there are several.

    Examples
    --------
    >>> mates_targets("out#.fq.gz", paired=True), mates_targets("out.fq", paired=True)
    (['out_1.fq.gz', 'out_2.fq.gz'], ['out.fq'])
    """
    name = os.fspath(target)
    n = name.count(_MATE)
    if n > 1:
        raise SpecError(f"{name} has {n} {_MATE}; write one, for the number of the mate")
    if n and not paired:
        raise SpecError(f"{name} has a {_MATE}, which is for pairs; leave it out for single reads")
    return [name.replace(_MATE, f"_{mate}") for mate in "12"] if n else [name]


@contextmanager
def reads_writer(
    classified: str | os.PathLike[str] | None,
    unclassified: str | os.PathLike[str] | None,
    labels: Labels,
    *,
    paired: bool,
    overwrite: bool = False,
) -> Iterator[Callable[[CalledReads], None]]:
    """Yield a function that writes reads to files, as FASTA or FASTQ like the input.

    Headers of reads with a call get `` kraken:taxid|N``, in which N is the taxid of the call, or of
    the target. Mates are in two files where a name has ``#``, else one after the other.

    Parameters
    ----------
    classified, unclassified : path, optional
        As `mates_targets` and `opened_output` take them.
    labels : Labels
    paired : bool
        Whether reads have mates.
    overwrite : bool

    Raises
    ------
    SpecError
        When names do not fit the reads.
    ExistsError
        When a file is there and `overwrite` is False.
    """
    with ExitStack() as stack:

        def opened(target: str | os.PathLike[str] | None) -> list[Any]:
            names = [] if target is None else mates_targets(target, paired=paired)
            return [stack.enter_context(opened_output(each, overwrite=overwrite)) for each in names]

        with_call, without = opened(classified), opened(unclassified)

        def write(reads: CalledReads) -> None:
            is_called = reads.calls.taxids != 0
            if with_call:
                marks = labels.column(reads.calls.taxids, lambda calls: _marks(labels, calls))
                _write(with_call, reads, is_called, marks)
            if without:
                _write(without, reads, ~is_called, None)

        yield write


def _marks(labels: Labels, calls: np.ndarray) -> list[str]:
    return [f" kraken:taxid|{taxid}" for taxid in labels.lift(calls).tolist()]


def _write(streams: list[Any], reads: CalledReads, chosen: np.ndarray, marks: Any) -> None:
    if reads.mates is not None and len(streams) == 1:
        streams[0].write(interleaved_text(reads.reads, reads.mates, chosen, marks))
        return
    for stream, side in zip(streams, (reads.reads, reads.mates), strict=False):
        assert side is not None
        stream.write(sequence_text(side, chosen, marks))


def sequence_text(batch: SequenceBatch, chosen: np.ndarray, marks: Any = None) -> bytes:
    """Return selected records with letters on one line; FASTQ if there are qualities.

    Parameters
    ----------
    batch : SequenceBatch
    chosen : array of bool
    marks : Arrow array of bytes, optional
        What follows the header of each record.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dgpuhash.kmer import read_sequences
    >>> fastq = pathlib.Path(tempfile.mkdtemp(), "two.fq")
    >>> _ = fastq.write_text("@a b\\nAC\\n+\\nII\\n@c\\nGG\\n+\\nI#\\n")
    >>> (batch,) = read_sequences(fastq)
    >>> sequence_text(batch, np.array([False, True]))
    b'@c\\nGG\\n+\\nI#\\n'
    """
    return _text(batch, _records(batch, chosen, marks))


def interleaved_text(
    first: SequenceBatch, second: SequenceBatch, chosen: np.ndarray, marks: Any = None
) -> bytes:
    """Return selected pairs interleaved."""
    import pyarrow as pa

    records = pa.concat_arrays([_records(side, chosen, marks) for side in (first, second)])
    order = np.arange(len(records)).reshape(2, -1).T.ravel()
    return _text(first, records.take(numbers_of(order)))


def _records(batch: SequenceBatch, chosen: np.ndarray, marks: Any) -> Any:
    """Return the text of each selected record without its first letter and last newline."""

    def spans(items: np.ndarray, offsets: np.ndarray) -> Any:
        return spans_of(items, offsets[:-1], offsets[1:]).filter(numbers_of(chosen))

    columns = [spans(batch.names, batch.name_offsets), spans(batch.letters, batch.offsets)]
    if marks is not None:
        columns[0] = join_text([columns[0], marks.filter(numbers_of(chosen))], b"")
    if batch.qualities is not None:
        columns += [text_scalar(b"+"), spans(batch.qualities, batch.offsets)]
    return join_text(columns, b"\n")


def _text(batch: SequenceBatch, records: Any) -> bytes:
    if not len(records):
        return b""
    mark = b">" if batch.qualities is None else b"@"
    whole = in_lists(records, np.array([0, len(records)]), b"\n" + mark)
    return b"".join([mark, bytes_of(whole), b"\n"])
