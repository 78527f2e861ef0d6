"""Classify reads from files batch by batch; write calls, reports and abundances."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.calls import CalledReads, Calls, CallTally, Index
from dgpuhash.kmer.formats.calls import calls_writer, format_of, needs_detail, table_of
from dgpuhash.kmer.formats.classified import mates_targets, reads_writer
from dgpuhash.kmer.formats.labels import Labels
from dgpuhash.kmer.formats.outputs import check_output, opened_output, write_beside
from dgpuhash.kmer.formats.report import lift_rare
from dgpuhash.kmer.options import CallOptionsOfEither, whole_number
from dgpuhash.kmer.sequences.batches import (
    BATCH_LETTERS,
    SequenceBatch,
    read_pairs,
    read_sequences,
    warn_of_order,
)
from dgpuhash.kmer.sequences.files import STDIN, Paths, files_of
from dgpuhash.kmer.sequences.reads import ReadFiles
from dgpuhash.kmer.summaries import Summaries

_QUALITY = "minimum_base_quality"
# Of a CPU: four batches are under way, from files to calls, and more letters take no less time.
_BATCH_LETTERS = 2**19
_MOST = 2**62


class Classification(Summaries):
    """Calls of the reads of files, computed when they are first read.

    Batches are read on a thread of their own while others are classified, and come in the order of
    the input; memory is bounded by a few of them. Of an index on a cluster its workers read the
    files, unless they do not see them, or one is the standard input. Each pass over all batches
    reads the files anew; what is counted is kept after the first whole pass, so that a report costs
    none after `write`.

    Parameters
    ----------
    index : SketchIndex or MinimizerIndex
    reads : paths, as those of `read_sequences`
        Files of single reads, of first mates, or of both.
    mates : paths, optional
        As many files of second mates.
    interleaved : bool
        Whether `reads` has mates one after the other.
    name_check : bool
        Whether names of mates are compared, as `read_pairs` does.
    batch_letters : int, optional
        Of each file, at a time. None: few for an index on a CPU of this process, where a batch has
        as many as are called at once, else 2**23.
    progress : callable, optional
        Is told the number of letters of each batch that was classified.
    consumed : callable, optional
        Is told, on another thread, how many bytes of files were read.
    minimizer_data : bool
        Whether reports have the minimizers of reads, too; of Kraken 2's rule.
    minimum_minimizers : int
        Distinct minimizers that the reads must have in a taxon's clade; reads of a taxon with fewer
        are counted for the next taxon above that has as many, or the root. It changes what is
        counted, reports, profiles and abundances, and no call; of Kraken 2's rule.
    **options
        Those of the index's `call`.

    Raises
    ------
    SpecError
        When an option is impossible.
    FileNotFoundError
        When a file is not there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dgpuhash.kmer import SketchIndex
    >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
    >>> _ = fasta.write_text(">r\\nACGTTGCAACGTAGCTAGCTTAGCATCGATTACG\\n")
    >>> calls = SketchIndex.build(fasta, taxonomy=None).classify(fasta)
    >>> calls
    <Classification of reads of 1 file, not read yet>
    >>> calls.to_pandas()
      read  taxid      rank  hits  length
    0    r     -1  sequence    16      34
    >>> calls
    <Classification of 1 reads of 1 file, 100.0 % with a call>
    """

    def __init__(
        self,
        index: Index,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        name_check: bool = True,
        batch_letters: int | None = None,
        progress: Callable[[int], object] | None = None,
        consumed: Callable[[int], object] | None = None,
        minimizer_data: bool = False,
        minimum_minimizers: int = 0,
        **options: Unpack[CallOptionsOfEither],
    ) -> None:
        if interleaved and mates is not None:
            raise SpecError("pairs are in two files, or interleaved in one; pass one of the two")
        # What begins to count minimizers, for each pass.
        least = whole_number("minimum_minimizers", minimum_minimizers, 0, _MOST)
        counts = minimizer_data or least > 0
        new_seen = getattr(index, "seen_minimizers", None) if counts else None
        if counts and new_seen is None:
            name = "minimizer_data" if minimizer_data else "minimum_minimizers"
            raise SpecError(f"{name} is an option of the rule of Kraken 2 alone; leave it out")
        self._index = index
        self._options: dict[str, Any] = {**options}
        self._new_seen: Any = new_seen
        self._shows_seen, self._least = minimizer_data, least
        self._seen: Any = None
        self._files = files_of(reads)
        self._mates = None if mates is None else files_of(mates)
        self._interleaved, self._name_check = interleaved, name_check
        if batch_letters is None:
            is_here = index.device == "cpu" and not hasattr(index, "call_files")
            batch_letters = _BATCH_LETTERS if is_here else BATCH_LETTERS
        self._batch_letters = batch_letters
        self._progress, self._consumed = progress, consumed
        self._backend = backends.get(index.device)
        self._labels = Labels(index.taxonomy, index.targets)
        self._made: CallTally | None = None
        self._prepared: dict[str, Any] | None = None
        none = [np.empty(0, np.uint8), np.zeros(1, np.int64)]
        none = [self._backend.from_host(array) for array in none]
        # What is wrong with options is told before files are read.
        self._call(none * (1 + self.is_paired), {}, options, detail=False)

    @property
    def is_paired(self) -> bool:
        """Whether reads have mates."""
        return self._interleaved or self._mates is not None

    @property
    def labels(self) -> Labels:
        """Names and ranks of calls."""
        return self._labels

    def __iter__(self) -> Iterator[CalledReads]:
        return self.batches()

    def batches(
        self, *, detail: bool = False, kept: Literal["letters", "names", "sizes"] = "letters"
    ) -> Iterator[CalledReads]:
        """Yield batches of reads and their calls, in order.

        Parameters
        ----------
        detail : bool
            Whether calls have details: runs of k-mers, or candidates.
        kept : {"letters", "names", "sizes"}
            What reads must have of all that was read, beside their sizes: letters and names, of
            first mates names, or neither. The rest may be left with the workers of a cluster.

        Raises
        ------
        SequenceError
            When a file is not sequences, is damaged, or mates are no pairs.
        OSError
            When a file cannot be read.
        """
        options, tally, seen = self._options_of_call(), CallTally(), None
        if self._new_seen is not None:
            seen = self._new_seen()
            options = {**options, "seen": seen}
        for reads, mates, calls in self._called(options, detail=detail, kept=kept):
            called = CalledReads(reads, mates, calls.on_host(self._backend))
            tally.add(called)
            if self._progress is not None:
                self._progress(called.letters)
            yield called
        self._made, self._seen = tally.finish(), seen

    def _called(
        self, options: Any, *, detail: bool, kept: str
    ) -> Iterator[tuple[SequenceBatch, SequenceBatch | None, Calls]]:
        """Yield batches and their calls; an index on workers processes several at once."""
        index: Any = self._index
        if not hasattr(index, "call_many"):
            for reads, mates in self._read():
                arguments = self._arguments(reads, mates)
                yield reads, mates, self._call(*arguments, options, detail=detail)
        elif self._of_workers is None:
            batches = ((each, self._arguments(*each)) for each in self._read())
            for sides, calls in index.call_many(batches, options, detail=detail):
                yield *sides, calls
        else:
            found = index.call_files(
                self._of_workers, options, detail=detail, kept=kept, consumed=self._consumed
            )
            for told, calls in found:
                yield told.reads, told.mates, calls

    @cached_property
    def _of_workers(self) -> ReadFiles | None:
        """The reader of files on workers; None if this process reads them."""
        index: Any = self._index
        files = [*self._files, *(self._mates or ())]
        if not hasattr(index, "call_files"):
            return None
        if not all("://" in file or Path(file).is_file() for file in files):
            return None
        if unseen := index.unseen_file(files):
            warnings.warn(
                f"workers do not see {unseen} as this process does, so this process reads the "
                f"files for them; put the reads where all workers find them under the same names",
                UserWarning,
                stacklevel=2,
            )
            return None
        mates = None if self._mates is None else tuple(self._mates)
        if mates is not None and len(mates) != len(self._files):
            # It tells what is wrong.
            return None
        if self._name_check and self.is_paired:
            # Warnings of workers are not seen here.
            warn_of_order(self._files, self._mates)
        return ReadFiles(
            tuple(self._files), mates, self._interleaved, self._batch_letters,
            bool(self._options.get(_QUALITY)), self._name_check,
        )  # fmt: skip

    def _read(self) -> Iterator[tuple[SequenceBatch, SequenceBatch | None]]:
        settings: Any = {"batch_letters": self._batch_letters, "consumed": self._consumed}
        if self.is_paired:
            yield from read_pairs(
                self._files, self._mates, interleaved=self._interleaved,
                name_check=self._name_check, **settings,
            )  # fmt: skip
            return
        for batch in read_sequences(self._files, **settings):
            yield batch, None

    def _arguments(
        self, reads: SequenceBatch, mates: SequenceBatch | None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return letters and offsets of a batch on the device, and qualities if needed."""
        sides = [reads] if mates is None else [reads, mates]
        put = self._backend.from_host
        arrays = [put(array) for side in sides for array in (side.letters, side.offsets)]
        if not self._options.get(_QUALITY):
            return arrays, {}
        return arrays, {
            name: None if side.qualities is None else put(side.qualities)
            for name, side in zip(("qualities", "mate_qualities"), sides, strict=False)
        }

    def _call(
        self, arrays: Sequence[Any], qualities: dict[str, Any], options: Any, *, detail: bool
    ) -> Calls:
        return self._index.call(*arrays, detail=detail, **{**qualities, **options})

    def _options_of_call(self) -> dict[str, Any]:
        """Return the call options, after a first pass over the reads if the index needs one."""
        prepare = getattr(self._index, "prepare", None)
        if prepare is None:
            return self._options
        if self._prepared is None and self._of_workers is not None:
            index: Any = self._index
            self._prepared = index.prepare_files(self._of_workers, **self._options)
        elif self._prepared is None:
            self._prepared = prepare(
                lambda: (self._arguments(*each)[0] for each in self._read()), **self._options
            )
        return self._prepared

    @property
    def _tally(self) -> CallTally:
        """The counts after a pass over all batches."""
        if self._made is None:
            if STDIN in self._files:
                raise SequenceError(
                    "the standard input can be read once; write calls first, or name files"
                )
            for _ in self.batches(kept="sizes"):
                pass
        assert self._made is not None
        return self._made

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct calls, ascending, and the number of reads of each.

        0 is none; below 0 are the numbers of targets, from 1. With ``minimum_minimizers`` reads of
        rare taxa are those of taxa above.
        """
        tally = self._tally
        if not self._least:
            return tally.calls, tally.counts
        _, distinct = self._seen.by_clade()
        return lift_rare(self._labels.taxonomy, tally.calls, tally.counts, distinct, self._least)

    def _minimizers(self) -> Any:
        return self._seen.by_clade() if self._shows_seen and self._seen is not None else None

    def summary(self) -> dict[str, int | float]:
        """Return the numbers of reads, classified reads and letters, and the seconds taken."""
        tally = self._tally
        return {
            "pairs" if self.is_paired else "reads": tally.reads,
            "classified": tally.reads - int(tally.counts[tally.calls == 0].sum()),
            "letters": tally.letters,
            "seconds": tally.seconds,
        }

    def __repr__(self) -> str:
        what = "pairs" if self.is_paired else "reads"
        files = len(self._files) + len(self._mates or ())
        of = f"{what} of {files:,} file{'s' * (files != 1)}"
        if self._made is None:
            return f"<Classification of {of}, not read yet>"
        found = self.summary()
        share = 100 * found["classified"] / max(found[what], 1)
        return f"<Classification of {found[what]:,} {of}, {share:.1f} % with a call>"

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each read, in order.

        Its columns are read (the id; of pairs without /1 and /2), taxid (0 of those without a
        call, below 0 the number of a target), rank, hits (of the best candidate; of k-mers in the
        clade of the call) and length (letters of the read, or of both mates).
        """
        import pyarrow as pa

        tables = [table_of(None, self._labels)]
        tables += [table_of(reads, self._labels) for reads in self.batches(kept="names")]
        return pa.concat_tables(tables).unify_dictionaries().to_pandas()

    def write(
        self,
        path: str | os.PathLike[str] | None,
        *,
        form: Literal["table", "tsv", "kraken", "metacache", "parquet"] | None = None,
        use_names: bool = False,
        classified: str | os.PathLike[str] | None = None,
        unclassified: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write calls and reads to files, which appear under their names once complete.

        Parameters
        ----------
        path : path, URL, "-" or None
            Of calls; with .gz at its end it is compressed. None: reads alone are written.
        form : {"table", "tsv", "kraken", "metacache", "parquet"}, optional
            None: table by MetaCache's rule, kraken by Kraken 2's.
        use_names : bool
            Whether names stand beside taxids.
        classified, unclassified : path, URL or "-", optional
            Where reads with a call go, with `` kraken:taxid|N`` behind their headers, and those
            without. Of pairs ``#`` in a name becomes ``_1`` and ``_2``, for a file of each mate;
            without it mates follow each other.
        overwrite : bool
            Whether a file that is there may be replaced.

        Raises
        ------
        SpecError
            When there is no such format, or it or names of files do not fit.
        ExistsError
            When a file is there.
        OSError, SequenceError
            When one cannot be written, or reads cannot be read.
        """
        name, is_quick = format_of(form, self._index.rule), bool(self._options.get("quick"))
        targets = [] if path is None else [path]
        for target in (classified, unclassified):
            if target is not None:
                targets += mates_targets(target, paired=self.is_paired)
        for target in targets:
            check_output(target, overwrite=overwrite)
        if use_names:
            _ = self._labels.taxonomy
        writers: list[Callable[[CalledReads], None]] = []

        def write(reads: CalledReads) -> None:
            for each in writers:
                each(reads)

        with ExitStack() as stack:
            if path is not None:
                stream = stack.enter_context(opened_output(path, overwrite=overwrite))
                writers.append(stack.enter_context(calls_writer(
                    stream, name, self._labels, rule=self._index.rule, is_quick=is_quick,
                    use_names=use_names,
                )))  # fmt: skip
            if classified is not None or unclassified is not None:
                writers.append(stack.enter_context(reads_writer(
                    classified, unclassified, self._labels, paired=self.is_paired,
                    overwrite=overwrite,
                )))  # fmt: skip
            detail = path is not None and needs_detail(name, is_quick=is_quick)
            unread = classified is None and unclassified is None
            batches = self.batches(detail=detail, kept="names" if unread else "letters")
            write_beside(batches, write)
