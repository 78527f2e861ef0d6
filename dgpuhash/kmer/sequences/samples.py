"""Read tables of samples and their files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dgpuhash.errors import SequenceError


class Sample(NamedTuple):
    """A sample's name and files.

    Attributes
    ----------
    name : str
    r1 : str
        Reads, or the first mates.
    r2 : str or None
        The second mates.

    Examples
    --------
    >>> Sample("gut", "gut.fq.gz").r2 is None
    True
    """

    name: str
    r1: str
    r2: str | None = None


def read_samples(path: str | os.PathLike[str]) -> list[Sample]:
    """Read a tab-separated table of samples with columns sample, r1 and, for pairs, r2.

    A first line ``sample<TAB>r1<TAB>r2``, empty lines and lines that begin with ``#`` are left
    out. A name may come once only.

    Raises
    ------
    SequenceError
        When a line has another number of columns, or a name comes twice.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> table = pathlib.Path(tempfile.mkdtemp(), "samples.tsv")
    >>> _ = table.write_text("gut\\tgut_1.fq.gz\\tgut_2.fq.gz\\n")
    >>> read_samples(table)
    [Sample(name='gut', r1='gut_1.fq.gz', r2='gut_2.fq.gz')]
    """
    found: dict[str, Sample] = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        columns = line.rstrip().split("\t")
        if not line.strip() or line.startswith("#") or (number == 1 and columns[0] == "sample"):
            continue
        if len(columns) not in (2, 3) or not all(columns):
            raise SequenceError(
                f"{os.fspath(path)}, line {number}: {len(columns)} columns; write sample, r1 and, "
                "for pairs, r2, with tabs between them"
            )
        if columns[0] in found:
            raise SequenceError(
                f"{os.fspath(path)}, line {number}: sample {columns[0]!r} is there already; give "
                "each sample one line"
            )
        found[columns[0]] = Sample(*columns)
    return list(found.values())
