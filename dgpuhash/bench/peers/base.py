"""Interface of peers: work to time, and its result as arrays."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """Work to time, with its input already in the library's own form.

    Attributes
    ----------
    work : callable
        The function to time, without parameters.
    read : callable
        Converts the result of `work` to arrays of the device. For joins: left and right row numbers
        in any order (None for the right ones of a semi-join); for groups: the distinct keys in any
        order, and counts and sums, None for those that `work` does not compute; for ``factorize``:
        codes and distinct keys.
    """

    work: Callable[[], Any]
    read: Callable[[Any], tuple[Any, ...]]


class Peer(ABC):
    """Library that is measured beside this package, verb by verb.

    Attributes
    ----------
    name : str
        The library's name and version.
    """

    name: str

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        """Return the tasks that join two columns of keys, by name.

        Names are ``inner``, ``left``, ``semi`` and ``merge``.
        """
        return {}

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        """Return the tasks that group a column of values by keys, by name.

        Names are ``sum + count``, ``factorize``, ``value_counts`` and ``unique``.
        """
        return {}
