"""Indexes of sequences from files, of either rule."""

from __future__ import annotations

import os

from dgpuhash.kmer.index_file import rule_of
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.sketches.index import SketchIndex

__all__ = ["load_index"]


def load_index(
    path: str | os.PathLike[str], device: str | None = None
) -> SketchIndex | MinimizerIndex:
    """Return the index in a file, of the class of its rule.

    Parameters
    ----------
    path : path or fsspec URL
        What `SketchIndex.save` or `MinimizerIndex.save` wrote.
    device : {"cpu", "cuda"}, optional
        None: a CPU.

    Raises
    ------
    FormatError
        When the file is no index, or damaged.
    FileNotFoundError
        When it is not there.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "one.fa").write_text(">r\\nACGTTGCAACGTAGCTAGCTTAGCATCGATTACG\\n")
    >>> SketchIndex.build(folder / "one.fa", taxonomy=None).save(folder / "one.dgki")
    >>> load_index(folder / "one.dgki").rule
    'metacache'
    """
    kind = SketchIndex if rule_of(path) == SketchIndex.rule else MinimizerIndex
    return kind.load(path, device)
