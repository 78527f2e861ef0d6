"""pandas: merges, group-bys and the hash table of an Index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgpuhash.bench.peers.base import Peer, Task


class Pandas(Peer):
    """pandas on one core."""

    def __init__(self) -> None:
        self.name: str = f"pandas {pd.__version__}"

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        lefts = pd.DataFrame({"key": left, "left": np.arange(len(left))})
        rights = pd.DataFrame({"key": right, "right": np.arange(len(right))})

        def rows(frame: pd.DataFrame) -> tuple[Any, Any]:
            return frame["left"].to_numpy(), frame["right"].fillna(-1).to_numpy(np.int64)

        return {
            "inner": Task(lambda: lefts.merge(rights, on="key"), rows),
            "left": Task(lambda: lefts.merge(rights, on="key", how="left"), rows),
            "semi": Task(
                lambda: lefts[lefts["key"].isin(rights["key"])],
                lambda frame: (frame["left"].to_numpy(), None),
            ),
        }

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        frame = pd.DataFrame({"key": keys, "value": values})
        column = frame["key"]

        def grouped() -> Any:
            return frame.groupby("key", sort=False)["value"].agg(["sum", "count"])

        return {
            "sum + count": Task(
                grouped,
                lambda made: (
                    made.index.to_numpy(), made["count"].to_numpy(), made["sum"].to_numpy()
                ),
            ),
            "factorize": Task(
                lambda: pd.factorize(column), lambda made: (made[0], np.asarray(made[1]))
            ),
            "value_counts": Task(
                column.value_counts, lambda made: (made.index.to_numpy(), made.to_numpy(), None)
            ),
            "unique": Task(column.unique, lambda made: (np.asarray(made), None, None)),
        }  # fmt: skip
