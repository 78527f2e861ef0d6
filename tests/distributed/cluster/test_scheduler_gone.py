"""Dask's errors that mean that the scheduler is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgpuhash.distributed.cluster.client import translate_scheduler_errors
from dgpuhash.errors import IndexLost


@pytest.mark.parametrize("error", [OSError("broken"), RuntimeError("closed")])
def test_what_dask_raises(error):
    with (
        pytest.raises(IndexLost, match="scheduler of the cluster is gone"),
        translate_scheduler_errors(),
    ):
        raise error


def test_a_client_that_has_given_its_scheduler_up():
    client: Any = SimpleNamespace(scheduler=None)
    with (
        pytest.raises(IndexLost, match="scheduler of the cluster is gone"),
        translate_scheduler_errors(),
    ):
        client.scheduler.run_function()


def test_other_mistakes_are_told_as_they_are():
    client: Any = SimpleNamespace(scheduler="tcp://here")
    with pytest.raises(AttributeError, match="run_function"), translate_scheduler_errors():
        client.scheduler.run_function()
