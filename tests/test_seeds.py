"""Where seeds come from."""

from __future__ import annotations

import pytest

from dgpuhash.errors import SpecError
from dgpuhash.seeds import VARIABLE, draw_seed, seed_of_generation


def test_seeds_are_drawn(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    drawn = {draw_seed() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 <= seed < 2**64 for seed in drawn)
    assert max(drawn) > 2**60


@pytest.mark.parametrize(("text", "seed"), [("7", 7), ("0x10", 16), (str(2**64 - 1), 2**64 - 1)])
def test_the_environment_fixes_them(monkeypatch, text, seed):
    monkeypatch.setenv(VARIABLE, text)
    assert draw_seed() == draw_seed() == seed


@pytest.mark.parametrize("text", ["seven", "-1", str(2**64), "1.5"])
def test_what_is_no_seed_is_named(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(SpecError, match=r"DGPUHASH_SEED=.*unset it"):
        draw_seed()


def test_generations_have_seeds_of_their_own():
    seeds = [seed_of_generation(seed, number) for seed in (0, 1, 2**64 - 1) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert seed_of_generation(5, 0) == 5
