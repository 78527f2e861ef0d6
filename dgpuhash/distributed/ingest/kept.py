"""What an index keeps of frames, found once for all that are alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd

from dgpuhash.distributed.cluster.serialization import kind_of_meta, remember
from dgpuhash.distributed.ingest.source import meta_of
from dgpuhash.frames import KeyEncoder, kept_columns, key_names
from dgpuhash.frames.labels import column_labels

__all__ = ["Kept"]

# Kinds of frames that are remembered, with the columns that were asked for.
KINDS = 8
_known: dict[str, Kept] = {}


@dataclass(frozen=True, slots=True)
class Kept:
    """The columns that are kept.

    Attributes
    ----------
    names : tuple of labels
        The key columns.
    meta : DataFrame
        An empty frame like the stored rows.
    encoder : KeyEncoder
        With seeds of its own, also where all else is shared.
    """

    names: tuple[Hashable, ...]
    meta: Any
    encoder: KeyEncoder

    @classmethod
    def of(
        cls,
        collection: Any,
        on: Hashable | Sequence[Hashable],
        columns: Sequence[Hashable] | None,
    ) -> Kept:
        """What an index of `collection` keeps; see `DistributedIndex.build`.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing or doubled, or cannot be a key.
        """
        meta = meta_of(collection)
        # The empty frame of a client's own frame would hold all its rows.
        kind = kind_of_meta(meta) if isinstance(collection, dd.DataFrame) else None
        # Long indexes and arrays of labels are shortened where they are shown.
        wanted = None if columns is None else tuple(column_labels(columns))
        asked = repr((kind, on, wanted))
        found = None if kind is None else _known.get(asked)
        if found is None:
            names = key_names(meta, on)
            stored = meta[kept_columns(meta, names, wanted)].iloc[:0]
            found = cls(names, stored, KeyEncoder.for_frame(stored, list(names)))
            if kind is not None:
                remember(_known, asked, found, KINDS)
        return replace(found, encoder=found.encoder.reseeded())
