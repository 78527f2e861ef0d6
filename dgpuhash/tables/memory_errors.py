"""Translation of exhausted memory to OutOfMemoryError in tables' verbs."""

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
    """Decorate a table's verb to raise OutOfMemoryError.

    It does so where NumPy or CuPy raise an error of their own for exhausted memory.
    """

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
    """Decorate a function as `says_memory` decorates a table's verb."""
    return saying_memory(call.__name__.lstrip("_"))(call)


@contextmanager
def saying_memory(name: str) -> Iterator[None]:
    """Translate errors of exhausted memory raised inside a block.

    Also decorates functions; `name` stands for the operation in the message.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DgpuhashError) or not ran_out(error):
            raise
        raise OutOfMemoryError(
            f"{name} ran out of memory: {error}; free some, or take fewer rows at once"
        ) from error
