"""`dgpuhash kmer merge`: add up files of counts, or merge indexes of other sequences."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from dgpuhash.cli.kmer.build import lost_distributions
from dgpuhash.cli.kmer.options import Force, Output, saved_as
from dgpuhash.cli.signature import command
from dgpuhash.errors import DgpuhashError, SpecError

_INDEX = "kmer index"


@command
def merge(files: tuple[str, ...], *, output: Output, overwrite: Force = False) -> None:
    """Add up FILES of counts of one k, or merge indexes of different sequences into one.

    Of indexes, the numbers of the second one's sequences go on behind the first one's, as if all
    were built at once.
    """
    from dgpuhash.tables.serialization import check_absent

    check_absent(output, overwrite=overwrite)
    are_indexes = [is_index(file) for file in files]
    if len(set(are_indexes)) > 1:
        index, counts = (files[are_indexes.index(each)] for each in (True, False))
        raise SpecError(
            f"{index} is an index and {counts} is not; pass indexes of one rule, or files of counts"
        )
    start = time.perf_counter()
    made = _merged_indexes(files) if all(are_indexes) else _merged_counts(files)
    saved_as(made, output, overwrite)
    told = f"in {time.perf_counter() - start:.1f} s"
    if all(are_indexes):
        letters = int(made.targets.lengths.sum())
        click.echo(f"{output}: {len(made.targets.names):,} sequences, {letters:,} letters, {told}")
    else:
        click.echo(f"{output}: {len(made):,} k-mers of {made.k} letters, {made.total:,} in all")


def is_index(file: str) -> bool:
    """Return whether a file is an index rather than a file of counts."""
    from dgpuhash.tables.serialization import header_of

    return header_of(file).get("kind") == _INDEX


def _merged_counts(files: tuple[str, ...]) -> Any:
    from dgpuhash.kmer import KmerCounts

    made, *others = map(KmerCounts.load, files)
    for other in others:
        made = made.merge(other)
    return made


def _merged_indexes(files: tuple[str, ...]) -> Any:
    """Merge the indexes of some files, with at most two in memory at a time."""
    from dgpuhash.kmer import load_index
    from dgpuhash.kmer.databases.merging import merge_indexes

    file, lost = files[0], list[str]()

    def load(name: str) -> Any:
        index = load_index(name)
        lost.extend(lost_distributions(index))
        return index

    def others() -> Iterator[Any]:
        nonlocal file
        for file in files[1:]:
            yield load(file)

    try:
        made = merge_indexes(load(file), others())
    except DgpuhashError as error:
        if file in str(error):
            raise
        raise type(error)(f"{file}: {error}") from error
    for note in lost[:1]:
        click.echo(f"note: {note}", err=True)
    return made
