"""Run pandas' tests of groupbys with `dgpuhash.groupby` in the place of pandas': a pytest plugin.

``python -m suites.pandas_groupby`` runs them; arguments go to pytest. What a test groups is an
object whose aggregates are ours, and whose other attributes are those of pandas' groupby. While
ours runs, pandas' engines raise. With ``SUITE_PLAIN=1`` pandas' own aggregates are called through
the plugin, which shows that the plugin changes no test. ``SUITE_REPORT`` names a file for what
failed, ``SUITE_CALLS`` one for what each test called.
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

import pandas as pd
import pytest
from pandas.api.typing import DataFrameGroupBy, SeriesGroupBy

import dgpuhash
from dgpuhash.frames.groupby.group_by import GroupBy
from suites import pandas_merge, raising
from suites.pandas_groupby_exceptions import EXCEPTIONS
from suites.raising import no_other_engine

MODULES = (
    "test_reductions",
    "test_groupby",
    "test_groupby_dropna",
    "test_categorical",
    "test_all_methods",
    "test_numeric_only",
    "aggregate.test_aggregate",
    "aggregate.test_cython",
    "aggregate.test_other",
    "test_counting",
    "test_missing",
    "methods.test_quantile",
    "methods.test_value_counts",
    "methods.test_size",
    "methods.test_nth",
)
# What `agg` takes by name.
AGGREGATES = {
    "sum", "count", "size", "mean", "var", "std", "sem", "prod", "min", "max", "first", "last",
    "any", "all", "nunique", "median", "quantile", "idxmin", "idxmax", "nlargest", "nsmallest",
    "head", "unique", "list", "cov", "corr", "value_counts",
}  # fmt: skip
# Tests index `nth`, which is a method of ours.
VERBS = {name for name in dir(GroupBy) if not name.startswith("_")} - {"ngroups", "nth"}
# What must pass, in percent, of the tests of a kind.
BARS = {"only ours": 97, "ours and others": 90, "only others": 100, "none": 100}
# Whether pandas' own aggregates are to run.
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption


@dataclass
class Counts(pandas_merge.Counts):
    """What was called: of ours, and of pandas' groupby where the test asks for something else."""

    ours: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    @property
    def kind(self) -> str:
        """Return which of the two were called."""
        if self.ours:
            return "ours and others" if self.others else "only ours"
        return "only others" if self.others else "none"


class Grouped:
    """A groupby whose aggregates are ours, and whose other attributes are those of pandas'.

    Parameters
    ----------
    counts
        What was called.
    kind
        pandas' class of it, also what `isinstance` finds.
    own
        pandas' groupby, or the exception that it raised.
    ours
        The same of ours, None where the keys are for pandas alone.
    """

    def __init__(self, counts: Counts, kind: type, own: Any, ours: Any) -> None:
        self._suite_counts = counts
        self._suite_kind = kind
        self._suite_own = own
        self._suite_ours = ours

    @property
    def __class__(self) -> type:
        """Return pandas' class of it."""
        return self._suite_kind

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._suite_kind, name):
            if name in VERBS:
                return self._suite_verb(name)
            self._suite_counts.others[name] += 1
        elif not name.startswith("_") and name in without_error(self._suite_own).obj:
            return self[name]
        return getattr(without_error(self._suite_own), name)

    def __getitem__(self, key: Any) -> Grouped:
        own, ours = self._suite_own, self._suite_ours
        chosen = attempt(lambda: without_error(own)[key])
        if ours is own:
            return grouped(self._suite_counts, self._suite_kind, chosen, chosen)
        if ours is not None:
            ours = attempt(lambda: apart(lambda: without_error(ours)[key]))
        return grouped(self._suite_counts, self._suite_kind, chosen, ours)

    def __iter__(self) -> Iterator[Any]:
        self._suite_counts.others["__iter__"] += 1
        return iter(without_error(self._suite_own))

    def __len__(self) -> int:
        self._suite_counts.others["__len__"] += 1
        with told_to_the_test():
            return len(without_error(self._suite_own))

    def __dir__(self) -> list[str]:
        return dir(self._suite_own)

    def __repr__(self) -> str:
        return repr(self._suite_own)

    def _suite_verb(self, name: str) -> Callable[..., Any]:
        """Return the function of ours with this name, which is counted when it is called."""

        @functools.wraps(getattr(self._suite_kind, name))
        def verb(*args: Any, **kwargs: Any) -> Any:
            counts, own, ours = self._suite_counts, self._suite_own, self._suite_ours
            with told_to_the_test():
                if ours is None or is_for_pandas(name, own, args, kwargs):
                    counts.others[name] += 1
                    return getattr(without_error(own), name)(*args, **kwargs)
                counts.ours[name] += 1
                counts.calls += 1
                if ours is own:
                    return getattr(without_error(ours), name)(*args, **kwargs)
                return apart(lambda: getattr(without_error(ours), name)(*args, **kwargs))

        return verb


