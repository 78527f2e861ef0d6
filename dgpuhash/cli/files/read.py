"""Read files, globs, directories and URLs of any supported format as Dask DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import pandas as pd

from dgpuhash.cli.files.arrow_readers import read_arrow, read_json
from dgpuhash.cli.files.csv_files import read_csv
from dgpuhash.cli.files.parquet_files import read_parquet
from dgpuhash.cli.files.paths import files_of, format_of
from dgpuhash.cli.files.read_errors import name_read_errors
from dgpuhash.errors import FormatError, UnsupportedError

_NAMES = {"parquet": "Parquet", "csv": "CSV", "json": "JSON", "arrow": "Arrow"}


def read(
    pattern: str | Sequence[str],
    dtypes: dict[str, str] | None = None,
    *,
    all_there: bool = True,
    decimals: bool = False,
) -> Any:
    """Return a Dask DataFrame of the files that `pattern` names.

    Parameters
    ----------
    pattern : str or sequence of str
        E.g. ``flights-*.parquet`` or ``s3://bucket/flights.csv``; several on one file system.
    dtypes : dict, optional
        Dtypes of columns, e.g. where those inferred from the first 16 MB of CSV or JSON are wrong.
    all_there : bool
        Whether to refuse dtypes of columns that are not there; otherwise they have no effect.
    decimals : bool
        Whether decimals of Parquet files stay Arrow's; otherwise they are Python's.

    Raises
    ------
    FileNotFoundError
        When nothing matches.
    FormatError
        When a file does not have the format of its ending, when files differ in their columns, when
        CSV files differ in separator or compression, or when a dtype is given for an unknown
        column. Computing the frame raises it as well, for errors further down in a file.
    UnsupportedError
        When files are of several kinds, or on several file systems.
    """
    given = dtypes or {}
    named = [pattern] if isinstance(pattern, str) else list(pattern)
    pattern = ", ".join(named)
    filesystem, paths = files_of(named[0])
    for each in named[1:]:
        system, more = files_of(each)
        if system != filesystem:
            raise UnsupportedError(
                f"{named[0]} and {each} are on several file systems; copy the files to one"
            )
        paths = [*paths, *more]
    forms = {format_of(path)._replace(ending=""): path for path in paths}
    kind, *others = {form.kind for form in forms}
    if others:
        said = " and ".join(_NAMES[each] for each in _NAMES if each in {kind, *others})
        raise UnsupportedError(f"{pattern} names {said} files; read one kind at a time")
    if len(forms) > 1:
        raise FormatError(
            f"{pattern}: the files have different endings, as {' and '.join(forms.values())}; read "
            "those of one separator and compression at a time"
        )
    # Text keeps pandas' own dtype; Dask would convert it.
    with name_read_errors(pattern, kind), dask.config.set({"dataframe.convert-string": False}):
        if kind == "csv":
            frame = read_csv(filesystem, paths, next(iter(forms)), given)
        elif kind == "json":
            frame = read_json(filesystem, paths, next(iter(forms)), given)
        elif kind == "arrow":
            frame = read_arrow(filesystem, paths)
        else:
            frame = read_parquet(filesystem, paths, decimals=decimals)
        unknown = [name for name in given if name not in frame.columns]
        if unknown and all_there:
            raise FormatError(
                f"{pattern} cannot be read as {kind}: no columns {unknown!r} for these types; "
                f"there are {list(frame.columns)!r}"
            )
        given = {name: dtype for name, dtype in given.items() if name not in unknown}
        if kind == "csv" or not given:
            return frame
        meta = frame._meta.astype(given)
    return frame.map_partitions(_convert, given, pattern, meta=meta)


def _convert(part: pd.DataFrame, dtypes: dict[str, str], pattern: str) -> pd.DataFrame:
    """Return a partition with columns of the given dtypes.

    Raises
    ------
    FormatError
        When a dtype does not hold all values of its column.
    """
    try:
        return part.astype(dtypes)
    except (ValueError, TypeError, OverflowError) as error:
        raise FormatError(
            f"{pattern} has values that are not of the types given: {error}; give --dtype a type "
            "that all values of the column have, for integers with nulls Int64"
        ) from error
