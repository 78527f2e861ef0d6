"""Choose the placement of a new index, by the user's option or its size."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import dask.dataframe as dd
from distributed import Client

from dgpuhash import config
from dgpuhash.distributed.ingest.source import persisted_futures
from dgpuhash.distributed.partition.conflict import Conflict, parse_conflict
from dgpuhash.distributed.partition.descriptor import Placement
from dgpuhash.distributed.partition.row_order import check_arrival_column
from dgpuhash.errors import SpecError
from dgpuhash.frames import frames_of

# What `mode="auto"` copies to every worker; by default 2**20 pairs of 8 + 8 bytes, whose table is
# in the L2 cache of a GPU and takes little of any worker's memory. Two processes over TCP build
# copies of 16 MiB in 0.34 s more, and merge 4 Mi rows with them in 0.42 s less; of 64 MiB 1.3 s
# more, 0.1 less.
REPLICATED = "placement.replicate"

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """The user's choice of placement for a new index.

    Attributes
    ----------
    placement : Placement or None
        None: chosen by the size of the rows.
    conflict : Conflict
    unique : bool or None
    """

    placement: Placement | None
    conflict: Conflict
    unique: bool | None

    @classmethod
    def of(cls, mode: str, replicated: bool, conflict: str, unique: bool | None) -> PlacementChoice:
        """Return the choice for the options of `DistributedIndex.build`.

        Raises
        ------
        SpecError
            When an option is unknown, or two contradict each other.
        """
        if not isinstance(unique, bool | None):
            raise SpecError(f"unique={unique!r}; give True, False or None")
        modes = [placement.value for placement in Placement]
        if mode not in [AUTO, *modes]:
            named = ", ".join(map(repr, [AUTO, *modes]))
            raise SpecError(f"mode={mode!r}; use one of {named}")
        if not isinstance(replicated, bool):
            raise SpecError(f"replicated={replicated!r}; use True or False")
        if replicated:
            if mode not in (Placement.DISTRIBUTED.value, Placement.REPLICATED.value):
                raise SpecError(f"mode={mode!r} with replicated=True; give one of them")
            mode = Placement.REPLICATED.value
        rule = parse_conflict(conflict)
        if rule is not Conflict.ERROR:
            if mode != Placement.INDEPENDENT.value:
                raise SpecError(
                    f"conflict={conflict!r} with mode={mode!r}: only independent shards can have "
                    f"two rows of a unique key; leave conflict= out, or build with "
                    f"mode='independent'"
                )
            if unique is False:
                raise SpecError(
                    f"conflict={conflict!r} with unique=False; leave conflict= out to get all rows "
                    "of a key, or give unique=True to get one"
                )
            unique = True
        return cls(None if mode == AUTO else Placement(mode), rule, unique)

    def check(self, source: Any, meta: Any, names: Sequence[Hashable]) -> None:
        """Raise ColumnError when this choice does not suit the rows of `source`.

        `meta` is an empty frame like them.
        """
        if self.placement is Placement.INDEPENDENT:
            check_arrival_column(source)
        self.conflict.check(meta, names)

    def place(
        self, client: Client, rows: Any, columns: Sequence[Hashable], workers: int
    ) -> tuple[Placement, str]:
        """Return the placement of `rows`, and the reason if chosen by size.

        `workers` is the number of workers.
        """
        if self.placement is not None:
            return self.placement, ""
        if workers == 1:
            return Placement.DISTRIBUTED, "auto: one worker"
        nbytes = known_nbytes(client, rows, columns)
        if nbytes is None:
            return Placement.DISTRIBUTED, "auto: size unknown before the rows are read"
        # Rounded up, so that what is more than the limit reads so.
        limit, size = config.nbytes(REPLICATED), f"{ceil(nbytes / 2**20 * 10) / 10} MiB"
        if nbytes <= limit:
            return Placement.REPLICATED, f"auto: {size}, at most {limit >> 20}"
        return Placement.DISTRIBUTED, f"auto: {size}, more than {limit >> 20}"


def known_nbytes(client: Client, rows: Any, columns: Sequence[Hashable]) -> int | None:
    """Return the bytes of these columns, if known without reading them.

    For a persisted frame the bytes of all columns.
    """
    if not isinstance(rows, dd.DataFrame):
        return frames_of(rows).nbytes(rows[list(columns)])
    futures = persisted_futures(rows)
    if futures is None or any(future.status != "finished" for future in futures):
        return None
    return sum(client.nbytes([future.key for future in futures], summary=False).values())
