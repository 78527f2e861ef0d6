"""Checksums of buffers in files."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

__all__ = ["as_bytes", "digest_of", "with_digests"]

_AT_ONCE = 2


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array, copied where it is not contiguous."""
    flat = np.ascontiguousarray(array)
    return flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")


def digest_of(data: bytes | memoryview) -> bytes:
    """Return BLAKE2b of some bytes, 16 bytes long."""
    return hashlib.blake2b(data, digest_size=16).digest()


def with_digests(arrays: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, str]]:
    """Yield each array and its digest in hexadecimals; two digests are made at once.

    Arrays are asked for on the calling thread, one ahead.

    Examples
    --------
    >>> [digest for _, digest in with_digests([np.arange(3, dtype=np.uint8)] * 2)]
    ['a75c0b0d97360c1ba783496eb6a0395a', 'a75c0b0d97360c1ba783496eb6a0395a']
    """
    waiting: deque[tuple[np.ndarray, Future[bytes]]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, "dgpuhash-digest") as pool:
        for array in arrays:
            waiting.append((array, pool.submit(digest_of, as_bytes(array))))
            if len(waiting) >= _AT_ONCE:
                first, made = waiting.popleft()
                yield first, made.result().hex()
        while waiting:
            first, made = waiting.popleft()
            yield first, made.result().hex()
