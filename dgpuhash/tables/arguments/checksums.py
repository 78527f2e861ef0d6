"""Checksums of buffers in files."""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

__all__ = ["as_bytes", "digest_of", "sums_digest_of", "with_digests"]

_AT_ONCE = 2
# Bytes of each sum.
_SUMMED = 1 << 20


def as_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of an array, copied where it is not contiguous."""
    flat = np.ascontiguousarray(array)
    return flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")


def digest_of(data: bytes | memoryview) -> bytes:
    """Return BLAKE2b of some bytes, 16 bytes long."""
    return hashlib.blake2b(data, digest_size=16).digest()


def sums_digest_of(data: bytes | memoryview) -> bytes:
    """Return the digest of the CRC-32 sums of each MiB of some bytes, 16 bytes long.

    Four times as fast as `digest_of`. It finds damage, not forgery: whoever changes a file can
    change its checksums, too.
    """
    starts = range(0, len(data), _SUMMED)
    sums = [zlib.crc32(data[start : start + _SUMMED]) for start in starts]
    return digest_of(np.array(sums, "<u4").tobytes())


def with_digests(
    arrays: Iterable[np.ndarray], digest: Callable[[memoryview], bytes] = sums_digest_of
) -> Iterator[tuple[np.ndarray, str]]:
    """Yield each array and its digest in hexadecimals; two digests are made at once.

    Arrays are asked for on the calling thread, one ahead.

    Examples
    --------
    >>> [made for _, made in with_digests([np.arange(3, dtype=np.uint8)] * 2, digest_of)]
    ['a75c0b0d97360c1ba783496eb6a0395a', 'a75c0b0d97360c1ba783496eb6a0395a']
    """
    waiting: deque[tuple[np.ndarray, Future[bytes]]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, "dgpuhash-digest") as pool:
        for array in arrays:
            waiting.append((array, pool.submit(digest, as_bytes(array))))
            if len(waiting) >= _AT_ONCE:
                first, made = waiting.popleft()
                yield first, made.result().hex()
        while waiting:
            first, made = waiting.popleft()
            yield first, made.result().hex()
