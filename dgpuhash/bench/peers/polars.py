"""polars: joins and group-bys on all cores."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.bench.peers.base import Peer, Task


class Polars(Peer):
    """polars on all cores, with eager frames.

    Raises
    ------
    ImportError
        When polars is not installed.
    """

    def __init__(self) -> None:
        import polars

        self._polars = polars
        self.name: str = f"polars {polars.__version__}"

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        frame = self._polars.DataFrame
        lefts = frame({"key": left, "left": np.arange(len(left))})
        rights = frame({"key": right, "right": np.arange(len(right))})

        def rows(made: Any) -> tuple[Any, Any]:
            return made["left"].to_numpy(), made["right"].fill_null(-1).to_numpy()

        return {
            "inner": Task(lambda: lefts.join(rights, on="key"), rows),
            "left": Task(lambda: lefts.join(rights, on="key", how="left"), rows),
            "semi": Task(
                lambda: lefts.join(rights, on="key", how="semi"),
                lambda made: (made["left"].to_numpy(), None),
            ),
        }

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        pl = self._polars
        frame = pl.DataFrame({"key": keys, "value": values})
        column = frame["key"]
        wanted = [pl.col("value").sum().alias("sum"), pl.len().alias("count")]

        def counted(made: Any) -> tuple[Any, Any, Any]:
            total = made["sum"].to_numpy() if "sum" in made.columns else None
            return made["key"].to_numpy(), made["count"].to_numpy(), total

        return {
            "sum + count": Task(lambda: frame.group_by("key").agg(wanted), counted),
            "value_counts": Task(column.value_counts, counted),
            "unique": Task(column.unique, lambda made: (made.to_numpy(), None, None)),
        }
