"""Load an index of either rule from a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, overload

from dgpuhash.kmer.index_file import rule_of
from dgpuhash.kmer.minimizers.index import MinimizerIndex
from dgpuhash.kmer.sketches.index import SketchIndex
from dgpuhash.typing import Device, IndexMode

if TYPE_CHECKING:
    from distributed import Client

    from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex
    from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex


@overload
def load_index(
    path: str | os.PathLike[str],
    device: Device | None = None,
    *,
    client: None = None,
    mode: IndexMode = "auto",
) -> SketchIndex | MinimizerIndex: ...
@overload
def load_index(
    path: str | os.PathLike[str],
    device: Device | None = None,
    *,
    client: Client,
    mode: IndexMode = "auto",
) -> DistributedSketchIndex | DistributedMinimizerIndex: ...
def load_index(
    path: str | os.PathLike[str],
    device: Device | None = None,
    *,
    client: Client | None = None,
    mode: IndexMode = "auto",
) -> SketchIndex | MinimizerIndex | DistributedSketchIndex | DistributedMinimizerIndex:
    """Load an index from a file, as the class of its rule.

    Parameters
    ----------
    path : path or fsspec URL
        What `SketchIndex.save` or `MinimizerIndex.save` wrote.
    device : {"cpu", "cuda"}, optional
        None: a CPU.
    client : distributed.Client, optional
        The workers of its cluster read the file, and have the index.
    mode : {"auto", "distributed", "independent", "replicated"}
        As for `SketchIndex.build`.

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
    is_sketched = rule_of(path) == SketchIndex.rule
    if client is not None:
        from dgpuhash.kmer.minimizers.on_workers import DistributedMinimizerIndex
        from dgpuhash.kmer.sketches.on_workers import DistributedSketchIndex

        if is_sketched:
            return DistributedSketchIndex.load(path, client=client, mode=mode, device=device)
        return DistributedMinimizerIndex.load(path, client=client, mode=mode, device=device)
    kind = SketchIndex if is_sketched else MinimizerIndex
    return kind.load(path, device)
