"""Serialize empty frames once per process, and rows in messages without pickle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np
import pandas as pd

from dgpuhash import config
from dgpuhash.distributed.cluster.dask_internals import Serialize, pickle, to_serialize
from dgpuhash.frames import frames_of
from dgpuhash.typing import Device

Name = TypeVar("Name", bound=Hashable)
Thing = TypeVar("Thing")


class Cache(Generic[Name, Thing]):
    """Bounded cache, which threads share; the oldest entry is evicted first.

    Examples
    --------
    >>> lengths = Cache[str, int](most=2)
    >>> [lengths.get(word, lambda: len(word)) for word in ("a", "bc", "a", "def")]
    [1, 2, 1, 3]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Names of objects are their ids, which others get when they are gone.
        self._entries: dict[Any, tuple[Callable[[], Any] | None, Thing]] = {}

    def get(self, name: Name | None, make: Callable[[], Thing]) -> Thing:
        """Return the entry of a name, made where it is missing; None is the name of nothing."""
        # Read once: another thread may evict it meanwhile.
        entry = self._entries.get(name)
        if entry is not None:
            return entry[1]
        return make() if name is None else self._put(name, None, make())

    def get_of(self, thing: Any, make: Callable[[Any], Thing]) -> Thing:
        """Return the entry of an object that never changes, made once while the object lives."""
        entry = self._entries.get(id(thing))
        if entry is not None and entry[0] is not None and entry[0]() is thing:
            return entry[1]
        slotted = not hasattr(thing, "__weakref__")
        return self._put(id(thing), (lambda: thing) if slotted else ref(thing), make(thing))

    def _put(self, name: Any, owner: Callable[[], Any] | None, thing: Thing) -> Thing:
        while len(self._entries) >= self._most:
            self._entries.pop(next(iter(tuple(self._entries)), name), None)
        self._entries[name] = owner, thing
        return thing


@dataclass(frozen=True, slots=True)
class CachedPickle(Generic[Thing]):
    """Pickled value that each process unpickles once.

    Dask pickles the arguments of every task anew, and a frame in GPU memory, even without rows,
    takes a millisecond each time. The scheduler passes the bytes on without reading them.

    Examples
    --------
    >>> seal = CachedPickle.of({"k": 1})
    >>> seal.opened() is CachedPickle.of({"k": 1}).opened()
    True
    """

    packed: bytes

    @classmethod
    def of(cls, thing: Thing) -> CachedPickle[Thing]:
        """Pickle `thing`, which must not change afterwards."""
        return cls(pickle.dumps(thing))

    def opened(self) -> Thing:
        """Return the value; equal bytes give one shared object."""
        return _unpickle(self.packed)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=64)
def _unpickle(packed: bytes) -> Any:
    return pickle.loads(packed)


