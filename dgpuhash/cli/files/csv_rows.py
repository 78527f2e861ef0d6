"""Where the rows of a CSV file end, when it is read in blocks: not at line breaks within quotes.

Whether a block begins within quotes follows from the bytes before it. Each block says what it does
to that (`Turn`), and how it begins is known when all before it have been read (`turned`).

pandas opens quotes at the beginning of a field alone, and takes others for text. So of several
quotes side by side an even number changes nothing; an odd one at the beginning of a field opens
quotes or, within such, closes them; and an odd one elsewhere closes them, if they were open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["Turn", "row_end", "turn_of", "turned"]

_QUOTE, _LINE_BREAK, _CARRIAGE_RETURN = b'"\n\r'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Bytes that are looked at first for the end of a row.
_NEAR_NBYTES = 1 << 14


class Turn(NamedTuple):
    """What bytes do to whether one is within quotes.

    Attributes
    ----------
    known : bool
        Whether that does not depend on what was before them.
    odd : bool
        Where it is known, whether one is within quotes after them; else whether they change it.
    """

    known: bool
    odd: bool


def turned(inside: bool, turn: Turn) -> bool:
    """Whether one is within quotes after the bytes of `turn`, as before them one was `inside`.

    Examples
    --------
    >>> [turned(inside, turn_of(b',"a', 1, 3, ",")) for inside in (False, True)]
    [True, False]
    """
    return turn.odd if turn.known else inside != turn.odd


def turn_of(data: bytes, start: int, stop: int, separator: str) -> Turn:
    """What the quotes do that begin at ``start`` to ``stop - 1``.

    Parameters
    ----------
    data : bytes
        With one byte before `start`, and all quotes side by side at `stop`; a file begins with a
        line break.
    start, stop : int
    separator : str
        Of the fields.
    """
    _, closes = _odd_quotes(data, start, stop, len(data), separator)
    if not closes.any():
        return Turn(False, len(closes) % 2 == 1)
    return Turn(True, int(closes[::-1].argmax()) % 2 == 1)


def row_end(
    data: bytes, start: int, inside: bool, separator: str, more: Callable[[bytes], bytes]
) -> tuple[bytes, int]:
    """Where the row ends that position `start` is in, or begins at; the end, where none does.

    Parameters
    ----------
    data : bytes
        As of `turn_of`.
    start : int
    inside : bool
        Whether `start` is within quotes.
    separator : str
    more : callable
        Gives `data` and some bytes that follow; as it is when there are none.

    Returns
    -------
    bytes, int
        `data`, with what it took to find the end; and the position after the line break.
    """
    near = _NEAR_NBYTES
    while True:
        stop = min(start + near, len(data))
        at, closes = _odd_quotes(data, start, stop, stop, separator)
        order = np.arange(len(at))
        last = np.maximum.accumulate(np.where(closes, order, -1))
        # Within quotes after each of these.
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
    """Where odd numbers of quotes begin side by side, and whether these are in a field's midst.

    Those that are cut at `end` count as far as they go.
    """
    text = np.frombuffer(data, np.uint8, end)
    quotes = start + np.flatnonzero(text[start:] == _QUOTE)
    # What goes on from before `start` is no matter of it.
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
