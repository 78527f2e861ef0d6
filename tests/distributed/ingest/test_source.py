"""Cached schemas of frames, found once for equal frames."""

from __future__ import annotations

from dataclasses import replace

import dask.dataframe as dd
import pandas as pd
import pytest

from dgpuhash.distributed.cluster.serialization import are_plain
from dgpuhash.distributed.ingest.source import IndexSchema
from dgpuhash.errors import ColumnError
from dgpuhash.seeds import VARIABLE


def frame_of(dtype: str = "int64", label: str = "v") -> pd.DataFrame:
    return pd.DataFrame({"k": [1, 2], label: [3, 4], "w": [5, 6]}).astype({"k": dtype})


def lazy(frame: pd.DataFrame) -> dd.DataFrame:
    return dd.from_pandas(frame, npartitions=1)


def test_alike_frames_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    first, second = (IndexSchema.of(lazy(frame_of()), "k", ["w"]) for _ in range(2))
    assert first.meta is second.meta
    assert replace(first.encoder, seeds=second.encoder.seeds) == second.encoder
    assert first.encoder.seeds != second.encoder.seeds
    assert (first.names, list(first.meta), len(first.meta)) == (("k",), ["k", "w"], 0)


def test_long_lists_of_columns_are_not_taken_for_each_other() -> None:
    labels = [f"c{number:03}" for number in range(300)]
    frame = pd.DataFrame([range(300)], columns=labels).assign(k=1)
    for some in (labels[:120] + labels[290:], labels[:20] + labels[150:250] + labels[290:]):
        for columns in (pd.Index(some), iter(some)):
            assert list(IndexSchema.of(lazy(frame), "k", columns).meta) == [*some, "k"]


@pytest.mark.parametrize("label", ["k", "v"])
def test_another_byte_order_is_refused(label: str) -> None:
    frame = frame_of().astype({label: ">i4"})
    for given in (frame, lazy(frame)):
        with pytest.raises(ColumnError, match="byte order"):
            IndexSchema.of(given, "k", None)


@pytest.mark.parametrize(
    ("frame", "on", "columns"),
    [
        (frame_of("int32"), "k", None),
        (frame_of(label="x"), "k", None),
        (frame_of(), "v", None),
        (frame_of(), ["k", "v"], None),
        (frame_of(), "k", ["v"]),
        (frame_of().set_index(pd.Index(["a", "b"], name="row")), "k", None),
    ],
)
def test_others_do_not(frame: pd.DataFrame, on: str | list[str], columns: list[str] | None) -> None:
    usual = IndexSchema.of(lazy(frame_of()), "k", None)
    found = IndexSchema.of(lazy(frame), on, columns)
    assert found.meta is not usual.meta
    wanted = ["k", "v"] if columns else list(frame)
    assert list(found.meta) == wanted
    assert found.encoder.names == tuple([on] if isinstance(on, str) else on)
    pd.testing.assert_series_equal(found.meta.dtypes, frame[wanted].dtypes)


def test_a_frame_of_the_client_is_not_held() -> None:
    frame = frame_of()
    assert IndexSchema.of(frame, "k", None).meta is not IndexSchema.of(frame, "k", None).meta


def test_errors_come_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ColumnError, match="no column"):
            IndexSchema.of(lazy(frame_of()), "absent", None)


@pytest.mark.parametrize(("dtype", "plain"), [("int64", True), ("Int64", False), ("string", False)])
def test_plain(dtype: str, plain: bool) -> None:
    meta = frame_of().astype({"v": dtype}).iloc[:0]
    assert [are_plain(meta), are_plain(meta.copy())] == [plain, plain]
