"""Run pandas' tests of merges, as pandas configures them, with `dgpuhash.merge`.

Arguments go to pytest. ``SUITE_REPORT`` names a file for what failed, and ``SUITE_PLAIN=1`` runs
them with pandas' merge.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

MODULES = (
    "test_merge",
    "test_join",
    "test_multi",
    "test_merge_index_as_string",
    "test_merge_antijoin",
    "test_merge_cross",
)

if __name__ == "__main__":
    settings = Path(pd.__file__).parent / "pyproject.toml"
    # Not pandas' own options, which show all that is printed and what took long.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --strict-config"]
    tests = [f"pandas.tests.reshape.merge.{module}" for module in MODULES]
    arguments = [*options, "-c", str(settings), "-p", "suites.pandas_merge", "--pyargs", *tests]
    sys.exit(pytest.main([*arguments, *sys.argv[1:]]))
