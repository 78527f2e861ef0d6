"""Common part of all that is asked for keys: device, encoding, copies, save and load."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.errors import FormatError, SpecError
from dgpuhash.spec import TableSpec, check_capacity
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.encoding import key_memory, key_words, keys_of, words_of
from dgpuhash.tables.arguments.interop import ArrayArgument, as_argument
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, as_lookup_keys
from dgpuhash.tables.arguments.validate import as_device_array
from dgpuhash.tables.memory_errors import translates_memory_errors
from dgpuhash.tables.rwlock import ReadWriteLock, read_locked
from dgpuhash.tables.serialization import Buffers, check_absent, read_file, write_file
from dgpuhash.typing import Device


class Keyed(ABC):
    """Base of tables and filters: what holds keys of one dtype, on one device.

    A subclass opens its store on a device, and says what a file has of it.
    """

    kind = ""

    def __init__(self, spec: TableSpec, device: Device | None) -> None:
        self._spec, self._key = spec, spec.key
        self._backend: Backend | None = None if device is None else backends.get(device)
        self._store: Any = None
        self._turns = ReadWriteLock()
        if self._backend is not None:
            self._open(self._backend)
            # Whatever stream uses it next: its slots are empty.
            self._backend.synchronize()

    @property
    def spec(self) -> TableSpec:
        """The settings with which the table was made."""
        return self._spec

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """The keys' dtype."""
        return self._key

    @property
    def device(self) -> Device | None:
        """``"cpu"``, ``"cuda"``, or None until the first arrays decide."""
        return None if self._backend is None else self._backend.name

    @translates_memory_errors
    @read_locked
    def copy(self) -> Self:
        """Return an independent table with the same content and device."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._turns = ReadWriteLock(self._turns.check_device)
        if self._store is not None:
            made._store = self._store.copy()
        return made

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        # Pickle a copy: other threads may change the table before pickling ends.
        return self.copy().__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._backend is not None:
            # The arrays are on the device on which they were just unpickled.
            self._turns.check_device = self._backend.check_device()

    @translates_memory_errors
    @read_locked
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the table atomically to one file, at a path or an fsspec URL.

        Parameters
        ----------
        path : path or fsspec URL
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ExistsError
            When `path` exists before or after the write, and `overwrite` is False. On remote file
            systems, two writers at the same moment are not detected.
        OSError
            When the disk is full or not writable; an existing file is then untouched.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from dgpuhash import HashSet
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "seen.dgph"
        >>> HashSet.from_keys([3, 1]).save(path)
        >>> HashSet.from_keys([3, 1, 4]).save(path, overwrite=True)
        >>> len(HashSet.load(path))
        3
        """
        check_absent(path, overwrite=overwrite)
        self._opened()
        spec = replace(self._spec, seed=self._seed)
        header = {"spec": spec.to_json(), "size": self._entries()}
        write_file(path, header, self._saved_buffers(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Load the table saved under `path`, to any device.

        Raises
        ------
        FormatError
            When the file is not dgpuhash's, truncated or damaged, or holds another kind of table.
        """
        header, buffers = read_file(path)
        if "spec" not in header and "kind" in header:
            raise FormatError(
                f"{path} holds a {header['kind']} and not a table; use dgpuhash.load for any kind"
            )
        try:
            spec = TableSpec.from_json(header["spec"])
            size = check_capacity(header["size"], "size")
            chosen = _kinds(cls).get(spec.kind)
            if chosen is not None:
                spec = chosen._checked(spec)
        except (KeyError, TypeError, SpecError) as error:
            raise FormatError(f"{path} describes no table ({error}); save it again") from error
        if chosen is None:
            raise FormatError(
                f"{path} holds a {spec.kind} and not a {cls.kind}; use dgpuhash.load for any kind"
            )
        made: Any = chosen._of(spec, 0, device or "cpu")
        made._restore(Buffers(os.fspath(path), buffers), size)
        if (held := made._entries()) != size:
            raise FormatError(
                f"{path} is damaged: it holds {held:,} distinct entries and claims {size:,}; "
                "save the table again"
            )
        return made

    @property
    def _seed(self) -> int:
        """Seed of the hash function in use."""
        return self._spec.seed

    @classmethod
    def _checked(cls, spec: TableSpec) -> TableSpec:
        """Return a spec that was saved; raise SpecError unless it is possible."""
        return spec

    @classmethod
    @abstractmethod
    def _of(cls, spec: TableSpec, capacity: int, device: Device | None) -> Self:
        """Return an empty object with the settings of a spec of its kind."""

    @abstractmethod
    def _open(self, backend: Backend) -> None:
        """Open the store on `backend`, and keep to it."""

    @abstractmethod
    def _entries(self) -> int:
        """Return the size that is saved, to check what is restored."""

    @abstractmethod
    def _saved_buffers(self) -> Mapping[str, np.ndarray | Pieces]:
        """Return what a file has of the content."""

    @abstractmethod
    def _restore(self, buffers: Buffers, size: int) -> None:
        """Fill the store from a file's buffers."""

    def _opened(self) -> Any:
        """Return the store; open it on the CPU if no array chose a device."""
        if self._store is None:
            self._open(backends.get("cpu"))
        assert self._store is not None
        return self._store

    def _home(self, *arguments: ArrayArgument) -> Backend:
        """Return the backend of the arguments and of the table."""
        backend = self._backend
        if backend is not None:
            for taken in arguments:
                if taken.location not in (None, backend.name):
                    break
            else:
                return backend
        placed = [taken.data for taken in arguments if taken.location is not None]
        return backends.get(self.device, *placed)

    def _keys(self, keys: Any) -> tuple[ArrayArgument, Any]:
        """Open the table; return the argument and its canonical words."""
        taken, bits = self._stored_as(keys)
        return taken, words_of(bits)

    def _stored_as(self, keys: Any) -> tuple[ArrayArgument, Any]:
        """Return the argument and words as `_keys` does, of any dtype as wide."""
        taken = as_argument(keys, "keys")
        backend = self._home(taken)
        bits = key_memory(backend, as_device_array(backend, taken, self._key, "keys"))
        self._turns.begin()
        if self._store is None:
            self._open(backend)
        return taken, bits

    def _asked(self, keys: Any) -> tuple[ArrayArgument, LookupKeys, Any]:
        """Return a lookup argument, its `LookupKeys` keys, and their words."""
        taken = as_argument(keys, "keys")
        backend = self._home(taken)
        asked = as_lookup_keys(backend, taken, self._key, "keys")
        bits = key_memory(backend, asked.keys)
        if self._store is None:
            self._open(backend)
        return taken, asked, bits

    def _stored_keys(self, bits: Any) -> Any:
        assert self._backend is not None
        return keys_of(self._backend, bits, self._key)

    def _restored_bits(self, raw: np.ndarray) -> Any:
        """Return saved key words on the device, made canonical."""
        backend = self._home()
        return key_words(backend, keys_of(backend, backend.from_host(raw), self._key))


def _kinds(cls: type[Keyed]) -> dict[str, type[Keyed]]:
    """Return every concrete subclass of `cls`, by kind."""
    found = {cls.kind: cls} if cls.kind else {}
    for child in cls.__subclasses__():
        found |= _kinds(child)
    return found
