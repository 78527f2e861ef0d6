"""Read JSON lines and Arrow IPC files as one Dask DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.json as pj

from dgpuhash.cli.files.parquet_files import NULLABLE, common_schema
from dgpuhash.cli.files.paths import FileFormat, open_stream
from dgpuhash.cli.files.read_errors import check_columns, map_files, name_read_errors
from dgpuhash.errors import FormatError

# Types of columns are those of so many bytes of each file.
SAMPLE_NBYTES = 16_000_000
BLOCK_NBYTES = 64_000_000
# Of Arrow's parser of JSON.
_LARGEST_BLOCK = 1 << 30
_PIECE = 1 << 20


class _Part(NamedTuple):
    """Rows that begin in a range of bytes or batches; without `stop`, all rows."""

    filesystem: Any
    path: str
    start: int
    stop: int | None


def read_json(filesystem: Any, paths: list[str], form: FileFormat, dtypes: dict[str, str]) -> Any:
    """Return a Dask DataFrame of JSON lines: an object for each row.

    Integers and truths get pandas' nullable dtypes, as any value may be absent. Columns are those
    of the first 16 MB of each file, and of `dtypes`.

    Raises
    ------
    FormatError
        When a file is not JSON lines; also by tasks, for another column or type further down.
    """
    seen = map_files(partial(_sample, form), filesystem, paths, "JSON lines")
    schema = common_schema(seen)
    for place, field in enumerate(schema):
        given = _type_of(dtypes[field.name]) if field.name in dtypes else None
        if given is not None or pa.types.is_null(field.type):
            schema = schema.set(place, field.with_type(given or pa.string()))
    parts = [
        _Part(filesystem, path, start, stop)
        for path in paths
        for start, stop in _ranges(filesystem, path, form)
    ]
    meta = schema.empty_table().to_pandas(types_mapper=NULLABLE.get)
    return dd.from_map(_json_rows, parts, form=form, schema=schema, meta=meta)


def read_arrow(filesystem: Any, paths: list[str]) -> Any:
    """Return a Dask DataFrame of files in Arrow's IPC format with the same columns.

    Integers and truths get pandas' nullable dtypes where a file has nulls among them, for which
    each file is read once before.

    Raises
    ------
    FormatError
        When a file is no such file, or has other columns than the first file.
    """
    seen = map_files(_batches_in, filesystem, paths, "Arrow")
    check_columns({path: schema.names for path, (schema, _, _) in seen.items()})
    common = common_schema({path: schema for path, (schema, _, _) in seen.items()})
    with_nulls = set().union(*(names for _, _, names in seen.values()))
    types = {field.type for field in common if field.name in with_nulls}
    nullable = {each: dtype for each, dtype in NULLABLE.items() if each in types}
    parts = [
        _Part(filesystem, path, first, last)
        for path, (_, sizes, _) in seen.items()
        for first, last in _runs(sizes)
    ]
    meta = common.empty_table().to_pandas(types_mapper=nullable.get)
    return dd.from_map(_arrow_rows, parts, schema=common, nullable=nullable, meta=meta)


def _sample(form: FileFormat, filesystem: Any, path: str) -> pa.Schema:
    with open_stream(filesystem, path, form.compression) as stream:
        data = stream.read(SAMPLE_NBYTES)
        while more := stream.read(_PIECE):
            # A row that is longer than the sample is read whole.
            if b"\n" in data:
                data = data[: data.rindex(b"\n")]
                break
            data += more
    return _parse(data, None).schema if data.strip() else pa.schema([])


def _parse(data: bytes, schema: pa.Schema | None) -> pa.Table:
    size = min(max(len(data) + 1, _PIECE), _LARGEST_BLOCK)
    return pj.read_json(
        BytesIO(data),
        read_options=pj.ReadOptions(block_size=size),
        parse_options=pj.ParseOptions(explicit_schema=schema),
    )


def _ranges(filesystem: Any, path: str, form: FileFormat) -> Iterable[tuple[int, int | None]]:
    nbytes = filesystem.info(path)["size"]
    if form.compression or nbytes is None or nbytes <= BLOCK_NBYTES:
        return [(0, None)]
    return [(start, start + BLOCK_NBYTES) for start in range(0, nbytes, BLOCK_NBYTES)]


def _json_rows(part: _Part, form: FileFormat, schema: pa.Schema) -> pd.DataFrame:
    where = f"{part.path}, from byte {part.start:,} on," if part.start else part.path
    with (
        name_read_errors(where, "JSON lines"),
        open_stream(part.filesystem, part.path, form.compression) as stream,
    ):
        data = stream.read() if part.stop is None else _lines(stream, part.start, part.stop)
        rows = _parse(data, schema) if data.strip() else schema.empty_table()
        new = [name for name in rows.column_names if name not in schema.names]
        if new:
            raise FormatError(
                f"{where} has the columns {new!r}, which the first {SAMPLE_NBYTES:,} bytes of no "
                "file have; write them into the first row, null where they have no value"
            )
        return rows.select(schema.names).to_pandas(types_mapper=NULLABLE.get)


def _lines(stream: Any, start: int, stop: int) -> bytes:
    """Return the lines that begin in a range; a line break in a value is written as an escape."""
    # The byte before tells whether a line begins at the first one.
    stream.seek(max(start - 1, 0))
    data = bytes(stream.read(stop - max(start - 1, 0)))
    first = 0 if start == 0 else data.find(b"\n") + 1
    if start and not first:
        return b""
    while not data.endswith(b"\n") and (more := stream.read(_PIECE)):
        end = more.find(b"\n")
        data += more if end < 0 else more[: end + 1]
    return data[first:]


def _type_of(dtype: str) -> pa.DataType | None:
    """Return Arrow's type of a dtype, or None where there is none."""
    try:
        found = pd.api.types.pandas_dtype(dtype)
        if isinstance(found, pd.StringDtype):
            return pa.string()
        return pa.from_numpy_dtype(getattr(found, "numpy_dtype", found))
    except (TypeError, pa.ArrowException):
        return None


def _batches_in(filesystem: Any, path: str) -> tuple[pa.Schema, list[int], set[str]]:
    """Return the schema, the bytes of each batch, and the columns with nulls."""
    sizes, with_nulls = [], set()
    with filesystem.open(path, "rb") as stream, pa.ipc.open_file(stream) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            sizes.append(batch.nbytes)
            with_nulls |= {name for name in batch.schema.names if batch.column(name).null_count}
        return reader.schema, sizes, with_nulls


def _runs(sizes: list[int]) -> Iterable[tuple[int, int]]:
    """Yield ranges of batches that have about as many bytes as a block."""
    first = nbytes = 0
    for place, size in enumerate(sizes):
        if nbytes and nbytes + size > BLOCK_NBYTES:
            yield first, place
            first, nbytes = place, 0
        nbytes += size
    yield first, len(sizes)


def _arrow_rows(part: _Part, schema: pa.Schema, nullable: dict[Any, Any]) -> pd.DataFrame:
    with (
        name_read_errors(part.path, "Arrow"),
        part.filesystem.open(part.path, "rb") as stream,
        pa.ipc.open_file(stream) as reader,
    ):
        batches = [reader.get_batch(number) for number in range(part.start, part.stop or 0)]
        rows = pa.Table.from_batches(batches, reader.schema).select(schema.names).cast(schema)
        return rows.to_pandas(types_mapper=nullable.get)
