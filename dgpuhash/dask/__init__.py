"""Accelerate Dask's own merge, join, groupby and drop_duplicates with this library.

``dgpuhash.dask.enable()``, or ``DGPUHASH_DASK=1`` in the environment of a program that imports
dgpuhash, and nothing else of the program is to change.
"""

from __future__ import annotations

from dgpuhash.dask.report import Answer, Report, Rounding
from dgpuhash.dask.switch import disable, enable, enabled, report

__all__ = ["Answer", "Report", "Rounding", "disable", "enable", "enabled", "report"]
