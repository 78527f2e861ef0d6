"""Check columns across files, and name the file in each read error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa

from dgpuhash.errors import DgpuhashError, FormatError

Seen = TypeVar("Seen")


# Errors of pandas, Arrow and `dgpuhash.compression`, and their remedies; the first match counts.
_REMEDIES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((pd.errors.ParserError,), "no row may have more fields than the header"),
    ((pd.errors.EmptyDataError,), "a file has at least a line of column names"),
    ((UnicodeError,), "write the file in UTF-8"),
    ((OSError, EOFError), "check that you may read the file, and that it is whole"),
    (
        (ValueError, TypeError, OverflowError, KeyError, pa.ArrowException),
        "check the file, and the types given with --dtype",
    ),
)
_FAULTS = tuple(kind for kinds, _ in _REMEDIES for kind in kinds)
# Files whose columns are read concurrently.
_AT_ONCE = 16


@contextmanager
def name_read_errors(name: str, kind: str) -> Iterator[None]:
    """Turn errors in the block into a FormatError that names the file.

    Raises
    ------
    FormatError
        For any error that readers raise for a damaged file or for another format.
    """
    try:
        yield
    except DgpuhashError:
        raise
    except _FAULTS as error:
        remedy = next(remedy for kinds, remedy in _REMEDIES if isinstance(error, kinds))
        said = str(error).strip() or type(error).__name__
        raise FormatError(f"{name} cannot be read as {kind}: {said}; {remedy}") from error


def map_files(
    look: Callable[[Any, str], Seen], filesystem: Any, paths: list[str], kind: str
) -> dict[str, Seen]:
    """Return the result of ``look(filesystem, path)`` for each path.

    Looks at several files at once.

    Raises
    ------
    FormatError
        When a file cannot be read.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        seen = pool.map(partial(_look, look, filesystem, kind), paths)
        return dict(zip(paths, seen, strict=True))


def _look(look: Callable[[Any, str], Seen], filesystem: Any, kind: str, path: str) -> Seen:
    with name_read_errors(path, kind):
        return look(filesystem, path)


def check_columns(columns: Mapping[str, Collection[str]]) -> None:
    """Refuse files whose columns differ from the first file's, in any order.

    Raises
    ------
    FormatError
    """
    first, *others = columns
    for path in others:
        more = [name for name in columns[path] if name not in columns[first]]
        fewer = [name for name in columns[first] if name not in columns[path]]
        if more or fewer:
            differences = [f"has {more!r}"] * bool(more) + [f"lacks {fewer!r}"] * bool(fewer)
            raise FormatError(
                f"{path} has other columns than {first}: it {' and '.join(differences)}; give all "
                "files the same columns, or read them one at a time"
            )
