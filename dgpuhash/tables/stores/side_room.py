"""Room for values that kernels of users append to the keys that no table holds among others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.tables.stores.list_recipe import ListRecipe
from dgpuhash.tables.stores.recipe import SIDE_VALUE

# Values of a block: 128 MiB of 8 bytes.
_MOST_VALUES = 2**24
_HEAD_NBYTES = 16


class SideRoom:
    """Room for as many values of the two reserved keys as a table has free places.

    Kernels find it by the table's state: `SideRoom` of ``kernels/device/view.cuh``.

    Parameters
    ----------
    table : ListRecipe
        Whose state gets the address.
    """

    def __init__(self, table: ListRecipe) -> None:
        value = table.plan.value
        assert value is not None
        backend, self._table = table.backend, table
        self._values = min(max(table.limit - table.count().taken, 1), _MOST_VALUES)
        self._head = _HEAD_NBYTES // value.itemsize
        self._memory = backend.empty(self._head + self._values, value)
        head = np.array([self._values, 0], np.uint64)
        self._memory[: self._head] = backend.from_host(head.view(value))
        address = np.array([backend.pointer(self._memory)], np.uint64)
        table.state[SIDE_VALUE : SIDE_VALUE + 1] = backend.from_host(address)

    def close(self) -> tuple[Any, Any]:
        """Return the values that either key got; the state forgets the room."""
        head = self._table.backend.to_host(self._memory[: self._head])
        taken = int(head.view(np.uint64)[1])
        front, back = taken & 0xFFFFFFFF, taken >> 32
        self._table.state[SIDE_VALUE : SIDE_VALUE + 1].fill(np.uint64(2**64 - 1))
        values = self._memory[self._head :]
        return values[:front], values[self._values - back :]
