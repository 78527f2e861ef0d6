"""Partition, multisplit, hashing and owners of each backend against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.backend.batch import bucket_order
from dgpuhash.backend.batch import partition as partition_pass
from dgpuhash.backend.constants import ANY_ORDER_PARTS, NULL_HASH
from dgpuhash.errors import ShapeError, SpecError

Array = np.ndarray[Any, Any]

CPU = backends.get("cpu")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def used(request: pytest.FixtureRequest) -> Backend:
    """Return each backend in turn."""
    return backends.get(request.param)


@pytest.mark.parametrize("n", [0, 1, 31, 1000, 100_003])
@pytest.mark.parametrize("parts", [1, 2, 7, 130, 1024, 65536])
def test_multisplit(used: Backend, n: int, parts: int) -> None:
    ids = np.random.default_rng(n + parts).integers(0, parts, n).astype(np.uint32)
    order, counts = used.multisplit(used.from_host(ids), parts)
    assert order.dtype == np.int64
    assert isinstance(counts, np.ndarray)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(used.to_host(order), np.argsort(ids, kind="stable"))
    np.testing.assert_array_equal(counts, np.bincount(ids, minlength=parts))


def test_multisplit_all_to_one(used: Backend) -> None:
    ids = np.full(50_000, 6, np.uint32)
    order, counts = used.multisplit(used.from_host(ids), 8)
    np.testing.assert_array_equal(used.to_host(order), np.arange(50_000))
    assert counts.tolist() == [0, 0, 0, 0, 0, 0, 50_000, 0]


def test_too_many_parts(used: Backend) -> None:
    with pytest.raises(SpecError, match="65,537 parts"):
        used.multisplit(used.from_host(np.zeros(1, np.uint32)), 65537)


@pytest.mark.parametrize("n", [0, 1, 1000, 100_003, 300_000])
@pytest.mark.parametrize("parts", [1, 2, 4, 7, 32, 33, 256, 300])
@pytest.mark.parametrize("key", ["u4", "u8"])
def test_deal_and_put_back(used: Backend, n: int, parts: int, key: str) -> None:
    random = np.random.default_rng(n)
    keys = random.integers(0, 2**32, n).astype(key)
    values = random.integers(0, 2**62, n).astype(np.uint64)
    dealt = used.deal(used.from_host(keys), used.from_host(values), parts=parts, seed=3)
    owners = CPU.owner_of(CPU.hash_keys(keys, 3), parts)
    order = np.argsort(owners, kind="stable")
    np.testing.assert_array_equal(used.to_host(dealt.keys), keys[order])
    np.testing.assert_array_equal(used.to_host(dealt.values), values[order])
    counts = np.diff(used.to_host(dealt.starts).astype(np.int64))
    np.testing.assert_array_equal(counts, np.bincount(owners, minlength=parts))
    columns: list[Array] = [
        random.integers(0, 2**32, n).astype(np.uint32),
        random.integers(0, 2**62, n),
        random.integers(0, 2, n).astype(np.uint8),
        random.integers(0, 256, (n, 5)).astype(np.uint8),
    ]
    made = [used.from_host(np.zeros_like(column)) for column in columns]
    dealt.restore_order([used.from_host(column[order]) for column in columns], made)
    for column, back in zip(columns, made, strict=True):
        np.testing.assert_array_equal(used.to_host(back), column)
        again = dealt.moved(used.from_host(column))
        assert again.dtype == column.dtype
        np.testing.assert_array_equal(used.to_host(again), column[order])
    np.testing.assert_array_equal(used.to_host(dealt.places())[order], np.arange(n))
    # With room before the rows of each owner.
    pads = 1 + 3 * np.arange(parts)
    at = np.arange(n) + np.repeat(pads, counts)
    spaced = []
    for column in columns:
        spaced.append(np.zeros((n + 3 * parts, *column.shape[1:]), column.dtype))
        spaced[-1][at] = column[order]
    made = [used.from_host(np.zeros_like(column)) for column in columns]
    dealt.restore_order([used.from_host(column) for column in spaced], made, pads)
    for column, back in zip(columns, made, strict=True):
        np.testing.assert_array_equal(used.to_host(back), column)


@pytest.mark.parametrize("n", [0, 1, 4095, 100_003])
@pytest.mark.parametrize("parts", [1, 7, 256, 257, 65536])
@pytest.mark.parametrize("key", ["u4", "u8"])
@pytest.mark.parametrize("value", [None, "u4", "u8"])
@pytest.mark.parametrize("numbered", [False, True])
def test_partition(
    used: Backend, n: int, parts: int, key: str, value: str | None, numbered: bool
) -> None:
    random = np.random.default_rng(n + parts)
    keys = random.integers(0, 2**32, n).astype(key)
    values = None if value is None else random.integers(0, 2**32, n).astype(value)
    check_partition(used, keys, values, parts, numbered)


def check_partition(
    used: Backend, keys: Array, values: Array | None, parts: int, numbered: bool
) -> None:
    on_device = None if values is None else used.from_host(values)
    moved = used.partition(used.from_host(keys), on_device, parts=parts, seed=3, numbered=numbered)
    owners = CPU.owner_of(CPU.hash_keys(keys, 3), parts)
    order = np.argsort(owners, kind="stable")
    np.testing.assert_array_equal(used.to_host(moved.keys), keys[order])
    if values is None:
        assert moved.values is None
    else:
        np.testing.assert_array_equal(used.to_host(moved.values), values[order])
    if numbered:
        assert moved.numbers.dtype == np.int64
        np.testing.assert_array_equal(used.to_host(moved.numbers), order)
    else:
        assert moved.numbers is None
    again, starts = used.split(
        used.from_host(keys), on_device, parts=parts, seed=3, numbered=numbered
    )
    np.testing.assert_array_equal(used.to_host(again.keys), keys[order])
    counts = np.diff(used.to_host(starts).astype(np.int64))
    np.testing.assert_array_equal(counts, np.bincount(owners, minlength=parts))


def test_partition_of_one_key(used: Backend) -> None:
    rows = np.arange(300_000, dtype=np.uint32)
    check_partition(used, np.full(len(rows), 5, np.uint32), rows, 256, numbered=True)


def test_partition_of_unequal_parts(used: Backend) -> None:
    random = np.random.default_rng(8)
    keys = random.zipf(1.5, 200_000).astype(np.uint64)
    check_partition(used, keys, keys + np.uint64(1), 200, numbered=True)


@pytest.mark.parametrize("parts", [3, 40, 256])
@pytest.mark.parametrize("key", ["u4", "u8"])
def test_partition_of_long_segments(
    used: Backend, monkeypatch: pytest.MonkeyPatch, parts: int, key: str
) -> None:
    monkeypatch.setattr(type(used), "partition_blocks", 2)
    keys = np.random.default_rng(parts).integers(0, 2**32, 200_003).astype(key)
    check_partition(used, keys, keys + keys.dtype.type(1), parts, numbered=True)


def test_fetch(used: Backend) -> None:
    given = np.arange(12, dtype="u8").reshape(3, 4)
    data = used.from_host(given)
    assert (used.fetch(data)() == given).all()


def test_too_many_rows_at_once(used: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgpuhash.backend.batch.partition.PASS_ROWS", 99)
    with pytest.raises(SpecError, match="100 rows; 99 at most"):
        used.partition(used.from_host(np.zeros(100, np.uint32)), parts=2, seed=0)


def test_partition_of_a_slice(used: Backend) -> None:
    """Columns that do not begin at a multiple of 16 bytes."""
    keys = np.arange(20_001, dtype=np.uint32)
    moved = used.partition(used.from_host(keys)[1:], parts=9, seed=3)
    order = np.argsort(CPU.owner_of(CPU.hash_keys(keys[1:], 3), 9), kind="stable")
    np.testing.assert_array_equal(used.to_host(moved.keys), keys[1:][order])


@pytest.mark.parametrize("bits", [1, 8, 9, 24, 32])
@pytest.mark.parametrize("key", ["u4", "u8"])
def test_sort_by_hash(used: Backend, key: str, bits: int) -> None:
    keys = np.random.default_rng(bits).integers(0, 3000, 20_000).astype(key)
    given, rows = used.from_host(keys), used.from_host(np.arange(20_000, dtype="u4"))
    found, order = used.sort_by_hash(given, rows, bits=bits, seed=7)
    owners = used.owner_of(used.hash_keys(given, 7), 2**bits - 1)
    expected = np.argsort(used.to_host(owners), kind="stable")
    assert (used.to_host(order) == expected).all()
    assert (used.to_host(found) == keys[expected]).all()


@pytest.mark.parametrize(
    ("regions", "most"),
    [(1, 4), (3, 4), (4, 4), (5, 4), (33, 8), (300, 8), (700, 512), (70_000, 512)],
)
@pytest.mark.parametrize("words", [("u4", "u4"), ("u8", "u8"), ("u4", "u8"), ("u8", None)])
def test_order_by_bucket(
    used: Backend, monkeypatch: pytest.MonkeyPatch, regions: int, most: int, words: tuple[str, Any]
) -> None:
    """One to three passes, the last region small.

    A pass has room for at most as many parts as the backend's own.
    """
    most = min(most, ANY_ORDER_PARTS[used.name])
    monkeypatch.setitem(ANY_ORDER_PARTS, used.name, most)
    monkeypatch.setattr(type(used), "partition_blocks", 40)
    key, value = words
    keys = np.random.default_rng(regions).integers(0, 2**32, 200_003).astype(key)
    values = None if value is None else used.from_host((keys ^ keys.dtype.type(9)).astype(value))
    given, buckets = used.from_host(keys), regions * 16 - (7 if regions > 1 else 0)
    made = bucket_order.order_by_bucket(used, given, values, buckets=buckets, seed=2, shift=4)
    assert made is not None
    region = used.to_host(used.owner_of(used.hash_keys(made.keys, 2), buckets)) >> 4
    starts = used.to_host(made.starts)[: regions + 1]
    np.testing.assert_array_equal(starts, np.searchsorted(region, np.arange(regions + 1)))
    ordered = used.to_host(made.keys)
    assert (np.sort(ordered) == np.sort(keys)).all()
    assert made.spare_keys.shape == keys.shape
    if value is not None:
        expected = (ordered ^ keys.dtype.type(9)).astype(value)
        np.testing.assert_array_equal(used.to_host(made.values), expected)
        assert made.spare_values.dtype == value


@pytest.mark.parametrize("tail", [0, 1, 40_000, 120_000])
@pytest.mark.parametrize("words", [("u4", "u4"), ("u8", "u8"), ("u4", "u8"), ("u8", None)])
def test_shares_in_two_places(
    used: Backend, monkeypatch: pytest.MonkeyPatch, words: tuple[str, Any], tail: int
) -> None:
    """The last share stands elsewhere, where the columns have only room for it."""
    monkeypatch.setattr(type(used), "partition_blocks", 40)
    key, value = words
    edges, groups, parts = [0, 30_000, 30_000, 120_000 - tail, 120_000], 3, 5
    edges = sorted(edges)
    random, rows = np.random.default_rng(tail), edges[-1]
    keys = random.integers(0, groups * parts, rows).astype(key)
    bounds = [0]
    for start, stop in itertools.pairwise(edges):
        # Each share has all groups, one after the other.
        group = np.sort(random.integers(0, groups, stop - start))
        keys[start:stop] = group * parts + keys[start:stop] % parts
        bounds += (start + np.searchsorted(group, np.arange(groups), side="right")).tolist()
    values = None if value is None else (np.arange(rows) * 3).astype(value)
    split = rows - tail

    def column(whole: Any) -> tuple[Any, Any]:
        """Split a column into a full-size array of its first rows, and the rest."""
        if whole is None:
            return None, None
        first = whole.copy()
        first[split:] = 2**31 - 1
        return used.from_host(first), used.from_host(whole[split:])

    (first, last), (beside, more_beside) = column(keys), column(values)
    digit = partition_pass.Digit(0, 0, 0, 2**32 - 1, parts)
    moved, starts = partition_pass.run_pass(
        used, first, beside, digit, in_order=False,
        bounds=used.from_host(np.array(bounds, np.uint64)), shares=len(edges) - 1,
        digits=(0, parts),
        more=partition_pass.Partitioned(last, more_beside, None),
    )  # fmt: skip
    found, ends = used.to_host(moved.keys), used.to_host(starts).astype(np.int64)
    assert (found == np.sort(keys)).all()
    assert (ends == np.searchsorted(found, np.arange(groups * parts + 1))).all()
    if values is None:
        return
    numbers = used.to_host(moved.values) // 3
    assert (np.sort(numbers) == np.arange(rows)).all()
    assert (keys[numbers.astype(np.int64)] == found).all()


def test_rows_that_crowd_one_region_are_not_ordered(used: Backend) -> None:
    keys = used.from_host(np.full(20_000, 7, np.uint64))
    with pytest.raises(bucket_order.SkewedBatchError):
        bucket_order.order_by_bucket(used, keys, None, buckets=2**12, seed=0, shift=5)


@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_hash_keys(used: Backend, dtype: str) -> None:
    keys = np.arange(100_000, dtype=dtype)
    hashes = used.to_host(used.hash_keys(used.from_host(keys), 5))
    assert hashes.dtype == np.uint64
    assert len(np.unique(hashes)) == len(keys)
    np.testing.assert_array_equal(hashes, CPU.hash_keys(keys, 5))
    assert not np.array_equal(hashes, CPU.hash_keys(keys, 6))
    top_byte = np.bincount((hashes >> np.uint64(56)).astype(np.int64), minlength=256)
    assert top_byte.min() > 250
    assert top_byte.max() < 550


def pack(words: list[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)


def test_hash_strings(used: Backend) -> None:
    words = ["", "a", "b", "ab", "ba", "a\0", "tail", "N12345", "é" * 40, "x" * 1000, "x" * 1001]
    offsets, chars = pack(words)
    hashes = used.to_host(used.hash_strings(used.from_host(offsets), used.from_host(chars), 9))
    assert hashes.dtype == np.uint64
    assert len(set(hashes.tolist())) == len(words)
    np.testing.assert_array_equal(hashes, CPU.hash_strings(offsets, chars, 9))
    alone = pack(["tail"])
    assert CPU.hash_strings(*alone, 9)[0] == hashes[6]


def test_hash_strings_of_a_slice(used: Backend) -> None:
    offsets, chars = pack(["one", "two", "three", "four"])
    whole = used.hash_strings(used.from_host(offsets), used.from_host(chars), 0)
    part = used.hash_strings(used.from_host(offsets[2:]), used.from_host(chars), 0)
    np.testing.assert_array_equal(used.to_host(part), used.to_host(whole)[2:])


@pytest.mark.parametrize(
    ("words", "length"),
    [
        (["", "a", "a\0", "\0a", "seven_7", "x", "é", "seven_7"], 7),
        (["abcdefgh", "abcdefgi", "\0" * 8, "abcdefgh"], 8),
        (["", "", ""], 7),
    ],
)
def test_string_words(used: Backend, words: list[str], length: int) -> None:
    offsets, chars = map(used.from_host, pack(words))
    made, others = used.empty(len(words), np.uint64), used.from_host(np.zeros(1, np.uint32))
    asked = {"offsets": offsets, "bytes": chars, "words": made, "others": others}
    used.run(backends.kernel_named("string_words"), len(words), **asked, length=length)
    assert used.to_host(others)[0] == 0
    numbers = used.to_host(made)
    same = [[one == other for other in words] for one in words]
    np.testing.assert_array_equal(numbers[:, None] == numbers, same)
    used.run(backends.kernel_named("string_words"), len(words), **asked, length=15 - length)
    assert used.to_host(others)[0] == 1


@pytest.mark.parametrize("before", range(9))
def test_hash_strings_of_some_rows(used: Backend, before: int) -> None:
    words = ["x" * before, *("abcdefghijklmnopqrstuvwx"[:n] + "\0" for n in range(24)), ""]
    offsets, chars = pack(words)
    nulls, rows = np.arange(len(words)) % 5 == 2, np.random.default_rng(before).integers(-2, 26, 99)
    given = (*map(used.from_host, (offsets, chars)), 7, *map(used.from_host, (rows, nulls)))
    whole = CPU.hash_strings(offsets, chars, 7)
    expected = np.where((rows < 0) | nulls[rows], np.uint64(NULL_HASH), whole[rows])
    np.testing.assert_array_equal(used.to_host(used.hash_strings(*given)), expected)
    each = used.to_host(used.hash_strings(*given[:3], nulls=given[4]))
    np.testing.assert_array_equal(each, np.where(nulls, np.uint64(NULL_HASH), whole))


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_equal_strings(used: Backend, by_row: bool, with_nulls: bool, before: int) -> None:
    random = np.random.default_rng(before)
    letters = np.array(["a", "\0"], object)
    left = [random.choice(letters, n).sum() or "" for n in [*range(20)] * 3]
    right = [*left[:20], *(each[:-1] + "b" for each in left[20:])]
    rows = random.integers(-1, 60, (2, 500)) if by_row else [None, None]
    sides, texts = [], []
    for words, own, skipped in ((left, rows[0], before), (right, rows[1], 0)):
        offsets, chars = pack(["-" * skipped, *words])
        nulls = random.random(60) < 0.3 if with_nulls else None
        arrays = offsets[1:], chars, own, nulls
        sides.append(tuple(each if each is None else used.from_host(each) for each in arrays))
        numbers = np.arange(60) if own is None else own
        gone = (numbers < 0) | (False if nulls is None else nulls[numbers])
        texts.append([None if gone[at] else words[row] for at, row in enumerate(numbers)])
    equal = used.from_host(np.full(len(texts[0]), 7, np.uint8))
    kernel = backends.kernel_named("equal_strings")
    used.run(kernel, len(equal), left=sides[0], right=sides[1], equal=equal)
    expected = [one == other for one, other in zip(*texts, strict=True)]
    np.testing.assert_array_equal(used.to_host(equal), expected)
    assert 0 < sum(expected) < len(expected)


def test_hash_combine_depends_on_order(used: Backend) -> None:
    first, second = (np.arange(start, start + 1000, dtype=np.uint64) for start in (0, 5000))
    one = used.to_host(used.hash_combine(used.from_host(first), used.from_host(second)))
    other = used.to_host(used.hash_combine(used.from_host(second), used.from_host(first)))
    np.testing.assert_array_equal(one, CPU.hash_combine(first, second))
    assert not (one == other).any()
    assert len(np.unique(one)) == 1000


@pytest.mark.parametrize("parts", [1, 3, 130])
def test_owner_of(used: Backend, parts: int) -> None:
    hashes = CPU.hash_keys(np.arange(100_000, dtype=np.uint64), 0)
    owners = used.to_host(used.owner_of(used.from_host(hashes), parts))
    assert owners.dtype == np.uint32
    expected = [int(each) * parts >> 64 for each in hashes[:1000]]
    np.testing.assert_array_equal(owners[:1000], expected)
    assert np.bincount(owners, minlength=parts).min() > 0.8 * len(hashes) / parts


def test_no_rows(used: Backend) -> None:
    none = used.from_host(np.empty(0, np.uint64))
    assert used.hash_keys(none, 0).shape == (0,)
    assert used.hash_combine(none, none).shape == (0,)
    assert used.owner_of(none, 4).shape == (0,)
    offsets, chars = used.from_host(np.zeros(1, np.int64)), used.from_host(np.empty(0, np.uint8))
    assert used.hash_strings(offsets, chars, 0).shape == (0,)


def test_combining_different_lengths(used: Backend) -> None:
    short, long = (used.from_host(np.zeros(n, np.uint64)) for n in (2, 3))
    with pytest.raises(ShapeError, match="2 and 3"):
        used.hash_combine(short, long)


@pytest.mark.parametrize("owners", [1, 2, 3, 4, 8, 64])
@pytest.mark.parametrize("regions", [1, 5, 700, 40_960, 65_536, 300_001])
def test_ranges_of_regions(used: Backend, owners: int, regions: int) -> None:
    """Each region is in one range, and both passes have about as many parts."""
    most = ANY_ORDER_PARTS[used.name]
    buckets = regions * 16 - 3
    made = bucket_order.RegionRanges.of(used, buckets=buckets, seed=1, owners=owners, shift=4)
    if made is None:
        assert regions * owners > most**2 * 2
        return
    assert made.number * owners <= most
    assert made.each <= most
    spans = [made.regions(first, 1) for first in range(made.number)]
    assert spans[0][0] == 0
    assert all(first + number == start for (first, number), (start, _) in itertools.pairwise(spans))
    assert sum(spans[-1]) == regions
    assert all(number > 0 for _, number in spans)
    assert made.part_shift == 0 or owners * regions >> made.part_shift - 1 > (most - owners) ** 2


def test_pieces_of_runs() -> None:
    """As many as fill a device's blocks, and no more than pay."""
    pieces = partition_pass._pieces
    assert pieces(1, 10_000, 132) == 132
    assert pieces(132, 1000, 132) == 1
    assert pieces(66, 40, 132) == 2
    assert pieces(100, 40, 132) > 1
    assert pieces(1000, 3, 132) == 1
    assert pieces(1, 4.2, 132) == 5
    assert pieces(3, 0.1, 132) == 1
