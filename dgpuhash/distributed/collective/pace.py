"""How far a rank has come, by which others see whether anybody goes on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]


@dataclass(slots=True)
class Pace:
    """How far a rank has come; all ranks of a group make the same phases and calls.

    Attributes
    ----------
    begun, ended : int
        Phases.
    calls : int
        Calls that waited for others.
    waiting : bool
        Whether it is in one.
    asked, taken : int
        Messages to others that are not answered; those of others that it has, and has not answered.
    progress : int
        Messages that came, or were answered.
    """

    begun: int = 0
    ended: int = 0
    calls: int = 0
    waiting: bool = False
    asked: int = 0
    taken: int = 0
    progress: int = 0

    def stands(self, phase: int) -> bool:
        """Whether it waits for others in this phase, or is done with it.

        Examples
        --------
        >>> Pace(begun=2, ended=1).stands(2), Pace(begun=2, ended=1, waiting=True).stands(2)
        (False, True)
        >>> Pace(begun=2, ended=2).stands(2), Pace(begun=1, ended=1).stands(2)
        (True, False)
        """
        return self.ended >= phase or (self.begun >= phase and self.waiting)
