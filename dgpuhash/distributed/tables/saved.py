"""Save tables as a folder: an Arrow file for each shard and a manifest.

There is no pickle in it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import dask
from distributed import Client

from dgpuhash.distributed.partition.table_mode import DISTRIBUTED, TableMode
from dgpuhash.distributed.storage.arrow_files import RowsFile, delayed_batches, to_numpy
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.distributed.storage.manifest import SavedShards
from dgpuhash.distributed.tables.batch import AnswerColumn, KeyBatch, StoredColumn, wait_for_chunks
from dgpuhash.errors import DgpuhashError
from dgpuhash.frames.keys.seeds import LEGACY, is_seed
from dgpuhash.spec import TableSpec
from dgpuhash.tables import checked_spec
from dgpuhash.tables.arguments.checksums import to_checked_json

if TYPE_CHECKING:
    from distributed import Future


# Independent tables have version 2, so that releases that know only owners do not read them.
VERSIONS = {False: 1, True: 2}


@dataclass(frozen=True, slots=True)
class SavedTable(SavedShards):
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
    shards : tuple of RowsFile
        One for each shard.
    mode : TableMode
    """

    what = "table"
    versions = (min(VERSIONS.values()), max(VERSIONS.values()))

    spec: TableSpec
    owner_seed: int
    size: int
    uid: str
    epoch: int
    shards: tuple[RowsFile, ...]
    mode: TableMode = DISTRIBUTED

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON, with a checksum of itself."""
        body = {
            "spec": self.spec.to_json(),
            "owner_seed": self.owner_seed,
            "size": self.size,
            "uid": self.uid,
            "epoch": self.epoch,
            "parts": [asdict(rows) for rows in self.shards],
        }
        if self.mode.independent:
            body |= self.mode.to_json()
        return to_checked_json(self.what, VERSIONS[self.mode.independent], body)

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> Self:
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
            spec = checked_spec(TableSpec.from_json(body["spec"]))
            mode = DISTRIBUTED
            if "mode" in body:
                mode = TableMode.of(body["mode"], body["conflict"], spec.value)
        except DgpuhashError as error:
            raise ValueError(str(error)) from error
        return cls(spec, owner_seed, size, body["uid"], body["epoch"], files, mode)


class SavedBatch(KeyBatch):
    """Batch of the entries in a saved table's files, read by the workers.

    Parameters
    ----------
    client : distributed.Client
    workers : sequence of str
        Workers that may read.
    folder : Folder
    spec : TableSpec
    files : sequence of RowsFile
    homes : sequence of (sequence of str), optional
        Workers that store each file's rows, in order; None: those that read them.
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
        homes: Sequence[Sequence[str]] | None = None,
    ) -> None:
        dtypes = [spec.key] if spec.value is None else [spec.key, spec.value]
        batches = delayed_batches(folder.url, files, to_numpy, dtypes)
        column = dask.delayed(operator.getitem, pure=False)
        tasks = [[column(batch, number) for batch in batches] for number in range(len(dtypes))]
        self.rows: list[int] = [rows for file in files for rows in file.batches]
        places = [list(workers)] * len(batches)
        if homes is not None:
            shares = zip(files, homes, strict=True)
            places = [[each] for file, there in shares for each in _spread(there, file)]
        self.columns: list[list[Future[Any]]] = [
            [client.compute(task, workers=place) for task, place in zip(each, places, strict=True)]
            for each in tasks
        ]
        wait_for_chunks(client, workers, [future for each in self.columns for future in each])

    def answer(self, client: Client, shown: AnswerColumn, kept: StoredColumn) -> Any:
        raise AssertionError("nobody asks for an answer to what is saved")


def homes_of(
    files: Sequence[RowsFile], workers: Sequence[str]
) -> list[tuple[list[RowsFile], list[list[str]]]]:
    """Assign files to workers, in batches with at most one file per worker.

    The order of the files is that of the workers.

    Examples
    --------
    >>> files = [RowsFile(name, 0, "", (5, 5)) for name in "abc"]
    >>> [homes for _, homes in homes_of(files, ["tcp://0", "tcp://1"])]
    [[['tcp://0'], ['tcp://1']], [['tcp://0']]]
    """
    batches: list[tuple[list[RowsFile], list[list[str]]]] = []
    given: Counter[int] = Counter()
    for number, file in enumerate(files):
        first, stop = (each * len(workers) // len(files) for each in (number, number + 1))
        if given[first] == len(batches):
            batches.append(([], []))
        of_batch, homes = batches[given[first]]
        of_batch.append(file)
        homes.append(list(workers[first : max(stop, first + 1)]))
        given[first] += 1
    return batches


def _spread(workers: Sequence[str], file: RowsFile) -> list[str]:
    """Return a worker for each batch of a file, in order."""
    batches = len(file.batches)
    return [workers[number * len(workers) // batches] for number in range(batches)]
