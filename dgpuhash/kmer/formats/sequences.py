"""Records as text of FASTA and FASTQ."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.kmer.formats.text import bytes_of, in_lists, joined, text_scalar
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, spans_of
from dgpuhash.kmer.sequences.batches import SequenceBatch


def sequence_text(batch: SequenceBatch, chosen: np.ndarray, marks: Any = None) -> bytes:
    """Return chosen records, FASTQ where there are qualities, with letters in one line.

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
    """Return chosen pairs, mates one after the other."""
    import pyarrow as pa

    records = pa.concat_arrays([_records(side, chosen, marks) for side in (first, second)])
    order = np.arange(len(records)).reshape(2, -1).T.ravel()
    return _text(first, records.take(numbers_of(order)))


def _records(batch: SequenceBatch, chosen: np.ndarray, marks: Any) -> Any:
    """Return the text of each chosen record without its first letter and its last newline."""

    def spans(items: np.ndarray, offsets: np.ndarray) -> Any:
        return spans_of(items, offsets[:-1], offsets[1:]).filter(numbers_of(chosen))

    columns = [spans(batch.names, batch.name_offsets), spans(batch.letters, batch.offsets)]
    if marks is not None:
        columns[0] = joined([columns[0], marks.filter(numbers_of(chosen))], b"")
    if batch.qualities is not None:
        columns += [text_scalar(b"+"), spans(batch.qualities, batch.offsets)]
    return joined(columns, b"\n")


def _text(batch: SequenceBatch, records: Any) -> bytes:
    if not len(records):
        return b""
    mark = b">" if batch.qualities is None else b"@"
    whole = in_lists(records, np.array([0, len(records)]), b"\n" + mark)
    return b"".join([mark, bytes_of(whole), b"\n"])
