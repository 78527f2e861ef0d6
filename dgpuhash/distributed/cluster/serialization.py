"""Things that many tasks carry, as bytes that each worker looks into once."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
from distributed.protocol import pickle

from dgpuhash.frames import frames_of

__all__ = ["Sealed", "WithMetas", "kind_of_meta", "remember"]

Name = TypeVar("Name", bound=Hashable)
Thing = TypeVar("Thing")

# So many empty frames are remembered with their kinds, and so many kinds with their bytes.
KINDS = 32
_kinds: dict[int, tuple[Any, Hashable]] = {}
_metas: dict[str, _Meta] = {}


@dataclass(frozen=True, slots=True)
class Sealed(Generic[Thing]):
    """A value that the scheduler passes on unseen.

    Dask pickles what a task carries for each task, and frames in GPU memory, of no rows too, take
    it a millisecond each.

    Examples
    --------
    >>> seal = Sealed.of({"k": 1})
    >>> seal.opened() is Sealed.of({"k": 1}).opened()
    True
    """

    packed: bytes

    @classmethod
    def of(cls, thing: Thing) -> Sealed[Thing]:
        """`thing`, which nobody changes from now on."""
        return cls(pickle.dumps(thing))

    def opened(self) -> Thing:
        """The value; one for all seals of equal bytes."""
        return _opened(self.packed)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=64)
def _opened(packed: bytes) -> Any:
    return pickle.loads(packed)


class WithMetas:
    """A dataclass of which some fields are empty frames.

    Frames in GPU memory, of no rows too, take milliseconds to be pickled and made again: here that
    is done once for all that are alike.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]
        return _remade, (type(self), tuple(map(_packed, values)))


@dataclass(frozen=True, slots=True)
class _Meta:
    """An empty frame."""

    seal: Sealed[Any]


def _remade(kind: type[Thing], values: tuple[Any, ...]) -> Thing:
    return kind(*(each.seal.opened() if isinstance(each, _Meta) else each for each in values))


def _packed(value: Any) -> Any:
    if not hasattr(value, "iloc") or len(value) or (kind := kind_of_meta(value)) is None:
        return value
    asked = repr(kind)
    found = _metas.get(asked)
    if found is None:
        found = _Meta(Sealed.of(value))
        remember(_metas, asked, found, KINDS)
    return found


def kind_of_meta(meta: Any) -> Hashable:
    """Equal for empty frames that are alike; None for others, such as those with categories.

    Nobody may change `meta` from now on.
    """
    found = _kinds.get(id(meta))
    if found is None or found[0] is not meta:
        found = meta, _kind(meta)
        remember(_kinds, id(meta), found, KINDS)
    return found[1]


def remember(known: dict[Name, Thing], name: Name, thing: Thing, most: int) -> None:
    """Put `thing` among what is known, of which the oldest may have to go; threads may share it."""
    while len(known) >= most:
        known.pop(next(iter(tuple(known)), name), None)
    known[name] = thing


def _kind(meta: Any) -> Hashable:
    frames, labels = frames_of(meta), meta.index
    dtypes = [*frames.dtypes(meta), getattr(labels, "dtype", None)]
    if not all(isinstance(dtype, np.dtype) and dtype.kind != "O" for dtype in dtypes):
        return None
    if getattr(meta, "attrs", None):
        # Which are whatever a user has put there.
        return None
    columns = tuple(meta), tuple(meta.columns.names)
    return type(meta), columns, tuple(dtypes), type(labels), tuple(labels.names)
