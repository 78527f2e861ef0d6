"""Dask DataFrames into one file, or a directory of them: whole, or not at all."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, futures_of

from dgpuhash.cli.files.arrow_schema import of_pandas, schema_of, unsaid_of
from dgpuhash.cli.files.paths import (
    Form,
    files_of,
    form_of,
    is_directory,
    opened,
    place_of,
    system_of,
)
from dgpuhash.distributed.query.plan import persist_whole
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.serialization import check_absent, check_plain, only_reads, publish

__all__ = ["check_target", "write", "writing"]

# A directory into which other tasks still write when one has failed may not be empty once its files
# are gone.
_REMOVALS = 3
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def check_target(target: str, source: str | None = None, *, overwrite: bool = False) -> None:
    """Refuse a target that could not be written, or is read, before any work is done.

    Parameters
    ----------
    target : str
        As for `write`.
    source : str, optional
        As for `read`: where the rows come from.
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    ExistsError
        When a file is there, and there is no `overwrite`.
    UnsupportedError
        When the ending is neither Parquet nor CSV, no file system is known, a file's name is that
        of a directory, a directory of results is not empty, or the target is one of the sources.
    SpecError
        When the name is a pattern.
    FileNotFoundError
        When the folder for the file does not exist, or no file is the source.
    """
    form_of(target)
    filesystem, path = system_of(target)
    check_plain(target, filesystem)
    if target.endswith("/"):
        if filesystem.exists(path) and filesystem.ls(path):
            raise _not_empty(target)
        return
    if is_directory(filesystem, path):
        raise UnsupportedError(
            f"{target} is a directory; name another file, or {target}/ for files in it if it is "
            "empty"
        )
    parent = filesystem._parent(path)
    if _is_local(filesystem) and not filesystem.isdir(parent):
        raise FileNotFoundError(f"{target}: there is no folder {parent}; make it first")
    if source is not None:
        system, files = files_of(source)
        places = {place_of(system, file) for file in files}
        if system == filesystem and place_of(filesystem, path) in places:
            raise UnsupportedError(f"{target} is one of the sources; name another file")
    check_absent(target, overwrite=overwrite)


def write(frame: Any, target: str, client: Client, *, overwrite: bool = False) -> int | None:
    """Write a Dask DataFrame; returns its number of rows where it is known.

    A target that ends with ``/`` becomes a directory with a file for each partition, written by the
    workers. Any other becomes one file, written here in the order of the partitions. Both appear
    under their names only when they are whole; directories of other than local file systems fill
    under theirs, and are removed when that fails.

    Raises
    ------
    ExistsError
        When another file has got that name meanwhile, and there is no `overwrite`; best effort on
        other than local file systems.
    OSError
        When the target cannot be written; before anything is computed, where that is known.
    """
    form = form_of(target)
    with writing(target):
        if target.endswith("/"):
            with _whole_directory(target) as url:
                _fill(frame, url, form, client)
            return None
        with _whole_file(target, form, overwrite) as stream:
            futures = client.compute(frame.to_delayed())
            if form.kind == "csv":
                return _save_csv(_results(futures), frame._meta, form.separator, stream)
            schema = schema_of(frame._meta, futures, client)
            return _save_parquet(_results(futures), schema, stream)


@contextmanager
def writing(target: str) -> Iterator[None]:
    """Say of what a file system refuses in the block that `target` cannot be written.

    Raises
    ------
    OSError
        With the name that the user gave.
    UnsupportedError
        When the file system only reads, as that of HTTP.
    """
    try:
        yield
    except NotImplementedError as error:
        if error.args:
            # fsspec's own say nothing.
            raise
        raise only_reads(target) from error
    except OSError as error:
        if error.strerror is None:
            # Of a connection, and no file.
            raise
        remedy = "choose a place that you may write to"
        if error.errno in _NO_ROOM:
            remedy = "make room there, or choose another place"
        raise OSError(f"{target} cannot be written: {error.strerror}; {remedy}") from error


def _is_local(filesystem: Any) -> bool:
    return "file" in filesystem.protocol


@contextmanager
def _whole_file(target: str, form: Form, overwrite: bool) -> Iterator[IO[bytes]]:
    """A stream whose bytes are under the name `target` after the block, or nowhere."""
    filesystem, path = system_of(target)
    partial = _partial(path)
    try:
        with opened(filesystem, partial, form.compression, "wb") as stream:
            yield stream
        if _is_local(filesystem):
            publish(Path(partial), path, overwrite=overwrite)
        else:
            check_absent(target, overwrite=overwrite)
            filesystem.mv(partial, path)
    except BaseException:
        if not is_directory(filesystem, partial):
            _remove(filesystem, partial)
        raise


@contextmanager
def _whole_directory(target: str) -> Iterator[str]:
    """The URL of a directory that is called `target` after the block, or is gone."""
    filesystem, path = system_of(target)
    # Through a link: the directory that is replaced is the one behind it.
    path = place_of(filesystem, path)
    filled = _partial(path) if _is_local(filesystem) else path
    try:
        filesystem.makedirs(filled, exist_ok=filled == path)
        yield filesystem.unstrip_protocol(filled)
        if filled != path:
            try:
                Path(filled).replace(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # Somebody else has filled it meanwhile.
                raise _not_empty(target) from error
    except BaseException:
        _remove(filesystem, filled)
        raise


def _partial(path: str) -> str:
    """A name that nothing has, for what is not whole."""
    return f"{path}.{uuid.uuid4().hex[:12]}.partial"


def _not_empty(target: str) -> UnsupportedError:
    return UnsupportedError(f"{target} is not empty; remove it or name another directory")


def _remove(filesystem: Any, path: str) -> None:
    """Remove what was begun; what happened before is more worth telling than that it stays."""
    for _ in range(_REMOVALS):
        with suppress(OSError, NotImplementedError):
            if filesystem.exists(path):
                filesystem.rm(path, recursive=True)
            return


def _fill(frame: Any, url: str, form: Form, client: Client) -> None:
    """A file for each partition in the directory `url`, written by the workers."""
    if form.kind == "csv":
        frame.to_csv(
            f"{url}/part-*{form.ending}", index=False, sep=form.separator,
            compression=form.compression,
        )  # fmt: skip
        return
    if unsaid_of(frame._meta):
        frame = persist_whole(client, frame)
    schema = schema_of(frame._meta, futures_of(frame), client)
    frame.to_parquet(url, write_index=False, schema=schema)


def _results(futures: list[Any]) -> Iterator[pd.DataFrame]:
    """Each result as pandas, in order; a partition's memory on the workers is freed at once."""
    while futures:
        yield of_pandas(futures.pop(0).result())


def _save_parquet(parts: Iterable[pd.DataFrame], schema: pa.Schema, stream: IO[bytes]) -> int:
    rows = 0
    with pq.ParquetWriter(stream, schema) as writer:
        for part in parts:
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))
            rows += len(part)
    return rows


def _save_csv(
    parts: Iterable[pd.DataFrame], meta: pd.DataFrame, separator: str, stream: IO[bytes]
) -> int:
    rows = 0
    stream.write(meta.iloc[:0].to_csv(index=False, sep=separator).encode())
    for part in parts:
        stream.write(part.to_csv(index=False, header=False, sep=separator).encode())
        rows += len(part)
    return rows
