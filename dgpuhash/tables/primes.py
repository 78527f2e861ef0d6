"""Prime numbers of windows: double hashing then visits every window."""

from __future__ import annotations

__all__ = ["next_prime"]

# These bases decide primality of every number below 2**64 (Sorenson and Webster, 2015).
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def next_prime(least: int) -> int:
    """The smallest prime that is not below `least`; for numbers below 2**64.

    Examples
    --------
    >>> next_prime(0), next_prime(14), next_prime(2**31)
    (2, 17, 2147483659)
    """
    if least <= 2:
        return 2
    candidate = least | 1
    while not _is_prime(candidate):
        candidate += 2
    return candidate


def _is_prime(odd: int) -> bool:
    """Miller and Rabin's test of an odd number above 2."""
    for base in _BASES:
        if odd % base == 0:
            return odd == base
    shift = ((odd - 1) & -(odd - 1)).bit_length() - 1
    for base in _BASES:
        power = pow(base, (odd - 1) >> shift, odd)
        if power in (1, odd - 1):
            continue
        for _ in range(shift - 1):
            power = power * power % odd
            if power == odd - 1:
                break
        else:
            return False
    return True
