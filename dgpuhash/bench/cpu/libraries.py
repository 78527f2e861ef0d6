"""Libraries with what each does for a question, and whether its answer is right."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

import dgpuhash
from dgpuhash.bench.cpu.columns import KeyColumns
from dgpuhash.bench.peers import OURS

VERBS = (
    *("build", "find", "isin", "factorize", "unique", "sum + mean", "join", "merge", "upsert"),
    *("find of one", "insert of one", "multi find of one", "multi insert of one"),
)
WIDE = "merge of 300 columns"
_WIDE_ROWS, _WIDE_COLUMNS = 10, 300
_ROWS_OF_ONE = 1000


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Task:
    """Work to time, with its input already in the library's own form.

    Attributes
    ----------
    work : callable
        The function to time; takes what `before` returned.
    is_right : callable
        Tells of the work's result whether it is the right answer.
    before : callable
        Run before each call, outside the time.
    """

    work: Callable[[Any], Any]
    is_right: Callable[[Any], Any]
    before: Callable[[], Any] = _nothing


class Library(ABC):
    """Library that is asked.

    Attributes
    ----------
    name : str
        The library's name and version.
    package : str
        What has to be installed.
    """

    name: str
    package: ClassVar[str]

    @abstractmethod
    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        """Return what it does for each of `VERBS` that it has."""

    def wide(self, left: pd.DataFrame, right: pd.DataFrame) -> Task | None:
        """Return the merge of two short frames of many columns; None where it has none."""
        return None


class Ours(Library):
    """This package, with default arguments."""

    package = "dgpuhash"

    def __init__(self) -> None:
        self.name = OURS

    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        keys, rows = columns.keys, np.arange(len(columns))
        table = dgpuhash.HashMap.from_arrays(keys, rows)
        lists = dgpuhash.MultiMap.from_arrays(keys, rows)
        left, right = _sides(columns)
        changed, added = _changes(columns)
        single, first = keys[:1].copy(), rows[:1].copy()
        more = itertools.cycle(
            [columns.new[at : at + 1] for at in range(min(len(columns), _ROWS_OF_ONE))]
        )
        grown, longer = table.copy(), lists.copy()

        def upserted(made: Any) -> Any:
            made.upsert(changed, added)
            return made

        return {
            "build": Task(
                lambda _: dgpuhash.HashMap.from_arrays(keys, rows),
                lambda made: _same(made.find(columns.probes)[0], columns.positions),
            ),
            "find": Task(
                lambda _: table.find(columns.probes),
                lambda made: _same(made[0], columns.positions) and made[1].all(),
            ),
            "isin": Task(lambda _: dgpuhash.isin(keys, columns.others), _is_every_second),
            "factorize": Task(
                lambda _: dgpuhash.factorize(columns.grouped),
                lambda made: _are_codes(columns, *made),
            ),
            "unique": Task(
                lambda _: dgpuhash.unique(columns.grouped), lambda made: _are_kinds(columns, made)
            ),
            "sum + mean": Task(
                lambda _: dgpuhash.group_reduce(columns.grouped, columns.values, ("sum", "mean")),
                lambda made: _are_sums(columns, made[0], made[1]["sum"], made[1]["mean"]),
            ),
            "join": Task(
                lambda _: dgpuhash.join_indices(columns.probes, keys),
                lambda made: _are_pairs(columns, *made),
            ),
            "merge": Task(
                lambda _: dgpuhash.merge(left, right, on="key"),
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            ),
            "upsert": Task(
                upserted,
                lambda made: (
                    len(made) == _upserted_rows(columns) and _same(made.find(changed)[0], added)
                ),
                table.copy,
            ),
            "find of one": Task(
                lambda _: table.find(single), lambda made: made[0][0] == 0 and made[1][0]
            ),
            "insert of one": Task(
                lambda _: grown.insert(next(more), first), lambda made: made.shape == (1,)
            ),
            "multi find of one": Task(
                lambda _: lists.find(single), lambda made: _same(made[0], [0])
            ),
            "multi insert of one": Task(
                lambda _: longer.insert(next(more), first), lambda _: len(longer) > len(lists)
            ),
        }

    def wide(self, left: pd.DataFrame, right: pd.DataFrame) -> Task:
        return Task(lambda _: dgpuhash.merge(left, right, on="key"), _is_wide)


class Pandas(Library):
    """pandas on one core; keys are found by an Index."""

    package = "pandas"

    def __init__(self) -> None:
        self.name: str = f"pandas {pd.__version__}"

    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        keys: Any = columns.keys
        probes: Any = columns.probes
        standing = pd.Index(keys)
        standing.get_indexer(keys[:1])
        left, right = _sides(columns)
        series, frame = (
            pd.Series(keys),
            pd.DataFrame({"key": columns.grouped, "value": columns.values}),
        )
        changed, added = _changes(columns)
        old = pd.DataFrame({"key": keys, "value": np.arange(len(keys))})
        new = pd.DataFrame({"key": changed, "value": added})

        def build(_: Any) -> Any:
            # An Index makes its hash table at first use.
            made = pd.Index(keys)
            made.get_indexer(keys[:1])
            return made

        return {
            "build": Task(build, lambda made: _same(made.get_indexer(probes), columns.positions)),
            "find": Task(
                lambda _: standing.get_indexer(probes),
                lambda made: _same(made, columns.positions),
            ),
            "isin": Task(lambda _: series.isin(columns.others), _is_every_second),
            "factorize": Task(
                lambda _: pd.factorize(columns.grouped),
                lambda made: _are_codes(columns, *made),
            ),
            "unique": Task(
                lambda _: pd.unique(columns.grouped), lambda made: _are_kinds(columns, made)
            ),
            "sum + mean": Task(
                lambda _: frame.groupby("key", sort=False)["value"].agg(["sum", "mean"]),
                lambda made: _are_sums(columns, made.index, made["sum"], made["mean"]),
            ),
            "join": Task(
                lambda _: left.merge(right, on="key")[["left", "right"]],
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            ),
            "merge": Task(
                lambda _: left.merge(right, on="key"),
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            ),
            "upsert": Task(
                lambda _: pd.concat([old, new]).drop_duplicates("key", keep="last"),
                lambda made: len(made) == _upserted_rows(columns),
            ),
            "find of one": Task(
                lambda _: standing.get_indexer(keys[:1]), lambda made: _same(made, [0])
            ),
        }

    def wide(self, left: pd.DataFrame, right: pd.DataFrame) -> Task:
        return Task(lambda _: left.merge(right, on="key"), _is_wide)


class Polars(Library):
    """Polars on all cores, with eager frames."""

    package = "polars"

    def __init__(self) -> None:
        import polars

        self._polars: Any = polars
        self.name: str = f"polars {polars.__version__}"

    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        pl = self._polars
        left, right = (pl.from_pandas(side) for side in _sides(columns))
        keys, others, grouped = map(pl.Series, (columns.keys, columns.others, columns.grouped))
        frame = pl.DataFrame({"key": columns.grouped, "value": columns.values})
        wanted = [pl.col("value").sum().alias("sum"), pl.col("value").mean().alias("mean")]
        changed, added = _changes(columns)
        old = pl.DataFrame({"key": columns.keys, "value": np.arange(len(columns))})
        new = pl.DataFrame({"key": changed, "value": added})
        return {
            "isin": Task(lambda _: keys.is_in(others.implode()), _is_every_second),
            "unique": Task(lambda _: grouped.unique(), lambda made: _are_kinds(columns, made)),
            "sum + mean": Task(
                lambda _: frame.group_by("key").agg(wanted),
                lambda made: _are_sums(columns, made["key"], made["sum"], made["mean"]),
            ),
            "join": Task(
                lambda _: left.join(right, on="key").select("left", "right"),
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            ),
            "merge": Task(
                lambda _: left.join(right, on="key"),
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            ),
            "upsert": Task(
                lambda _: old.update(new, on="key", how="full"),
                lambda made: len(made) == _upserted_rows(columns),
            ),
        }

    def wide(self, left: pd.DataFrame, right: pd.DataFrame) -> Task:
        lefts, rights = self._polars.from_pandas(left), self._polars.from_pandas(right)
        return Task(lambda _: lefts.join(rights, on="key"), _is_wide)


class DuckDB(Library):
    """DuckDB on all cores, from and to Arrow tables."""

    package = "duckdb"

    def __init__(self) -> None:
        import duckdb

        self._duckdb = duckdb
        self.name: str = f"DuckDB {duckdb.__version__}"

    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        import pyarrow as pa

        connection = self._duckdb.connect()
        connection.execute("set preserve_insertion_order = false")
        for name, side in zip("lr", _sides(columns), strict=True):
            connection.register(name, pa.Table.from_pandas(side))

        def joined(wanted: str) -> Task:
            query = f"select {wanted} from l join r using (key)"
            return Task(
                lambda _: connection.sql(query).to_arrow_table(),
                lambda made: _are_pairs(columns, made["left"], made["right"]),
            )

        return {"join": joined('"left", "right"'), "merge": joined("*")}


class NumPy(Library):
    """NumPy on one core, which sorts."""

    package = "numpy"

    def __init__(self) -> None:
        self.name = f"numpy {np.__version__}"

    def tasks(self, columns: KeyColumns) -> dict[str, Task]:
        keys = columns.keys
        return {
            "isin": Task(lambda _: np.isin(keys, columns.others), _is_every_second),
            "factorize": Task(
                lambda _: np.unique(columns.grouped, return_inverse=True),
                lambda made: _are_codes(columns, *made[::-1]),
            ),
            "unique": Task(
                lambda _: np.unique(columns.grouped), lambda made: _are_kinds(columns, made)
            ),
        }


LIBRARIES: tuple[type[Library], ...] = (Ours, Pandas, Polars, DuckDB, NumPy)


def wide_frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two short frames of many columns.

    Examples
    --------
    >>> left, right = wide_frames()
    >>> left.shape, right.shape
    ((10, 301), (10, 2))
    """
    keys = np.arange(_WIDE_ROWS)
    values = np.tile(keys[:, None], _WIDE_COLUMNS)
    left = pd.DataFrame(values, columns=[f"v{i}" for i in range(_WIDE_COLUMNS)])
    return left.assign(key=keys), pd.DataFrame({"key": keys[::-1], "right": keys})


