"""Mask references: replace low-complexity or lower-case letters by N."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.backend.native import native
from dgpuhash.errors import SpecError

if TYPE_CHECKING:
    from dgpuhash.kmer.references import ReferenceBatch

MASKS = ("none", "lowercase", "dust")
# Letters on each side of one that decide whether it is masked: a window of 64 less that one.
_BESIDE = 63


def check_mask(mask: str) -> str:
    """Return the name of a mask, or raise SpecError if it is unknown."""
    if mask not in MASKS:
        raise SpecError(f"mask={mask!r}; use one of {', '.join(map(repr, MASKS))}")
    return mask


def mask_letters(mask: str, letters: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the letters of records with masked ones replaced by N.

    Parameters
    ----------
    mask : {"none", "lowercase", "dust"}
        ``"dust"`` masks letters of low complexity by symmetric DUST with a window of 64 letters
        and the threshold 20, as Kraken 2 does by default: Morgulis and others, J. Comput. Biol.
        13:1028, 2006, https://doi.org/10.1089/cmb.2006.13.1028.
    letters : array of uint8
    offsets : array of int64
        ``n + 1`` positions: record i has ``letters[offsets[i]:offsets[i + 1]]``.

    Raises
    ------
    SpecError
        When there is no such mask.

    Examples
    --------
    >>> letters = np.frombuffer(b"ACGTTGCATTGCCGATA" + b"CA" * 9 + b"GGTCTTGCA", np.uint8)
    >>> mask_letters("dust", letters, np.array([0, len(letters)])).tobytes().decode()
    'ACGTTGCATTGCCGATNNNNNNNNNNNNNNNNNNNGGTCTTGCA'
    """
    if check_mask(mask) == "lowercase":
        return np.where(letters >= ord("a"), np.uint8(ord("N")), letters)
    if mask == "dust":
        left = letters.copy()
        native().mask_dust(np.ascontiguousarray(letters), offsets.astype(np.int64), left)
        return left
    return letters


def mask_on(backend: Backend, mask: str, letters: Any, offsets: Any) -> Any:
    """Return masked letters on a device, masked by the host."""
    if check_mask(mask) == "none":
        return letters
    host = backend.to_host
    return backend.from_host(mask_letters(mask, host(letters), host(offsets)))


def masked_batches(
    mask: str,
    read: Callable[[int | None], Iterator[ReferenceBatch]],
    overlap: int | None,
    stride: int,
) -> Iterator[ReferenceBatch]:
    """Yield batches of references with masked letters replaced by N.

    What is masked does not depend on where records are cut: pieces are read with more letters on
    both sides, which are left off again.

    Parameters
    ----------
    mask : {"none", "lowercase", "dust"}
    read : callable
        Yields batches whose pieces begin with so many letters of the one before, None of whole
        records.
    overlap, stride
        As for `read_sequences`.
    """
    before = -(-_BESIDE // stride) * stride
    wider = overlap
    if mask == "dust" and overlap is not None:
        wider = overlap + before + _BESIDE
    for batch in read(wider):
        batch = replace(batch, letters=mask_letters(mask, batch.letters, batch.offsets))
        yield batch if wider == overlap else _cut_to(batch, before, wider or 0, stride)


def _cut_to(batch: ReferenceBatch, before: int, overlap: int, stride: int) -> ReferenceBatch:
    """Return a batch without the extra letters that its first and last piece have for masking."""
    if not len(batch.targets):
        return batch
    sizes = np.diff(batch.offsets)
    start = min(before, int(sizes[0])) if batch.starts[0] else 0
    end = len(batch.letters)
    if batch.is_cut:
        last = int(batch.starts[-1] + sizes[-1])
        # Where the next piece begins with the record, it has all letters of this one.
        goes_on = last - overlap + stride - 1 >= stride
        end = max(end - _BESIDE, int(batch.offsets[-2])) if goes_on else int(batch.offsets[-2])
    offsets = np.clip(batch.offsets, start, max(start, end)) - start
    starts = batch.starts.copy()
    starts[0] += start
    return replace(batch, letters=batch.letters[start:end], offsets=offsets, starts=starts)
