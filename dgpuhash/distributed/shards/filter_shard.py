"""One worker's shard of a distributed Bloom filter, for a range of hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dgpuhash.distributed.shards.table_shard import Answer, TableShard, Verb
from dgpuhash.distributed.storage.arrow_files import RowsFile, check_file, read_batch, to_numpy
from dgpuhash.spec import TableSpec
from dgpuhash.tables import BloomFilter
from dgpuhash.tables.bloom.blocks import BLOCK_NBYTES, bounds
from dgpuhash.tables.bloom.spec import FilterSize
from dgpuhash.typing import Device

_BLOCK = np.dtype(f"V{BLOCK_NBYTES}")


class FilterShard(TableShard):
    """One rank's shard of a Bloom filter.

    Blocks follow the order of hashes, as owners do, by the same hash: the shard of a rank has the
    blocks of its own keys. Where a bound between ranks lies inside of a block, both have it.

    Parameters
    ----------
    spec : TableSpec
        Of the whole filter.
    device : {"cpu", "cuda"}
    owner_seed : int
        The filter's own seed.
    part, parts : int
        Number of the shard, and of shards.
    """

    kind: ClassVar[str] = BloomFilter.kind

    def __init__(
        self, spec: TableSpec, device: Device, owner_seed: int, part: int, parts: int
    ) -> None:
        self._place = part, parts
        super().__init__(spec, 0, device, owner_seed)

    def _table(self, capacity: int, device: Device) -> BloomFilter:
        spec = replace(self._spec, key_dtype=self.layout.stored_key.str)
        return BloomFilter._range_of(spec, device, *self._place)

    @property
    def size(self) -> int:
        """Blocks of the shard."""
        return int(self.table.nbytes) // BLOCK_NBYTES

    @property
    def n_keys(self) -> int:
        """None, because a filter does not know its keys."""
        return 0

    def has_room(self, rows: int) -> bool:
        return True

    def ready(self) -> None:
        self.table._opened()

    def ranges(self, verb: Verb, like: list[Any], rows: int, owners: int) -> None:
        return None

    def serve(
        self, verb: Verb, columns: list[Any], counts: np.ndarray, to: list[list[Any]]
    ) -> list[Answer]:
        (keys,) = columns
        if verb.name == "contains":
            return [Answer([self.table.contains(keys).view(np.uint8)], counts)]
        self.table.insert(keys)
        return []

    def unite(self, other: FilterShard) -> None:
        """Add the bits of another filter's shard of the same range."""
        self.table |= other.table

    def items(self) -> list[Any]:
        """Return the blocks, as words."""
        return [self.table._opened().words]

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Dtype of a block, as bytes."""
        return [_BLOCK]

    def on_host(self, column: Any) -> np.ndarray:
        return self.backend.to_host(column).view(_BLOCK)

    def read(self, url: str, files: Sequence[RowsFile]) -> None:
        """Set the bits of this range of hashes from the files of a saved filter.

        There may have been another number of shards.

        Raises
        ------
        FormatError
            When a file is damaged.
        """
        store, blocks = self.table._opened(), FilterSize.of(self._spec).blocks
        mine = bounds(blocks, *self._place)
        for number, rows in enumerate(files):
            start, end = bounds(blocks, number, len(files))
            if min(end, mine[1]) <= max(start, mine[0]):
                continue
            check_file(url, rows)
            for batch, count in enumerate(rows.batches):
                first, last = max(start, mine[0]), min(start + count, mine[1])
                if first < last:
                    (saved,) = read_batch(None, url, rows, batch, to_numpy, (self.dtypes,))
                    words = saved[first - start : last - start].view(np.uint64)
                    place = (first - mine[0]) * (BLOCK_NBYTES // words.itemsize)
                    there = store.words[place : place + len(words)]
                    there |= self.backend.from_host(words)
                start += count

    def stats(self) -> dict[str, Any]:
        """Return the fields of `BloomStats`, the device, and the last verb's cost."""
        return {**super().stats(), "details": {}}
