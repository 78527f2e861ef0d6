"""Run Dask's tests of groupbys with `dgpuhash.groupby` in the place of Dask's: a plugin of pytest.

``python -m suites.dask_groupby`` runs them; arguments go to pytest. They run on a cluster within
this process, also where they ask for Dask's synchronous scheduler. Below code of ours, Dask's
expressions of groupbys and pandas' engines raise. What ours lacks, such as ``cumsum``, is Dask's:
tests that ask for it are counted apart. With ``SUITE_PLAIN=1`` all is Dask's, which shows that the
plugin changes no test. ``SUITE_REPORT`` names a file for what failed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pytest
from dask.dataframe.dask_expr import _groupby

import dgpuhash
from suites import dask_merge, pandas_merge, raising
from suites.dask_groupby_exceptions import EXCEPTIONS

MODULES = (
    "dask.dataframe.tests.test_groupby",
    "dask.dataframe.dask_expr.tests.test_groupby",
)
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
# Verbs of ours that Dask has, too.
_VERBS = frozenset(
    [
        "agg",
        "aggregate",
        "all",
        "any",
        "apply",
        "corr",
        "count",
        "cov",
        "first",
        "head",
        "idxmax",
        "idxmin",
        "last",
        "max",
        "mean",
        "median",
        "min",
        "nunique",
        "prod",
        "size",
        "std",
        "sum",
        "tail",
        "transform",
        "unique",
        "value_counts",
        "var",
    ]
)
# What only says how Dask is to go about it.
_HOW = ("split_every", "shuffle_method", "shuffle_backend")
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption


@dataclass
class Counts(pandas_merge.Counts):
    """Calls of our verbs, and of those that ours lacks.

    Attributes
    ----------
    verbs, others : Counter
        By name.
    """

    verbs: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)


class GroupByInPlace:
    """What stands for Dask's groups: verbs of ours where there are such, and Dask's otherwise."""

    def __init__(
        self,
        counts: Counts,
        original: Callable[..., Any],
        frame: Any,
        by: Any,
        options: dict[str, Any],
        selection: Any = None,
    ) -> None:
        self._counts, self._original = counts, original
        self._frame, self._by, self._options = frame, by, options
        self._selection = selection
        # Both refuse what is no key.
        self._dask()
        self._ours(1)

    def _dask(self) -> Any:
        groups = self._original(self._frame, self._by, **self._options)
        return groups if self._selection is None else groups[self._selection]

    def _ours(self, npartitions: int) -> Any:
        given = {
            name: self._options[name]
            for name in ("sort", "observed", "dropna")
            if self._options.get(name) is not None
        }
        self._counts.within += 1
        try:
            groups = dgpuhash.groupby(self._frame, self._by, npartitions=npartitions, **given)
            return groups if self._selection is None else groups[self._selection]
        finally:
            self._counts.within -= 1

    def __getitem__(self, key: Any) -> GroupByInPlace:
        key = list(key) if isinstance(key, tuple) else key
        return GroupByInPlace(
            self._counts, self._original, self._frame, self._by, self._options, key
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in _VERBS:
            if self._selection is None and name in getattr(self._frame, "columns", ()):
                return self[name]
            found = getattr(self._dask(), name)
            self._counts.others[name] += 1
            return found
        if name in ("apply", "transform") and self._options.get("group_keys", True) is not True:
            self._counts.others[f"{name}, group_keys=False"] += 1
            return getattr(self._dask(), name)
        return functools.partial(self._called, name)

    def __dir__(self) -> list[str]:
        return dir(self._dask())

    def _called(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a verb of ours; of functions it lacks Dask's."""
        leaves = _leaves([*args, *kwargs.values()])
        if any(type(each).__name__ == "Aggregation" for each in leaves):
            self._counts.others["Aggregation"] += 1
            return getattr(self._dask(), name)(*args, **kwargs)
        split_out = kwargs.pop("split_out", None)
        for option in _HOW:
            kwargs.pop(option, None)
        self._counts.calls += 1
        self._counts.verbs[name] += 1
        parts = self._frame.npartitions if split_out is True else split_out
        if self._options.get("sort"):
            # Wholly, which ours does in one partition.
            parts = 1
        if name in ("apply", "transform") and callable(args[0]) and _is_default(kwargs):
            kwargs.pop("meta", None)
            # As Dask's method does, whose interface this is.
            warnings.warn("`meta` is not specified, inferred from partial data", stacklevel=2)
        return getattr(self._ours(parts or 1), name)(*args, **kwargs)


