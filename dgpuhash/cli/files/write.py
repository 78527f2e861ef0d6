"""Write Dask DataFrames atomically, to one file or to a directory."""

from __future__ import annotations

import errno
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, as_completed, futures_of
from fsspec.compression import compr

from dgpuhash.cli.errors import NO_ROOM
from dgpuhash.cli.files.arrow_schema import schema_of, to_pandas, untyped_columns
from dgpuhash.cli.files.paths import (
    FileFormat,
    canonical_path,
    files_of,
    filesystem_of,
    format_of,
    is_directory,
    open_stream,
)
from dgpuhash.cli.files.streams import is_stream, with_ending
from dgpuhash.cli.files.texts import json_lines
from dgpuhash.distributed.query.plan import persist_unfused
from dgpuhash.errors import UnsupportedError
from dgpuhash.tables.serialization import (
    check_absent,
    check_no_pattern,
    read_only_error,
    rename_into_place,
)

# Attempts to remove a directory: other tasks may still write to it after one has failed.
_REMOVALS = 3
# Kinds whose files have no types of columns.
_TEXTS = ("csv", "json")


def check_target(target: str, sources: Sequence[str] = (), *, overwrite: bool = False) -> None:
    """Raise early for an unwritable target, or one among the sources.

    Parameters
    ----------
    target : str
        As for `write`.
    sources : sequence of str
        Sources of the rows, as for `read`.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    ExistsError
        When the file exists and `overwrite` is False.
    UnsupportedError
        When the ending is of no known format, the file system is unknown, the name
        of a file is that of a directory, a target directory is not empty, or the target is a
        source.
    SpecError
        When the name is a pattern.
    FileNotFoundError
        When the folder of the file, or a source, does not exist.
    """
    _form_of(target)
    if is_stream(target):
        return
    filesystem, path = filesystem_of(target)
    check_no_pattern(target, filesystem)
    if target.endswith("/"):
        if filesystem.exists(path) and filesystem.ls(path):
            raise _not_empty(target)
        _check_place(target, filesystem, path)
        return
    if is_directory(filesystem, path):
        raise UnsupportedError(
            f"{target} is a directory; name another file, or {target}/ for files in it if it is "
            "empty"
        )
    parent = filesystem._parent(path)
    if _is_local(filesystem) and not filesystem.isdir(parent):
        raise FileNotFoundError(f"{target}: there is no folder {parent}; make it first")
    for source in sources:
        system, files = files_of(source)
        places = {canonical_path(system, file) for file in files}
        if system == filesystem and canonical_path(filesystem, path) in places:
            raise UnsupportedError(f"{target} is one of the sources; name another file")
    check_absent(target, overwrite=overwrite)
    _check_place(target, filesystem, path)


def _form_of(target: str) -> FileFormat:
    """Return the format of a target; a directory without a suffix is Parquet."""
    if is_stream(target):
        return format_of(with_ending(target))
    plain = target.endswith("/") and not PurePosixPath(target).suffix
    return format_of(f"{target.rstrip('/')}.parquet" if plain else target)


def _check_place(target: str, filesystem: Any, path: str) -> None:
    """Raise OSError unless a local target, or a folder above it, can be written."""
    if not _is_local(filesystem):
        return
    place = Path(path)
    if target.endswith("/"):
        # Those folders that are not there yet are made.
        place = next(each for each in (place, *place.parents) if each.exists()) / "dgpuhash"
    with name_write_errors(target):
        trial = Path(_partial(str(place)))
        trial.touch()
        trial.unlink()


def write(
    frame: Any,
    target: str,
    client: Client,
    *,
    overwrite: bool = False,
    written: Callable[[], None] = lambda: None,
) -> int:
    """Write a Dask DataFrame; return its number of rows.

    A target that ends with ``/`` becomes a directory with one file for each partition, written by
    the workers. Any other target becomes one file, written by this process in the order of the
    partitions; `-` is standard output. Files and directories appear under their names only when
    they are complete, with one exception: on file systems that are not local, a directory is filled
    under its own name, and removed when the write fails. `written` is called whenever a partition
    is written.

    Raises
    ------
    ExistsError
        When a file of this name was created meanwhile and `overwrite` is False; best effort on file
        systems that are not local.
    OSError
        When the target cannot be written; raised before any computation where this is known.
    """
    form = _form_of(target)
    with name_write_errors(target):
        if target.endswith("/"):
            with _whole_directory(target) as url:
                return _fill(frame, url, form, client, written)
        with (
            _standard_output(form)
            if is_stream(target)
            else _whole_file(target, form, overwrite) as stream
        ):
            futures = client.compute(frame.to_delayed())
            schema = None if form.kind in _TEXTS else schema_of(frame._meta, futures, client)
            return _save(_results(futures, written), frame._meta, form, schema, stream)


@contextmanager
def name_write_errors(target: str) -> Iterator[None]:
    """Turn file-system errors in the block into errors that name `target`.

    Raises
    ------
    OSError
        With the name that the user gave, when the file system refuses the write.
    UnsupportedError
        When the file system is read-only, like HTTP.
    """
    try:
        yield
    except NotImplementedError as error:
        if error.args:
            # fsspec's own NotImplementedErrors have no message.
            raise
        raise read_only_error(target) from error
    except OSError as error:
        if error.strerror is None or isinstance(error, BrokenPipeError):
            # The error of a connection, or of whoever reads standard output; not of a file.
            raise
        remedy = "choose a place that you may write to"
        if error.errno in NO_ROOM:
            remedy = "make room there, or choose another place"
        raise OSError(f"{target} cannot be written: {error.strerror}; {remedy}") from error