def _sides(columns: KeyColumns) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = np.arange(len(columns))
    left = pd.DataFrame({"key": columns.probes, "left": rows})
    return left, pd.DataFrame({"key": columns.keys, "right": rows})


def _changes(columns: KeyColumns) -> tuple[np.ndarray, np.ndarray]:
    """Return half of the keys and as many new ones, each with its new value."""
    half = len(columns) // 2
    changed = np.concatenate([columns.keys[::2], columns.new[:half]])
    return changed, np.arange(len(changed)) + len(columns)


def _upserted_rows(columns: KeyColumns) -> int:
    return len(columns) + len(columns) // 2


def _same(found: Any, expected: Any) -> bool:
    return bool(np.array_equal(np.asarray(found), expected))


def _is_every_second(found: Any) -> bool:
    mask = np.asarray(found)
    return bool(mask[::2].all() and not mask[1::2].any())


def _are_codes(columns: KeyColumns, codes: Any, kinds: Any) -> bool:
    found = np.asarray(kinds)
    distinct = len(np.unique(columns.numbers))
    return len(found) == distinct and _same(found[np.asarray(codes)], columns.grouped)


def _are_kinds(columns: KeyColumns, found: Any) -> bool:
    return _same(np.sort(np.asarray(found)), columns.sums()[0])


def _are_sums(columns: KeyColumns, keys: Any, sums: Any, means: Any) -> bool:
    order = np.argsort(np.asarray(keys))
    found = (np.asarray(each)[order] for each in (keys, sums, means))
    pairs = zip(found, columns.sums(), strict=True)
    return all(np.allclose(each, expected, rtol=1e-12) for each, expected in pairs)


def _are_pairs(columns: KeyColumns, left: Any, right: Any) -> bool:
    rows, partners = np.asarray(left), np.asarray(right)
    made = np.full(len(columns), -1)
    made[rows] = partners
    return len(rows) == len(columns) and _same(made, columns.positions)


def _is_wide(made: Any) -> bool:
    return len(made) == _WIDE_ROWS and len(made.columns) == _WIDE_COLUMNS + 2
