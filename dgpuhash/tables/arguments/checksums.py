"""Checksums of file buffers, and JSON manifests with format, version and checksum."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dgpuhash.backend.native import native
from dgpuhash.errors import DgpuhashError, FormatError

_AT_ONCE = 2
# Bytes of each sum, and of those that a thread takes at a time.
_SUMMED = 1 << 20
_SPAN = 16 * _SUMMED


@dataclass(frozen=True, slots=True)
class Pieces:
    """Array for a file, generated piece by piece at each use.

    Attributes
    ----------
    nbytes : int
        Of all pieces.
    make : callable
        Returns an iterator over them, arrays of the host.
    """

    nbytes: int
    make: Callable[[], Iterator[np.ndarray]]


Array = TypeVar("Array", bound=np.ndarray | Pieces)


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array, copied if it is not contiguous."""
    flat = np.ascontiguousarray(array)
    return flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")


def digest_of(data: bytes | memoryview) -> bytes:
    """Return the BLAKE2b digest of some bytes, 16 bytes long."""
    return hashlib.blake2b(data, digest_size=16).digest()


def sums_digest_of(data: bytes | memoryview) -> bytes:
    """Return a digest, 16 bytes long, of the CRC-32 sums of each MiB of some bytes.

    Four times as fast as `digest_of`. It finds damage, not forgery: whoever changes a file can
    change its checksums, too.
    """
    return _sums_digest_of([data])


def pieces_of(array: np.ndarray | Pieces) -> Iterator[memoryview]:
    """Yield the bytes of an array, or of pieces as they are generated."""
    yield from map(as_bytes, array.make() if isinstance(array, Pieces) else [array])


def with_digests(
    arrays: Iterable[Array], digest: Callable[[memoryview], bytes] = sums_digest_of
) -> Iterator[tuple[Array, str]]:
    """Yield each array with its digest in hexadecimal; all cores add up sums.

    Arrays are asked for on the calling thread, one ahead, and so are pieces; of these the digest
    is always that of sums.

    Examples
    --------
    >>> [made for _, made in with_digests([np.arange(3, dtype=np.uint8)] * 2, digest_of)]
    ['a75c0b0d97360c1ba783496eb6a0395a', 'a75c0b0d97360c1ba783496eb6a0395a']
    """
    waiting: deque[tuple[Array, Callable[[], bytes]]] = deque()
    with ThreadPoolExecutor(native().threads(), "dgpuhash-digest") as pool:

        def start(data: memoryview) -> Callable[[], bytes]:
            if digest is not sums_digest_of:
                return pool.submit(digest, data).result
            spans = [data[at : at + _SPAN] for at in range(0, len(data), _SPAN)]
            sums = [pool.submit(_sums_of, [span]) for span in spans]
            return lambda: digest_of(b"".join(each.result() for each in sums))

        for array in arrays:
            if isinstance(array, Pieces):
                made = _sums_digest_of(pieces_of(array))
                waiting.append((array, partial(bytes, made)))
            else:
                waiting.append((array, start(as_bytes(array))))
            if len(waiting) >= _AT_ONCE:
                first, finish = waiting.popleft()
                yield first, finish().hex()
        while waiting:
            first, finish = waiting.popleft()
            yield first, finish().hex()


def _sums_digest_of(pieces: Iterable[bytes | memoryview]) -> bytes:
    return digest_of(_sums_of(pieces))


def _sums_of(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return the CRC-32 sums of each MiB, of four bytes each."""
    sums, last, held = [], 0, 0
    for data in pieces:
        start = 0
        while start < len(data):
            part = data[start : start + _SUMMED - held]
            last, held = zlib.crc32(part, last), held + len(part)
            start += len(part)
            if held == _SUMMED:
                sums.append(last)
                last = held = 0
    if held:
        sums.append(last)
    return np.array(sums, "<u4").tobytes()


Made = TypeVar("Made")


def to_checked_json(what: str, version: int, body: Any) -> bytes:
    """Return JSON of `body`, with format, version and checksum.

    `body` has plain values only, and `what` says what was saved.
    """
    whole = {
        "format": f"dgpuhash {what}",
        "version": version,
        "blake2b": body_digest(body),
        what: body,
    }
    return json.dumps(whole, indent=1).encode()


def from_checked_json(
    what: str,
    version: int,
    data: bytes,
    where: str,
    made_of: Callable[[Any], Made],
    *,
    oldest: int | None = None,
) -> Made:
    """Return ``made_of(body)`` for the body of checked JSON.

    Its version is `version`, or any from `oldest` on.

    Raises
    ------
    FormatError
        When the JSON is foreign, newer than this program, or damaged.
    """
    try:
        whole = json.loads(data)
        found = whole["version"] if whole["format"] == f"dgpuhash {what}" else None
    except (ValueError, TypeError, KeyError, RecursionError):
        found = None
    if found is None:
        raise FormatError(
            f"{where} is foreign or damaged: no manifest of a saved {what}; pass the directory "
            f"that {what}.save wrote"
        )
    first = version if oldest is None else oldest
    if found not in range(first, version + 1):
        read = f"version {version}" if first == version else f"versions {first} to {version}"
        raise FormatError(
            f"{where} has format version {found} and this dgpuhash reads {read}; "
            "load it with the release that saved it"
        )
    try:
        body = whole[what]
        if body_digest(body) != whole["blake2b"]:
            raise ValueError("its checksum is wrong")
        return made_of(body)
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        if isinstance(error, DgpuhashError) and not isinstance(error, FormatError):
            raise
        raise FormatError(f"{where} is damaged: {error}") from error


def body_digest(body: Any) -> str:
    """Return the checksum of plain values."""
    return digest_of(json.dumps(body, sort_keys=True).encode()).hex()


def text_of_table(table: pa.Table) -> str:
    """Return the schema of an empty Arrow table as text: columns, types and categories."""
    sink = pa.BufferOutputStream()
    columns = [column.combine_chunks() for column in table.columns]
    with pa.ipc.new_stream(sink, table.schema) as writer:
        # A batch, even without rows, carries the categories, which the schema does not.
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def table_of_text(text: str) -> pa.Table:
    """Return the empty Arrow table from text of `text_of_table`.

    Raises ValueError for another text.
    """
    try:
        stream = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text, validate=True)))
        table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        # Arrow raises OSError for a stream that is cut off, too.
        raise ValueError(f"its specimen is no Arrow stream ({error})") from error
    if table.num_rows:
        raise ValueError("its specimen has rows")
    return table
