"""Rows of figures: dictionaries with the same fields in every benchmark; and cases in files."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from dgpuhash.errors import DgpuhashError

_UNITS = {"G/s": 1e9, "GB/s": 1e9, "TB/s": 1e12}
_PER_SECOND = {"ms": 1e3, "us": 1e6}


def rate(
    per_second: float, floor: float | None, *, unit: str = "G/s", **what: Any
) -> dict[str, Any]:
    """Return a row with a rate beside a reference rate, `floor`.

    Both are given in items each second, and are in `unit` in the row. The ratio is `per_second`
    over `floor`.

    Examples
    --------
    >>> rate(4e9, 8e9, verb="find")
    {'verb': 'find', 'rate': 4.0, 'unit': 'G/s', 'floor': 8.0, 'ratio': 0.5, 'correct': True}
    """
    scale = _UNITS[unit]
    made = {**what, "rate": short(per_second / scale), "unit": unit}
    if floor is not None:
        made |= {"floor": short(floor / scale), "ratio": short(per_second / floor)}
    return _with_mark(made)


def duration(
    seconds: float, floor: float | None, *, unit: str = "ms", **what: Any
) -> dict[str, Any]:
    """Return a row with a time beside a reference time of `floor` seconds.

    The ratio is `floor` over `seconds`.

    Examples
    --------
    >>> duration(0.004, 0.001, verb="inner")
    {'verb': 'inner', 'time': 4.0, 'unit': 'ms', 'floor': 1.0, 'ratio': 0.25, 'correct': True}
    """
    scale = _PER_SECOND[unit]
    made = {**what, "time": short(seconds * scale), "unit": unit}
    if floor is not None:
        made |= {"floor": short(floor * scale), "ratio": short(floor / seconds)}
    return _with_mark(made)


def _with_mark(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``correct``; rows of a model have no answer to check."""
    return row if "model" in row else row | {"correct": True}


def memory(
    table_bytes: int, stored_bytes: int, batch_bytes: int, peak_bytes: int, *, load: float,
    **what: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a row with a table's memory, at rest and while it is built.

    ``at_rest`` is the table's bytes over the bytes of the stored keys and values divided by the
    maximum load; ``while_built`` is the build's peak bytes without the table over the bytes of the
    batch.

    Examples
    --------
    >>> row = memory(125, 80, 160, 285, load=0.8, n=10)
    >>> row["at_rest"], row["while_built"]
    (1.25, 1.0)
    """
    return {
        **what,
        "load": load,
        "verb": "memory",
        "table_bytes": table_bytes,
        "stored_bytes": stored_bytes,
        "batch_bytes": batch_bytes,
        "peak_bytes": peak_bytes,
        "at_rest": round(table_bytes * load / stored_bytes, 3),
        "while_built": round((peak_bytes - table_bytes) / batch_bytes, 3),
        "correct": True,
    }


def require(holds: Any, problem: str, **what: Any) -> None:
    """Raise if an answer is wrong, so that no figure is reported for it.

    Raises
    ------
    DgpuhashError
        When `holds` is false.
    """
    if not bool(holds):
        where = ", ".join(f"{name} {value}" for name, value in what.items())
        raise DgpuhashError(
            f"{problem} while measuring {where}; the figures are void: run the tests on this "
            "device and report what fails"
        )


def short(number: float) -> float:
    """Round to four significant digits, more than the figures' precision."""
    return float(f"{number:.4g}")


def read_data(package: str, name: str) -> dict[str, Any]:
    """Return the tables of a TOML file of a package, with tuples for its arrays.

    Examples
    --------
    >>> read_data("dgpuhash.bench.report", "plots.toml")["limits"][0]["lines"]
    ('limit',)
    """
    tables: dict[str, Any] = _with_tuples(
        tomllib.loads(files(package).joinpath(name).read_text("utf-8"))
    )
    return tables


def _with_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    if isinstance(value, dict):
        return {key: _with_tuples(each) for key, each in value.items()}
    return value
