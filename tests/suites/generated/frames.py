"""Drawn frames: made, cut into partitions, shown as code and shrunk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any
from unittest import mock

import dask
import dask.dataframe as dd
import pandas as pd
from dask.dataframe.utils import clear_known_categories

from dgpuhash.distributed.groupby import steps
from suites.generated import oracle
from suites.generated.columns import NULL, Column, read

__all__ = [
    "CUTS", "Lazily", "Outcome", "cuts", "fewer_rows", "frame_code", "frame_of", "unlike_meta",
]  # fmt: skip

CUTS = ("whole", "many", "empty", "nulls", "unequal")


@dataclass(frozen=True)
class Outcome:
    """A result, or the error instead."""

    made: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, call: Callable[[], Any]) -> Outcome:
        """Return what a call returns or raises."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return cls(call())
        except Exception as error:
            return cls(error=error)

    @property
    def told(self) -> str:
        """The error in a line."""
        return f"{type(self.error).__name__}: {self.error}".partition("\n")[0]


def frame_of(columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return the frame of some columns."""
    return pd.DataFrame({label: column.series() for label, column in columns.items()})


def frame_code(columns: Mapping[str, Column]) -> str:
    """Return the code of a frame."""
    return "pd.DataFrame({" + ", ".join(f"{k!r}: {v}" for k, v in columns.items()) + "})"


def fewer_rows(columns: Mapping[str, Column]) -> Iterator[dict[str, Column]]:
    """Yield the columns with half of their rows, then with all but one."""
    n = len(next(iter(columns.values())).drawn)
    halves = [range(n // 2, n), range(n // 2)] if n > 3 else []
    for rows in (*halves, *([row for row in range(n) if row != left] for left in range(n))):
        yield {label: column.kept(rows) for label, column in columns.items()}


def cuts(frame: pd.DataFrame, key: pd.Series) -> dict[str, list[pd.DataFrame]]:
    """Return partitions of a frame, by name of the cut.

    In the cut ``"nulls"`` rows with a null key have partitions of their own.
    """
    n, void = len(frame), frame.iloc[:0]
    nulls = [value == NULL for value in read(key)]
    edges = [i for i in range(1, n) if nulls[i] != nulls[i - 1]]
    return {
        "whole": [frame],
        "many": _cut(frame, sorted({n // 4, n // 2, 3 * n // 4})),
        "empty": [void, *_cut(frame, [n // 2]), void],
        "nulls": _cut(frame, edges[:4]),
        "unequal": _cut(frame, sorted({min(1, n), n - n // 3})),
    }


def _cut(frame: pd.DataFrame, edges: Sequence[int]) -> list[pd.DataFrame]:
    return [frame.iloc[start:stop] for start, stop in pairwise([0, *edges, len(frame)])]


@dataclass(frozen=True)
class Lazily:
    """How Dask gets frames.

    Attributes
    ----------
    unknown : bool
        Whether it knows no categories.
    owners : bool
        Whether rows and states are sent to their owners, though they are few.
    persisted : bool
        Whether the partitions lie on the workers.
    """

    unknown: bool = False
    owners: bool = False
    persisted: bool = False

    @classmethod
    def draw(cls, random: Random) -> Lazily:
        """Return a way that is drawn."""
        return cls(random.random() < 0.3, random.random() < 0.6, random.random() < 0.2)

    def fewer(self) -> Iterator[Lazily]:
        """Yield plainer ways."""
        for name in ("unknown", "owners", "persisted"):
            if getattr(self, name):
                yield replace(self, **{name: False})

    def of(self, parts: Sequence[pd.DataFrame]) -> Any:
        """Return a Dask frame of these partitions."""
        meta = parts[0].iloc[:0]
        if self.unknown:
            meta = clear_known_categories(meta)
            parts = [_own_categories(part) for part in parts]
        made = dd.from_map(_itself, list(parts), meta=meta)
        return made.persist() if self.persisted else made

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Send few rows and states to owners in the block, where they are to be sent."""
        with ExitStack() as stack:
            if self.owners:
                stack.enter_context(dask.config.set({"dgpuhash.placement.replicate": 1}))
                none = dict.fromkeys(steps._FEW_STATES, 0)
                stack.enter_context(mock.patch.dict(steps._FEW_STATES, none))
            yield

    def __str__(self) -> str:
        told = [name for name in ("unknown", "owners", "persisted") if getattr(self, name)]
        return "  # on Dask: " + ", ".join(told) if told else ""


def _itself(part: pd.DataFrame) -> pd.DataFrame:
    return part


def _own_categories(part: pd.DataFrame) -> pd.DataFrame:
    made = part.copy(deep=False)
    for label, dtype in part.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            made[label] = part[label].cat.remove_unused_categories()
    return made


def unlike_meta(part: Any, meta: Any, free: Collection[str] = ()) -> str:
    """Return how a frame or Series differs from the meta in labels and dtypes.

    Columns in `free`, and labels where it holds ``"labels"``, may have another dtype.
    """
    if part.ndim == 1:
        part, meta = part.to_frame("values"), meta.to_frame("values")
    if list(part.columns) != list(meta.columns):
        return f"columns {list(part.columns)}, meta has {list(meta.columns)}"
    if list(part.index.names) != list(meta.index.names):
        return f"labels called {part.index.names}, in meta {meta.index.names}"
    for place, label in enumerate(meta.columns):
        found, told = part.dtypes.iloc[place], meta.dtypes.iloc[place]
        if label not in free and not oracle.same_dtype(found, told):
            return f"{label} is {found}, in meta {told}"
    for level in range(meta.index.nlevels):
        found, told = (each.index.get_level_values(level).dtype for each in (part, meta))
        if "labels" not in free and not oracle.same_dtype(found, told):
            return f"labels are {found}, in meta {told}"
    return ""
