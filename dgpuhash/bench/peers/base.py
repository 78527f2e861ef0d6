"""What a peer must tell: how to do the work, and what came out, as row numbers and keys."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Peer", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work with its input already in the library's own form.

    Attributes
    ----------
    work : callable
        What is timed; takes nothing.
    read : callable
        What came out, as arrays of the device, from what `work` returned. For joins: left and right
        row numbers in any order (None for the right ones of a semi-join); for groups: the distinct
        keys in any order, and counts and sums, or None for what the work does not tell; for
        ``factorize``: codes and distinct keys; for ``probe``: positions, -1 for none.
    """

    work: Callable[[], Any]
    read: Callable[[Any], tuple[Any, ...]]


class Peer(ABC):
    """A library that answers some of the benchmarks' questions, by verb.

    Attributes
    ----------
    name : str
        With its version.
    """

    name: str

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        """Joins of two columns of keys: of ``inner``, ``left``, ``semi``, ``merge``."""
        return {}

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        """Of ``sum + count``, ``factorize``, ``value_counts``, ``unique``."""
        return {}
