"""Demo: join flights, check the result against pandas, and time repeated joins.

The comparison joins many rows several times with an index and with Dask's own merge.
"""

from __future__ import annotations

from dgpuhash.demo.flights import run

__all__ = ["run"]
