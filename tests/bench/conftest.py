"""Fixtures of the benchmarks' tests: every device, and quiet runs."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Return each device in turn."""
    return str(request.param)
