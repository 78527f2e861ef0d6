"""Method ``auto``: open addressing with buckets of a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.spec import TableSpec
from dgpuhash.tables.bucket_list.storage import ListStorage
from dgpuhash.tables.open_addressing.growth import Storage
from dgpuhash.tables.stores.method import VERBS, Method
from dgpuhash.tables.stores.whole.ids import GroupIds


class Auto:
    """Opener of tables of this package's own design."""

    @classmethod
    def open(
        cls,
        backend: Backend,
        spec: TableSpec,
        key: np.dtype[Any],
        value: np.dtype[Any] | None,
        capacity: int,
    ) -> Storage | ListStorage | GroupIds:
        """Implement `Opens.open`."""
        if spec.kind == "ids":
            return GroupIds(backend, key, spec.seed)
        if spec.kind == "multimap":
            return ListStorage(backend, spec, key, capacity)
        return Storage(
            backend, key, value, max_load=spec.max_load, seed=spec.seed, capacity=capacity
        )


METHODS = (
    Method(
        name="auto",
        paper="",
        section="",
        nouns={"set": Auto, "map": Auto, "multimap": Auto, "ids": Auto},
        when="always, unless another fits better",
        verbs=(*VERBS, "lca"),
        records=True,
        uses=("open_", "region_", "list_", "group_"),
    ),
)
