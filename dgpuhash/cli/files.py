"""Parquet and CSV files, globs and URLs as Dask DataFrames, and back into one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import dask
import dask.dataframe as dd
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, futures_of

from dgpuhash.errors import FormatError, UnsupportedError
from dgpuhash.tables.persist import check_plain

__all__ = ["check_target", "read", "unwritable", "write"]

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
CSV_SAMPLE = 16_000_000


def kind_of(path: str) -> str:
    """ "parquet" or "csv", from the ending of `path`.

    Raises
    ------
    UnsupportedError
        For every other ending.

    Examples
    --------
    >>> kind_of("s3://bucket/planes-*.csv.gz"), kind_of("out.parquet/")
    ('csv', 'parquet')
    """
    name = path.rstrip("/").lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    if name.endswith((".parquet", ".pq", ".parq")):
        return "parquet"
    if name.endswith((".csv", ".tsv")):
        return "csv"
    raise UnsupportedError(f"{path}: the ending says neither Parquet nor CSV; use .parquet or .csv")


def read(pattern: str, dtypes: dict[str, str] | None = None) -> Any:
    """A Dask DataFrame of the files that `pattern` (a path, glob or fsspec URL) names.

    Parameters
    ----------
    pattern : str
        E.g. ``flights-*.parquet`` or ``s3://bucket/flights.csv``.
    dtypes : dict, optional
        Types of columns: of CSV, where those found in the first 16 MB are wrong; of Parquet, where
        integers or truth values have nulls (``"Int64"``, ``"boolean"``).

    Raises
    ------
    FileNotFoundError
        When nothing matches.
    FormatError
        When a file is not what its ending says, when CSV files differ in separator or compression,
        or a type is given for a column that is not there.
    UnsupportedError
        When some files are Parquet and others CSV.
    """
    urls = _matching(pattern)
    kind, *others = {kind_of(url) for url in urls}
    if others:
        raise UnsupportedError(f"{pattern} names Parquet and CSV files; read one kind at a time")
    try:
        return _read(urls, kind, dtypes or {})
    except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise FormatError(f"{pattern} cannot be read as {kind}: {error}") from error


def _read(urls: list[str], kind: str, dtypes: dict[str, str]) -> Any:
    # Text gets the dtype that pandas itself reads, not the one that Dask would change it to.
    with dask.config.set({"dataframe.convert-string": False}):
        if kind == "parquet":
            # What pandas wrote as an index is a column to those who write no Python.
            return dd.read_parquet(urls, index=False).astype(dtypes)
        forms = {_form(url): url for url in urls}
        if len(forms) > 1:
            raise ValueError(
                f"the files have different endings, as {' and '.join(forms.values())}; read those "
                "of one separator and compression at a time"
            )
        ((separator, compressed),) = forms
        frame = dd.read_csv(
            urls,
            blocksize=None if compressed else "64MB",
            compression="infer",
            dtype=dtypes,
            sample=CSV_SAMPLE,
            sep=separator,
        )
    unknown = [name for name in dtypes if name not in frame.columns]
    if unknown:
        raise ValueError(
            f"no columns {unknown!r} for these types; there are {list(frame.columns)!r}"
        )
    return frame


def _form(url: str) -> tuple[str, str]:
    """The separator of a CSV file, and the ending of its compression."""
    name = url.rstrip("/").lower()
    compressed = next((ending for ending in _COMPRESSED if name.endswith(ending)), "")
    separator = "\t" if name.removesuffix(compressed).endswith(".tsv") else ","
    return separator, compressed


def _system_of(url: str) -> tuple[Any, str]:
    try:
        return fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnsupportedError(f"{url} cannot be opened: {error}") from error


def _matching(pattern: str) -> list[str]:
    filesystem, path = _system_of(pattern)
    paths = sorted(filesystem.glob(path)) if _is_glob(path) else [path]
    if not paths or not all(filesystem.exists(path) for path in paths):
        raise FileNotFoundError(f"{pattern}: no such file; check the path (globs need quotes)")
    return [filesystem.unstrip_protocol(path) for path in paths]


def _is_glob(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def check_target(target: str, source: str | None = None) -> None:
    """Refuse a target that could not be written, or is read, before any work is done.

    Parameters
    ----------
    target : str
        As for `write`.
    source : str, optional
        As for `read`: where the rows come from.

    Raises
    ------
    UnsupportedError
        When the ending is neither Parquet nor CSV, no file system is known, a directory of
        results is not empty, or the target is one of the sources.
    SpecError
        When the name is a pattern.
    FileNotFoundError
        When the folder for the file does not exist.
    """
    kind_of(target)
    filesystem, path = _system_of(target)
    check_plain(target, filesystem)
    if target.endswith("/"):
        if filesystem.exists(path) and filesystem.ls(path):
            raise UnsupportedError(f"{target} is not empty; remove it or name another directory")
        return
    parent = filesystem._parent(path)
    if "file" in filesystem.protocol and not filesystem.isdir(parent):
        raise FileNotFoundError(f"{target}: there is no folder {parent}; make it first")
    if source is not None and _place(filesystem, path) in _places_of(source, filesystem):
        raise UnsupportedError(f"{target} is one of the sources; name another file")


def _places_of(source: str, filesystem: Any) -> set[str]:
    """Where the files of `filesystem` are that `source` names, those in directories too."""
    found, path = _system_of(source)
    if found != filesystem:
        return set()
    paths = found.glob(path) if _is_glob(path) else [path]
    return {_place(found, file) for each in paths for file in found.find(each)}


def _place(filesystem: Any, path: str) -> str:
    """The same for all names of a file."""
    return os.path.realpath(path) if "file" in filesystem.protocol else path


def write(frame: Any, target: str, client: Client) -> int | None:
    """Write a Dask DataFrame; returns its number of rows where it is known.

    A target that ends with ``/`` becomes a directory with a file for each partition, written by the
    workers. Any other becomes one file, written here in the order of the partitions; it appears
    under its name only when it is whole.

    Raises
    ------
    OSError
        When the target cannot be written, before anything is computed.
    """
    kind = kind_of(target)
    if target.endswith("/"):
        filesystem, path = fsspec.url_to_fs(target)
        try:
            filesystem.makedirs(path, exist_ok=True)
        except OSError as error:
            raise unwritable(target, error) from error
        if kind == "parquet":
            if _unsaid(frame._meta):
                frame = client.persist(frame)
            schema = _schema(frame._meta, futures_of(frame), client)
            frame.to_parquet(target, write_index=False, schema=schema)
        else:
            frame.to_csv(f"{target}part-*.csv", index=False)
        return None
    with _whole(target) as stream:
        futures = client.compute(frame.to_delayed())
        if kind == "csv":
            return _save_csv(_results(futures), frame._meta, stream)
        schema = _schema(frame._meta, futures, client)
        return _save_parquet(_results(futures), schema, stream)


def _results(futures: list[Any]) -> Iterator[pd.DataFrame]:
    """Each result as pandas, in order; a partition's memory on the workers is freed at once."""
    while futures:
        yield _of_pandas(futures.pop(0).result())


