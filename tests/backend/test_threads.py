"""Number of threads of a launch on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dgpuhash.backend import cpu
from dgpuhash.backend.cpu import ThreadQuota
from dgpuhash.backend.native import native

SAID = "from dgpuhash.backend.native import native; print(native().threads())"


def said(prefix="", **environment):
    kept = {name: text for name, text in os.environ.items() if name != "DGPUHASH_NUM_THREADS"}
    command = [sys.executable, "-c", prefix + SAID]
    return int(subprocess.check_output(command, env=kept | environment))


def test_as_many_as_the_process_may_use():
    assert said() == len(os.sched_getaffinity(0))
    one = min(os.sched_getaffinity(0))
    assert said(f"import os; os.sched_setaffinity(0, {{{one}}}); ") == 1


def test_as_many_as_the_environment_says():
    assert said(DGPUHASH_NUM_THREADS="3") == 3


@pytest.mark.parametrize("count", [1, 5])
def test_as_many_as_were_set(count):
    try:
        native().set_threads(count)
        assert native().threads() == count
    finally:
        native().set_threads(0)


def test_workers_in_one_process_share_a_pool(monkeypatch):
    monkeypatch.delenv(cpu.VARIABLE, raising=False)
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: range(8))
    usual, shares = native().threads(), ThreadQuota()
    try:
        for worker, threads, together in (("a", 2, 2), ("b", 1, 3), ("b", 4, 6), ("c", 40, 8)):
            shares.take(worker, threads)
            assert native().threads() == together
        for worker, together in (("c", 6), ("c", 6), ("a", 4), ("b", usual)):
            shares.give_back(worker)
            assert native().threads() == together
        monkeypatch.setenv(cpu.VARIABLE, "3")
        shares.take("a", 1)
        assert native().threads() == usual
        shares.give_back("a")
    finally:
        native().set_threads(0)


WORKERS = """
import sys
from distributed import Client, LocalCluster
from dgpuhash.distributed import DistributedSet
from dgpuhash.backend.native import native

def threads():
    return native().threads()

if __name__ == "__main__":
    usual = threads()
    processes = sys.argv[1] == "processes"
    options = {"n_workers": 2, "threads_per_worker": int(sys.argv[2]), "processes": processes}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        with DistributedSet.from_keys([1, 2]):
            print(*client.run(threads).values(), end=" ")
    print(usual == threads())
"""


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("options", "expected"),
    [(["processes", "1"], "1 1 True"), (["threads", "1"], "2 2 True")],
)
def test_a_workers_pool_has_its_threads(tmp_path, options, expected):
    if len(os.sched_getaffinity(0)) == 1:
        expected = expected.replace("2 2", "1 1")
    (tmp_path / "workers.py").write_text(WORKERS)
    kept = {name: text for name, text in os.environ.items() if name != cpu.VARIABLE}
    command = [sys.executable, "-W", "ignore", tmp_path / "workers.py", *options]
    said = subprocess.check_output(command, env=kept, timeout=120, text=True)
    assert said.split() == expected.split()


def test_as_many_as_can_be_started():
    """A thread takes some MiB of address space for its stack."""
    prefix = """
import resource, threading
threading.stack_size(8 << 20)
from dgpuhash.backend.native import native
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
native().set_threads(200)
"""
    assert 1 <= said(prefix) < 200
