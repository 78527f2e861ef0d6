"""What a message carries of a frame: its columns as plain arrays where they can be, else itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed.protocol import Serialize, to_serialize

from dgpuhash.distributed.cluster.serialization import kind_of_meta, remember
from dgpuhash.frames import frames_of

__all__ = [
    "Payload",
    "are_plain",
    "frame_of_payload",
    "is_plain",
    "joined",
    "loaded",
    "plain_arrays",
    "unloaded",
]

# A tuple of arrays, or a frame.
Payload = Any

# Kinds of empty frames of which is remembered whether they are plain.
KINDS = 32
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
