"""Interface of a peer library: its joins, groupbys and other verbs to measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from dgpuhash.errors import UnsupportedError

OURS = "dgpuhash"
Work = Callable[[], Any]
JOINS = ("inner", "left", "right", "outer", "semi", "anti")
GROUPINGS = (
    *("groupby", "nlargest", "corr", "nunique", "drop_duplicates", "value_counts", "transform"),
    "aggregate",
)


def same_words(*names: str) -> dict[str, str]:
    """Return verbs under the names that a library shares with this package."""
    return {name: name for name in names}


@dataclass(frozen=True, slots=True)
class Join:
    """Join of the left frame with one of the right ones.

    Attributes
    ----------
    name : str
    how : {"inner", "left", "right", "outer", "semi", "anti"}
    right : {"small", "medium", "big"}
    on : str or list of str
        The key columns.
    narrow : bool
        Whether the sides have a key and a value only, instead of all columns.
    columns : tuple of str
        Columns of the answer; empty: all.
    """

    name: str
    how: str
    right: str = ""
    on: Any = "key"
    narrow: bool = False
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grouping:
    """Query about the groups of a frame.

    Attributes
    ----------
    name : str
    how : str
        ``groupby``, or the verb that it is like: ``nlargest``, ``corr``, ``nunique``,
        ``drop_duplicates``, ``value_counts`` or ``transform``; ``aggregate``: several of one
        column; ``updates``: the same answer after tenths of the rows, one after the other, were
        added to groups that stand.
    by : tuple of str
        The key columns.
    aggregates : tuple of (str, str)
        Columns and their aggregates.
    """

    name: str
    how: str
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys([*self.by, *(column for column, _ in self.aggregates)]))

    @property
    def names(self) -> list[str]:
        """The names of the aggregates."""
        return [f"a{number}" for number in range(len(self.aggregates))]


@dataclass(frozen=True, slots=True)
class Task:
    """Work to time, with its input already in the library's own form.

    Attributes
    ----------
    work : callable
        The function to time; takes what `before` returns, nothing without one.
    read : callable
        Converts the result of `work` to a tuple of arrays of the device, as `Library` says of each
        verb.
    before : callable, optional
        Run before each call, outside the time.
    """

    work: Callable[..., Any]
    read: Callable[[Any], tuple[Any, ...]]
    before: Callable[[], Any] | None = None

    def ready(self) -> Work:
        """Return the function to time, without parameters."""
        return self.work if self.before is None else partial(self.work, self.before())


class Library:
    """Adapter of a library: its verbs on columns and frames.

    Attributes
    ----------
    name : str
        The library's name and version.
    title, package : str
        The name alone, and the package to install.
    hows : dict
        The library's own word for each join that it has, and the verbs of groups.
    ours : bool
        Whether it is this package.
    workers : int
        Processes of the cluster that it runs on; 0 for this process alone.
    """

    name: str
    title: ClassVar[str] = ""
    package: ClassVar[str] = OURS
    hows: ClassVar[dict[str, str]] = same_words(*JOINS, *GROUPINGS)
    ours: ClassVar[bool] = False
    workers: int = 0

    def __init__(self) -> None:
        self._library: Any = import_module(self.package)
        self.name = f"{self.title or self.package} {self._library.__version__}"

    def join(self, join: Join, left: Any, right: Any) -> Work:
        """Return the join of two frames of the device's library, converted outside the time."""
        raise UnsupportedError(f"{self.name} cannot join frames; measure another library")

    def group(self, grouping: Grouping, frame: Any) -> Work:
        """Return the groupby of a frame of the device's library, converted outside the time."""
        raise UnsupportedError(f"{self.name} cannot group frames; measure another library")

    def of_parts(self, made: Any, function: Callable[[Any], Any]) -> list[Any]:
        """Return a function of each partition of a result of `join`, here the only one."""
        return [function(made)]

    def grouped(self, grouping: Grouping, made: Any, frame: Any) -> pa.Table:
        """Return the keys and aggregates of a result of `group` on `frame`."""
        return pa.Table.from_pandas(self.flat(made), preserve_index=False)

    def flat(self, made: Any) -> Any:
        """Return a result as a frame of pandas or cuDF, with keys as columns."""
        return made if list(made.index.names) == [None] else made.reset_index()

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of all processes of the work."""
        return time.process_time()

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        """Return the joins of two columns of keys, by kind.

        Arrays: the left and right row numbers in any order, -1 for no partner; None for the right
        ones of a semi-join.
        """
        sides = rows_by_key(left, "left"), rows_by_key(right, "right")
        return {how: self.pairs(Join("", how), *sides) for how in ("inner", "left", "semi")}

    def pairs(self, join: Join, left: Any, right: Any) -> Task:
        """Return the join of two frames whose columns ``left`` and ``right`` number their rows."""

        def rows(made: Any) -> tuple[Any, Any]:
            frame = self.flat(made)
            partners = frame["right"].fillna(-1).to_numpy(np.int64) if "right" in frame else None
            return frame["left"].to_numpy(), partners

        return Task(self.join(join, left, right), rows)

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        """Return the library's verbs on a column of keys, by name.

        Arrays of ``factorize``: codes and distinct keys; of ``value_counts``: distinct keys in any
        order and their counts; of ``unique``: the distinct keys; of ``isin``, with `others`: a
        mask.
        """
        return {}

    def aggregated(self, keys: Any, values: Any, *hows: str) -> Task:
        """Return aggregates of a column of values by keys.

        Arrays: the distinct keys in any order, and each aggregate.
        """
        grouping = Grouping("", "aggregate", ("key",), tuple(("value", how) for how in hows))
        frame = pd.DataFrame({"key": keys, "value": values})

        def arrays(made: Any) -> tuple[Any, ...]:
            return tuple(each.to_numpy() for each in self.grouped(grouping, made, frame).columns)

        return Task(self.group(grouping, frame), arrays)


def rows_by_key(keys: Any, name: str) -> pd.DataFrame:
    """Return a frame of keys, and their row numbers in a column of a name."""
    return pd.DataFrame({"key": keys, name: np.arange(len(keys))})
