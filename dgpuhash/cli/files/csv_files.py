"""Read CSV files as one Dask DataFrame, in blocks of whole rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import IO, Any, NamedTuple

import pandas as pd
from dask.base import tokenize
from pandas.api.types import is_bool_dtype, is_object_dtype

from dgpuhash.cli.files.csv_rows import QuoteEffect, quote_effect, quoted_after, row_end
from dgpuhash.cli.files.paths import FileFormat, open_stream
from dgpuhash.cli.files.read_errors import check_columns, map_files, name_read_errors
from dgpuhash.distributed.cluster.dask_internals import (
    FromGraph,
    Task,
    TaskRef,
    clear_known_categories,
    new_collection,
)
from dgpuhash.errors import FormatError

# Dtypes that are not given are inferred from this many bytes.
SAMPLE_NBYTES = 16_000_000
BLOCK_NBYTES = 64_000_000
_HEADER_NBYTES = 1 << 16
# Bytes read after a block, to find the end of its last row.
_TAIL_NBYTES = 1 << 16
# Bound of a row, and so of the memory that quotes which are never closed may take.
LONGEST_ROW_NBYTES = 1 << 30
# Up to this number float64 represents each integer.
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True)
class _File:
    """Inspected file: its columns, its size if known, and its state.

    The state changes when the file changes.
    """

    columns: list[str]
    nbytes: int | None
    state: str


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that begin in a byte range of a file, or all rows of the file."""

    filesystem: Any
    path: str
    file: _File
    start: int
    nbytes: int | None


class _Read(NamedTuple):
    """Bytes of a block, with the byte before it and some bytes after it."""

    data: bytes
    turn: QuoteEffect


def read_csv(filesystem: Any, paths: list[str], form: FileFormat, dtypes: dict[str, str]) -> Any:
    """Return a Dask DataFrame of CSV files with the same columns.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    paths : list of str
    form : Form
        Format of all files.
    dtypes : dict
        Dtypes of columns; others are inferred from the first 16 MB.

    Raises
    ------
    FormatError
        When a file is not CSV, or has other columns than the first one.
    """
    files = map_files(partial(_inspect, form), filesystem, paths, "csv")
    check_columns({path: file.columns for path, file in files.items()})
    like = _sample(filesystem, paths, form, dtypes)
    blocks = [
        _Block(filesystem, path, file, start, nbytes)
        for path, file in files.items()
        for start, nbytes in _ranges(file.nbytes, form)
    ]
    token = tokenize(blocks, form, dtypes, like)
    graph, keys = _graph_of(
        blocks, form, partial(_rows_of, form=form, dtypes=dtypes, like=like), token
    )
    divisions = (None,) * (len(keys) + 1)
    return new_collection(FromGraph(graph, like, divisions, keys, "read-csv", _determ_token=token))


def _graph_of(
    blocks: list[_Block], form: FileFormat, rows_of: Callable[..., pd.DataFrame], token: str
) -> tuple[dict[Any, Task], list[Any]]:
    """Return the tasks that read the blocks, and the keys of the frames."""
    graph, keys = {}, []
    inside: Any = False
    for number, block in enumerate(blocks):
        key = f"csv-rows-{token}", number
        keys.append(key)
        if block.nbytes is None:
            graph[key] = Task(key, _whole, block, form, rows_of)
            continue
        read, after = (f"csv-bytes-{token}", number), (f"csv-quotes-{token}", number)
        if not block.start:
            inside = False
        graph[read] = Task(read, _bytes_of, block, form)
        graph[after] = Task(after, _after, TaskRef(read), inside)
        graph[key] = Task(key, _cut, block, form, rows_of, TaskRef(read), inside, TaskRef(after))
        inside = TaskRef(after)
    return graph, keys


def _inspect(form: FileFormat, filesystem: Any, path: str) -> _File:
    with open_stream(filesystem, path, form.compression, block_size=_HEADER_NBYTES) as stream:
        header = pd.read_csv(stream, sep=form.separator, nrows=0)
    return _File(list(header.columns), filesystem.info(path)["size"], filesystem.ukey(path))


