"""Protocol between k-mer server and client: JSON heads and plain arrays, no pickles.

A connection begins with `MAGIC` and the sender's version, from either side. Each message is the
length of its head, the head in JSON, and the bytes of its arrays. The head names a kind, fields and
arrays; each kind has a fixed schema, and what is outside of it is refused before it is read.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from dgpuhash.errors import SpecError, UnsupportedError

MAGIC = b"dgpuhash kmer\n"
VERSION = 1
# Time for a greeting, and for each megabyte of a message that has begun.
GREETING_SECONDS = 10.0
STALL_SECONDS = 60.0
_LINGER_SECONDS = 5.0
# Most bytes of a request's head; replies have names of files and taxa.
HEAD_NBYTES = 2**16
REPLY_HEAD_NBYTES = 2**30
CHUNK_NBYTES = 2**20
_DEPTH = 2

Arrays = Mapping[str, np.ndarray]


class BadMessage(ConnectionError):
    """Bytes that violate the protocol or its size limits."""


def check_size(nbytes: int, most: int) -> None:
    """Raise UnsupportedError if a request exceeds the server's size limit."""
    if nbytes > most:
        raise UnsupportedError(
            f"a read, and those sent with it, have {nbytes:,} bytes, more than the {most:,} that "
            "the server takes; start it with more --memory"
        )


class Message(NamedTuple):
    """A message: its kind, its fields and its arrays."""

    kind: str
    fields: Mapping[str, Any] = {}
    arrays: Arrays = {}  # noqa: RUF012

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def head(self) -> bytes:
        """Return the bytes before the arrays.

        Raises
        ------
        TypeError, ValueError
            When a field is nothing that JSON has.
        """
        listed = [[name, array.dtype.str, array.shape] for name, array in self.arrays.items()]
        head = {"kind": self.kind, "fields": self.fields, "arrays": listed}
        return json.dumps(head, separators=(",", ":"), default=_plain).encode()


class Schema(NamedTuple):
    """Schema of a kind of message: types of its fields, dtypes of its arrays.

    Attributes
    ----------
    fields : dict
        All must be there.
    arrays : dict
        Some may be absent. ``"*"``: any name.
    """

    fields: dict[str, type]
    arrays: dict[str, str]