def grouped(counts: Counts, kind: type, own: Any, ours: Any) -> Grouped:
    """Return both groupbys as one, unless both raised: then raise as ours did.

    What only one of them refuses is left to the function that is called.
    """
    if isinstance(own, Exception) and (ours is None or isinstance(ours, Exception)):
        raise own if ours is None else ours
    if not isinstance(own, Exception):
        kind = type(own)
    return Grouped(counts, kind, own, ours)


def attempt(call: Callable[[], Any]) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return call()
    except Exception as error:
        return error


def without_error(made: Any) -> Any:
    """Return a groupby, or raise the exception that is in its place."""
    if isinstance(made, Exception):
        raise made
    return made


def apart(call: Callable[[], Any]) -> Any:
    """Return what a function of ours returns while pandas' engines raise, but for the test's."""
    with no_other_engine():
        return call()


def ours_runs() -> bool:
    """Return whether ours is nearer on the stack than a test, whose functions may call pandas."""
    frame = sys._getframe(1)
    while frame is not None:
        if raising._is_ours(frame.f_code.co_filename):
            return True
        if frame.f_code.co_filename.startswith(pandas_merge._TESTS):
            return False
        frame = frame.f_back
    return False


@contextlib.contextmanager
def told_to_the_test() -> Iterator[None]:
    """Let warnings about the caller of ours or of pandas be about the test."""
    told: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as told:
            yield
    finally:
        for each in told:
            if not within_plugin(each.filename):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
                continue
            level, frame = 1, sys._getframe()
            while frame.f_back and within_plugin(frame.f_code.co_filename):
                level, frame = level + 1, frame.f_back
            warnings.warn(each.message, stacklevel=level)


def within_plugin(filename: str) -> bool:
    """Return whether a file is this one, or pandas' without its tests, or one that calls them."""
    return (
        filename in (__file__, contextlib.__file__)
        or filename == pandas_merge.__file__
        or pandas_merge.within_pandas(filename)
    )


