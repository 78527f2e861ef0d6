"""Run Dask's tests of merges with `dgpuhash.dask.enabled`: a plugin of pytest.

``python -m suites.dask_merge`` runs them; arguments go to pytest. They run on a cluster within this
process, also where they ask for Dask's synchronous scheduler. What ours refuses is an error there;
Dask's expressions of merges raise, and so do pandas' engines of merges in tasks and below our verb.
With ``SUITE_PLAIN=1`` it is Dask's merge that is called through the plugin, which shows that the
plugin changes no test. ``SUITE_REPORT`` names a file for what failed, ``SUITE_CALLS`` one for the
calls of each test.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.base
import dask.dataframe as dd
import pandas as pd
import pandas.core.reshape.merge
import pytest
from dask.dataframe.dask_expr import _collection, _merge, _merge_asof
from distributed import Client, LocalCluster

import dgpuhash
from suites import pandas_merge, raising
from suites.dask_merge_exceptions import EXCEPTIONS
from suites.pandas_merge import Counts

MODULES = (
    "dask.dataframe.tests.test_multi",
    "dask.dataframe.tests.test_merge_column_and_index",
    "dask.dataframe.dask_expr.tests.test_merge",
)
# Of test_multi, which tests more than merges.
_NO_MERGE = re.compile(r".*(concat|merge_asof|melt|repeated_divisions|dtype_equality_warning)")
# Whether Dask's own merge is to run.
_PLAIN = os.environ.get("SUITE_PLAIN") == "1"
_OURS = f"{Path(dgpuhash.__file__).parent}{os.sep}"
# Dask asks for its synchronous scheduler by these names.
_SYNCHRONOUS = ("sync", "synchronous", "single-threaded")
# A hook of this plugin too, for the file of failures.
pytest_addoption = pandas_merge.pytest_addoption


def noted_merge(merge: Callable[..., Any], counts: Counts) -> Callable[..., Any]:
    """Return a function that calls a merge of Dask frames, and counts its calls."""
    # Not that of pandas, whose name Dask's bears.
    parameters = inspect.signature(merge, follow_wrapped=False)

    @functools.wraps(merge)
    def noted(*args: Any, **kwargs: Any) -> Any:
        counts.calls += 1
        made = merge(*args, **kwargs)
        if _PLAIN:
            return made
        call = parameters.bind(*args, **kwargs)
        call.apply_defaults()
        left, right, how, npartitions = (
            call.arguments[name] for name in ("left", "right", "how", "npartitions")
        )
        return made if npartitions is not None else as_many(made, left, right, how)

    return noted


def as_many(made: Any, left: Any, right: Any, how: str) -> Any:
    """Return a merge of ours with as many partitions as Dask's, and no more known divisions.

    For tests that count them beside the rows: outer merges of ours have one partition more for each
    hash range, Dask's as many as the larger side. And ours tell the divisions of the side that asks
    also where the other side's are unknown.
    """
    lazy = [side for side in (left, right) if is_lazy(side)]
    unknown = any(side.npartitions > 1 and not side.known_divisions for side in lazy)
    if unknown and made.known_divisions:
        made = made.clear_divisions()
    if how == "outer" and not made.known_divisions:
        count = max((side.npartitions for side in lazy), default=1)
        made = made.repartition(npartitions=count)
    return made


def is_lazy(side: Any) -> bool:
    return bool(dask.is_dask_collection(side))


def noted_join(join: Callable[..., Any], counts: Counts) -> Callable[..., Any]:
    """Return a function that calls `DataFrame.join`, and counts calls with lists."""

    @functools.wraps(join)
    def noted(self: Any, other: Any, on: Any = None, how: Any = "left", **given: Any) -> Any:
        # A single frame goes to `self.merge`.
        counts.calls += isinstance(other, list)
        return join(self, other, on, how, **given)

    return noted


def replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until `undo` is closed."""
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


def swap(undo: contextlib.ExitStack, counts: Counts) -> None:
    """Let ours answer Dask's merges, without a way back to Dask, and note each call.

    That `DataFrame.merge` and `DataFrame.join` come to ours is checked.
    """
    original = _collection.merge
    if not _PLAIN:
        undo.enter_context(dgpuhash.dask.enabled(fallback=False))
    called = _collection.merge
    noted = noted_merge(called, counts)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "dask" and vars(module).get("merge") is called:
            replace(undo, module, "merge", noted)
    replace(undo, dd.DataFrame, "join", noted_join(dd.DataFrame.join, counts))
    if not _PLAIN:
        shut(undo)
    alone = pd.DataFrame({"k": [1]})
    frame, other, third = (dd.from_pandas(alone.set_axis([k], axis=1)) for k in "klm")
    for call in (
        lambda: dd.merge(frame, frame),
        lambda: frame.merge(frame, on="k"),
        lambda: frame.join(other),
        lambda: frame.join([other, third]),
    ):
        before = answered(counts)
        # Ours may fail: that is for the tests to tell.
        with contextlib.suppress(Exception):
            call()
        if answered(counts) == before:
            raise pytest.UsageError("this release of Dask binds its merge elsewhere too")
    if not _PLAIN:
        check_shut(lambda: original(frame, frame), "an expression of Dask")
        with ThreadPoolExecutor(1) as thread:
            check_shut(thread.submit(alone.merge, alone).result, "pandas in a task")
    counts.calls = 0


