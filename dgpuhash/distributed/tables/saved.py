"""Saved tables: a folder with an Arrow file for each shard and a manifest.

There is no pickle in it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import dask
from distributed import Client

from dgpuhash.distributed.storage.arrow_files import (
    RowsFile,
    check_sizes,
    delayed_batches,
    to_numpy,
)
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import (
    from_checked_json,
    manifest_in,
    required_manifest,
    to_checked_json,
)
from dgpuhash.distributed.tables.batch import AnswerColumn, Batch, StoredColumn, wait_for_chunks
from dgpuhash.errors import DgpuhashError
from dgpuhash.frames.keys.seeds import LEGACY, is_seed
from dgpuhash.spec import TableSpec

__all__ = ["WHAT", "SavedBatch", "SavedTable"]

WHAT = "table"
VERSION = 1


@dataclass(frozen=True, slots=True)
class SavedTable:
    """Manifest of a saved table.

    Attributes
    ----------
    spec : TableSpec
    owner_seed : int
        Seed of the hash that chooses keys' owners.
    size : int
        Entries of all shards.
    uid : str
        Id of the table that was saved.
    epoch : int
        Number of changes of the table when it was saved.
    files : tuple of RowsFile
        One for each shard.
    """

    spec: TableSpec
    owner_seed: int
    size: int
    uid: str
    epoch: int
    files: tuple[RowsFile, ...]

    @classmethod
    def found_in(cls, folder: Folder) -> SavedTable:
        """Return the manifest in a folder.

        The sizes of all files are compared with what it claims.

        Raises
        ------
        FormatError
            When the folder holds no saved table, or a damaged one.
        """
        saved = required_manifest(folder, WHAT, cls._from_bytes)
        check_sizes(folder, saved.files)
        return saved

    @classmethod
    def replaced_in(cls, folder: Folder) -> SavedTable | None:
        """Return the manifest that a save would replace.

        None when the folder is empty, or does not exist.

        Raises
        ------
        ExistsError
            When the folder holds something else.
        """
        return manifest_in(folder, WHAT, cls._from_bytes)

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, with a checksum of itself."""
        body = {
            "spec": self.spec.to_json(),
            "owner_seed": self.owner_seed,
            "size": self.size,
            "uid": self.uid,
            "epoch": self.epoch,
            "parts": [asdict(rows) for rows in self.files],
        }
        return to_checked_json(WHAT, VERSION, body)

    @classmethod
    def _from_bytes(cls, data: bytes, where: str) -> SavedTable:
        return from_checked_json(WHAT, VERSION, data, where, cls._from_body)

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> SavedTable:
        files = tuple(RowsFile.from_json(entry) for entry in body["parts"])
        size = sum(sum(rows.batches) for rows in files)
        if body["size"] != size:
            raise ValueError(f"its parts do not have {body['size']} entries")
        # Releases that drew no seed have saved none.
        owner_seed = body.get("owner_seed", LEGACY.owners)
        plain = type(body["uid"]) is str and type(body["epoch"]) is int
        if not plain or not is_seed(owner_seed):
            raise ValueError("it is malformed")
        try:
            spec = TableSpec.from_json(body["spec"])
        except DgpuhashError as error:
            raise ValueError(str(error)) from error
        return cls(spec, owner_seed, size, body["uid"], body["epoch"], files)


class SavedBatch(Batch):
    """Batch of the entries in a saved table's files, read by the workers.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Workers that may read.
    folder : Folder
    spec : TableSpec
    files : sequence of RowsFile
    """

    device = None
    hosted = True

    def __init__(
        self,
        client: Client,
        workers: Sequence[str],
        folder: Folder,
        spec: TableSpec,
        files: Sequence[RowsFile],
    ) -> None:
        dtypes = [spec.key] if spec.value is None else [spec.key, spec.value]
        batches = delayed_batches(folder.url, files, to_numpy, dtypes)
        column = dask.delayed(operator.getitem, pure=False)
        tasks = [[column(batch, number) for batch in batches] for number in range(len(dtypes))]
        self.rows = [rows for file in files for rows in file.batches]
        self.columns = [client.compute(each, workers=list(workers)) for each in tasks]
        wait_for_chunks(client, workers, [future for each in self.columns for future in each])

    def answer(self, client: Client, shown: AnswerColumn, kept: StoredColumn) -> Any:
        raise AssertionError("nobody asks for an answer to what is saved")