_CANDIDATE_NBYTES = 20
_TEXTS: dict[str, type] = {"error": str, "text": str}
REQUESTS = {
    "open": Schema({"database": str}, {}),
    "call": Schema(
        {"options": dict, "detail": bool, "minimizers": bool, "candidates": bool},
        {
            "letters": "|u1", "sizes": "<u4", "qualities": "|u1",
            "mate_letters": "|u1", "mate_sizes": "<u4", "mate_qualities": "|u1",
            "kept": "|u1",
        },
    ),
}  # fmt: skip
REPLIES = {
    "opened": Schema(
        {"database": str, "header": dict, "memory": int, "share": int, "letters": int}, {"*": ""}
    ),
    "called": Schema({}, {"*": ""}),
    "error": Schema(_TEXTS, {}),
    "closed": Schema(_TEXTS, {}),
}
_DTYPES = {"|u1", "|i1", "<u2", "<u4", "<i4", "<u8", "<i8"}


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a message before its arrays are read."""

    kind: str
    fields: dict[str, Any]
    shapes: dict[str, tuple[str, tuple[int, ...]]]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(
            np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in self.shapes.values()
        )

    @property
    def answered_nbytes(self) -> int:
        """Bytes of the arrays of reads and of their reply."""
        _, shape = self.shapes.get("sizes", ("", ()))
        lists = self.fields["options"].get("maxcand", 2)
        rows = math.prod(shape) * (max(lists, 1) if type(lists) is int else 1)
        return self.nbytes + rows * _CANDIDATE_NBYTES

    @classmethod
    def of(cls, text: bytes, schemas: Mapping[str, Schema]) -> Head:
        """Parse the head of a message, or raise BadMessage.

        Examples
        --------
        >>> Head.of(b'{"kind": "open", "fields": {"database": "x"}, "arrays": []}', REQUESTS).kind
        'open'
        """
        try:
            head = json.loads(text)
            kind, fields, arrays = head["kind"], head["fields"], head["arrays"]
            shapes = {name: (dtype, tuple(shape)) for name, dtype, shape in arrays}
            schema = schemas[kind]
            is_sound = len(shapes) == len(arrays) and fields.keys() == schema.fields.keys()
            is_sound &= all(type(fields[name]) is of for name, of in schema.fields.items())
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise BadMessage("the header of a message is malformed") from error
        if not is_sound or not all(_is_array(name, *each, schema) for name, each in shapes.items()):
            raise BadMessage(f"the fields or arrays of a message {kind!r} are malformed")
        return cls(kind, fields, shapes)


def _is_array(name: object, dtype: object, shape: tuple[Any, ...], schema: Schema) -> bool:
    is_known = dtype in _DTYPES if "*" in schema.arrays else schema.arrays.get(str(name)) == dtype
    sizes = all(type(size) is int and 0 <= size < 2**40 for size in shape)
    return is_known and type(name) is str and 1 <= len(shape) <= _DEPTH and sizes


class Channel:
    """Connection that sends and receives whole messages.

    Parameters
    ----------
    reader, writer
        Streams of asyncio.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._lock = asyncio.Lock()
        wire: socket.socket | None = writer.get_extra_info("socket")
        if wire is not None and wire.family != socket.AF_UNIX:
            # A host that is gone says nothing more.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def send_greeting(self) -> None:
        """Send the magic bytes and the version."""
        self._writer.write(MAGIC + VERSION.to_bytes(2, "little"))
        await self._writer.drain()

    async def receive_greeting(self) -> int:
        """Return the version of the other side.

        Raises
        ------
        BadMessage
            When it speaks something else.
        """
        async with asyncio.timeout(GREETING_SECONDS):
            greeting = await self._reader.readexactly(len(MAGIC) + 2)
        if not greeting.startswith(MAGIC):
            raise BadMessage("the other side does not speak the protocol of dgpuhash kmer serve")
        return int.from_bytes(greeting[len(MAGIC) :], "little")

    async def send(self, message: Message) -> None:
        """Send a message.

        Raises
        ------
        TimeoutError
            When the other side takes nothing for `STALL_SECONDS`.
        """
        text = message.head()
        arrays = [np.ascontiguousarray(array) for array in message.arrays.values() if array.size]
        buffers = [array.reshape(-1).view(np.uint8).data for array in arrays]
        async with self._lock:
            self._writer.write(len(text).to_bytes(4, "little"))
            for buffer in (memoryview(text), *buffers):
                for start in range(0, len(buffer), CHUNK_NBYTES):
                    self._writer.write(buffer[start : start + CHUNK_NBYTES])
                    async with asyncio.timeout(STALL_SECONDS):
                        await self._writer.drain()

    async def receive_head(self, schemas: Mapping[str, Schema], most: int) -> Head:
        """Return the head of the next message, waiting without a limit.

        Raises
        ------
        BadMessage
            When there are other bytes, or the head has more than `most`.
        asyncio.IncompleteReadError
            When the connection ends.
        """
        size = int.from_bytes(await self._reader.readexactly(4), "little")
        if size > most:
            raise BadMessage(f"the header of a message has {size:,} bytes, more than {most:,}")
        async with asyncio.timeout(STALL_SECONDS):
            text = await self._reader.readexactly(size)
        return Head.of(text, schemas)

    async def receive_arrays(self, head: Head) -> Message:
        """Read the arrays of a head; return the message."""
        arrays = {}
        for name, (dtype, shape) in head.shapes.items():
            array = np.empty(shape, dtype)
            await self._fill(array.reshape(-1).view(np.uint8).data)
            arrays[name] = array
        return Message(head.kind, head.fields, arrays)

    async def _fill(self, buffer: memoryview) -> None:
        for start in range(0, len(buffer), CHUNK_NBYTES):
            end = min(start + CHUNK_NBYTES, len(buffer))
            async with asyncio.timeout(STALL_SECONDS):
                buffer[start:end] = await self._reader.readexactly(end - start)

    async def linger(self) -> None:
        """Stop reading, and wait for the other side to read the last message and close.

        Bytes that were not read would have its system drop what it was sent.
        """
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._reader.read(CHUNK_NBYTES):
                    pass

    def close(self) -> None:
        """Close the connection at once; unsent data is lost."""
        self._writer.transport.abort()

    async def finish(self, *, at_once: bool = False) -> None:
        """Close the connection, after sending all or at once, and wait for its end."""
        try:
            if not at_once:
                self._writer.close()
                async with asyncio.timeout(GREETING_SECONDS):
                    await self._writer.wait_closed()
        finally:
            self.close()
            with suppress(OSError):
                await self._writer.wait_closed()


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a JSON value."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} cannot be sent to a server; pass a number or a text")


class Address(NamedTuple):
    """Address of a server: ``tcp://host:port``, ``tls://host:port`` or ``unix:///path``.

    Examples
    --------
    >>> Address.of("tcp://[::1]:8790"), Address.of("unix:///run/kmer.socket").path
    (Address(scheme='tcp', host='::1', port=8790, path=''), '/run/kmer.socket')
    """

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse an address.

        Raises
        ------
        SpecError
            When it is none.
        """
        try:
            parts = urlsplit(text)
            host, port, path = parts.hostname or "", parts.port, parts.path
        except ValueError:
            host, port, path = "", None, ""
            parts = urlsplit("")
        is_socket = parts.scheme == "unix" and path.startswith("/") and not parts.netloc
        is_port = parts.scheme in ("tcp", "tls") and host and port is not None and not path
        if not (is_socket or is_port):
            raise SpecError(
                f"{text} is not an address; write tcp://host:port, tls://host:port or unix:///path"
            )
        return cls(parts.scheme, host, port or 0, path)

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def tls(self, *, listens: bool) -> ssl.SSLContext | None:
        """Return the TLS context of Dask's configuration; None without TLS.

        Raises
        ------
        SpecError
            When the configuration has no certificates, or demands encryption.
        """
        if self.scheme == "unix":
            return None
        if self.scheme == "tcp":
            import dask.config

            if dask.config.get("distributed.comm.require-encryption", None):
                raise SpecError(
                    f"{self} is not encrypted, and Dask's configuration has "
                    "distributed.comm.require-encryption; use tls:// or unix://"
                )
            return None
        from distributed import Security

        security = Security()
        arguments = (
            security.get_listen_args("scheduler")
            if listens
            else security.get_connection_args("client")
        )
        context: ssl.SSLContext | None = arguments["ssl_context"]
        if context is None:
            role = "scheduler" if listens else "client"
            raise SpecError(
                f"{self} needs certificates; set ca-file, {role}.cert and {role}.key below "
                "distributed.comm.tls in Dask's configuration"
            )
        return context
