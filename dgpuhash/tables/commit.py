"""Changes that are whole or absent: all they need is made first, then one call of C does them.

Signal handlers, and exceptions raised from other threads, come between two instructions of Python.
So a change is planned where nobody sees it, and then it is one launch, or one assignment, or steps
that run in one call; what the host knows of the device before a launch holds after it, too.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from dgpuhash.backend.launches import Step
from dgpuhash.errors import TableBroken

__all__ = ["Broken", "assigning"]


def assigning(target: Any, **attributes: Any) -> Step:
    """The step that gives `target` all these attributes, at one stroke."""
    return functools.partial(target.__dict__.update, attributes)


class Broken:
    """What stands where the slots of a table did, as long as they are neither old nor new.

    Parameters
    ----------
    kept : Slots
        Those.
    """

    def __init__(self, kept: Any) -> None:
        self.kept = kept
        self.slots, self.nbytes, self.emptied = kept.slots, kept.nbytes, kept.emptied

    def __getattr__(self, name: str) -> NoReturn:
        raise TableBroken(
            "a change of this table failed between two of its kernels, so what it holds is neither "
            "the old state nor the new one; load a save, build the table anew, or clear() it"
        )
