"""The manifest of a saved index: plain JSON, checked before anything it speaks of is touched."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from dgpuhash.distributed.partition.conflict import Conflict
from dgpuhash.distributed.partition.descriptor import Descriptor, Placement
from dgpuhash.distributed.storage.arrow_files import RowsFile
from dgpuhash.distributed.storage.envelope import opened, sealed
from dgpuhash.frames import KeyEncoder, frames_named

__all__ = ["WHAT", "Manifest"]

WHAT = "index"
VERSION = 3
# Saved with seeds that were the same for all indexes, as its encoder then does not say.
OLDEST = 2


@dataclass(frozen=True)
class Manifest:
    """What a saved index is.

    Attributes
    ----------
    name : str
        Of the index that was saved.
    encoder : KeyEncoder
    specimen : pyarrow.Table
        No rows, with the columns, types and categories of the stored ones.
    unique : bool or None
    placement : Placement
    conflict : Conflict
    shards : tuple of RowsFile
    owned : bool
        Whether each file has the rows of the keys that its part owns.
    uid : str
        Of the index that was saved here, or that writes its log here.
    revision : int
        Of the rows in `shards`.
    logged : bool
        Whether changes since then stand in a log beside them.
    """

    name: str
    encoder: KeyEncoder
    specimen: pa.Table
    unique: bool | None
    placement: Placement
    conflict: Conflict
    shards: tuple[RowsFile, ...]
    owned: bool
    uid: str
    revision: int
    logged: bool

    @classmethod
    def of(
        cls, descriptor: Descriptor, shards: Sequence[RowsFile], frames: Any, *, logged: bool
    ) -> Manifest:
        """The manifest of an index whose shards were written."""
        return cls(
            descriptor.name,
            descriptor.encoder,
            frames.to_arrow(descriptor.meta),
            descriptor.unique,
            descriptor.placement,
            descriptor.conflict,
            tuple(shards),
            descriptor.owned,
            descriptor.uid,
            descriptor.revision,
            logged,
        )

    def owned_by(self, uid: str) -> Manifest:
        """The same with another index that goes on with the log."""
        return replace(self, uid=uid, logged=True)

    def meta(self, library: str) -> Any:
        """An empty frame like the stored rows."""
        return frames_named(library).from_arrow(self.specimen)

    def to_bytes(self) -> bytes:
        """JSON, with a checksum of itself."""
        body = {
            "name": self.name,
            "encoder": self.encoder.to_json(),
            "specimen": _to_text(self.specimen),
            "unique": self.unique,
            "placement": self.placement.value,
            "conflict": self.conflict.value,
            "shards": [asdict(shard) for shard in self.shards],
            "owned": self.owned,
            "uid": self.uid,
            "revision": self.revision,
            "logged": self.logged,
        }
        return sealed(WHAT, VERSION, body)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """The manifest that `to_bytes` wrote.

        Raises
        ------
        FormatError
            When it is foreign, newer than this program, or damaged.
        """
        return opened(WHAT, VERSION, data, where, cls._from_body, oldest=OLDEST)

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> Manifest:
        kinds = {"name": str, "uid": str, "revision": int, "owned": bool, "logged": bool}
        right = all(type(body[field]) is kind for field, kind in kinds.items())
        if not right or body["unique"] not in (True, False, None):
            raise ValueError("it is malformed")
        return cls(
            body["name"],
            KeyEncoder.from_json(body["encoder"]),
            _from_text(body["specimen"]),
            body["unique"],
            Placement(body["placement"]),
            Conflict(body["conflict"]),
            tuple(RowsFile.from_json(entry) for entry in body["shards"]),
            body["owned"],
            body["uid"],
            body["revision"],
            body["logged"],
        )


def _to_text(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    columns = [column.combine_chunks() for column in table.columns]
    with pa.ipc.new_stream(sink, table.schema) as writer:
        # A batch, even without rows, carries the categories, which the schema does not.
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=table.schema))
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _from_text(text: str) -> pa.Table:
    stream = pa.ipc.open_stream(pa.py_buffer(base64.b64decode(text, validate=True)))
    table = stream.read_all()
    table.validate(full=True)
    if table.num_rows:
        raise ValueError("its specimen has rows")
    return table
