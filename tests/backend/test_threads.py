"""How many threads a launch on the CPU uses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dgpuhash.backend.cpu import native

SAID = "from dgpuhash.backend.cpu import native; print(native().threads())"


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


def test_as_many_as_can_be_started():
    """A thread takes some MiB of address space for its stack."""
    prefix = """
import resource, threading
threading.stack_size(8 << 20)
from dgpuhash.backend.cpu import native
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
native().set_threads(200)
"""
    assert 1 <= said(prefix) < 200
