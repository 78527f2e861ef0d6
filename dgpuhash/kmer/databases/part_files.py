"""Save an index from workers: each writes its part of one file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from distributed import Future

from dgpuhash.errors import IndexLost
from dgpuhash.kmer.cluster import Workers
from dgpuhash.kmer.index_file import head_and_arrays, name_in_file, version_of
from dgpuhash.tables.arguments.checksums import as_bytes, digest_of, with_digests
from dgpuhash.tables.arguments.file_layout import buffer_entry, head_of, places_of
from dgpuhash.tables.serialization import check_absent, complete_file

# What of a part is at the client at once, where workers do not see its files.
PIECE_NBYTES = 2**26


@dataclass(frozen=True, slots=True)
class PartArrays:
    """Arrays of a part in file form; a task's result.

    Attributes
    ----------
    arrays : dict of arrays
        On the host.
    digests : dict of str
        Their checksums.
    told : dict
        What a file of this part alone tells.
    """

    arrays: dict[str, np.ndarray]
    digests: dict[str, str]
    told: dict[str, Any]

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.arrays.values()) + 2**10


class _Array(NamedTuple):
    """An array of a part: its name, size and checksum."""

    name: str
    nbytes: int
    digest: str


def part_arrays(arrays: Mapping[str, np.ndarray], **told: Any) -> PartArrays:
    """Return arrays with their checksums, and the header fields that describe them."""
    made = dict(arrays)
    digests = (digest for _, digest in with_digests(made.values()))
    return PartArrays(made, dict(zip(made, digests, strict=True)), told)


def save_parts(
    workers: Workers,
    path: str | os.PathLike[str],
    parts: Sequence[Future],
    *,
    whole: Mapping[str, np.ndarray],
    overwrite: bool = False,
    **others: Any,
) -> None:
    """Write an index to one file atomically, in the format of `read_index`.

    Each worker writes the parts that it has where it sees the file. Where one does not, as on a
    host without this file system, parts come here, and are written here, a piece at a time.

    Parameters
    ----------
    workers : Workers
    path : path or fsspec URL
    parts : sequence of Future
        Of `PartArrays`.
    whole : mapping of arrays
        Those of the index that are of no part.
    overwrite : bool
        Whether a file that is there may be replaced.
    **others
        What else `head_and_arrays` takes.

    Raises
    ------
    ExistsError
        When the file is there already.
    OSError
        When it cannot be written.
    IndexLost
        When a worker was lost that had a part of it.
    """
    check_absent(path, overwrite=overwrite)
    header, beside = head_and_arrays(**others)
    beside |= {name_in_file(name): array for name, array in whole.items()}
    of_parts = workers.results([workers.submit(_description, part) for part in parts])
    held: list[list[_Array]] = [arrays for arrays, _ in of_parts]
    header["told"] |= of_parts[0][1]
    if len(parts) > 1:
        header["parts"] = len(parts)
    entries = [
        buffer_entry(name, array.nbytes, digest)
        for name, (array, digest) in zip(beside, with_digests(beside.values()), strict=True)
    ]
    for number, arrays in enumerate(held):
        names = (name_in_file(each.name, number if len(parts) > 1 else None) for each in arrays)
        entries += [
            buffer_entry(name, each.nbytes, each.digest)
            for name, each in zip(names, arrays, strict=True)
        ]
    head = head_of(header, entries, version_of(each.name for arrays in held for each in arrays))
    places = places_of(len(head), [each["nbytes"] for each in entries])
    with complete_file(path, overwrite) as file:
        file.write(head)
        for place, array in zip(places, beside.values(), strict=False):
            _write_at(file, place, [as_bytes(array)])
        ends = iter(places[len(beside) :])
        begins = [[next(ends) for _ in arrays] for arrays in held]
        if not _written_there(workers, file, head, parts, held, begins, places[-1]):
            for part, arrays, starts in zip(parts, held, begins, strict=True):
                for each, place in zip(arrays, starts, strict=True):
                    _write_at(file, place, _pieces_of(workers, part, each))
            _write_at(file, places[-1], [])


def _written_there(
    workers: Workers,
    file: BinaryIO,
    head: bytes,
    parts: Sequence[Future],
    held: Sequence[list[_Array]],
    places: Sequence[list[int]],
    nbytes: int,
) -> bool:
    """Return whether the workers with the parts see the file and have written them."""
    name = getattr(file, "name", None)
    if not isinstance(name, str) or not Path(name).is_file():
        return False
    file.flush()
    mark = len(head), digest_of(head)
    tasks = [
        workers.submit(_write_part, part, str(Path(name).absolute()), mark, arrays, starts)
        for part, arrays, starts in zip(parts, held, places, strict=True)
    ]
    if not all(workers.results(tasks)):
        return False
    # Empty arrays at the end have no bytes that were written.
    if os.fstat(file.fileno()).st_size < nbytes:
        file.truncate(nbytes)
    return True


def _description(part: PartArrays) -> tuple[list[_Array], dict[str, Any]]:
    return _arrays_in(part), part.told


def _arrays_in(part: PartArrays) -> list[_Array]:
    return [_Array(name, array.nbytes, part.digests[name]) for name, array in part.arrays.items()]


def _write_part(
    part: PartArrays, name: str, mark: tuple[int, bytes], expected: list[_Array], places: list[int]
) -> bool:
    """Write arrays at their offsets in a file; False if this file is not the expected one."""
    _check_same(part, expected)
    try:
        with Path(name).open("r+b", buffering=0) as file:
            if digest_of(file.read(mark[0])) != mark[1]:
                return False
            for each, place in zip(expected, places, strict=True):
                data, at = as_bytes(part.arrays[each.name]), 0
                while at < len(data):
                    at += os.pwrite(file.fileno(), data[at : at + PIECE_NBYTES], place + at)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    return True


def _check_same(part: PartArrays, expected: list[_Array]) -> None:
    """Raise IndexLost if a part was recomputed, with its keys in another order."""
    if not set(expected) <= set(_arrays_in(part)):
        raise IndexLost(
            "a worker was lost while the index was saved, and its part was recomputed; save it "
            "again"
        )


def _pieces_of(workers: Workers, part: Future, array: _Array) -> Iterator[memoryview]:
    for start in range(0, array.nbytes, PIECE_NBYTES):
        yield memoryview(workers.result(workers.submit(_piece_of, part, array, start)))


def _piece_of(part: PartArrays, array: _Array, start: int) -> bytes:
    _check_same(part, [array])
    return bytes(as_bytes(part.arrays[array.name])[start : start + PIECE_NBYTES])


def _write_at(file: BinaryIO, place: int, pieces: Iterable[memoryview]) -> None:
    """Write pieces at an offset of a file, at or behind its present position."""
    file.write(bytes(place - file.tell()))
    for piece in pieces:
        file.write(piece)