def _ranges(nbytes: int | None, form: FileFormat) -> Iterable[tuple[int, int | None]]:
    """Return the start and the length of each block of a file."""
    if form.compression or nbytes is None or nbytes <= BLOCK_NBYTES:
        return [(0, None)]
    return [(start, BLOCK_NBYTES) for start in range(0, nbytes, BLOCK_NBYTES)]


def _sample(
    filesystem: Any, paths: list[str], form: FileFormat, dtypes: dict[str, str]
) -> pd.DataFrame:
    """Return an empty frame with the dtypes of the first rows."""
    for path in paths:
        with name_read_errors(path, "csv"):
            with open_stream(filesystem, path, form.compression) as stream:
                lines = stream.read(SAMPLE_NBYTES).count(b"\n")
            with open_stream(filesystem, path, form.compression) as stream:
                rows = _parse(stream, form, dtypes, nrows=max(1, lines))
            likely = [name for name in rows if name not in dtypes and _may_be_whole(rows[name])]
            if likely:
                with open_stream(filesystem, path, form.compression) as stream:
                    texts = _parse(stream, form, "str", nrows=max(1, lines), usecols=likely)
                whole = [name for name in likely if _are_integers(texts[name])]
                rows = rows.iloc[:0].astype(dict.fromkeys(whole, "Int64"))
                break
        if len(rows):
            break
    return clear_known_categories(rows.iloc[:0])


def _parse(source: IO[bytes], form: FileFormat, dtypes: Any, **options: Any) -> pd.DataFrame:
    rows = pd.read_csv(source, sep=form.separator, dtype=dtypes, low_memory=False, **options)
    if not rows.index.equals(pd.RangeIndex(len(rows))):
        # pandas reads additional leading fields as an index.
        raise pd.errors.ParserError("the rows have more fields than the header")
    return rows


def _where(block: _Block) -> str:
    return f"{block.path}, from byte {block.start:,} on," if block.start else block.path


