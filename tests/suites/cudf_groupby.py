"""Run cuDF's tests of groupbys with `dgpuhash.groupby` in the place of cuDF's: a plugin of pytest.

``python -m suites.cudf_groupby FOLDER`` runs them on a GPU, where the folder is
``python/cudf/cudf`` of the installed release's sources, as wheels have no tests. Further arguments
go to pytest. What a test groups is an object whose aggregates are ours, and whose other attributes
are those of cuDF's groupby, as in `pandas_groupby`; while ours runs, libcudf's groupby raises. With
``SUITE_PLAIN=1`` cuDF's own aggregates are called through the plugin, which shows what fails
without us. ``SUITE_REPORT`` names a file for what failed, ``SUITE_CALLS`` one for what each test
called.
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
from suites import pandas_groupby, pandas_merge
from suites.dask_merge import replace

# Files of the folder, from there: those that call the verbs that are ours.
FILES = (
    "agg", "attributes", "constructors", "cov_corr", "head_tail", "nth", "nunique", "reductions",
    "size", "transform", "unique", "value_counts",
)  # fmt: skip
# What must pass, in percent, of the tests of a kind.
BARS = {"only ours": 95, "ours and others": 90}
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
_WITHIN: list[str] = []
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption

# As those of pandas' suite.
EXCEPTIONS: dict[str, str] = {
    "test_agg.py::test_dataframe_agg_with_invalid_kwarg": "asks for cuDF's text of an error",
    "test_cov_corr.py::test_groupby_covariance_empty_columns": (
        "of no rows, asks for labels without the level of columns"
    ),
    "test_cov_corr.py::test_pearson_corr_empty_columns": "the same",
}


class Grouped(pandas_groupby.Grouped):
    """A groupby whose aggregates are ours, and whose other attributes are those of cuDF's."""

    @property
    def nth(self) -> Any:
        """Return what has the rows at places, by a call or by an index."""
        return Nth(self._suite_verb("nth"))


class Nth:
    """The function of ours for rows at places, which an index calls, too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the rows at places."""
        return self.function(*args, **kwargs)

    def __getitem__(self, places: Any) -> Any:
        return self.function(places)


def apart(call: Callable[[], Any]) -> Any:
    """Return what a function of ours returns while libcudf's groupby raises."""
    _WITHIN.append("ours")
    try:
        return call()
    finally:
        _WITHIN.pop()


def is_ours(func: Any, own: Any) -> bool:
    """Return whether what `agg` is given is an aggregate of ours, or a name that nobody knows."""
    from dgpuhash.frames.groupby.aggregates.table import AGGREGATES
    from dgpuhash.frames.groupby.cudf.group_by import name_functions

    if func is list:
        return True
    how = name_functions(func)
    if not isinstance(how, str):
        # What is neither is refused by both.
        return not callable(how)
    return how in AGGREGATES or not hasattr(own, how)


def groupby_in_place(
    original: Callable[..., Any], ours: Callable[..., Any] | None, kind: type,
    counts: pandas_groupby.Counts,
) -> Callable[..., Any]:  # fmt: skip
    """Return a method with the arguments of cuDF's groupby whose results aggregate with `ours`.

    With None they aggregate with those of `original`. cuDF's own code gets what it always had.
    """
    import cudf

    folder = str(Path(cudf.__file__).parent)

    @functools.wraps(original)
    def groupby(
        self: Any, by: Any = None, axis: Any = 0, level: Any = None, as_index: bool = True,
        sort: Any = None, group_keys: Any = True, observed: bool = True, dropna: bool = True,
    ) -> Any:  # fmt: skip
        if isinstance(sort, bool):
            ordered = sort
        else:
            ordered = bool(cudf.get_option("mode.pandas_compatible"))
        given = {
            "by": by, "level": level, "as_index": as_index, "dropna": dropna, "sort": ordered
        }  # fmt: skip
        if _WITHIN or sys._getframe(1).f_code.co_filename.startswith(folder):
            return original(self, axis=axis, group_keys=group_keys, observed=observed, **given)
        own = pandas_groupby.attempt(
            lambda: original(self, axis=axis, group_keys=group_keys, observed=observed, **given)
        )
        if ours is None:
            return pandas_groupby.grouped(counts, kind, own, own if is_key(by) else None)
        if not is_key(by):
            return pandas_groupby.grouped(counts, kind, own, None)
        made = pandas_groupby.attempt(
            lambda: apart(lambda: ours(of_mode(self), observed=observed, **given))
        )
        return pandas_groupby.grouped(counts, kind, own, made)

    return groupby


def of_mode(frame: Any) -> Any:
    """Return a frame whose NaNs are nulls, where cuDF is asked to be like pandas."""
    import cudf

    if not cudf.get_option("mode.pandas_compatible"):
        return frame
    # Otherwise keys that are columns of the frame stay these.
    return frame.nans_to_nulls() if frame.to_pandas().isna().to_numpy().any() else frame


def is_key(by: Any) -> bool:
    """Return whether ours groups by it: by anything but a Grouper."""
    import cudf

    if isinstance(by, list):
        return all(is_key(each) for each in by)
    return not isinstance(by, cudf.Grouper)


def swap(undo: contextlib.ExitStack, counts: pandas_groupby.Counts) -> None:
    """Put ours in `DataFrame.groupby` and `Series.groupby` of cuDF."""
    import cudf
    import cudf.core.groupby.groupby as engine

    ours = None if _PLAIN else dgpuhash.groupby
    kinds = ((cudf.DataFrame, engine.DataFrameGroupBy), (cudf.Series, engine.SeriesGroupBy))
    for owner, kind in kinds:
        made = groupby_in_place(owner.groupby, ours, kind, counts)
        replace(undo, owner, "groupby", made)
    begin = engine._GroupByContextManager.__init__

    def raising(self: Any, *args: Any, **kwargs: Any) -> None:
        if _WITHIN:
            raise AssertionError("libcudf's groupby was called")
        begin(self, *args, **kwargs)

    replace(undo, engine._GroupByContextManager, "__init__", raising)
    verbs = pandas_groupby.VERBS | {"tail", "nth"}
    for name, value in {
        "Grouped": Grouped, "apart": apart, "is_ours": is_ours, "VERBS": verbs, "BARS": BARS,
    }.items():  # fmt: skip
        replace(undo, pandas_groupby, name, value)
    replace(undo, pandas_merge, "EXCEPTIONS", EXCEPTIONS)


class Suite(pandas_groupby.Suite):
    """The hooks that count tests and calls, by what each test calls, and judge what failed."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        super().pytest_terminal_summary(terminalreporter)
        for node in self.unexpected:
            terminalreporter.write_line(f"UNEXPECTED {node}: {self.reasons[node]}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Swap groupbys before a test is collected."""
    undo, counts = contextlib.ExitStack(), pandas_groupby.Counts()
    config.add_cleanup(undo.close)
    swap(undo, counts)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python -m suites.cudf_groupby FOLDER, which is python/cudf/cudf")
    folder = Path(sys.argv[1])
    files = [str(folder / f"tests/groupby/test_{file}.py") for file in FILES]
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={folder}"]
    options += ["-o", "xfail_strict=false", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.cudf_groupby"]
    sys.exit(pytest.main([*options, *files, *sys.argv[2:]]))