def is_for_pandas(name: str, own: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call asks for what ours has not: Numba, ``group_keys``, other names."""
    if kwargs.get("engine") == "numba":
        return True
    if name in ("nlargest", "nsmallest", "apply"):
        # ``group_keys`` is an argument for `apply`.
        if not getattr(own, "group_keys", True):
            return True
    elif name not in ("agg", "aggregate", "transform"):
        return False
    func = args[0] if args else kwargs.get("func")
    if name in ("nlargest", "nsmallest"):
        return False
    if func is None:
        asked = [function_of(each) for each in kwargs.values()]
    else:
        asked = list(functions_in(func))
    return not all(is_ours(each, own) for each in asked)


def functions_in(func: Any) -> Iterator[Any]:
    """Yield each function or name of an argument of `agg`."""
    if isinstance(func, (dict, pd.Series)):
        for each in dict(func).values():
            yield from functions_in(each)
    elif isinstance(func, (list, tuple)):
        yield from map(function_of, func)
    else:
        yield func


def function_of(named: Any) -> Any:
    """Return the function of a pair with a column or a name, else what is given."""
    if isinstance(named, pd.NamedAgg):
        return named.aggfunc
    return named[-1] if isinstance(named, tuple) and named else named


def is_ours(func: Any, own: Any) -> bool:
    """Return whether ours has a function of `agg`; of names also those that nobody knows."""
    if not isinstance(func, str):
        return True
    return func in AGGREGATES or not hasattr(own, func)


def is_key(by: Any) -> bool:
    """Return whether ours groups by it: by anything but times of a `pandas.Grouper`."""
    if isinstance(by, list):
        return all(is_key(each) for each in by)
    if isinstance(by, pd.Grouper):
        return getattr(by, "freq", None) is None
    return not type(by).__module__.startswith("pandas.core.groupby")


def groupby_in_place(
    original: Callable[..., Any], ours: Callable[..., Any] | None, kind: type, counts: Counts
) -> Callable[..., Any]:
    """Return a method with the arguments of pandas' groupby whose results aggregate with `ours`.

    With None they aggregate with those of `original`. pandas' own code gets what it always had.
    """

    @functools.wraps(original)
    def groupby(self: Any, by: Any = None, level: Any = None, *args: Any, **kwargs: Any) -> Any:
        if pandas_merge.within_pandas(sys._getframe(1).f_code.co_filename):
            return original(self, by, level, *args, **kwargs)
        with told_to_the_test():
            if ours is None:
                own = attempt(lambda: original(self, by, level, *args, **kwargs))
                return grouped(counts, kind, own, own if is_key(by) else None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = attempt(lambda: original(self, by, level, *args, **kwargs))
            if args or not is_key(by):
                return grouped(counts, kind, own, None)
            # It says what `apply` returns.
            kwargs.pop("group_keys", None)
            given = {"sort": True, **kwargs}
            made = attempt(lambda: apart(lambda: ours(self, by, level=level, **given)))
            return grouped(counts, kind, own, made)

    return groupby


def swap(counts: Counts) -> None:
    """Put ours in `DataFrame.groupby` and `Series.groupby`."""
    ours = None if _PLAIN else getattr(dgpuhash, "groupby", None)
    if ours is None and not _PLAIN:
        raise pytest.UsageError(
            "dgpuhash has no groupby to run pandas' tests with; SUITE_PLAIN=1 runs them with "
            "pandas' own"
        )
    if ours is not None:
        raising.running = ours_runs
    for owner, kind in ((pd.DataFrame, DataFrameGroupBy), (pd.Series, SeriesGroupBy)):
        owner.groupby = groupby_in_place(owner.groupby, ours, kind, counts)


class Suite(pandas_merge.Suite):
    """The hooks that count tests and calls, by what each test calls, and judge what failed."""

    def __init__(self, counts: Counts, report: str | None) -> None:
        super().__init__(counts, report)
        self.calls: dict[str, Counts] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.counts.ours, self.counts.others = Counter(), Counter()
        result = yield
        called = Counts(ours=self.counts.ours, others=self.counts.others)
        self.calls[item.nodeid] = called
        if called.ours:
            self.callers.add(item.nodeid)
        return result

    def outcomes_of(self, kind: str) -> Counter[str]:
        """Return how many tests of a kind passed, failed, were skipped."""
        own = (node for node, called in self.calls.items() if called.kind == kind)
        return Counter(self.outcomes[node] for node in own if node in self.outcomes)

    @property
    def below(self) -> list[str]:
        """The kinds of tests of which fewer pass than must."""
        return [
            kind
            for kind, bar in BARS.items()
            if (share := share_of(self.outcomes_of(kind))) is not None and share < bar
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        super().pytest_sessionfinish(session, exitstatus)
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self.below:
            session.exitstatus = pytest.ExitCode.OK
        if file := os.environ.get("SUITE_CALLS"):
            lines = [
                f"{node}\t{self.outcomes.get(node)}\t{called.kind}\t"
                f"{' '.join(called.ours)}\t{' '.join(called.others)}\n"
                for node, called in self.calls.items()
            ]
            Path(file).write_text("".join(lines))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("pandas' tests with dgpuhash.groupby")
        write(f"groupby: {'pandas' if _PLAIN else 'dgpuhash.groupby'}")
        write(f"calls:   {self.counts.calls}")
        write(f"tests that call    {'tests':>7}{'skipped':>9}{'passed':>8}{'failed':>8}   share")
        for kind in BARS:
            found = self.outcomes_of(kind)
            share = share_of(found)
            numbers = f"{found.total():7}{found['skipped']:9}{found['passed']:8}{found['failed']:8}"
            write(f"{kind:19}{numbers}   {'-' if share is None else f'{share:.2f} %'}")
        for node in self.failed:
            reason = pandas_merge.reason_for(node)
            if reason is not None:
                write(f"excepted: {node}: {reason}")
        for node, outcome in self.outcomes.items():
            if outcome == "passed" and pandas_merge.reason_for(node) is not None and not _PLAIN:
                write(f"passed, though excepted: {node}")
        if self.outcomes and not self.callers:
            write("no test called an aggregate: the swap does not work")


def share_of(found: Counter[str]) -> float | None:
    """Return what passed in percent, None where nothing ran."""
    ran = found["passed"] + found["failed"]
    return 100 * found["passed"] / ran if ran else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Swap groupbys before a test is collected."""
    counts = Counts()
    swap(counts)
    pandas_merge.EXCEPTIONS = EXCEPTIONS
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    settings = Path(pd.__file__).parent / "pyproject.toml"
    # Not pandas' own options, which show all that is printed and what took long.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--strict-markers --strict-config"]
    options += ["-c", str(settings), "-p", "suites.pandas_groupby"]
    chosen = [argument for argument in sys.argv[1:] if argument in MODULES]
    rest = [argument for argument in sys.argv[1:] if argument not in MODULES]
    tests = [f"pandas.tests.groupby.{module}" for module in chosen or MODULES]
    sys.exit(pytest.main([*options, "--pyargs", *tests, *rest]))
