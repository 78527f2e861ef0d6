"""The seeds by which keys become codes, and codes find their owners."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dgpuhash.seeds import draw_seed

__all__ = ["LEGACY", "KeySeeds", "draw_owner_seed", "is_seed"]

# What tells the hash functions of an index, and those of tables, from each other at one drawn seed.
# Alone they are the seeds of what was saved before seeds were drawn.
LEGACY_OWNER_SEED = 0x0DD_5EED
LEGACY_COLUMN_SEED = 0x5EED


@dataclass(frozen=True, slots=True)
class KeySeeds:
    """Drawn for each index, and the same in every process that speaks of it, and in its saves.

    They stay as long as the index. Who knows them, from a save or where ``DGPUHASH_SEED`` is set,
    can choose keys that are hashed, such as pairs of integers, so that all have one code: answers
    stay right, and work and memory become quadratic in the number of such keys.

    Attributes
    ----------
    columns : int
        Of the hash of the first key column; others have the next ones.
    owners : int
        Of the hash of codes that chooses their owners.
    """

    columns: int
    owners: int

    @classmethod
    def drawn(cls) -> KeySeeds:
        """Seeds that nobody can foresee, unless ``DGPUHASH_SEED`` fixes them.

        Examples
        --------
        >>> seeds = KeySeeds.drawn()
        >>> KeySeeds.from_json(seeds.to_json()) == seeds
        True
        """
        return cls(draw_seed() ^ LEGACY_COLUMN_SEED, draw_owner_seed())

    def of_column(self, position: int) -> int:
        """The seed of the key column there."""
        return (self.columns + position) % 2**64

    def to_json(self) -> dict[str, int]:
        """A dictionary of plain values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Any) -> KeySeeds:
        """The seeds that `to_json` described; TypeError or ValueError where these are none."""
        made = cls(**saved)
        if not is_seed(made.columns) or not is_seed(made.owners):
            raise ValueError(f"no seeds are {saved!r}")
        return made


LEGACY = KeySeeds(LEGACY_COLUMN_SEED, LEGACY_OWNER_SEED)


def draw_owner_seed() -> int:
    """A seed for the owners of keys, other than the one that a table then gets.

    Both take the top bits of a hash: with one seed all keys of an owner would begin in one place.
    """
    return draw_seed() ^ LEGACY_OWNER_SEED


def is_seed(number: Any) -> bool:
    """Whether `number`, read from a file, can be a seed."""
    return type(number) is int and 0 <= number < 2**64
