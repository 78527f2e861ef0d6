"""Steps that combine the values of equal keys, in the slots of one table."""

from __future__ import annotations

from typing import Any

from dgpuhash.backend import Backend, kernel_named
from dgpuhash.backend.launches import Step
from dgpuhash.tables.arguments.combine import Change
from dgpuhash.tables.arguments.lca import LcaChange
from dgpuhash.tables.open_addressing.slots import Slots

# Flag of the rows that the first of two launches leaves to the second.
_LEFT = 2
REFUSED = 3
"""Flag of the rows that found no slot."""


def combining(
    backend: Backend,
    slots: Slots,
    keys: Any,
    values: Any,
    flags: Any,
    change: Change | LcaChange,
) -> tuple[Step, ...]:
    """Return the steps that store pairs and combine their values; `refused` rows found no slot.

    Read no counters before them. `values` may be one number, the word of every row. `flags`
    becomes a mask of the rows that created keys. The first step does all where a pair is published
    whole, and for sums of integers; what it leaves is the second one's. Lowest common ancestors
    take one step.
    """
    slots.fill()
    if not slots.blank:
        slots._state[2] = 0
    slots._change()
    if isinstance(change, LcaChange):
        return (_folding(backend, slots, keys, values, flags, change),)
    fields = _fields(slots, keys, values, flags, change)
    kernel = kernel_named("open_combine", slots.key, slots.value)
    first = backend.prepared(kernel, len(keys), **fields)
    return first, changing(backend, slots, keys, values, flags, change, flag=_LEFT)


def changing(
    backend: Backend,
    slots: Slots,
    keys: Any,
    values: Any,
    flags: Any,
    change: Change | LcaChange,
    *,
    flag: int = 0,
) -> Step:
    """Return the step that changes the values of stored keys by some rows.

    These are the rows whose flag is `flag`; it becomes 0.
    """
    if isinstance(change, LcaChange):
        # A row that created its key changes nothing more.
        return _folding(backend, slots, keys, values, None, change)
    fields = _fields(slots, keys, values, flags, change)
    kernel = kernel_named("open_change", slots.key, slots.value)
    return backend.prepared(kernel, len(keys), flag=flag, **fields)


def _folding(
    backend: Backend, slots: Slots, keys: Any, values: Any, flags: Any, change: LcaChange
) -> Step:
    kernel = kernel_named("open_lca", slots.key, slots.value)
    return backend.prepared(
        kernel, len(keys),
        table=slots.storage, keys=keys, values=values, flags=flags, tree=change.tree,
    )  # fmt: skip


def refused(slots: Slots) -> int:
    """Return how many rows of the last `combining` found no slot; waits for the device."""
    return int(slots._count(slots._host_state())["pending"])


def _fields(slots: Slots, keys: Any, values: Any, flags: Any, change: Change) -> dict[str, Any]:
    fields = {"table": slots.storage, "keys": keys, "flags": flags}
    fields |= {"action": change.action, "kind": change.kind}
    return fields | ({"term": values} if isinstance(values, int) else {"values": values})
