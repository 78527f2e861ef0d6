"""Things that many tasks carry, as bytes that each worker looks into once."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
from distributed.protocol import Serialize, pickle, to_serialize

from dgpuhash.frames import frames_of

__all__ = [
    "Payload",
    "Sealed",
    "WithMetas",
    "are_plain",
    "frame_of_payload",
    "is_plain",
    "joined",
    "kind_of_meta",
    "loaded",
    "plain_arrays",
    "remember",
    "unloaded",
]

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


# A tuple of arrays, or a frame.
Payload = Any

_plain: dict[str, bool] = {}


def plain_arrays(frame: Any, like: Any) -> tuple[Any, ...] | None:
    """The columns on their own memory; None when one has nulls, or not the dtype that it should."""
    frames = frames_of(frame)
    dtypes = frames.dtypes(frame)
    if dtypes != frames.dtypes(like):
        return None
    arrays = frames.arrays(frame, dtypes)
    return None if arrays is None else tuple(arrays)


def are_plain(meta: Any) -> bool:
    """Whether frames like the empty `meta`, and without nulls, are plain arrays."""
    asked = repr(kind_of_meta(meta))
    found = _plain.get(asked)
    if found is None:
        found = plain_arrays(meta, meta) is not None
        if kind_of_meta(meta) is not None:
            remember(_plain, asked, found, KINDS)
    return found


def frame_of_payload(payload: Payload, like: Any) -> Any:
    """The rows as a frame with the columns of `like`."""
    return frames_of(like).from_arrays(payload, like) if is_plain(payload) else payload


def joined(payloads: Sequence[Payload], like: Any) -> Any:
    """The rows of all as one frame with the columns of `like`, numbered from 0."""
    frames = frames_of(like)
    if len(payloads) > 1 and all(map(is_plain, payloads)):
        columns = zip(*payloads, strict=True)
        return frames.from_arrays([frames.xp.concatenate(column) for column in columns], like)
    filled = [frame for each in payloads if len(frame := frame_of_payload(each, like))]
    return frames.concat(filled) if filled else like


def is_plain(payload: Payload) -> bool:
    """Whether it is arrays, and no frame."""
    # A comm within a process gives a list for the tuple.
    return isinstance(payload, tuple | list)


def loaded(thing: Any) -> Any:
    """`thing` as a part of a message: Dask serialises each array of a tuple, or all of it."""
    if isinstance(thing, tuple):
        return [to_serialize(array) for array in thing]
    return to_serialize(thing)


def unloaded(part: Any) -> Any:
    """What `loaded` was given, from the part of a message that never left its process."""
    if isinstance(part, list):
        return tuple(unloaded(each) for each in part)
    return part.data if isinstance(part, Serialize) else part
