"""Run Dask's tests of groupbys with `dgpuhash.dask.enabled`: a plugin of pytest.

``python -m suites.dask_groupby`` runs them; arguments go to pytest. A folder as the first one is
``python/dask_cudf/dask_cudf`` of a release's sources: its tests are run instead, on a GPU. They run
on a cluster within this process, also where they ask for Dask's synchronous scheduler. Below code
of ours, Dask's expressions of groupbys and pandas' engines raise. What ours lacks, such as
``cumsum``, is Dask's: tests that ask for it are counted apart. What else ours refuses and Dask
answers is a failure. With ``SUITE_PLAIN=1`` all is Dask's, which shows that the plugin changes no
test. ``SUITE_REPORT`` names a file for what failed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from dask.dataframe.dask_expr import _groupby

import dgpuhash
from dgpuhash.dask.answering import DASK, answering
from suites import dask_merge, pandas_merge, raising
from suites.dask_groupby_exceptions import EXCEPTIONS

MODULES = (
    "dask.dataframe.tests.test_groupby",
    "dask.dataframe.dask_expr.tests.test_groupby",
)
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
# It is imported where its tests are run.
_ON_GPU = "dask_cudf"
# What ours has not, by the words with which it refuses it; and nothing without a cluster.
_LACKED = (
    "groupbys of dgpuhash have no method ",
    "a dask.dataframe.Aggregation is not supported",
    "with group_keys=False",
    "Dask computes without a cluster here",
)
# The code that asks ours, and Dask where ours refuses.
_SWITCH = f"{Path(dgpuhash.dask.__file__).parent}{os.sep}"
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption


@dataclass
class Counts(pandas_merge.Counts):
    """Calls of groups' verbs, by who answered them.

    Attributes
    ----------
    others : Counter
        What ours lacks, by why.
    refused : Counter
        What ours refused otherwise and Dask answered, by verb and why.
    """

    others: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def note(self, verb: str, by: str, reason: str) -> None:
        """Count an answer."""
        if not verb.startswith("groupby"):
            return
        if by != DASK:
            self.calls += 1
        elif any(words in reason for words in _LACKED):
            self.others[reason.partition(": ")[2].partition(";")[0]] += 1
        else:
            self.refused[f"{verb}: {reason}"] += 1


def swap(undo: contextlib.ExitStack, counts: Counts) -> None:
    """Let ours answer Dask's verbs, and count who answers those of groups."""
    note = answering.note

    def noted(verb: str, by: str, reason: str = "") -> None:
        counts.note(verb, by, reason)
        note(verb, by, reason)

    undo.enter_context(dgpuhash.dask.enabled())
    dask_merge.replace(undo, answering, "note", noted)
    undo.enter_context(raising.no_other_engine("cudf" if _ON_GPU in sys.modules else "pandas"))
    running = but_in_switch(dask_merge.but_in_metas(raising.running))
    dask_merge.replace(undo, raising, "running", running)
    if not issubclass(_groupby.SingleAggregation, _groupby.GroupByBase):
        raise pytest.UsageError("this release of Dask has other expressions of groupbys")
    frame = dd.from_pandas(pd.DataFrame({"k": [1], "v": [2]}), npartitions=1)
    frame.groupby("k").v.sum()
    frame.groupby("k").v.cumsum()
    if counts.calls != 1 or len(counts.others) != 1:
        raise pytest.UsageError("groups of Dask's frames are not asked of ours")
    counts.calls = 0
    counts.others.clear()


def but_in_switch(running: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that is false where the switch has Dask answer."""

    def nearest() -> bool:
        frame = sys._getframe() if running() else None
        while frame is not None and not raising._is_ours(frame.f_code.co_filename):
            frame = frame.f_back
        return frame is not None and not frame.f_code.co_filename.startswith(_SWITCH)

    return nearest


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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Let a test fail for what ours refused and Dask answered."""
        refused = self.counts.refused.copy()
        result = yield
        if found := list((self.counts.refused - refused).keys()):
            pytest.fail(f"ours refused {found[0]}", pytrace=False)
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
    home, tests, given = Path(dask.__file__).parent, ["--pyargs", *MODULES], sys.argv[1:]
    if given and Path(given[0]).is_dir():
        # Before its verbs are swapped.
        importlib.import_module(_ON_GPU)
        home = Path(given.pop(0))
        tests = [str(home / "tests" / "test_groupby.py")]
    # Dask ships no settings; these are the ones of its own that decide whether a test passes.
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={home}", "-o"]
    options += ["xfail_strict=true", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.dask_groupby"]
    sys.exit(pytest.main([*options, *tests, *given]))
