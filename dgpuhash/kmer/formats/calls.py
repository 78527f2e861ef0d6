"""Write calls in any format, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.calls import CalledReads
from dgpuhash.kmer.formats.labels import Labels, distinct_of
from dgpuhash.kmer.formats.outputs import bytes_of, join_text
from dgpuhash.kmer.formats.read_calls import (
    METACACHE_HEAD,
    TABLE_MARK,
    kraken_lines,
    metacache_lines,
)
from dgpuhash.kmer.sequences.arrow_arrays import bytes_array, numbers_of, strings_of

FORMATS = ("table", "tsv", "kraken", "metacache", "parquet")
_DEFAULTS = {"metacache": "table", "kraken2": "kraken"}
_TABLE_HEAD = (
    TABLE_MARK + b"; others: tsv (read and taxid alone), kraken, metacache, parquet\n"
    b"read\ttaxid\trank\tname\n"
)


def format_of(name: str | None, rule: str) -> str:
    """Return the name of a format; for None the rule's own.

    Raises
    ------
    SpecError
        When there is no such format, or it is another rule's.

    Examples
    --------
    >>> format_of(None, "kraken2"), format_of(None, "metacache")
    ('kraken', 'table')
    """
    if name is None:
        return _DEFAULTS[rule]
    if name not in FORMATS:
        raise SpecError(f"format={name!r}; use one of {', '.join(FORMATS)}")
    if name == "metacache" and rule != "metacache":
        raise SpecError(
            "format 'metacache' has candidates, which the rule of Kraken 2 does not know; use "
            "'kraken' or 'tsv'"
        )
    return name


def needs_detail(name: str, *, is_quick: bool = False) -> bool:
    """Return whether a format has details of calls."""
    return name == "metacache" or (name == "kraken" and not is_quick)


@contextmanager
def calls_writer(
    stream: Any,
    name: str,
    labels: Labels,
    *,
    rule: str,
    is_quick: bool = False,
    use_names: bool = False,
) -> Iterator[Callable[[CalledReads], None]]:
    """Yield a function that writes a batch of calls to a binary stream.

    Parameters
    ----------
    stream : binary stream
    name : {"table", "tsv", "kraken", "metacache", "parquet"}
    labels : Labels
    rule : {"metacache", "kraken2"}
    is_quick : bool
        Whether calls were made by the option quick.
    use_names : bool
        Whether names stand beside taxids.
    """
    if name == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(stream, table_of(None, labels).schema) as writer:
            yield lambda reads: writer.write_table(table_of(reads, labels))
        return
    stream.write({"metacache": METACACHE_HEAD, "table": _TABLE_HEAD}.get(name, b""))
    settings: Any = {"has_runs": rule == "kraken2", "is_quick": is_quick}

    def write(reads: CalledReads) -> None:
        if name == "table":
            stream.write(table_lines(reads, labels))
        elif name == "tsv":
            stream.write(tsv_lines(reads, labels, use_names=use_names))
        elif name == "kraken":
            stream.write(kraken_lines(reads, labels, use_names=use_names, **settings))
        else:
            stream.write(metacache_lines(reads, labels, use_names=use_names))

    yield write


def table_lines(reads: CalledReads, labels: Labels) -> memoryview:
    """Return a line for each read: id, taxid, rank and name.

    Columns of reads without a call are 0, nothing and "unclassified"; minus n is sequence n.

    Parameters
    ----------
    reads : CalledReads
    labels : Labels
    """

    def texts(calls: Any) -> list[str]:
        columns = zip(calls.tolist(), labels.ranks(calls), labels.names(calls), strict=True)
        return [f"{call}\t{rank}\t{name}\n" for call, rank, name in columns]

    return bytes_of(join_text([reads.ids, labels.column(reads.calls.taxids, texts)]))


def tsv_lines(reads: CalledReads, labels: Labels, *, use_names: bool = False) -> memoryview:
    """Return a line for each read: its id, a tab, and its taxid.

    The taxid is 0 where there is no call, and minus n that of sequence n.

    Parameters
    ----------
    reads : CalledReads
    labels : Labels
    use_names : bool
        Whether names stand beside taxids.
    """

    def texts(calls: Any) -> list[str]:
        return [f"{text}\n" for text in labels.texts(calls, use_names=use_names)]

    return bytes_of(join_text([reads.ids, labels.column(reads.calls.taxids, texts)]))


def table_of(reads: CalledReads | None, labels: Labels) -> Any:
    """Return an Arrow table with a row for each read: read, taxid, rank, hits and length."""
    import pyarrow as pa

    none = np.empty(0, np.int64)
    taxids = none if reads is None else reads.calls.taxids
    distinct, places = distinct_of(taxids)
    names = labels.ranks(distinct)
    ranks = sorted({*names} - {""})
    codes = np.array([ranks.index(name) if name else -1 for name in names], np.int16)[places]
    return pa.table(
        {
            "read": _text_of(bytes_array([]) if reads is None else reads.ids),
            "taxid": numbers_of(taxids),
            "rank": pa.DictionaryArray.from_arrays(numbers_of(codes, codes < 0), strings_of(ranks)),
            "hits": numbers_of(none.astype(np.uint32) if reads is None else reads.calls.hits),
            "length": numbers_of(none if reads is None else reads.lengths),
        }
    )


def _text_of(ids: Any) -> Any:
    import pyarrow as pa

    try:
        return ids.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [each.decode(errors="replace") for each in ids.to_pylist()]
        return strings_of(texts).cast(pa.large_string())


class ChosenTaxa:
    """Filter of calls by taxa.

    Parameters
    ----------
    texts : sequence of str
        Each with commas between taxids: ``562`` is that taxon alone, ``562+`` also those below it,
        ``0`` reads without a call, ``-3`` the third target.
    labels : Labels
        Of the calls; those of targets count as their taxa, too.

    Raises
    ------
    SpecError
        When a text is none of these.
    TaxonomyError
        When a taxon with those below it is unknown.

    Examples
    --------
    >>> from dgpuhash.kmer.references import Targets
    >>> chosen = ChosenTaxa(["562,0"], Labels(None, Targets.none()))
    >>> chosen.among(np.array([562, 573, 0])).tolist()
    [True, False, True]
    """

    def __init__(self, texts: Sequence[str], labels: Labels) -> None:
        self._labels = labels
        single: list[int] = []
        self._clades: list[int] = []
        for text in (each.strip() for all_ in texts for each in all_.split(",")):
            digits = text.removesuffix("+")
            is_clade = digits != text
            if not digits.removeprefix("-").isdecimal() or (is_clade and int(digits) <= 0):
                raise SpecError(f"{text!r} is not a taxid; write taxids such as 562, 562+ or 0")
            (self._clades if is_clade else single).append(int(digits))
        self._single = labels.current(np.array(single, np.int64))
        for clade in self._clades:
            labels.taxonomy.rank(clade)

    def among(self, calls: np.ndarray) -> np.ndarray:
        """Return whether each call is of one of the taxa."""
        distinct, places = distinct_of(calls)
        lifted = self._labels.lift(distinct)
        found = np.isin(distinct, self._single) | (
            np.isin(lifted, self._single) & (distinct != 0) & (lifted != 0)
        )
        for clade in self._clades:
            found |= self._labels.taxonomy.is_within(lifted, clade)
        return found[places]
