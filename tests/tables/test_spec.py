"""Table specifications, casts, and the tree of errors."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import KEY_DTYPES, RECORD, VALUE_DTYPES

from dgpuhash import errors
from dgpuhash.spec import TableSpec
from dgpuhash.tables.arguments.casts import keeps_values


@pytest.mark.parametrize(
    "value", [*VALUE_DTYPES, [("a", "f4"), ("b", [("c", "i1"), ("d", "M8[s]")])]]
)
@pytest.mark.parametrize("key", KEY_DTYPES)
def test_spec_survives_json(key, value):
    spec = TableSpec.of("multimap", key, value, seed=2**64 - 1, growth=1.5)
    assert TableSpec.from_json(spec.to_json()) == spec
    assert spec.key == np.dtype(key)
    assert spec.value == np.dtype(value)
    assert hash(TableSpec.of("set", key, seed=1)) == hash(TableSpec.of("set", key, seed=1))


def test_records_as_keys_survive_json():
    spec = TableSpec.of("count", RECORD, "u8", seed=1)
    assert TableSpec.from_json(spec.to_json()) == spec
    assert spec.key == RECORD


def test_aligned_records_survive_json():
    value = np.dtype([("a", "i1"), ("b", "f8", (2, 2))], align=True)
    assert TableSpec.from_json(TableSpec.of("map", "i8", value).to_json()).value == value


def test_settings_of_any_kind_of_number_survive_json():
    spec = TableSpec.of(
        "multimap", "i8", "i8", max_load=np.float32(0.5), seed=np.uint64(7),
        initial_bucket=np.int64(4), growth=np.float64(2),
    )  # fmt: skip
    assert TableSpec.from_json(spec.to_json()) == spec


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", ["f8", "i4,f8"])
def test_metadata_of_dtypes_is_left_out(value):
    spec = TableSpec.of("map", "i8", np.dtype(value, metadata={"unit": "m"}), seed=1)
    assert TableSpec.from_json(spec.to_json()) == spec
    assert spec == TableSpec.of("map", "i8", value, seed=1)


@pytest.mark.parametrize("descr", [5, "zz", "i4,(", ("b",), [["a"]], [("a", "i4"), ("a", "i4")]])
def test_values_that_nobody_can_describe(descr):
    with pytest.raises(errors.KeyTypeError, match=r"TableSpec\.of"):
        TableSpec("map", "<i8", descr)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{",
        '{"kind": "map"}',
        '{"kind": "tree"}',
        '{"kind": "set", "key_dtype": "i4,("}',
        '{"kind": "map", "key_dtype": "<i8", "value_dtype": "i4,("}',
    ],
)
def test_text_that_is_no_spec(text):
    with pytest.raises(errors.SpecError):
        TableSpec.from_json(text)


@pytest.mark.parametrize("source", KEY_DTYPES)
@pytest.mark.parametrize("target", KEY_DTYPES)
def test_casts_that_keep_values_do(source, target):
    if not keeps_values(np.dtype(source), np.dtype(target)):
        return
    width = np.dtype(source).itemsize
    raw = np.random.default_rng(0).integers(0, 256, (200, width), np.uint8)
    values = (raw & 1 if source == "bool" else raw).view(source).reshape(-1)
    if values.dtype.kind in "mM":
        values = np.arange(-100, 100).astype(source)
    with np.errstate(invalid="ignore"):
        back = values.astype(target).astype(source)
    np.testing.assert_array_equal(back, values)


def test_error_tree():
    assert issubclass(errors.KeyTypeError, TypeError)
    assert issubclass(errors.OutOfMemoryError, MemoryError)
    assert issubclass(errors.CompileError, errors.DeviceError)
    for name in errors.__all__:
        assert name in errors.__doc__
