"""How the values of equal keys are combined: names, dtypes and the kernels' codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.tables.arguments.encoding import word_dtype

__all__ = ["SUM_OF_COUNTS", "Change", "OnExisting", "change_of"]

# As in kernels/core/outcome.cuh.
_KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}


class OnExisting(IntEnum):
    """What an insert does to the value of a key that is stored; as in core/outcome.cuh."""

    KEEP = 0
    OVERWRITE = 1
    SUM = 2
    MIN = 3
    MAX = 4
    BIT_OR = 5


class Change(NamedTuple):
    """What a further value of a key does to the stored one."""

    action: OnExisting
    kind: int
    """What the bits of values mean, and in the upper half, how many of a word's they leave."""


SUM_OF_COUNTS = Change(OnExisting.SUM, _KINDS["u"])
_ACTIONS = {
    "sum": OnExisting.SUM,
    "min": OnExisting.MIN,
    "max": OnExisting.MAX,
    "or": OnExisting.BIT_OR,
}


def change_of(combine: str, dtype: np.dtype[Any]) -> Change:
    """Return the change that values of `dtype` make by `combine`.

    Raises
    ------
    SpecError
        When there is no such way to combine.
    UnsupportedError
        When values of `dtype` cannot be combined in this way.

    Examples
    --------
    >>> change_of("sum", np.dtype("float32"))
    Change(action=<OnExisting.SUM: 2>, kind=2)
    >>> change_of("or", np.dtype("float32"))
    Traceback (most recent call last):
    dgpuhash.errors.UnsupportedError: combine='or' needs values of integers or bools...
    """
    if combine not in _ACTIONS:
        raise SpecError(f"combine={combine!r}; use 'sum', 'min', 'max' or 'or'")
    kind = _KINDS.get(dtype.kind)
    if kind is None or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
        raise UnsupportedError(
            f"values of dtype {dtype} cannot be combined; use an integer, bool, float32 or float64 "
            "dtype, or dgpuhash.group_reduce before the insert"
        )
    if combine == "or" and dtype.kind == "f":
        raise UnsupportedError(
            f"combine='or' needs values of integers or bools, and these are {dtype}; "
            "use 'sum', 'min' or 'max'"
        )
    if combine == "sum" and dtype.kind == "b":
        raise UnsupportedError(
            "combine='sum' of bools is no bool; use 'or', or a map of integers to count them"
        )
    spare = 8 * (word_dtype(dtype).itemsize - dtype.itemsize)
    return Change(_ACTIONS[combine], kind | spare << 32)
