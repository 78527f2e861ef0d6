"""Rules for combining values of equal keys: names, dtypes and kernel codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.tables.arguments.encoding import word_dtype

# As in kernels/core/outcome.cuh.
_ACTIONS = {"sum": 2, "min": 3, "max": 4, "or": 5}
_KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}


class Update(NamedTuple):
    """Effect of another value of a key on the stored one, as a kernel argument."""

    action: int
    kind: int


SUM_OF_COUNTS = Update(_ACTIONS["sum"], _KINDS["u"])


def change_of(combine: str, dtype: np.dtype[Any]) -> Update:
    """Return the change for values of `dtype` under `combine`.

    Raises
    ------
    SpecError
        When there is no such way to combine.
    UnsupportedError
        When values of `dtype` cannot be combined in this way.

    Examples
    --------
    >>> change_of("sum", np.dtype("float32"))
    Update(action=2, kind=2)
    >>> change_of("or", np.dtype("float32"))
    Traceback (most recent call last):
    dgpuhash.errors.UnsupportedError: combine='or' needs values of integers or bools...
    """
    if combine not in _ACTIONS:
        raise SpecError(
            f"combine={combine!r}; use 'sum', 'min', 'max' or 'or', or lca(parents) in a HashMap"
        )
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
            "the sum of bools is not a bool; use combine='or', or a map of integers to count them"
        )
    spare = 8 * (word_dtype(dtype).itemsize - dtype.itemsize)
    return Update(_ACTIONS[combine], kind | spare << 32)


def check_combine(combine: str, keep: str | None, dtype: np.dtype[Any] | None) -> Update:
    """Return `change_of` for an insert without `keep`.

    Raises
    ------
    SpecError, UnsupportedError
        As `change_of`, and when `keep` is given.
    """
    if keep is not None:
        raise SpecError(
            f"keep={keep!r} selects one value of a key, but combine={combine!r} uses all of "
            f"them; give only one of the two"
        )
    assert dtype is not None
    return change_of(combine, dtype)
