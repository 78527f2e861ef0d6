"""Join by pandas, and compare the result with the demo's."""

from __future__ import annotations

import pandas as pd

# Index name → (key columns, suffixes) of the three joins, in join order.
JOINS: dict[str, tuple[list[str], tuple[str, str]]] = {
    "planes": (["tailnum"], ("", "_plane")),
    "weather": (["origin", "time_hour"], ("", "_weather")),
    "airlines": (["carrier"], ("", "_airline")),
}

WIND = pd.IntervalIndex.from_breaks([-1.0, 8.0, 16.0, 24.0, float("inf")], closed="left")
WIND_NAMES = ["below 8 mph", "8-16", "16-24", "24 and more"]


class ResultMismatch(Exception):
    """Error for a result that differs from the reference."""


def joined_flights(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the flights joined by pandas with planes, weather and airlines.

    The rows are in the order of the flights.
    """
    frame = tables["flights"]
    for name, (on, suffixes) in JOINS.items():
        frame = frame.merge(tables[name], on=on, how="left", suffixes=suffixes)
    return frame


def delays(frame: pd.DataFrame, rows: int = 8) -> pd.DataFrame:
    """Return mean arrival delays in minutes, by manufacturer and wind speed.

    There is a row for each of the `rows` most flown manufacturers.

    Examples
    --------
    >>> delays(pd.DataFrame({"manufacturer": ["A", "A"], "wind_speed": [3.0, 30.0],
    ...                      "arr_delay": [1.0, 9.0]}))[["below 8 mph", "24 and more", "flights"]]
                  below 8 mph  24 and more  flights
    manufacturer
    A                     1.0          9.0        2
    """
    wind = pd.cut(frame["wind_speed"], WIND)
    wind = wind.cat.rename_categories(WIND_NAMES)
    table = frame.pivot_table(
        index="manufacturer", columns=wind, values="arr_delay", aggfunc="mean", observed=False
    )
    table.columns = table.columns.astype(str).rename(None)
    table["flights"] = frame.groupby("manufacturer").size()
    return table.sort_values("flights", ascending=False).head(rows)


def expect_equal(got: pd.DataFrame, expected: pd.DataFrame, what: str) -> None:
    """Compare values, dtypes, column order and row order of two frames.

    Only the row labels are ignored.

    Raises
    ------
    ResultMismatch
        When the frames differ; the message shows the first difference.

    Examples
    --------
    >>> expect_equal(pd.DataFrame({"a": [1]}, index=[7]), pd.DataFrame({"a": [1]}), "one row")
    """
    try:
        pd.testing.assert_frame_equal(
            got.reset_index(drop=True), expected.reset_index(drop=True), check_exact=True
        )
    except AssertionError as error:
        raise ResultMismatch(f"{what}: the index and pandas differ\n{error}") from error
