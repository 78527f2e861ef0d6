"""Atomic changes of tables: plan first, then commit in one call of C.

Signal handlers, and exceptions raised from other threads, run between two instructions of Python.
So a change is planned out of sight of readers, and is committed as one launch, one assignment, or
several steps in one call of C. Host-side facts about the device hold before and after a launch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dgpuhash.backend.launches import Step
from dgpuhash.errors import TableBroken

# Makes, from the result of a change, the steps that run in one call with it.
MakeSteps = Callable[[Any], Sequence[Step]]


def assigner(target: Any, **attributes: Any) -> Step:
    """Return the step that sets all these attributes of `target` at once."""
    return functools.partial(target.__dict__.update, attributes)


class BrokenSlots:
    """Placeholder for a table's slots during a change, and after a failed one.

    Parameters
    ----------
    kept : Slots
        The slots that were in place.
    """

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        self.slots: Any = kept.slots
        self.emptied: Any = kept.emptied

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.kept.nbytes)

    def __getattr__(self, name: str) -> NoReturn:
        raise TableBroken(
            "a change of this table failed between two of its kernels, so what it holds is neither "
            "the old state nor the new one; load a save, build the table anew, or clear() it"
        )
