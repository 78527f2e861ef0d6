"""A hash index for GPUs and CPUs."""

from __future__ import annotations

from dgpuhash import errors
from dgpuhash.spec import TableSpec

__all__ = ["TableSpec", "errors"]
