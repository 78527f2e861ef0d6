"""Serialization of a frame in a message, and the frame made of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.distributed.cluster.serialization import (
    concat_payloads,
    frame_of_payload,
    from_message,
    is_plain,
    plain_arrays,
    to_message,
)

PLAIN = pd.DataFrame(
    {
        "whole": np.array([3, 1, 2], dtype="i4"),
        "part": [0.5, np.nan, -0.0],
        "true": [True, False, True],
        "day": pd.to_datetime(["2020-02-29", None, "1999-12-31"]),
        7: pd.to_timedelta([1, 2, None], unit="s"),
    }
)
OTHERS = {
    "text": pd.Series(["a", None], dtype="str"),
    "nullable": pd.Series([1, None], dtype="Int64"),
    "zoned": pd.to_datetime(["2020-02-29", None], utc=True),
    "category": pd.Categorical(["a", "b"]),
    "object": pd.Series([1, "a"], dtype=object),
}


def test_plain_columns_travel_as_arrays_on_their_memory():
    payload = plain_arrays(PLAIN, PLAIN[:0])
    assert payload is not None and is_plain(payload)
    assert np.shares_memory(payload[0], PLAIN["whole"].to_numpy())
    found = frame_of_payload(payload, PLAIN[:0])
    assert_frame_equal(found, PLAIN)
    assert np.shares_memory(found["whole"].to_numpy(), payload[0])


@pytest.mark.parametrize("kind", OTHERS)
def test_other_columns_travel_as_a_frame(kind):
    frame = pd.DataFrame({"number": [1, 2], kind: OTHERS[kind]})
    assert plain_arrays(frame, frame[:0]) is None
    assert frame_of_payload(frame, frame[:0]) is frame


def test_columns_of_other_dtypes_than_agreed_travel_as_a_frame():
    frame = pd.DataFrame({"number": [0.5]})
    assert plain_arrays(frame, pd.DataFrame({"number": [1]})[:0]) is None


def test_a_frame_without_columns_travels_as_itself():
    frame = pd.DataFrame(index=range(3))
    assert plain_arrays(frame, frame[:0]) is None


@pytest.mark.parametrize("form", [tuple, list])
def test_joined_arrays_are_one_frame(form):
    like = PLAIN[:0]
    payloads = [form(plain_arrays(PLAIN[:n].copy(), like)) for n in (2, 0, 3)]
    wanted = pd.concat([PLAIN[:2], PLAIN], ignore_index=True)
    assert_frame_equal(concat_payloads(payloads, like), wanted)
    assert_frame_equal(concat_payloads(payloads[:1], like), PLAIN[:2])


def test_joined_arrays_and_frames_are_one_frame():
    like = pd.DataFrame({"number": [1]})[:0]
    frame = pd.DataFrame({"number": [0.5]}, index=[9])
    found = concat_payloads([plain_arrays(pd.DataFrame({"number": [1]}), like), frame, like], like)
    assert_frame_equal(found, pd.DataFrame({"number": [1, 0.5]}))
    assert_frame_equal(concat_payloads([like, like], like), like)


def test_what_never_left_its_process_is_unloaded():
    arrays = np.arange(3), np.arange(2.0)
    assert from_message(to_message(arrays)) == arrays
    assert from_message(to_message(PLAIN)) is PLAIN
    assert from_message(None) is None
