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
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.base
import dask.dataframe as dd
import dask.dataframe.utils
import numpy as np
import pandas as pd
import pandas.core.reshape.merge
import pytest
from dask.dataframe.dask_expr import _collection, _merge, _merge_asof
from distributed import Client, LocalCluster

import dgpuhash
from suites import pandas_merge, raising
from suites.dask_merge_exceptions import EXCEPTIONS

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


@dataclass
class Counts(pandas_merge.Counts):
    """Calls of our merge, and what the test that runs did so far.

    Attributes
    ----------
    promotable : set of label
        Columns of what it merged which come from a side that may be unmatched.
    expected : tuple of bool
        Which sides of the comparison that goes on are what is expected of ours.
    """

    promotable: set[Hashable] = field(default_factory=set)
    expected: tuple[bool, bool] = (True, True)


def noted_merge(merge: Callable[..., Any], counts: Counts) -> Callable[..., Any]:
    """Return a function that calls a merge of Dask frames, and notes what it may promote."""
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
        left, right, how, npartitions, suffixes = (
            call.arguments[name] for name in ("left", "right", "how", "npartitions", "suffixes")
        )
        if how in ("left", "right", "outer"):
            counts.promotable |= set(made.columns) - whole(left, right, how, suffixes)
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


def whole(left: Any, right: Any, how: str, suffixes: Any) -> set[Hashable]:
    """Return what columns of the side of which each row is kept are called, none for outer."""
    if how == "outer":
        return set()
    labels, suffix = (left.columns, suffixes[0]) if how == "left" else (right.columns, suffixes[1])
    return {*labels, *(f"{label}{suffix or ''}" for label in labels)}


def noted_join(join: Callable[..., Any], counts: Counts) -> Callable[..., Any]:
    """Return a function that calls `DataFrame.join`, and notes what one of a list may promote."""

    @functools.wraps(join)
    def noted(self: Any, other: Any, on: Any = None, how: Any = "left", **given: Any) -> Any:
        # A single frame goes to `self.merge`.
        made = join(self, other, on, how, **given)
        if isinstance(other, list):
            counts.calls += 1
            counts.promotable |= set(made.columns) - set(self.columns if how == "left" else ())
        return made

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


class Comparing:
    """The functions with which Dask's `assert_eq` compares, with dtypes as ours promotes them.

    Where a side of a merge may be unmatched, integers that are expected of its columns become
    float64 and booleans object if ours has that; in such a test also those of the index.
    """

    def __init__(self, functions: Any, counts: Counts) -> None:
        self._functions = functions
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)
        if name not in ("assert_frame_equal", "assert_series_equal"):
            return function

        def compare(left: Any, right: Any, **options: Any) -> None:
            function(self._alike(0, left, right), self._alike(1, right, left), **options)

        return compare

    def _alike(self, place: int, own: Any, other: Any) -> Any:
        """Return a side with the dtypes of the other one where it is to be promoted."""
        promotable = self._counts.promotable
        if not (promotable and self._counts.expected[place]):
            return own
        if type(own) is not type(other) or own.shape != other.shape:
            return own
        own = own.copy()
        if promotes(own.index.dtype, other.index.dtype):
            own.index = own.index.astype(other.index.dtype)
        if isinstance(own, pd.Series):
            wanted = own.name in promotable and promotes(own.dtype, other.dtype)
            return own.astype(other.dtype) if wanted else own
        for number, dtype in enumerate(other.dtypes):
            label = own.columns[number]
            if label in promotable and promotes(own.dtypes.iloc[number], dtype):
                own.isetitem(number, own.iloc[:, number].astype(dtype))
        return own


def promotes(dtype: Any, other: Any) -> bool:
    """Return whether a dtype becomes the other one where a row may be missing."""
    if not isinstance(dtype, np.dtype):
        return False
    return (dtype.kind in "iu" and other == "float64") or (dtype.kind == "b" and other == "object")


def assert_eq_in_place(original: Callable[..., Any], counts: Counts) -> Callable[..., Any]:
    """Return a function for Dask's `assert_eq` that notes which side is expected of ours."""

    @functools.wraps(original)
    def assert_eq(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        lazy = is_lazy(a), is_lazy(b)
        # Where a test has computed, or compares two results, either side may be ours.
        counts.expected = (not lazy[0], not lazy[1]) if lazy[0] != lazy[1] else (True, True)
        try:
            return original(a, b, *args, **kwargs)
        finally:
            counts.expected = (True, True)

    return assert_eq


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
        self.counts.promotable.clear()
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
    utils = dask.dataframe.utils
    replace(undo, utils, "tm", Comparing(utils.tm, counts))
    replace(undo, utils, "assert_eq", assert_eq_in_place(utils.assert_eq, counts))
    replace(undo, pandas_merge, "EXCEPTIONS", EXCEPTIONS)
    config.pluginmanager.register(Suite(counts, config.getoption("--suite-report")))


if __name__ == "__main__":
    home = Path(dask.__file__).parent
    # Dask ships no settings; these are the ones of its own that decide whether a test passes.
    options = ["-q", "--show-capture=no", "-c", os.devnull, f"--rootdir={home}", "-o"]
    options += ["xfail_strict=true", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    options += ["-p", "no:cacheprovider", "-p", "suites.dask_merge"]
    sys.exit(pytest.main([*options, "--pyargs", *MODULES, *sys.argv[1:]]))
