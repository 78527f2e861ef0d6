"""Demo of incrementally updated TPC-H answers, as orders come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgpuhash.backend import Backend
from dgpuhash.bench.refresh import run as refresh
from dgpuhash.demo.report import DemoReport


@dataclass(frozen=True)
class KeptAnswers:
    """Rounds that delete a fraction of TPC-H's orders and insert as many new ones.

    Attributes
    ----------
    scale : float
        Of the tables; at 1 there are 1,500,000 orders.
    fractions : tuple of float
        Shares of the orders.
    times : int
        Rounds of each share.
    """

    scale: float = 0.1
    fractions: tuple[float, ...] = (0.001, 0.01, 0.1)
    times: int = 3

    def run(self, backend: Backend, report: DemoReport) -> pd.DataFrame:
        """Return the milliseconds of a round by library and share; raise if answers differ.

        Raises
        ------
        DgpuhashError
            When two libraries' answers differ.
        """
        rows: list[dict[str, Any]] = []
        what = f"keep 8 answers of TPC-H, scale {self.scale:g}"
        with report.phase(what, steps=3 * len(self.fractions)) as advance:
            for row in refresh.run(
                backend, scale=self.scale, fractions=self.fractions, repeats=self.times
            ):
                rows.append(row)
                advance(1)
        rounds: dict[str, dict[str, float]] = {}
        for row in rows:
            if row["verb"] == "round":
                of_library = rounds.setdefault(row["library"], {})
                of_library[f"{row['fraction']:.1%}"] = row["time"]
        table = pd.DataFrame.from_dict(rounds, orient="index")
        return table.rename_axis("orders that change").reset_index()
