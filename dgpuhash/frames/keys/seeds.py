"""Seeds of an index's hashes, for encoding keys and for choosing owners."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dgpuhash.seeds import draw_seed

# XORed with a drawn seed so that the hashes of an index and those of tables differ. On their own
# they are the seeds of files from before seeds were drawn.
LEGACY_OWNER_SEED = 0x0DD_5EED
LEGACY_COLUMN_SEED = 0x5EED


@dataclass(frozen=True, slots=True)
class KeySeeds:
    """Hash seeds of one index, the same in every process and in its saves.

    They are drawn for each index and never change. An attacker who knows them, from a save or
    because ``DGPUHASH_SEED`` is set, can choose hashed keys, such as pairs of integers, that all
    have one code: answers stay right, but work and memory become quadratic in the number of such
    keys.

    Attributes
    ----------
    columns : int
        Seed of the hash of the first key column; each further column has the next number.
    owners : int
        Seed of the hash of a code that chooses its owner.
    """

    columns: int
    owners: int

    @classmethod
    def drawn(cls) -> KeySeeds:
        """Return unpredictable seeds, unless ``DGPUHASH_SEED`` fixes them.

        Examples
        --------
        >>> seeds = KeySeeds.drawn()
        >>> KeySeeds.from_json(seeds.to_json()) == seeds
        True
        """
        return cls(draw_seed() ^ LEGACY_COLUMN_SEED, draw_owner_seed())

    def of_column(self, position: int) -> int:
        """Return the seed of the key column at `position`."""
        return (self.columns + position) % 2**64

    def to_json(self) -> dict[str, int]:
        """Return a dictionary of plain values for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Any) -> KeySeeds:
        """Return the seeds that `to_json` described.

        Raises TypeError or ValueError when `saved` describes no seeds.
        """
        made = cls(**saved)
        if not is_seed(made.columns) or not is_seed(made.owners):
            raise ValueError(f"no seeds are {saved!r}")
        return made


LEGACY = KeySeeds(LEGACY_COLUMN_SEED, LEGACY_OWNER_SEED)


def draw_owner_seed() -> int:
    """Return a seed for the owners of keys, different from a table's seed.

    Owner and home slot both come from the top bits of a hash: with the same seed, all keys of one
    owner would start in one region of its table.
    """
    return draw_seed() ^ LEGACY_OWNER_SEED


def is_seed(number: Any) -> bool:
    """Return whether `number`, read from a file, can be a seed."""
    return type(number) is int and 0 <= number < 2**64
