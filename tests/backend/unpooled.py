"""Runs pytest with CuPy's memory pool off, so that compute-sanitizer sees each array's bounds."""

from __future__ import annotations

import sys

import cupy
import pytest

if __name__ == "__main__":
    cupy.cuda.set_allocator(None)
    sys.exit(pytest.main(sys.argv[1:]))
