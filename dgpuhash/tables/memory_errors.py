"""Translate exhausted memory in tables' verbs to OutOfMemoryError."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from dgpuhash.backend import is_out_of_memory
from dgpuhash.errors import DgpuhashError, OutOfMemoryError

Verb = TypeVar("Verb", bound=Callable[..., Any])


def translates_memory_errors(verb: Verb) -> Verb:
    """Decorate a table's verb to raise OutOfMemoryError.

    It does so where NumPy or CuPy raise an error of their own for exhausted memory.
    """

    @functools.wraps(verb)
    def said(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return verb(self, *args, **kwargs)
        except Exception as error:
            if isinstance(error, DgpuhashError) or not is_out_of_memory(error):
                raise
            free, _ = self._home().memory()
            name = f"{type(self).__name__}.{verb.__name__.lstrip('_')}"
            raise OutOfMemoryError(
                f"{name} ran out of memory: {error}; {free:,} bytes are free; "
                "use smaller batches, or give the whole capacity when making the table"
            ) from error

    return cast(Verb, said)


def function_translates_memory_errors(call: Verb) -> Verb:
    """Decorate a function as `translates_memory_errors` decorates a table's verb."""
    return memory_errors_of(call.__name__.lstrip("_"))(call)


@contextmanager
def memory_errors_of(name: str) -> Iterator[None]:
    """Translate errors of exhausted memory raised inside a block.

    Also decorates functions; `name` stands for the operation in the message.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DgpuhashError) or not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"{name} ran out of memory: {error}; free memory, or process fewer rows at once"
        ) from error
