"""How the buckets of a list grow."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

# In values; further buckets are as large.
_LARGEST_BUCKET = 1 << 20


@functools.lru_cache(maxsize=64)
def bucket_ends(first: int, growth: float, link_slots: int) -> np.ndarray:
    """Return the pool slots of a list's first one, two, … buckets together.

    Every bucket but the first has a link, too. The growth is the decimal number that it prints as:
    ten values are followed by eleven, if lists grow by 1.1.

    Examples
    --------
    >>> (bucket_ends(1, 1.1, 0)[[0, 1, 3, 10, 25]]).tolist()
    [1, 3, 10, 66, 560]
    """
    sizes, factor = [first], Fraction(repr(growth))
    while len(sizes) < 2 or (growth > 1 and sizes[-1] < _LARGEST_BUCKET):
        sizes.append(math.ceil(factor * sizes[-1]))
    slots = [size + link_slots * (number > 0) for number, size in enumerate(sizes)]
    ends = np.cumsum(slots).astype(np.uint64)
    ends.flags.writeable = False
    return ends
