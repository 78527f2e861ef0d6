"""Seeds of key codes: drawn for each index, saved, no effect on answers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from dgpuhash.frames import FrameIndex, KeyEncoder
from dgpuhash.frames.keys.seeds import LEGACY, LEGACY_COLUMN_SEED, LEGACY_OWNER_SEED, KeySeeds
from dgpuhash.seeds import VARIABLE
from dgpuhash.tables.serialization import read_file, write_file

WORD = 2**64
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
FACTORS = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """Let seeds be drawn, unless a test sets one."""
    monkeypatch.delenv(VARIABLE, raising=False)


def unshifted(words, bits):
    """Invert ``words ^ words >> bits``."""
    found = words
    for _ in range(64 // bits):
        found = words ^ found >> np.uint64(bits)
    return found


def mixed(words):
    """Mix words as `mix` does in the kernels."""
    for factor in FACTORS:
        words = (words ^ words >> np.uint64(33)) * np.uint64(factor)
    return words ^ words >> np.uint64(33)


def unmixed(words):
    """Invert `mixed`."""
    words = unshifted(words, 33)
    for factor in reversed(FACTORS):
        words = unshifted(words * np.uint64(pow(factor, -1, WORD)), 33)
    return words


def second_words(hashes, target):
    """Return the words that turn all `hashes` into one target."""
    return unmixed(np.array([target], np.uint64)) - (hashes ^ hashes >> np.uint64(29)) * MULTIPLIER


def spread(seed):
    return mixed(np.array([seed + int(MULTIPLIER)], np.uint64))


def pairs_of_one_code(n):
    """Return colliding keys of two columns, from the legacy constants."""
    first = np.arange(n, dtype=np.uint64)
    hashes = mixed(first ^ spread(LEGACY_COLUMN_SEED))
    second = unmixed(second_words(hashes, 77)) ^ spread(LEGACY_COLUMN_SEED + 1)
    return pd.DataFrame({"a": first.view("i8"), "b": second.view("i8")})


def texts_of_one_code(n):
    """Return colliding strings of 16 letters, like `pairs_of_one_code`.

    Only strings of ASCII letters are kept.
    """
    rng = np.random.default_rng(0)
    first = rng.integers(0x20, 0x7F, (600 * n, 8), np.uint8).view(np.uint64)[:, 0]
    start = spread(LEGACY_COLUMN_SEED) ^ mixed(np.array([16], np.uint64))
    hashes = mixed((start ^ start >> np.uint64(29)) * MULTIPLIER + first)
    both = np.stack([first, second_words(hashes, 77)], axis=1).view(np.uint8)
    both = both[(both < 0x80).all(axis=1)][:n]
    return pd.DataFrame({"a": pd.Series([row.tobytes().decode() for row in both], dtype="str")})


@pytest.mark.parametrize("chosen", [pairs_of_one_code, texts_of_one_code])
def test_keys_chosen_to_collide_do_not(chosen):
    keys = chosen(1000)
    assert len(keys) == 1000 and not keys.duplicated().any()
    encoder = KeyEncoder.for_frame(keys, list(keys))
    known = KeyEncoder(encoder.names, encoder.types, seeds=LEGACY)
    assert len(np.unique(known.encode(keys).codes)) == 1
    assert len(np.unique(encoder.encode(keys).codes)) == len(keys)
    index = FrameIndex.build(keys.assign(v=np.arange(len(keys))), list(keys))
    assert len(np.unique(index.codes())) == len(keys)
    assert index.merge(keys)["v"].tolist() == list(range(len(keys)))


def test_each_index_has_seeds_of_its_own():
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    made = [FrameIndex.build(frame, ["a", "b"]).encoder for _ in range(20)]
    assert len({seed for each in made for seed in (each.seeds.columns, each.seeds.owners)}) == 40
    assert len({int(each.encode(frame).codes[0]) for each in made}) == 20
    assert made[0].reseeded().seeds != made[0].seeds


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_a_fixed_seed_fixes_all_and_makes_none_the_same(monkeypatch, seed):
    monkeypatch.setenv(VARIABLE, str(seed))
    one, other = KeySeeds.drawn(), KeySeeds.drawn()
    assert one == other
    columns = [one.of_column(position) for position in range(100)]
    assert len({seed, one.owners, *columns}) == 102
    assert all(0 <= each < WORD for each in (one.owners, *columns))


@pytest.mark.parametrize("on", [["a"], ["a", "b"], ["b", "c"], ["c"]])
def test_answers_do_not_depend_on_seeds(monkeypatch, on):
    rng = np.random.default_rng(1)
    right, left = (
        pd.DataFrame(
            {
                "a": pd.Series(rng.choice(["x", "y", None, "zz"], n), dtype="str"),
                "b": rng.integers(0, 9, n) << 40,
                "c": pd.array(rng.integers(0, 5, n), dtype="Int64"),
                name: np.arange(n),
            }
        )
        for n, name in ((200, "v"), (300, "x"))
    )
    left.loc[::7, "c"] = pd.NA
    found = []
    for seed in ("", "0", "1", str(2**63)):
        monkeypatch.setenv(VARIABLE, seed)
        index = FrameIndex.build(right, on)
        answers = [index.merge(left, how=how) for how in ("inner", "left", "semi", "anti")]
        found.append([*answers, index.lookup(left[on]), index.frame()])
    for other in found[1:]:
        for answer, same in zip(found[0], other, strict=True):
            assert_frame_equal(answer, same)


def test_saves_keep_seeds(tmp_path):
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    index = FrameIndex.build(frame, "a")
    index.save(tmp_path / "index.dgph")
    again = FrameIndex.load(tmp_path / "index.dgph")
    assert again.encoder.seeds == index.encoder.seeds
    again.insert(pd.DataFrame({"a": ["z"], "b": [3]}))
    assert again.lookup(["y", "z"])["b"].tolist() == [2, 3]


def test_files_without_seeds_are_those_of_old(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    index = FrameIndex.build(frame, ["a", "b"])
    assert index.encoder.seeds == LEGACY == KeySeeds(0x5EED, LEGACY_OWNER_SEED)
    index.save(tmp_path / "index.dgph")
    header, buffers = read_file(tmp_path / "index.dgph")
    header = {name: header[name] for name in ("kind", "encoder", "unique", "rows")}
    del header["encoder"]["seeds"]
    write_file(tmp_path / "old.dgph", json.loads(json.dumps(header)), buffers)
    monkeypatch.delenv(VARIABLE)
    old = FrameIndex.load(tmp_path / "old.dgph")
    assert old.encoder.seeds == LEGACY
    # As releases that drew no seeds have it.
    assert old.encoder.encode(frame).codes.tolist() == [
        4476239627091425567,
        11179573462442762947,
    ]
    assert_frame_equal(old.merge(frame), index.merge(frame))
