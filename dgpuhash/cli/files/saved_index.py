"""Read the rows of a saved index lazily, as a Dask DataFrame."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
from distributed import Client

from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.query.plan import one_partition
from dgpuhash.distributed.storage.arrow_files import delayed_frames
from dgpuhash.distributed.storage.checkpoint import changes_in
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import MANIFEST, Manifest, load_with_retry
from dgpuhash.errors import DgpuhashError, UnsupportedError
from dgpuhash.frames.merge.verb import merge


def is_saved(path: str) -> bool:
    """Return whether a folder contains a saved index or another save of this library."""
    try:
        return Folder(path).has(MANIFEST)
    except DgpuhashError:
        # Whoever opens it says what is wrong with it.
        return False


def read_saved(path: str, client: Client) -> tuple[Any, list[Any]]:
    """Return the rows of a saved index as a lazy Dask DataFrame, and its key columns.

    A task reads each batch of a file, as `DistributedIndex.load` does, but nothing is indexed. Rows
    that the log says are erased are left out by a lazy anti join.

    Raises
    ------
    FormatError
        When the folder holds no saved index, or a damaged one; also by tasks.
    UnsupportedError
        When the index resolves second rows of a key as it answers.
    """
    folder = Folder(path)

    def load() -> tuple[Any, list[Any]]:
        manifest = Manifest.found_in(folder)
        if manifest.conflict is not Conflict.ERROR:
            raise UnsupportedError(
                f"{path} resolves second rows by conflict={manifest.conflict.value!r} when it is "
                f"read, which its files alone do not show; join it in Python with "
                f"DistributedIndex.load({path!r}).merge(left)"
            )
        on = list(manifest.encoder.names)
        rows = _frame(folder, manifest, manifest.shards)
        for change in changes_in(folder, manifest):
            files = [file for file in change.files if file is not None]
            if not files:
                continue
            made = _frame(folder, manifest, files, on if change.verb == "erase" else None)
            if change.verb != "insert":
                rows = merge(rows, made[on], how="anti", on=on, client=client)
            if change.verb != "erase":
                rows = dd.concat([rows, made])
        return rows, on

    return load_with_retry(folder, load)


def _frame(folder: Folder, manifest: Manifest, files: Any, columns: list[Any] | None = None) -> Any:
    meta = manifest.meta("pandas")
    meta = meta if columns is None else meta[columns]
    parts = delayed_frames(folder.url, files, "pandas")
    if not parts:
        return one_partition(meta)
    # Text keeps pandas' own dtype; Dask would convert it.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_delayed(parts, meta=meta, verify_meta=False)
