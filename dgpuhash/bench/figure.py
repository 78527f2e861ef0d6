"""A figure beside the machine's limit: one dictionary, the same words in every benchmark."""

from __future__ import annotations

from typing import Any

from dgpuhash.errors import DgpuhashError

__all__ = ["duration", "memory", "rate", "require"]

_UNITS = {"G/s": 1e9, "GB/s": 1e9, "TB/s": 1e12}
_PER_SECOND = {"ms": 1e3, "us": 1e6}


def rate(
    per_second: float, floor: float | None, *, unit: str = "G/s", **what: Any
) -> dict[str, Any]:
    """A rate beside the `floor`, the rate that the machine allows; both in units each second.

    Examples
    --------
    >>> rate(4e9, 8e9, verb="find")
    {'verb': 'find', 'rate': 4.0, 'unit': 'G/s', 'floor': 8.0, 'ratio': 0.5, 'correct': True}
    """
    scale = _UNITS[unit]
    made = {**what, "rate": _short(per_second / scale), "unit": unit}
    if floor is not None:
        made |= {"floor": _short(floor / scale), "ratio": _short(per_second / floor)}
    return made | {"correct": True}


def duration(
    seconds: float, floor: float | None, *, unit: str = "ms", **what: Any
) -> dict[str, Any]:
    """A time beside the shortest that the machine allows, `floor` seconds.

    Examples
    --------
    >>> duration(0.004, 0.001, verb="inner")
    {'verb': 'inner', 'time': 4.0, 'unit': 'ms', 'floor': 1.0, 'ratio': 0.25, 'correct': True}
    """
    scale = _PER_SECOND[unit]
    made = {**what, "time": _short(seconds * scale), "unit": unit}
    if floor is not None:
        made |= {"floor": _short(floor * scale), "ratio": _short(floor / seconds)}
    return made | {"correct": True}


def memory(
    table_bytes: int,
    stored_bytes: int,
    batch_bytes: int,
    peak_bytes: int,
    *,
    load: float,
    **what: Any,
) -> dict[str, Any]:
    """What a table takes, at rest and while it is built.

    ``at_rest`` is the table beside the stored keys and values divided by the maximum load;
    ``while_built`` is what the build took at its worst moment besides the table, beside the batch.

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
    """Refuse to give a figure for a wrong answer.

    Raises
    ------
    DgpuhashError
        When it does not hold.
    """
    if not bool(holds):
        where = ", ".join(f"{name} {value}" for name, value in what.items())
        raise DgpuhashError(
            f"{problem} while measuring {where}; the figures are void: run the tests on this "
            "device and report what fails"
        )


def _short(number: float) -> float:
    """Four significant digits are more than any of these figures is good for."""
    return float(f"{number:.4g}")
