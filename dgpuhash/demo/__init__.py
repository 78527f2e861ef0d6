"""The main job on real data: index planes, weather and airlines once, join a year of flights."""

from __future__ import annotations

from dgpuhash.demo.flights import run

__all__ = ["run"]
