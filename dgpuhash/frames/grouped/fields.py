"""Fields of states by label: counts, infinite sums and overflows, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dgpuhash.errors import UnsupportedError
from dgpuhash.frames.dataframes import frames_of
from dgpuhash.frames.groupby.cudf.values import CudfValues

OWN = "dgpuhash "
"""What labels of columns of states begin with that are no keys."""
EPOCH = f"{OWN}epoch"
"""Column of states with the last epoch that changed a group; 0 for those of the epoch to come."""
SIZE = f"{OWN}n"

# Of each aggregated column, by its position.
Kinds: TypeAlias = Mapping[int, Sequence[str]]


def numbers_in(column: Any) -> Any:
    """Return a column of numbers without nulls as an array on its device."""
    on_gpu = frames_of(column).name == "cudf"
    return CudfValues(column).numbers if on_gpu else column.to_numpy()


def counts(kinds: Kinds, states: Any) -> list[Any]:
    """Return the number of rows, and of values of each column, in each state."""
    labels = [SIZE, *(f"{OWN}{place} count" for place in kinds)]
    return [numbers_in(states[label]) for label in labels]


def infinite(kinds: Kinds, states: Any) -> Any:
    """Return a mask of the states with an infinite sum."""
    found = frames_of(states).xp.zeros(len(states), bool)
    for place, own in kinds.items():
        if "real" in own:
            found |= ~np.isfinite(numbers_in(states[f"{OWN}{place} real"]))
    return found


def unbounded_mask(kinds: Kinds, states: Any) -> Any:
    """Return a mask of the states with an infinite sum or sum of squares."""
    xp = frames_of(states).xp
    found = xp.zeros(len(states), bool)
    for place, own in kinds.items():
        # Without values there is no moment.
        there = numbers_in(states[f"{OWN}{place} count"]) > 0
        for field in {"real", "moment"}.intersection(own):
            found |= there & ~np.isfinite(numbers_in(states[f"{OWN}{place} {field}"]))
    return found


def may_overflow(kinds: Kinds, states: Any, numbers: Any, groups: int) -> bool:
    """Return whether sums of some states by group may overflow float64."""
    for place, own in kinds.items():
        if "real" not in own:
            continue
        real = np.abs(numbers_in(states[f"{OWN}{place} real"]))
        count = numbers_in(states[f"{OWN}{place} count"])
        with np.errstate(over="ignore", invalid="ignore"):
            bounds = [np.bincount(numbers, real, groups)]
            if "moment" in own:
                moment = numbers_in(states[f"{OWN}{place} moment"])
                # Without values there is no moment.
                squares = np.where(count, moment + real * (real / np.maximum(count, 1)), 0)
                bounds.append(4 * np.bincount(numbers, squares, groups))
        if not all(np.isfinite(each).all() for each in bounds):
            return True
    return False


def overflow(key: Any) -> UnsupportedError:
    """Return the error for a group whose sum, or sum of squares, overflows."""
    return UnsupportedError(
        f"the sum of the values of the group {key!r}, or of their squares, exceeds float64, so "
        f"rows could not be retracted any more; nothing was changed, scale the column down"
    )