class EmptyFramePickle:
    """Base of dataclasses that pickle their empty frames through a cache.

    Frames in GPU memory, even without rows, take milliseconds to pickle and to unpickle: each
    process does it once for all frames that are alike.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]
        return _remade, (type(self), tuple(map(_pack, values)))


@dataclass(frozen=True, slots=True)
class _Meta:
    """Empty frame as a cached pickle."""

    seal: CachedPickle[Any]


def _remade(kind: type[Thing], values: tuple[Any, ...]) -> Thing:
    return kind(*(each.seal.opened() if isinstance(each, _Meta) else each for each in values))


def _pack(value: Any) -> Any:
    if not hasattr(value, "iloc") or len(value) or (kind := schema_key(value)) is None:
        return value
    return _metas.get(kind, lambda: _Meta(CachedPickle.of(value)))


_metas = Cache[str, _Meta](most=32)
# The text of an empty frame. A frame may be a view of all rows of a user.
_schemas = Cache[int, str | None](most=2**10)


def schema_key(meta: Any) -> str | None:
    """Return a text that identifies the schema of an empty frame or Series.

    None for anything else, and where dtypes have more than their name, as categories have. `meta`
    must not change from now on.
    """
    return _schemas.get_of(meta, _schema_key) if hasattr(meta, "iloc") else None


def _schema_key(meta: Any) -> str | None:
    if len(meta):
        return None
    frames, index = frames_of(meta), meta.index
    dtypes = [meta.dtype] if meta.ndim == 1 else frames.dtypes(meta)
    dtypes = [*dtypes, getattr(index, "dtype", None)]
    if index.nlevels > 1 or any(hasattr(dtype, "categories") for dtype in dtypes):
        return None
    if frames.name == "pandas":
        exact = type(meta) in (pd.DataFrame, pd.Series) and meta.flags.allows_duplicate_labels
        # Attributes may be any objects of a user's.
        if not exact or meta.attrs or not all(map(_is_named, dtypes)):
            return None
    elif frames.name != "cudf":
        return None
    # The labels 1, 1.0 and True are equal, and their texts are not.
    names = [meta.name] if meta.ndim == 1 else [list(meta.columns), list(meta.columns.names)]
    labels = None if meta.ndim == 1 else getattr(meta.columns, "dtype", None)
    kinds = frames.name, type(meta).__name__, type(index).__name__, getattr(index, "freq", None)
    return repr((kinds, names, labels, dtypes, list(index.names)))


def _is_named(dtype: Any) -> bool:
    """Return whether a pandas dtype is determined by its name."""
    if isinstance(dtype, np.dtype):
        return dtype.kind != "O"
    return isinstance(dtype, pd.StringDtype) or hasattr(dtype, "numpy_dtype")


# Empty frames that keep no rows of a user in memory, by their ids.
_bare: WeakValueDictionary[int, Any] = WeakValueDictionary()


def is_bare(meta: Any) -> bool:
    """Return whether a frame is known not to be a view of a larger one in memory."""
    return _bare.get(id(meta)) is meta


def note_bare(meta: Any) -> None:
    """Record that a frame is no view of a larger one."""
    _bare[id(meta)] = meta


# A message of 64 MiB takes 50 ms over TCP. Between GPUs a message costs the event loops of both
# ends some 0.6 ms, the time to send 200 MB.
_GPU_PARCELS = 4


def chunk_nbytes(device: Device) -> int:
    """Return the size limit of a message of rows on `device`, in bytes."""
    return config.nbytes("exchange.message") * (_GPU_PARCELS if device == "cuda" else 1)


# Rows as a message carries them: a tuple of arrays, or a frame.
Payload = Any

_plain = Cache[str, bool](most=32)


def plain_arrays(frame: Any, like: Any) -> tuple[Any, ...] | None:
    """Return a frame's columns as arrays without a copy, or None.

    None when a column has nulls, or another dtype than in `like`.
    """
    frames = frames_of(frame)
    dtypes = frames.dtypes(frame)
    if dtypes != frames.dtypes(like):
        return None
    arrays = frames.arrays(frame, dtypes)
    return None if arrays is None else tuple(arrays)


def are_plain(meta: Any) -> bool:
    """Return whether null-free frames like the empty `meta` are plain arrays."""
    return _plain.get(schema_key(meta), lambda: plain_arrays(meta, meta) is not None)


def frame_of_payload(payload: Payload, like: Any) -> Any:
    """Return the rows of a payload as a frame with the columns of `like`."""
    return frames_of(like).from_arrays(payload, like) if is_plain(payload) else payload


def concat_payloads(payloads: Sequence[Payload], like: Any) -> Any:
    """Concatenate payloads to one frame with the columns of `like`.

    Its rows are numbered from 0.
    """
    frames = frames_of(like)
    if len(payloads) > 1 and all(map(is_plain, payloads)):
        columns = zip(*payloads, strict=True)
        return frames.from_arrays([frames.xp.concatenate(column) for column in columns], like)
    filled = [frame for each in payloads if len(frame := frame_of_payload(each, like))]
    return frames.concat(filled) if filled else like


def is_plain(payload: Payload) -> bool:
    """Return whether a payload is arrays, not a frame."""
    # A comm within a process gives a list for the tuple.
    return isinstance(payload, tuple | list)


def to_message(thing: Any) -> Any:
    """Wrap `thing` for a message, so that Dask serializes it.

    Each array of a tuple is serialized by itself.
    """
    if isinstance(thing, tuple):
        return [to_serialize(array) for array in thing]
    return to_serialize(thing)


def from_message(part: Any) -> Any:
    """Unwrap an object from a message that never left its process.

    Undoes `to_message`.
    """
    if isinstance(part, list):
        return tuple(from_message(each) for each in part)
    return part.data if isinstance(part, Serialize) else part
