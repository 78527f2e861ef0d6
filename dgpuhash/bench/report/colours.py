"""Colours of plots: one a library, verb or transport in all figures."""

from __future__ import annotations

# Wong's palette, whose colours people with colour blindness tell apart; a library keeps its own.
_LIBRARIES = (
    ("dgpuhash", "#0072B2"),
    ("cudf-polars", "#CC79A7"),
    ("cudf", "#D55E00"),
    ("dask", "#E69F00"),
    ("best peer", "#009E73"),
    ("cucollections", "#009E73"),
    ("pandas", "#56B4E9"),
    ("polars", "#7B4FA3"),
    ("duckdb", "#A08A00"),
    ("kraken", "#D55E00"),
    ("metacache", "#E69F00"),
    ("warpcore", "#009E73"),
)
_OTHERS = (
    *("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#7B4FA3", "#A08A00", "#5B3A29", "#1B9E9E"),
    *("#D55E00", "#E69F00"),
)
# Lines of bare memory accesses, and of ideal scaling.
BARE, IDEAL = "#555555", "#9A9A9A"


def colour_of(name: str, number: int = 0) -> str:
    """Return the colour of a library by name, or of others by number.

    Examples
    --------
    >>> colour_of("cuDF 26.10.02") == colour_of("cuDF 27.02") != colour_of("dgpuhash")
    True
    >>> colour_of("find", 1) == colour_of("retrieve", 1) != colour_of("insert", 0)
    True
    """
    for start, colour in _LIBRARIES:
        if name.lower().startswith(start):
            return colour
    return _OTHERS[number % len(_OTHERS)]
