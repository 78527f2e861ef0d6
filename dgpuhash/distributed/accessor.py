"""``ddf.dgpuhash``: the verbs of an index on the Dask DataFrame that is merged with it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dask.dataframe.extensions import register_dataframe_accessor

from dgpuhash.distributed.index import DistributedIndex
from dgpuhash.distributed.sparing import Switch
from dgpuhash.errors import UnsupportedError

__all__ = ["IndexAccessor"]


@register_dataframe_accessor("dgpuhash")
class IndexAccessor:
    """What ``ddf.dgpuhash`` offers, once `dgpuhash.distributed` is imported."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def merge(
        self,
        index: DistributedIndex,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: str = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: tuple[str | None, str | None] = ("_x", "_y"),
        persist: bool = False,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> Any:
        """This frame merged with `index`; see `DistributedIndex.merge`."""
        if not isinstance(index, DistributedIndex):
            raise UnsupportedError(
                f"a {type(index).__name__} is no index; make one of it with "
                "DistributedIndex.build(frame, on=…)"
            )
        return index.merge(
            self._frame, on, left_on=left_on, how=how, columns=columns, suffixes=suffixes,
            persist=persist, bloom_filter=bloom_filter, deduplicate=deduplicate,
        )  # fmt: skip
