"""The tables of TPC-H: Parquet files made by tpchgen-cli, and frames of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pyarrow.parquet as pq

from suites.tpch.libraries import EXACT, Frame, Library

__all__ = ["TABLES", "Tables", "files_of", "read_lazily", "read_now"]

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


class Tables:
    """The eight tables, each of which is read when a query first asks for it.

    Keys are int64; `library` says what prices, quantities and days are.
    """

    region: Frame
    nation: Frame
    supplier: Frame
    customer: Frame
    part: Frame
    partsupp: Frame
    orders: Frame
    lineitem: Frame

    def __init__(
        self, read: Callable[[str], Frame], library: Library, indexes: Mapping[str, Any] = {}
    ) -> None:
        self.library, self._read, self._indexes = library, read, indexes

    def __getattr__(self, name: str) -> Frame:
        if name not in TABLES:
            raise AttributeError(f"no table {name!r}; there is {', '.join(TABLES)}")
        frame = self._read(name)
        setattr(self, name, frame)
        return frame

    def standing(self, name: str) -> Any:
        """Return the index of a table where one stands, else its frame: a merge's right side."""
        return self._indexes[name] if name in self._indexes else getattr(self, name)


def files_of(folder: Path, name: str) -> list[Path]:
    """Return the files of a table."""
    return sorted((folder / name).glob("*.parquet"))


def _columns(files: list[Path], names: Container[str]) -> list[str]:
    return [name for name in pq.read_schema(files[0]).names if name in names]


def read_now(
    folder: Path, names: Container[str], library: Library = EXACT
) -> Callable[[str], Frame]:
    """Return what reads a table into one frame, with those columns whose names are given."""

    def read(table: str) -> Frame:
        files = files_of(folder, table)
        return library.read(files, _columns(files, names))

    return read


def read_lazily(
    folder: Path, names: Container[str], library: Library = EXACT
) -> Callable[[str], Frame]:
    """Return what makes a lazy frame of a table, a partition for each file or several of them."""

    def read(table: str) -> Frame:
        if library is EXACT:
            # A frame of some columns of files that are split further must not be persisted, which
            # a merge may do.
            return dd.read_parquet(folder / table, split_row_groups=False)
        files = files_of(folder, table)
        columns = _columns(files, names)
        meta = library.made(pq.read_schema(files[0]).empty_table().select(columns))
        blocks = _blocks(files, columns, library.block_nbytes())
        # Texts are those of the library.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(partial(_part, library.read, columns), blocks, meta=meta)

    return read


def _part(read: Callable[..., Frame], columns: list[str], files: list[Path]) -> Frame:
    return read(files, columns)


def _blocks(files: list[Path], columns: list[str], nbytes: int) -> list[list[Path]]:
    """Return the files in order, as many together as have at most so many bytes in some columns."""
    blocks, room = list[list[Path]](), 0
    for file in files:
        size = sum(_column_sizes(file)[name] for name in columns)
        if not blocks or size > room:
            blocks.append([])
            room = nbytes
        blocks[-1].append(file)
        room -= size
    return blocks


@cache
def _column_sizes(file: Path) -> Counter[str]:
    """Return the bytes of each column of a file, before it was compressed."""
    found, sizes = pq.read_metadata(file), Counter[str]()
    for group in map(found.row_group, range(found.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            sizes[column.path_in_schema] += column.total_uncompressed_size
    return sizes