def _whole(block: _Block, form: FileFormat, rows_of: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    with (
        name_read_errors(block.path, "csv"),
        open_stream(block.filesystem, block.path, form.compression) as stream,
    ):
        lines = stream.read()
    return rows_of(block, lines)


def _bytes_of(block: _Block, form: FileFormat) -> _Read:
    assert block.nbytes is not None
    # A line break is put before the first byte of a file.
    before = 1 if block.start else 0
    with (
        name_read_errors(_where(block), "csv"),
        open_stream(block.filesystem, block.path, form.compression) as stream,
    ):
        stream.seek(block.start - before)
        data = b"\n" * (1 - before) + stream.read(before + block.nbytes + _TAIL_NBYTES)
        while data.endswith(b'"') and (more := stream.read(_TAIL_NBYTES)):
            data += more
    stop = min(1 + block.nbytes, len(data))
    return _Read(data, quote_effect(data, 1, stop, form.separator))


def _after(read: _Read, inside: bool) -> bool:
    return quoted_after(inside, read.turn)


def _cut(
    block: _Block,
    form: FileFormat,
    rows_of: Callable[..., pd.DataFrame],
    read: _Read,
    inside: bool,
    inside_after: bool,
) -> pd.DataFrame:
    """Return the rows that begin in a block.

    `inside` and `inside_after` say whether the block begins and ends within quotes.

    Raises
    ------
    FormatError
        When the last row is longer than `LONGEST_ROW_NBYTES`.
    """
    assert block.nbytes is not None
    where, end = _where(block), 1 + block.nbytes
    longest = end + LONGEST_ROW_NBYTES

    def more(data: bytes) -> bytes:
        if len(data) >= longest:
            raise FormatError(
                f"{where} cannot be read as csv: a row goes on for more than "
                f"{LONGEST_ROW_NBYTES:,} bytes; close the quotes in it"
            )
        with open_stream(block.filesystem, block.path, form.compression) as stream:
            stream.seek(block.start - 1 + len(data))
            return data + stream.read(min(len(data), longest - len(data)))

    with name_read_errors(where, "csv"):
        data, start = read.data, 1
        if block.start:
            # Needs no more data: if this row ends beyond the block, no row begins in the block.
            data, start = row_end(data, 1, inside, form.separator, lambda data: data)
        if start <= end < len(data):
            data, stop = row_end(data, end, inside_after, form.separator, more)
        else:
            # No row begins in this block, or it is the last block.
            stop = len(data) if start <= end else start
    return rows_of(block, data[start:stop])


def _rows_of(
    block: _Block, lines: bytes, *, form: FileFormat, dtypes: dict[str, str], like: pd.DataFrame
) -> pd.DataFrame:
    if not lines:
        return like
    with name_read_errors(_where(block), "csv"):
        # Text columns stay text in blocks whose values look like numbers.
        texts = {name: each for name, each in like.dtypes.items() if each == "str"}
        names = {"names": block.file.columns, "header": None} if block.start else {}
        whole = {name: each for name, each in like.dtypes.items() if each == "Int64"}
        try:
            rows = _parse(BytesIO(lines), form, texts | whole | dtypes, **names)
        except (ValueError, TypeError):
            # What types these values have is told below.
            rows = _parse(BytesIO(lines), form, texts | dtypes, **names)
        rounded: list[Any] = [
            name for name in rows if name not in dtypes and _may_be_rounded(rows[name])
        ]
        if rounded:
            written = _parse(BytesIO(lines), form, "str", usecols=rounded, **names)
            rounded = [name for name in rounded if _are_integers(written[name])]
    if not len(rows):
        return like
    return _cast_exactly(
        rows[list(like)], like, dtypes, block.path, dict.fromkeys(rounded, "Int64")
    )


def _may_be_whole(values: pd.Series) -> bool:
    """Return whether pandas may have read integers as floats due to nulls."""
    there = values.dropna()
    return (
        values.dtype.kind == "f" and 0 < len(there) < len(values) and bool((there % 1 == 0).all())
    )


def _may_be_rounded(values: pd.Series) -> bool:
    """Return whether pandas may have rounded integers, as floats due to nulls."""
    return bool(values.dtype.kind == "f" and values.isna().any() and (abs(values) >= _EXACT).any())


def _are_integers(texts: pd.Series) -> bool:
    return bool(texts.dropna().str.fullmatch(r"\s*[+-]?\d+\s*").all())


def _cast_exactly(
    rows: pd.DataFrame, like: pd.DataFrame, given: dict[str, str], path: str, other: dict[str, str]
) -> pd.DataFrame:
    """Return the rows with the dtypes of `like`, if that changes no value.

    Raises
    ------
    FormatError
        When it would change values; the message names dtypes that hold all values. `other` has the
        dtypes already known for some columns.
    """
    for name in like.columns.difference([*given, *other]):
        dtype, values = like[name].dtype, rows[name]
        if _holds(dtype, values):
            rows = rows.astype({name: dtype})
        else:
            other[name] = _common_dtype(dtype, values)
    if other:
        types = (f"--dtype {shlex.quote(f'{name}={each}')}" for name, each in sorted(other.items()))
        raise FormatError(
            f"{path}: CSV columns have values that do not fit the types inferred from the first "
            f"rows; give their types: {' '.join(types)}"
        )
    return rows


def _holds(dtype: Any, values: pd.Series) -> bool:
    """Return whether `dtype` represents values read as another dtype exactly."""
    if is_object_dtype(dtype) and (is_bool_dtype(values) or values.isna().all()):
        return True
    if dtype.kind == "f" and values.dtype.kind in "iu":
        return bool(values.between(-_EXACT, _EXACT).all())
    return bool(values.dtype == dtype)


def _common_dtype(dtype: Any, values: pd.Series) -> str:
    """Return the dtype that holds values of `dtype` and the later `values`."""
    found: Any = values.dtype
    if dtype.kind in "iuf" and found.kind in "iuf":
        if found.kind == "f" and (values.dropna() % 1 != 0).any():
            return "float64"
        return "UInt64" if found.kind == "u" else "Int64"
    truths = [is_bool_dtype(each) or is_object_dtype(each) for each in (dtype, found)]
    return "boolean" if truths[0] and (truths[1] or values.isna().all()) else "str"
