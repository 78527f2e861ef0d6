"""Workers' logs of failed tasks: silent for refused arguments only."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from clusters import lazy
from distributed import Client

from dgpuhash.distributed import DistributedIndex
from dgpuhash.distributed.cluster.user_errors import raise_without_traceback
from dgpuhash.errors import ColumnError, IndexChanged, KeyTypeError, OutOfMemoryError

pytestmark = pytest.mark.cluster

FRAME = pd.DataFrame({"k": np.arange(300) % 70, "v": np.arange(300)})


@pytest.fixture
def log(threads: Client) -> Iterator[list[str]]:
    """Collect the errors that workers log."""
    said: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    handler, logger = Kept(logging.WARNING), logging.getLogger("distributed.worker")
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)


def test_refused_arguments_are_told_to_who_gave_them_alone(threads, log):
    # Partitions that are not what their frame says, which only workers see.
    texts = lazy(FRAME, 3).map_partitions(lambda part: part.astype("str"), meta=FRAME[:0])
    with DistributedIndex.build(lazy(FRAME, 3), on="k", client=threads) as index:
        before = index.merge(lazy(FRAME, 3))
        other = DistributedIndex.open(index.name, threads)
        index.insert(FRAME[:1])
        assert len(other.lookup([0])) == 6
        for kind, verb in (
            (ColumnError, lambda: DistributedIndex.build(texts, on="k", client=threads)),
            (ColumnError, lambda: index.insert(texts)),
            (KeyTypeError, lambda: index.erase(texts)),
            (KeyTypeError, lambda: index.merge(texts).compute()),
            (IndexChanged, lambda: before.compute()),
        ):
            with pytest.raises(kind) as raised:
                verb()
            frames = traceback.extract_tb(raised.value.__traceback__)
            assert not [each for each in frames if each.filename.endswith("match.py")]
    assert log == []


def failing(error: type[Exception]) -> None:
    with raise_without_traceback():
        raise error("said by the task")


@pytest.mark.parametrize("error", [ZeroDivisionError, OutOfMemoryError])
def test_other_failures_are_reported(threads, log, error):
    with DistributedIndex.build(FRAME, on="k", client=threads):
        future = threads.submit(failing, error, pure=False)
        with pytest.raises(error):
            future.result(timeout=60)
    (report,) = log
    assert "Compute Failed" in report
    assert "said by the task" in report


def test_a_users_task_that_fails_after_it_asked_is_reported(threads, log):
    def asking(index: DistributedIndex) -> None:
        assert len(index.lookup([0])) == 6
        raise ZeroDivisionError("a bug")

    with DistributedIndex.build(FRAME, on="k", client=threads) as index:
        other = DistributedIndex.open(index.name, threads)
        index.insert(FRAME[:1])
        with pytest.raises(ZeroDivisionError):
            threads.submit(asking, other, pure=False).result(timeout=60)
    (report,) = log
    assert "a bug" in report
