"""Indexes of dimension tables that stand before a query, and merges with them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import dgpuhash
from suites.tpch.libraries import Frame

__all__ = ["KEYS", "Standing", "built", "merge", "of_query"]

#: Keys of the tables that a merge finds by them.
KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
}


@dataclass(frozen=True)
class Standing:
    """An index of a table by its key, and the columns of it that a query needs."""

    index: Any
    keys: list[str]
    columns: list[str]

    def merge(self, left: Frame, *, left_on: Any, right_on: Any, **options: Any) -> Frame:
        """Return what a merge of a frame with the table gives."""
        ours, theirs = ([on] if isinstance(on, str) else on for on in (left_on, right_on))
        asked = dict(zip(theirs, ours, strict=True))
        by = [asked[key] for key in self.keys]
        return self.index.merge(left, left_on=by, columns=self.columns, **options)


@contextmanager
def built(read: Callable[[str], Frame], *, lazily: bool) -> Iterator[dict[str, Any]]:
    """Build an index of each table of `KEYS`, which every worker has; give them by their names."""
    with ExitStack() as stack:
        made = {}
        for name, keys in KEYS.items():
            frame = read(name)
            if lazily:
                made[name] = stack.enter_context(
                    dgpuhash.DistributedIndex.build(frame, on=keys, unique=True, mode="replicated")
                )
            else:
                made[name] = dgpuhash.FrameIndex.build(frame, on=keys, unique=True)
        yield made


def of_query(indexes: dict[str, Any], names: Container[str]) -> dict[str, Standing]:
    """Return the indexes with the columns whose names are given."""
    return {
        name: Standing(index, KEYS[name], [each for each in index.meta if each in names])
        for name, index in indexes.items()
    }


def merge(
    left: Frame, right: Any, *, validate: str | None = None, build: Any = "auto", **options: Any
) -> Frame:
    """Merge as `dgpuhash.merge` does, and with an index that stands, whose keys are unique."""
    if isinstance(right, Standing):
        return right.merge(left, **options)
    return dgpuhash.merge(left, right, validate=validate, build=build, **options)
