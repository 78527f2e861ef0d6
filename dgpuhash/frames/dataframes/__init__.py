"""Interface to DataFrame libraries: pandas and cuDF.

Only this folder knows which of the two it is.
"""

from __future__ import annotations

from dgpuhash.frames.dataframes.base import Frames
from dgpuhash.frames.dataframes.dispatch import (
    as_series,
    check_same_library,
    frames_named,
    frames_of,
    frames_of_type,
    frames_of_values,
    make_frame,
    series_of_key,
)
from dgpuhash.frames.dataframes.interop import to_native

__all__ = ["Frames", "as_series", "check_same_library", "frames_named", "frames_of",
           "frames_of_type", "frames_of_values", "make_frame", "series_of_key",
           "to_native"]  # fmt: skip
