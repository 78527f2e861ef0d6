"""Sums of decimals, exact: of the integers that they are stored as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.tables.columns.aggregates import ColumnReduction

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.cudf.states import CudfStates

_HALF = np.uint64(2**32 - 1)


def sums(states: CudfStates, options: Options) -> Any:
    """Return the sums of decimals, in the dtype of the column."""
    import pylibcudf as plc

    values, groups, xp = states.values, states.groups, states.xp
    if not len(groups):
        return values.series.iloc[:0].reset_index(drop=True)
    parts = values.unscaled
    if len(parts) == 1:
        made = _summed(states, "sum", parts[0]).astype(_integer(values))
    else:
        words = parts[0].view(np.uint64)
        # Sums of 32 bits each leave room for their carries.
        low = _summed(states, "low", (words & _HALF).view(np.int64)).view(np.uint64)
        middle = _summed(states, "middle", (words >> np.uint64(32)).view(np.int64)).view(np.uint64)
        middle += low >> np.uint64(32)
        high = _summed(states, "high", parts[1]).view(np.uint64) + (middle >> np.uint64(32))
        made = xp.empty((len(groups), 2), np.uint64)
        made[:, 0] = (low & _HALF) | (middle << np.uint64(32))
        made[:, 1] = high
        made = made.reshape(-1)
    own = values.series.to_pylibcudf()[0]
    whole = plc.Column.from_cuda_array_interface(xp.ascontiguousarray(made))
    column = plc.Column(own.type(), len(groups), whole.data(), None, 0, 0, [])
    found = type(values.series).from_pylibcudf(column)
    found = found if found.dtype == values.dtype else found.astype(values.dtype)
    void = states.void(options.least(0), options)
    if void is None or not bool(void.any()):
        return found
    return found.where(groups.frames.series(~void))


def _integer(values: Any) -> Any:
    return np.int32 if type(values.dtype).__name__ == "Decimal32Dtype" else np.int64


def _summed(states: CudfStates, name: str, column: Any) -> Any:
    reduction = ColumnReduction(column, "i8", "integer", "sum")
    return states.groups.words((id(states), "decimal", name), reduction).view(np.int64)
