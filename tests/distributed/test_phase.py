"""What a phase leaves behind on a worker."""

from __future__ import annotations

import gc
import weakref

import pytest

from dgpuhash.distributed.phase import let_go


class Held:
    """Stands for an array."""


def fail(seen: list[weakref.ref[Held]]) -> None:
    held = Held()
    seen.append(weakref.ref(held))
    error = ValueError("wrong")
    raise error


def fail_because(seen: list[weakref.ref[Held]]) -> None:
    held = Held()
    seen.append(weakref.ref(held))
    try:
        fail(seen)
    except ValueError as cause:
        raise RuntimeError("worse") from cause


def test_an_error_holds_nothing_that_its_frames_held():
    seen: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="worse") as raised:
            fail_because(seen)
        assert all(held() is not None for held in seen)
        let_go(raised.value)
        assert [held() for held in seen] == [None, None]
        assert str(raised.value) == "worse"
    finally:
        gc.enable()
