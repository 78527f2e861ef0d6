"""Run cuDF's tests of merges with `dgpuhash.merge` in the place of cuDF's: a plugin of pytest.

``python -m suites.cudf_merge FOLDER`` runs them on a GPU, where the folder is ``python/cudf/cudf``
of the installed release's sources, as wheels have no tests; with dask-cudf's, which lie in
``python/dask_cudf/dask_cudf``, give both. Further arguments go to pytest. cuDF's own merge raises
while ours runs. With ``SUITE_PLAIN=1`` it is cuDF's merge that is called through the plugin, which
shows what fails without us. ``SUITE_REPORT`` names a file for what failed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgpuhash
from suites import pandas_merge
from suites.dask_merge import replace

# Files of each folder, from there.
FILES = ("tests/reshape/test_merge.py", "tests/reshape/test_join.py", "tests/test_join.py")
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption

# As those of pandas' suite.
EXCEPTIONS: dict[str, str] = {
    "test_merge.py::test_indicator": "asks for an error, where ours has the indicator",
    "test_merge.py::test_typecast_on_join_categorical[str-category]": "text is not read as numbers",
    "test_merge.py::test_typecast_on_join_categorical[category-str]": "the same",
    "test_merge.py::test_cross_merge_zero_column_operand[False-False]": (
        "asks for the dtype of the labels of no columns"
    ),
    "test_join.py::test_dataframe_join_suffix": "asks for cuDF's text of an error",
}


def merge_in_place(
    original: Callable[..., Any], ours: Callable[..., Any] | None, counts: pandas_merge.Counts
) -> Callable[..., Any]:
    """Return a method with the arguments of cuDF's merge that calls `ours`, or None `original`."""

    @functools.wraps(original)
    def merge(
        self: Any, right: Any, how: Any = "inner", on: Any = None, left_on: Any = None,
        right_on: Any = None, left_index: Any = False, right_index: Any = False, sort: Any = False,
        suffixes: Any = ("_x", "_y"), indicator: Any = False, validate: Any = None,
    ) -> Any:  # fmt: skip
        if counts.within:
            raise AssertionError("cuDF's merge was called")
        counts.calls += 1
        given = {
            "how": how, "on": on, "left_on": left_on, "right_on": right_on,
            "left_index": left_index, "right_index": right_index, "sort": sort,
            "suffixes": suffixes, "indicator": indicator, "validate": validate,
        }  # fmt: skip
        if ours is None:
            return original(self, right, **given)
        if how == "cross":
            # `DataFrame.join` gives both indexes.
            given.update(left_index=False, right_index=False)
        left, right = (_without_index(side, on) for side in (self, right))
        counts.within += 1
        try:
            return ours(left, right, **given)
        finally:
            counts.within -= 1

    return merge


def _without_index(frame: Any, on: Any) -> Any:
    """Return a frame whose index has no name of a key column, of which `Index.join` takes these."""
    if on is None or not hasattr(frame, "columns"):
        return frame
    both = set(frame.index.names) & set(frame.columns) - {None}
    return frame.reset_index(drop=True) if both else frame


def swap(undo: contextlib.ExitStack, counts: pandas_merge.Counts) -> None:
    """Put ours in cuDF's place, which its functions, joins and indexes call, and in Dask's."""
    import cudf
    import cudf.core.dataframe
    import cudf.core.join.join

    ours = None if _PLAIN else dgpuhash.merge
    replace(undo, cudf.DataFrame, "merge", merge_in_place(cudf.DataFrame.merge, ours, counts))
    engine = cudf.core.join.join.Merge.__init__

    def raising(self: Any, *args: Any, **kwargs: Any) -> None:
        if counts.within:
            raise AssertionError("cuDF's engine of merges was called")
        engine(self, *args, **kwargs)

    replace(undo, cudf.core.join.join.Merge, "__init__", raising)


class Suite(pandas_merge.Suite):
    """The hooks that count tests and calls, and judge what failed."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("cuDF's tests of merges")
        outcomes = list(self.outcomes.values())
        passed, failed = outcomes.count("passed"), len(self.failed)
        share = f"{100 * passed / (passed + failed):.2f} %" if passed + failed else "none"
        write(f"merge:             {'cuDF' if _PLAIN else 'dgpuhash.merge'}")
        write(f"tests:             {len(outcomes)}, of which {outcomes.count('skipped')} skipped")
        write(f"tests that called: {len(self.callers)}")
        write(f"passed:            {passed}, {share}")
        write(f"failed:            {failed}, of which {len(self.unexpected)} unexpected")
        for node in self.failed:
            told = pandas_merge.reason_for(node) or f"UNEXPECTED {self.reasons[node]}"
            write(f"{node}: {told}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Swap merges before a test is collected."""
    undo, counts = contextlib.ExitStack(), pandas_merge.Counts()
    config.add_cleanup(undo.close)
    swap(undo, counts)
    replace(undo, pandas_merge, "EXCEPTIONS", EXCEPTIONS)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    folders = [Path(each) for each in sys.argv[1:] if Path(each).is_dir()]
    rest = [each for each in sys.argv[1:] if not Path(each).is_dir()]
    files = [str(folder / file) for folder in folders for file in FILES if (folder / file).exists()]
    if not files:
        sys.exit(f"usage: python -m suites.cudf_merge FOLDER…, in which one of {FILES} is")
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={folders[0]}"]
    options += ["-o", "xfail_strict=false", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.cudf_merge"]
    sys.exit(pytest.main([*options, *files, *rest]))
