"""A plugin of pytest that puts `dgpuhash.merge` in the place of `pandas.merge`.

pandas' own tests of merges then test ours; ``python -m suites`` runs them. While ours runs, pandas'
engines raise. With ``SUITE_PLAIN=1`` it is pandas' merge that is called through the plugin, which
shows that the plugin changes no test.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pandas.core.reshape.merge
import pytest
from pandas.api.extensions import no_default

import dgpuhash
from suites.pandas_merge_exceptions import EXCEPTIONS
from suites.raising import no_other_engine, verb_runs

_PANDAS = f"{Path(pd.__file__).parent}{os.sep}"
_TESTS = f"{_PANDAS}tests{os.sep}"


@dataclass
class Counts:
    """How often our merge was called, and how many of these calls have not come back."""

    calls: int = 0
    within: int = 0


def merge_in_place(
    original: Callable[..., Any], ours: Callable[..., Any] | None, counts: Counts
) -> Callable[..., Any]:
    """Return a function with the arguments of pandas' merge that calls `ours`.

    With None it calls `original`, and lets engines of pandas run.
    """

    @functools.wraps(original)
    def merge(
        left: Any,
        right: Any,
        how: Any = "inner",
        on: Any = None,
        left_on: Any = None,
        right_on: Any = None,
        left_index: Any = False,
        right_index: Any = False,
        sort: Any = False,
        suffixes: Any = ("_x", "_y"),
        copy: Any = no_default,
        indicator: Any = False,
        validate: Any = None,
    ) -> Any:
        if counts.within:
            raise AssertionError("pandas' merge was called")
        given = {
            "how": how, "on": on, "left_on": left_on, "right_on": right_on,
            "left_index": left_index, "right_index": right_index, "sort": sort,
            "suffixes": suffixes, "indicator": indicator, "validate": validate,
        }  # fmt: skip
        counts.calls += 1
        told: list[warnings.WarningMessage] = []
        try:
            with warnings.catch_warnings(record=True) as told:
                if copy is not no_default:
                    pd.DataFrame()._check_copy_deprecation(copy)
                if ours is None:
                    return original(left, right, **given)
                counts.within += 1
                try:
                    with no_other_engine(), verb_runs():
                        return ours(left, right, **given)
                finally:
                    counts.within -= 1
        finally:
            for each in told:
                tell_again(each)

    return merge


def tell_again(told: warnings.WarningMessage) -> None:
    """Give a warning once more: one about the caller of ours is one about the caller of pandas.

    pandas' methods that call its merge are left as they are, and no caller.
    """
    if told.filename != __file__:
        warnings.warn_explicit(told.message, told.category, told.filename, told.lineno)
        return
    level, frame = 1, sys._getframe()
    while frame.f_back and within_pandas(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(told.message, stacklevel=level)


def within_pandas(filename: str) -> bool:
    """Return whether a file is this one, or pandas' without its tests."""
    return filename == __file__ or (
        filename.startswith(_PANDAS) and not filename.startswith(_TESTS)
    )


def swap(counts: Counts) -> None:
    """Put ours in each module of pandas that binds its merge.

    `DataFrame.merge` and `DataFrame.join` look it up there when they are called; that they do is
    checked.
    """
    original = pandas.core.reshape.merge.merge
    ours = None
    if os.environ.get("SUITE_PLAIN") != "1":
        ours = getattr(dgpuhash, "merge", None)
        if ours is None:
            raise pytest.UsageError(
                "dgpuhash has no merge to run pandas' tests with; SUITE_PLAIN=1 runs them with "
                "pandas' own"
            )
    merge = merge_in_place(original, ours, counts)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pandas" and vars(module).get("merge") is original:
            module.merge = merge
    frame = pd.DataFrame({"k": [1]})
    for number, call in enumerate(
        (
            lambda: pd.merge(frame, frame),
            lambda: frame.merge(frame, on="k"),
            lambda: frame.join(frame, suffixes=("_x", "_y")),
        ),
        start=1,
    ):
        # Ours may fail: that is for the tests to tell.
        with contextlib.suppress(Exception):
            call()
        if counts.calls != number:
            raise pytest.UsageError("this release of pandas binds its merge elsewhere too")
    counts.calls = 0


class Suite:
    """The hooks that count tests and calls, and judge what failed."""

    def __init__(self, counts: Counts, report: str | None) -> None:
        self.counts = counts
        self.report = report
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.callers: set[str] = set()

    @property
    def failed(self) -> list[str]:
        """The node ids of tests that failed."""
        return [node for node, outcome in self.outcomes.items() if outcome == "failed"]

    @property
    def unexpected(self) -> list[str]:
        """Those of `failed` which are no exceptions."""
        return [node for node in self.failed if reason_for(node) is None]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self.counts.calls
        result = yield
        if self.counts.calls > before:
            self.callers.add(item.nodeid)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node = report.nodeid
        if report.when == "call" or report.outcome != "passed":
            if self.outcomes.get(node) != "failed":
                self.outcomes[node] = report.outcome
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                text = crash.message if crash else str(report.longrepr)
                self.reasons[node] = text.strip().partition("\n")[0]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.report:
            lines = [f"{node}\t{self.reasons[node]}\n" for node in self.failed]
            Path(self.report).write_text("".join(lines))
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self.unexpected:
            session.exitstatus = pytest.ExitCode.OK
        if exitstatus == pytest.ExitCode.OK and self.outcomes and not self.callers:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("pandas' tests with dgpuhash.merge")
        outcomes = list(self.outcomes.values())
        passed, failed = outcomes.count("passed"), len(self.failed)
        share = f"{100 * passed / (passed + failed):.2f} %" if passed + failed else "none"
        whose = "pandas' merge" if os.environ.get("SUITE_PLAIN") == "1" else "dgpuhash.merge"
        write(f"merge:             {whose}")
        write(f"tests:             {len(outcomes)}, of which {outcomes.count('skipped')} skipped")
        write(f"tests that called: {len(self.callers)}")
        write(f"calls:             {self.counts.calls}")
        write(f"passed:            {passed}, {share}")
        write(f"failed:            {failed}, of which {len(self.unexpected)} unexpected")
        for node in self.failed:
            reason = reason_for(node)
            if reason is not None:
                write(f"excepted: {node}: {reason}")
        for name in EXCEPTIONS:
            own = [self.outcomes[node] for node in self.outcomes if name in names_of(node)]
            if own and "failed" not in own:
                write(f"passed, though excepted: {name}")
        if self.outcomes and not self.callers:
            write("no test called merge: the swap does not work")


def names_of(node: str) -> tuple[str, str]:
    """Return a node id with its file's name alone, and that without parameters."""
    file, colons, rest = node.partition("::")
    name = f"{file.rpartition('/')[2]}{colons}{rest}"
    return name, name.partition("[")[0]


def reason_for(node: str) -> str | None:
    """Return why a test may fail, None when it may not."""
    return next((EXCEPTIONS[name] for name in names_of(node) if name in EXCEPTIONS), None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the file of failures."""
    parser.addoption(
        "--suite-report",
        default=os.environ.get("SUITE_REPORT"),
        help="file for the node ids of failing tests, and what failed; default: SUITE_REPORT",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Swap merges before a test is collected."""
    counts = Counts()
    swap(counts)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))
