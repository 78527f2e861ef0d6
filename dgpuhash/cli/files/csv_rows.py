"""Find the row ends in blocks of a CSV file, ignoring line breaks within quotes.

Whether a block begins within quotes depends on all bytes before it. Each block computes its effect
on the quote state (`QuoteEffect`); `quoted_after` applies the effects of the earlier blocks in
order.

pandas opens quotes only at the beginning of a field, and reads other quotes as text. So in a run of
adjacent quotes an even number changes nothing; an odd number at the beginning of a field opens
quotes or, within quotes, closes them; and an odd number elsewhere closes them, if they were open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_QUOTE, _LINE_BREAK, _CARRIAGE_RETURN = b'"\n\r'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes searched first for the end of a row.
_NEAR_NBYTES = 1 << 14


class QuoteEffect(NamedTuple):
    """Effect of some bytes on the quote state (within quotes or not).

    Attributes
    ----------
    known : bool
        Whether the state after these bytes does not depend on the state before them.
    odd : bool
        If `known`, the state after these bytes (True: within quotes); else whether they toggle it.
    """

    known: bool
    odd: bool


def quoted_after(inside: bool, turn: QuoteEffect) -> bool:
    """Return the quote state after the bytes of `turn`.

    `inside` is the state before them: whether they begin within quotes.

    Examples
    --------
    >>> [quoted_after(inside, quote_effect(b',"a', 1, 3, ",")) for inside in (False, True)]
    [True, False]
    """
    return turn.odd if turn.known else inside != turn.odd


def quote_effect(data: bytes, start: int, stop: int, separator: str) -> QuoteEffect:
    """Return the effect of the quotes that begin at `start` to ``stop - 1``.

    Parameters
    ----------
    data : bytes
        Bytes with at least one byte before `start`, and the whole run of quotes at `stop`; at the
        start of a file, a line break is put before the first byte.
    start, stop : int
    separator : str
        Field separator.
    """
    _, closes = _odd_quotes(data, start, stop, len(data), separator)
    if not closes.any():
        return QuoteEffect(False, len(closes) % 2 == 1)
    return QuoteEffect(True, int(closes[::-1].argmax()) % 2 == 1)


def row_end(
    data: bytes, start: int, inside: bool, separator: str, more: Callable[[bytes], bytes]
) -> tuple[bytes, int]:
    """Return the end of the row at position `start`.

    The row is the one that contains `start` or begins there; without a line break, it ends with the
    data.

    Parameters
    ----------
    data : bytes
        As for `quote_effect`.
    start : int
    inside : bool
        Whether `start` is within quotes.
    separator : str
    more : callable
        Returns `data` extended by bytes that follow, or `data` unchanged at the end of the file.

    Returns
    -------
    bytes, int
        `data`, extended as needed to find the end; and the position after the line break.
    """
    near = _NEAR_NBYTES
    while True:
        stop = min(start + near, len(data))
        at, closes = _odd_quotes(data, start, stop, stop, separator)
        order = np.arange(len(at))
        last = np.maximum.accumulate(np.where(closes, order, -1))
        # Quote state after each run of quotes.
        states = ((order - last) % 2 == 1) ^ (inside & (last < 0))
        breaks = start + np.flatnonzero(np.frombuffer(data, np.uint8)[start:stop] == _LINE_BREAK)
        before = np.searchsorted(at, breaks)
        ends = breaks[~np.concatenate([[inside], states])[before]]
        if len(ends):
            return data, int(ends[0]) + 1
        if stop == len(data):
            longer = more(data)
            if len(longer) == len(data):
                return data, len(data)
            data = longer
        near *= 2


def _odd_quotes(
    data: bytes, start: int, stop: int, end: int, separator: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts of odd runs of quotes, and which are within a field.

    A run cut at `end` counts with the quotes before `end`.
    """
    text = np.frombuffer(data, np.uint8, end)
    quotes = start + np.flatnonzero(text[start:] == _QUOTE)
    # Skip a run of quotes that begins before `start`.
    first = np.flatnonzero(
        np.diff(quotes, prepend=start - 1 if text[start - 1] == _QUOTE else -1) != 1
    )
    begins = quotes[first]
    lengths = np.diff(first, append=len(quotes))
    begins = begins[(lengths % 2 == 1) & (begins < stop)]
    opening = (ord(separator), _LINE_BREAK, _CARRIAGE_RETURN)
    closes = ~np.isin(text[begins - 1], opening)
    if data.startswith(b"\n" + _BYTE_ORDER_MARK):
        closes &= begins != 1 + len(_BYTE_ORDER_MARK)
    return begins, closes
