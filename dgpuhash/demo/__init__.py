"""The main job: on real data, compared with pandas; and on many rows, beside Dask's own merge."""

from __future__ import annotations

from dgpuhash.demo.flights import run

__all__ = ["run"]
