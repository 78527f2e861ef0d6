"""Errors of a worker keep their type at the client."""

from __future__ import annotations

import pytest
from distributed.protocol.pickle import dumps, loads

from dgpuhash import errors


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_travel_between_processes(name):
    kind = getattr(errors, name)
    with pytest.raises(kind) as raised:
        raise kind("what happened; what to do")
    arrived = loads(dumps(raised.value))
    assert type(arrived) is kind
    assert str(arrived) == "what happened; what to do"
