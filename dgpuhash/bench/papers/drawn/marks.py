"""What the texts of the papers state of single points of their figures, as data."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

__all__ = ["mark_of"]


@functools.cache
def _told() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(files(__package__).joinpath("marks.json").read_text())
    return told


def mark_of(figure: str, line: str, verb: str, x: float) -> dict[str, Any]:
    """Return the fields ``peer`` and ``source`` of a row; empty where the text states nothing.

    Examples
    --------
    >>> mark_of("thesis-abstract", "cuckoo", "find", 2.0)
    {'peer': 0.67, 'source': 'thesis, GTX 470'}
    >>> mark_of("thesis-abstract", "cuckoo", "find", 1.5)
    {}
    """
    told = _told()
    value = told["marks"].get(figure, {}).get(line, {}).get(verb, {}).get(f"{x:.10g}")
    if value is None:
        return {}
    starts = sorted(filter(figure.startswith, told["sources"]), key=len)
    return {"peer": value, "source": told["sources"][starts[-1]]}
