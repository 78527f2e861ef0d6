"""CSV files as one Dask DataFrame, in blocks of whole lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import IO, Any

import dask.dataframe as dd
import pandas as pd
from dask.dataframe.utils import clear_known_categories
from fsspec.utils import read_block
from pandas.api.types import is_bool_dtype, is_object_dtype

from dgpuhash.cli.places import Form, opened
from dgpuhash.cli.reading import check_columns, of_each_file, reading
from dgpuhash.errors import FormatError

__all__ = ["read_csv"]

# Types are those of the values in so many bytes, where they are not given.
SAMPLE_NBYTES = 16_000_000
BLOCK_NBYTES = 64_000_000
_HEADER_NBYTES = 1 << 16
# Up to here each integer is a float.
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was looked at: its columns, its size where that is known, and its state."""

    columns: list[str]
    nbytes: int | None
    state: str


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines that begin in a range of a file's bytes, or all of them."""

    filesystem: Any
    path: str
    file: _File
    start: int
    nbytes: int | None


def read_csv(filesystem: Any, paths: list[str], form: Form, dtypes: dict[str, str]) -> Any:
    """A Dask DataFrame of the files, which have the same columns.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
    paths : list of str
    form : Form
        That all files have.
    dtypes : dict
        Types of columns; those of others are found in the first 16 MB.

    Raises
    ------
    FormatError
        When a file is no CSV, or has other columns than the first.
    """
    files = of_each_file(partial(_looked_at, form), filesystem, paths, "csv")
    check_columns({path: file.columns for path, file in files.items()})
    like = _sample(filesystem, paths, form, dtypes)
    blocks = [
        _Block(filesystem, path, file, start, nbytes)
        for path, file in files.items()
        for start, nbytes in _ranges(file.nbytes, form)
    ]
    return dd.from_map(
        _read_block, blocks, form=form, dtypes=dtypes, like=like, meta=like, label="read-csv"
    )


def _looked_at(form: Form, filesystem: Any, path: str) -> _File:
    with opened(filesystem, path, form.compression, block_size=_HEADER_NBYTES) as stream:
        header = pd.read_csv(stream, sep=form.separator, nrows=0)
    return _File(list(header.columns), filesystem.info(path)["size"], filesystem.ukey(path))


def _ranges(nbytes: int | None, form: Form) -> Iterable[tuple[int, int | None]]:
    """Where the blocks of a file begin, and how long they are."""
    if form.compression or nbytes is None or nbytes <= BLOCK_NBYTES:
        return [(0, None)]
    return [(start, BLOCK_NBYTES) for start in range(0, nbytes, BLOCK_NBYTES)]


def _sample(filesystem: Any, paths: list[str], form: Form, dtypes: dict[str, str]) -> pd.DataFrame:
    """An empty frame with the types of the first rows that there are."""
    for path in paths:
        with reading(path, "csv"):
            with opened(filesystem, path, form.compression) as stream:
                lines = stream.read(SAMPLE_NBYTES).count(b"\n")
            with opened(filesystem, path, form.compression) as stream:
                rows = _parsed(stream, form, dtypes, nrows=max(1, lines))
        if len(rows):
            break
    return clear_known_categories(rows.iloc[:0])


def _parsed(source: IO[bytes], form: Form, dtypes: Any, **options: Any) -> pd.DataFrame:
    rows = pd.read_csv(source, sep=form.separator, dtype=dtypes, low_memory=False, **options)
    if not rows.index.equals(pd.RangeIndex(len(rows))):
        # pandas takes what is before the columns of the header for an index.
        raise pd.errors.ParserError("the rows have more fields than the header")
    return rows


def _read_block(
    block: _Block, form: Form, dtypes: dict[str, str], like: pd.DataFrame
) -> pd.DataFrame:
    where = f"{block.path}, from byte {block.start:,} on," if block.start else block.path
    with reading(where, "csv"):
        with opened(block.filesystem, block.path, form.compression) as stream:
            if block.nbytes is None:
                lines = stream.read()
            else:
                lines = read_block(stream, block.start, block.nbytes, b"\n")
        if not lines:
            return like
        # What looks like a number in one block is text when the column is.
        texts = {name: each for name, each in like.dtypes.items() if each == "str"}
        names = {"names": block.file.columns, "header": None} if block.start else {}
        rows = _parsed(BytesIO(lines), form, texts | dtypes, **names)
        rounded: list[Any] = [
            name for name in rows if name not in dtypes and _may_be_rounded(rows[name])
        ]
        if rounded:
            written = _parsed(BytesIO(lines), form, "str", usecols=rounded, **names)
            rounded = [name for name in rounded if _are_integers(written[name])]
    if not len(rows):
        return like
    return _fitted(rows[list(like)], like, dtypes, block.path, dict.fromkeys(rounded, "Int64"))


def _may_be_rounded(values: pd.Series) -> bool:
    """Whether these may be integers that pandas made floats of because there are nulls."""
    return bool(values.dtype.kind == "f" and values.isna().any() and (abs(values) >= _EXACT).any())


def _are_integers(texts: pd.Series) -> bool:
    return bool(texts.dropna().str.fullmatch(r"\s*[+-]?\d+\s*").all())


def _fitted(
    rows: pd.DataFrame, like: pd.DataFrame, given: dict[str, str], path: str, other: dict[str, str]
) -> pd.DataFrame:
    """The rows with the dtypes of `like`, where that changes no value.

    Raises
    ------
    FormatError
        When it would, with types that hold all values; those of `other` are known.
    """
    for name in like.columns.difference([*given, *other]):
        dtype, values = like[name].dtype, rows[name]
        if _holds(dtype, values):
            rows = rows.astype({name: dtype})
        else:
            other[name] = _for_both(dtype, values)
    if other:
        types = (f"--dtype {shlex.quote(f'{name}={each}')}" for name, each in sorted(other.items()))
        raise FormatError(
            f"{path}: CSV columns have values that the types found for them do not hold; give "
            f"their types: {' '.join(types)}"
        )
    return rows


def _holds(dtype: Any, values: pd.Series) -> bool:
    """Whether values that were read as of another dtype are as good of this one."""
    if is_object_dtype(dtype) and (is_bool_dtype(values) or values.isna().all()):
        return True
    if dtype.kind == "f" and values.dtype.kind in "iu":
        return bool(values.between(-_EXACT, _EXACT).all())
    return bool(values.dtype == dtype)


def _for_both(dtype: Any, values: pd.Series) -> str:
    """The type for a column that begins with one dtype, and goes on with such values."""
    found: Any = values.dtype
    if dtype.kind in "iuf" and found.kind in "iuf":
        if found.kind == "f" and (values.dropna() % 1 != 0).any():
            return "float64"
        return "UInt64" if found.kind == "u" else "Int64"
    truths = [is_bool_dtype(each) or is_object_dtype(each) for each in (dtype, found)]
    return "boolean" if truths[0] and (truths[1] or values.isna().all()) else "str"
