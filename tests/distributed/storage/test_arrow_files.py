"""Keys and values in columns of Arrow files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dgpuhash.distributed.storage.arrow_files import to_arrow, to_numpy


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("M8[ms]", pa.timestamp("ms")),
        ("m8[s]", pa.duration("s")),
        ("M8[10ms]", pa.int64()),
        ("m8[7s]", pa.int64()),
        ("M8[D]", pa.int64()),
    ],
)
def test_times_have_the_type_that_says_what_they_are(dtype, kind):
    times = np.array([3, 1, 2]).view(dtype)
    table = to_arrow([times], [times.dtype])
    assert table.schema == pa.schema([("key", kind)])
    assert to_numpy(table, [times.dtype])[0].tolist() == times.tolist()


def test_older_files_give_multiples_of_a_unit_the_type_of_the_unit():
    keys, values = np.array([3, 1]).view("M8[10ms]"), np.array([4, 5]).view("m8[2h]")
    table = pa.table(
        {"key": pa.array(keys.view("i8"), pa.timestamp("ms")), "value": values.view("i8")}
    )
    found = to_numpy(table, [keys.dtype, values.dtype])
    assert [column.tolist() for column in found] == [keys.tolist(), values.tolist()]
    with pytest.raises(ValueError, match="its columns are"):
        to_numpy(table, [keys.dtype, np.dtype("m8[s]")])