def _of_pandas(part: Any) -> pd.DataFrame:
    return part if isinstance(part, pd.DataFrame) else part.to_pandas()


@contextmanager
def _whole(target: str) -> Iterator[IO[bytes]]:
    """A stream whose bytes are under the name `target` after the block, or nowhere."""
    filesystem, path = fsspec.url_to_fs(target)
    partial = f"{path}.partial"
    try:
        stream = filesystem.open(partial, "wb")
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        with stream:
            yield stream
        filesystem.mv(partial, path)
    except BaseException:
        if filesystem.exists(partial):
            filesystem.rm(partial)
        raise


def unwritable(target: str, error: OSError) -> OSError:
    """The error of a part of `target`, with the name that the user gave."""
    said = error.strerror or str(error)
    return OSError(f"{target} cannot be written: {said}; choose a place that you may write to")


def _save_parquet(parts: Iterable[pd.DataFrame], schema: pa.Schema, stream: IO[bytes]) -> int:
    rows = 0
    with pq.ParquetWriter(stream, schema) as writer:
        for part in parts:
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))
            rows += len(part)
    return rows


def _schema(meta: pd.DataFrame, parts: list[Any], client: Client) -> pa.Schema:
    """The Arrow schema of partitions like `meta`; their workers look where it says nothing.

    That is so of objects and unknown categories; where all are null, they are text.

    Raises
    ------
    UnsupportedError
        When the objects of a column have no type in common.
    """
    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    unsaid = _unsaid(meta)
    if not unsaid:
        return schema
    try:
        told = client.gather(client.map(_types_of, parts, columns=unsaid, pure=False))
        found = pa.unify_schemas(told, promote_options="permissive")
    except pa.ArrowException as error:
        raise UnsupportedError(
            f"one of the columns {unsaid} holds values of several types ({error}), which a Parquet "
            "file cannot; write a .csv file"
        ) from error
    for name in unsaid:
        position = found.get_field_index(name)
        dtype = pa.string() if position < 0 else found.field(position).type
        schema = schema.set(schema.get_field_index(name), pa.field(name, dtype))
    return schema


def _unsaid(meta: pd.DataFrame) -> list[str]:
    """The columns of whose Arrow type an empty frame says nothing."""

    def says_nothing(dtype: pa.DataType) -> bool:
        return bool(pa.types.is_null(dtype.value_type if pa.types.is_dictionary(dtype) else dtype))

    schema = pa.Schema.from_pandas(meta, preserve_index=False)
    return [field.name for field in schema if says_nothing(field.type)]


def _types_of(part: Any, columns: list[str]) -> pa.Schema:
    """Of those columns of a partition that hold something."""
    held = _of_pandas(part)[columns].dropna(axis=1, how="all")
    schema = pa.Schema.from_pandas(held, preserve_index=False).remove_metadata()
    for position, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            # Codes are as narrow as a partition's categories allow.
            dtype = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            schema = schema.set(position, field.with_type(dtype))
    return schema


def _save_csv(parts: Iterable[pd.DataFrame], meta: pd.DataFrame, stream: IO[bytes]) -> int:
    rows = 0
    stream.write(meta.iloc[:0].to_csv(index=False).encode())
    for part in parts:
        stream.write(part.to_csv(index=False, header=False).encode())
        rows += len(part)
    return rows