def _is_default(options: dict[str, Any]) -> bool:
    """Return whether no meta is given."""
    return options.get("meta", _groupby.no_default) is _groupby.no_default


def _leaves(given: Any) -> Iterator[Any]:
    """Yield what lists, tuples and dictionaries hold."""
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        for each in given:
            yield from _leaves(each)
    else:
        yield given


def swap(undo: contextlib.ExitStack, counts: Counts) -> None:
    """Put ours in the place of `groupby` of Dask's frames and Series."""
    for owner in (dd.DataFrame, dd.Series):
        original = owner.groupby

        def groupby(
            self: Any, by: Any, *, _original: Any = original, **options: Any
        ) -> GroupByInPlace:
            return GroupByInPlace(counts, _original, self, by, options)

        dask_merge.replace(undo, owner, "groupby", groupby)
    undo.enter_context(raising.no_other_engine())
    dask_merge.replace(undo, raising, "running", dask_merge.but_in_metas(raising.running))
    if not issubclass(_groupby.SingleAggregation, _groupby.GroupByBase):
        raise pytest.UsageError("this release of Dask has other expressions of groupbys")


class Suite(pandas_merge.Suite):
    """The hooks that count tests and calls, and judge what failed."""

    counts: Counts

    def __init__(self, counts: Counts, report: str | None) -> None:
        super().__init__(counts, report)
        self.others: dict[str, list[str]] = {}
        self.surpassed = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, others = self.counts.calls, self.counts.others.copy()
        result = yield
        if self.counts.calls > before:
            self.callers.add(item.nodeid)
        if found := list((self.counts.others - others).keys()):
            self.others[item.nodeid] = found
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what Dask expects to fail, as it lacks it, and ours does not, as passed."""
        if report.failed and str(report.longrepr).startswith("[XPASS(strict)]"):
            report.outcome = "passed"
            self.surpassed += 1
        super().pytest_runtest_logreport(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("Dask's tests with dgpuhash.groupby")
        write(f"groupby:           {'Dask' if _PLAIN else 'dgpuhash.groupby'}")
        write(f"tests:             {len(self.outcomes)}")
        write(f"calls:             {self.counts.calls}")
        for file in sorted({node.partition("::")[0] for node in self.outcomes}):
            self._tell(write, file, file)
        self._tell(write, "", "all")
        told = ", ".join(f"{name} {n}" for name, n in self.counts.others.most_common())
        write(f"Dask's, as ours lacks them: {told}")
        write(f"passed where Dask expects its own to fail: {self.surpassed}")
        write(f"unexpected failures: {len(self.unexpected)}")
        for node in self.unexpected:
            write(f"unexpected: {node}: {self.reasons[node]}")
        for node in self.failed:
            if (reason := pandas_merge.reason_for(node)) is not None:
                write(f"excepted: {node}: {reason}")

    def _tell(self, write: Callable[[str], None], file: str, title: str) -> None:
        """Write how many tests of a file there are that call verbs of ours alone."""
        nodes = [
            node
            for node, outcome in self.outcomes.items()
            if node.startswith(file) and node in self.callers and outcome != "skipped"
        ]
        own = [node for node in nodes if node not in self.others]
        passed = sum(self.outcomes[node] == "passed" for node in own)
        share = f"{100 * passed / len(own):.2f} %" if own else "none"
        write(
            f"{title}: {len(own)} tests by ours alone, {passed} passed, {share}; "
            f"{len(nodes) - len(own)} by both"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the cluster and swap groupbys before a test is collected."""
    undo, counts = contextlib.ExitStack(), Counts()
    config.add_cleanup(undo.close)
    dask_merge.start_cluster(undo)
    if not _PLAIN:
        swap(undo, counts)
    dask_merge.replace(undo, pandas_merge, "EXCEPTIONS", EXCEPTIONS)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    home = Path(dask.__file__).parent
    # Dask ships no settings; these are the ones of its own that decide whether a test passes.
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={home}", "-o"]
    options += ["xfail_strict=true", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.dask_groupby"]
    sys.exit(pytest.main([*options, "--pyargs", *MODULES, *sys.argv[1:]]))
