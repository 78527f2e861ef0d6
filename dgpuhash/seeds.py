"""Seeds of hash functions.

Each table draws a new seed, unless the environment fixes it.
"""

from __future__ import annotations

import os

from dgpuhash.errors import SpecError

VARIABLE = "DGPUHASH_SEED"
_LIMIT = 2**64
# Splitmix64's increment and the finalizer of MurmurHash3, as in kernels/core/hash.cuh.
_INCREMENT = 0x9E3779B97F4A7C15
_FACTORS = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)


def draw_seed() -> int:
    """Return an unpredictable seed, or ``DGPUHASH_SEED`` if it is set.

    Raises
    ------
    SpecError
        When the variable is no integer from 0 to 2**64 - 1.

    Examples
    --------
    >>> 0 <= draw_seed() < 2**64
    True
    """
    fixed = os.environ.get(VARIABLE)
    if not fixed:
        return int.from_bytes(os.urandom(8), "little")
    try:
        seed = int(fixed, 0)
    except ValueError:
        seed = -1
    if not 0 <= seed < _LIMIT:
        raise SpecError(
            f"{VARIABLE}={fixed!r} is not a seed; set an integer from 0 to 2**64 - 1, or unset it"
        )
    return seed


def seed_of_generation(seed: int, generation: int) -> int:
    """Return a table's seed after `generation` reseeds; `seed` for none.

    Examples
    --------
    >>> seed_of_generation(7, 0)
    7
    >>> seed_of_generation(7, 1) != seed_of_generation(7, 2)
    True
    """
    return spread_seed(seed + (generation - 1) * _INCREMENT) if generation else seed


def spread_seed(seed: int) -> int:
    """Return the word with which hash functions mix keys.

    The kernels have a function of the same name.

    Examples
    --------
    >>> hex(spread_seed(0))
    '0x9ca066f1a4ab2eea'
    """
    word = (seed + _INCREMENT) % _LIMIT
    for factor in _FACTORS:
        word = (word ^ word >> 33) * factor % _LIMIT
    return word ^ word >> 33
