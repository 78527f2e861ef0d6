"""Runner of pytest without CuPy's memory pool, for compute-sanitizer.

compute-sanitizer then sees the bounds of each array.
"""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    import cupy

    cupy.cuda.set_allocator(None)
    sys.exit(pytest.main(sys.argv[1:]))