def answered(counts: Counts) -> int:
    """Return how many merges and joins were answered: by ours, as `dgpuhash.dask` tells."""
    if _PLAIN:
        return counts.calls
    told = dgpuhash.dask.report()
    return sum(told.times(verb, "dgpuhash") for verb in ("merge", "join"))


def shut(undo: contextlib.ExitStack) -> None:
    """Let other engines of merges raise AssertionError.

    They are Dask's expressions anywhere; pandas' merges in any thread but the main one, in which
    tests say what they expect; and all of `suites.raising` below code of ours.
    """
    undo.enter_context(raising.no_other_engine())
    replace(undo, raising, "running", but_in_metas(raising.running))

    def new(cls: type, *operands: Any, **options: Any) -> Any:
        if not issubclass(cls, _merge_asof.MergeAsof):
            raise AssertionError(f"Dask's {cls.__name__} was made")
        return super(_merge.Merge, cls).__new__(cls, *operands, **options)

    # BlockwiseMerge, HashJoinP2P, BroadcastJoin and SemiMerge lie below it.
    replace(undo, _merge.Merge, "__new__", staticmethod(new))
    engines = pandas.core.reshape.merge
    for owner, name in ((engines._MergeOperation, "__init__"), (engines, "_cross_merge")):
        replace(undo, owner, name, on_main_thread(getattr(owner, name)))


def but_in_metas(running: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that is false where Dask finds the meta of what a test merges.

    It does so when it is first asked, which may be by code of ours; the grouping is the test's.
    """

    def nearest() -> bool:
        frame = sys._getframe() if running() else None
        while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
            if frame.f_code.co_name.startswith("_meta"):
                return False
            frame = frame.f_back
        return frame is not None

    return nearest


def on_main_thread(engine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises in each thread but the main one."""

    @functools.wraps(engine)
    def called(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise AssertionError(f"pandas' {engine.__qualname__} was called by a task")
        return engine(*args, **kwargs)

    return called


def check_shut(call: Callable[[], Any], engine: str) -> None:
    """Raise UsageError unless a call of an engine raises."""
    try:
        call()
    except AssertionError:
        return
    raise pytest.UsageError(f"{engine} can merge while ours is tested")


def start_cluster(undo: contextlib.ExitStack) -> None:
    """Start the cluster, and let it compute what asks for the synchronous scheduler."""
    # The memory that workers measure is that of this process.
    cluster = LocalCluster(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None,
        memory_limit=0, silence_logs=logging.CRITICAL,
    )  # fmt: skip
    undo.enter_context(cluster)
    client = undo.enter_context(Client(cluster))
    schedulers = dask.base.named_schedulers
    for name in _SYNCHRONOUS:
        undo.callback(schedulers.__setitem__, name, schedulers[name])
        schedulers[name] = client.get
    # What Dask takes without a client, where a test names none.
    undo.enter_context(dask.config.set({"dataframe.shuffle.method": "disk"}))


class Suite(pandas_merge.Suite):
    """The hooks that choose and count tests, count calls, and judge what failed."""

    def __init__(self, counts: Counts, report: str | None) -> None:
        super().__init__(counts, report)
        self.calls: dict[str, int] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        """Keep the tests of merges and joins."""
        left_out = [item for item in items if _NO_MERGE.match(item.name)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self.counts.calls
        result = yield
        self.calls[item.nodeid] = self.counts.calls - before
        if self.calls[item.nodeid]:
            self.callers.add(item.nodeid)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        super().pytest_sessionfinish(session, exitstatus)
        if file := os.environ.get("SUITE_CALLS"):
            rows = (f"{node}\t{self.outcomes.get(node)}\t{n}\n" for node, n in self.calls.items())
            Path(file).write_text("".join(rows))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("Dask's tests with dgpuhash.merge")
        outcomes = list(self.outcomes.values())
        passed, failed = outcomes.count("passed"), len(self.failed)
        share = f"{100 * passed / (passed + failed):.2f} %" if passed + failed else "none"
        excepted = [node for node in self.outcomes if pandas_merge.reason_for(node) is not None]
        write(f"merge:             {'Dask' if _PLAIN else 'dgpuhash.merge'}")
        write(f"tests:             {len(outcomes)}, of which {outcomes.count('skipped')} skipped")
        write(f"tests that called: {len(self.callers)}")
        write(f"calls:             {self.counts.calls}")
        write(f"passed:            {passed}, {share}")
        write(f"failed:            {failed}, of which {len(self.unexpected)} unexpected")
        write(f"exceptions:        {len(excepted)} tests")
        for node in self.unexpected:
            write(f"unexpected: {node}: {self.reasons[node]}")
        for node in excepted:
            if self.outcomes[node] == "failed":
                write(f"excepted: {node}: {pandas_merge.reason_for(node)}")
            elif not _PLAIN:
                write(f"passed, though excepted: {node}")
        if self.outcomes and not self.callers:
            write("no test called merge: the swap does not work")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start the cluster and swap merges before a test is collected."""
    undo, counts = contextlib.ExitStack(), Counts()
    config.add_cleanup(undo.close)
    start_cluster(undo)
    swap(undo, counts)
    replace(undo, pandas_merge, "EXCEPTIONS", EXCEPTIONS)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    home = Path(dask.__file__).parent
    # Dask ships no settings; these are the ones of its own that decide whether a test passes.
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={home}", "-o"]
    options += ["xfail_strict=true", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.dask_merge"]
    sys.exit(pytest.main([*options, "--pyargs", *MODULES, *sys.argv[1:]]))
