"""Headers of files that are wrong though their checksums are right."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

__all__ = ["wrong"]

Place = tuple[Any, ...]
VALUES = (None, [], {}, "x", "", -1, 0, 3, 2**70, 1.5, True, [1], [None], {"a": 1}, [[1]])


def wrong(header: dict[str, Any]) -> Iterator[tuple[Place, Any, dict[str, Any]]]:
    """Yield headers in which one value is another one, or missing: its place, and what it is."""
    for place in _places(header):
        yield place, "missing", _changed(header, place, None, drop=True)
        for value in VALUES:
            yield place, value, _changed(header, place, value)


def _places(value: Any, above: Place = ()) -> Iterator[Place]:
    if above:
        yield above
    if isinstance(value, str) and value.startswith("{"):
        inner = json.loads(value)
        yield from ((*above, "JSON", *place[len(above) :]) for place in _places(inner, above))
    keys = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(min(len(value), 2)))
    for key in keys:
        yield from _places(value[key], (*above, key))


def _changed(value: Any, place: Place, new: Any, drop: bool = False) -> Any:
    if not place:
        return new
    key, *rest = place
    if key == "JSON" and isinstance(value, str):
        return json.dumps(_changed(json.loads(value), tuple(rest), new, drop)) if rest else new
    made = copy.copy(value)
    if drop and not rest:
        del made[key]
    else:
        made[key] = _changed(value[key], tuple(rest), new, drop)
    return made
