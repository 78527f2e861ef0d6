"""One error for memory that ran out, wherever in a verb that was."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from dgpuhash.backend import ran_out
from dgpuhash.errors import DgpuhashError, OutOfMemoryError

__all__ = ["call_says_memory", "saying_memory", "says_memory"]

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")


def says_memory(
    verb: Callable[Concatenate[Any, Rest], Answer],
) -> Callable[Concatenate[Any, Rest], Answer]:
    """Let a table's verb raise OutOfMemoryError where NumPy or CuPy raise an error of their own."""

    @functools.wraps(verb)
    def said(self: Any, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        try:
            return verb(self, *args, **kwargs)
        except Exception as error:
            if isinstance(error, DgpuhashError) or not ran_out(error):
                raise
            free, _ = self._home().memory()
            name = f"{type(self).__name__}.{verb.__name__.lstrip('_')}"
            raise OutOfMemoryError(
                f"{name} ran out of memory: {error}; {free:,} bytes are free; "
                "use smaller batches, or give the whole capacity when making the table"
            ) from error

    return said


def call_says_memory(call: Callable[Rest, Answer]) -> Callable[Rest, Answer]:
    """As `says_memory`, for what is no verb of a table."""
    return saying_memory(call.__name__.lstrip("_"))(call)


@contextmanager
def saying_memory(name: str) -> Iterator[None]:
    """The same for a block, or for the calls of a function that it decorates."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DgpuhashError) or not ran_out(error):
            raise
        raise OutOfMemoryError(
            f"{name} ran out of memory: {error}; free some, or take fewer rows at once"
        ) from error