def _is_local(filesystem: Any) -> bool:
    return "file" in filesystem.protocol


@contextmanager
def _standard_output(form: FileFormat) -> Iterator[IO[bytes]]:
    if form.compression is None:
        yield sys.stdout.buffer
    else:
        with compr[form.compression](sys.stdout.buffer, mode="wb") as stream:
            yield stream
    sys.stdout.buffer.flush()


@contextmanager
def _whole_file(target: str, form: FileFormat, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a stream to a file that gets the name `target` after the block.

    When the block fails, no file is left.
    """
    filesystem, path = filesystem_of(target)
    partial = _partial(path)
    try:
        with open_stream(filesystem, partial, form.compression, "wb") as stream:
            yield stream
        if _is_local(filesystem):
            rename_into_place(Path(partial), path, overwrite=overwrite)
        else:
            check_absent(target, overwrite=overwrite)
            filesystem.mv(partial, path)
    except BaseException:
        if not is_directory(filesystem, partial):
            _remove(filesystem, partial)
        raise


@contextmanager
def _whole_directory(target: str) -> Iterator[str]:
    """Yield the URL of a directory that is named `target` after the block.

    When the block fails, the directory is removed.
    """
    filesystem, path = filesystem_of(target)
    # Resolve links: the directory behind a link is replaced.
    path = canonical_path(filesystem, path)
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
                # Another process has filled the directory meanwhile.
                raise _not_empty(target) from error
    except BaseException:
        _remove(filesystem, filled)
        raise


def _partial(path: str) -> str:
    """Return an unused name for an incomplete file or directory."""
    return f"{path}.{uuid.uuid4().hex[:12]}.partial"


def _not_empty(target: str) -> UnsupportedError:
    return UnsupportedError(f"{target} is not empty; remove it or name another directory")


def _remove(filesystem: Any, path: str) -> None:
    """Remove an incomplete file or directory; ignore errors.

    The error that led here is more important than a file that stays.
    """
    for _ in range(_REMOVALS):
        with suppress(OSError, NotImplementedError):
            if filesystem.exists(path):
                filesystem.rm(path, recursive=True)
            return


def _fill(
    frame: Any, url: str, form: FileFormat, client: Client, written: Callable[[], None]
) -> int:
    """Write a file per partition to the directory `url`, on workers; return the number of rows."""
    meta, schema = frame._meta, None
    if form.kind not in _TEXTS:
        if untyped_columns(meta):
            frame = persist_unfused(client, frame)
        schema = schema_of(meta, futures_of(frame), client)
    parts = frame.to_delayed()
    digits = len(str(len(parts)))
    save = dask.delayed(partial(_save_part, meta=meta, form=form, schema=schema), pure=False)
    # One graph, so that partitions are written while others are computed.
    tasks = [
        save(part, f"{url}/part-{number:0{digits}}{form.ending}")
        for number, part in enumerate(parts)
    ]
    del parts, frame
    rows = 0
    for _, count in as_completed(client.compute(tasks), with_results=True):
        rows += count
        written()
    return rows


def _save_part(
    part: Any, file: str, *, meta: pd.DataFrame, form: FileFormat, schema: pa.Schema | None
) -> int:
    filesystem, path = filesystem_of(file)
    with open_stream(filesystem, path, form.compression, "wb") as stream:
        return _save([to_pandas(part)], meta, form, schema, stream)


def _results(futures: list[Any], written: Callable[[], None]) -> Iterator[pd.DataFrame]:
    """Yield each result as pandas, in order.

    Drops each future at once, which frees the partition's memory on the workers.
    """
    while futures:
        yield to_pandas(futures.pop(0).result())
        written()


def _save(
    parts: Iterable[pd.DataFrame],
    meta: pd.DataFrame,
    form: FileFormat,
    schema: pa.Schema | None,
    stream: IO[bytes],
) -> int:
    """Write partitions to a stream, one after the other; return their rows."""
    if form.kind == "csv":
        return _save_csv(parts, meta, form.separator, stream)
    if form.kind == "json":
        return _save_json(parts, stream)
    new = pq.ParquetWriter if form.kind == "parquet" else pa.ipc.new_file
    rows, begun = 0, first_of(parts)
    with new(stream, schema) as writer:
        for part in begun:
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))
            rows += len(part)
    return rows


def first_of(parts: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
    """Return the partitions with the first one computed, so that errors come before any output.

    Standard output has no header then of what fails.
    """
    left = iter(parts)
    return chain(list(islice(left, 1)), left)


def _save_json(parts: Iterable[pd.DataFrame], stream: IO[bytes]) -> int:
    rows = 0
    for part in parts:
        stream.writelines(
            line.encode() for line in json_lines(pa.Table.from_pandas(part, preserve_index=False))
        )
        rows += len(part)
    return rows


def _save_csv(
    parts: Iterable[pd.DataFrame], meta: pd.DataFrame, separator: str, stream: IO[bytes]
) -> int:
    rows, begun = 0, first_of(parts)
    stream.write(meta.iloc[:0].to_csv(index=False, sep=separator).encode())
    for part in begun:
        stream.write(part.to_csv(index=False, header=False, sep=separator).encode())
        rows += len(part)
    return rows
