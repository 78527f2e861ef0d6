"""Cached attributes without a lock: a decorator like `cached_property`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property as cached
else:

    class cached:  # noqa: N801
        """`functools.cached_property` without its lock.

        Up to Python 3.11 the original has one lock for all objects. A process that is forked while
        another thread computes an attribute would find the lock held for ever, and a signal
        handler could deadlock with another thread. Here, threads that need the attribute at the
        same time each compute it.

        Examples
        --------
        >>> class Circle:
        ...     def __init__(self, radius):
        ...         self.radius = radius
        ...
        ...     @cached
        ...     def area(self):
        ...         return 3 * self.radius**2
        >>> circle = Circle(2)
        >>> circle.area, vars(circle)
        (12, {'radius': 2, 'area': 12})
        """

        def __init__(self, work: Callable[[Any], Any]) -> None:
            self.work, self.__doc__ = work, work.__doc__

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = vars(instance)[self.work.__name__] = self.work(instance)
            return found
