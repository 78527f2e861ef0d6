"""Write and read k-mer index files: rule, settings, arrays, targets and taxonomy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import FormatError
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.tables.arguments.file_layout import LATER_VERSION, VERSION, interpreting
from dgpuhash.tables.serialization import Buffers, header_of, map_file, write_file

_KIND = "kmer index"
_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_BYTE = np.dtype(np.uint8)
_SUM_NBYTES = 32
_OWN = "index "
# Arrays of an index that are of no part, and are read with its targets.
_WHOLE = {f"{_OWN}distributions"}
# Arrays that files of version 2 do not have.
_LATER = {"taxon words"}
# The array of which each part has its own from 0 on.
_ENDS = "offsets"
# Arrays of targets by the names of their fields.
_COLUMNS: dict[str, np.dtype[Any]] = {
    "file_of": _INT32,
    "record_in_file": _INT64,
    "lengths": _INT64,
    "taxids": _INT64,
}


class SavedIndex(NamedTuple):
    """Contents of an index file.

    Attributes
    ----------
    rule : str
        ``"metacache"`` or ``"kraken2"``.
    settings : dict
        Those that the index was built with.
    arrays : Buffers
        The arrays by their names; they are in the map of a local file, and not to be changed.
    taxonomy : Taxonomy or None
    targets : Targets
    told : dict
        What else is known: where the references came from, what was counted.
    """

    rule: str
    settings: dict[str, Any]
    arrays: Buffers
    taxonomy: Taxonomy | None
    targets: Targets
    told: dict[str, Any]

    @property
    def parts(self) -> list[Buffers]:
        """The arrays of each part in the file; files of one device have one part."""
        return self.arrays.parts if isinstance(self.arrays, PartBuffers) else [self.arrays]


def write_index(
    path: str | os.PathLike[str],
    *,
    rule: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray | Pieces],
    taxonomy: Taxonomy | None,
    targets: Targets,
    told: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write an index to one file atomically.

    Parameters
    ----------
    path : path or fsspec URL
        By custom its name ends in ``.dgki``.
    rule : str
        ``"metacache"`` or ``"kraken2"``.
    settings, told : mapping
        What JSON can hold.
    arrays : mapping of arrays
        On the host, or in pieces. Of a mapping that makes its arrays as it is asked, one is there
        at a time.
    taxonomy : Taxonomy or None
    targets : Targets
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    ExistsError
        When the file is there already.
    OSError
        When it cannot be written.
    """
    header, beside = head_and_arrays(
        rule=rule, settings=settings, taxonomy=taxonomy, targets=targets, told=told
    )
    version = version_of(arrays)
    write_file(path, header, _Joined(arrays, beside), overwrite=overwrite, version=version)


def version_of(names: Iterable[str]) -> int:
    """Return the format version of a file whose index has arrays of these names."""
    return LATER_VERSION if not _LATER.isdisjoint(names) else VERSION


def head_and_arrays(
    *,
    rule: str,
    settings: Mapping[str, Any],
    taxonomy: Taxonomy | None,
    targets: Targets,
    told: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a file's header, and the arrays besides the index's own; see `write_index`."""
    header: dict[str, Any] = {
        "kind": _KIND,
        "rule": rule,
        "settings": dict(settings),
        "told": dict(told or {}),
        "files": list(targets.files),
    }
    beside: dict[str, np.ndarray] = {}
    if taxonomy is not None:
        header["taxonomy"], beside = taxonomy.to_arrays()
    for name, dtype in _COLUMNS.items():
        beside[f"targets {name}"] = np.asarray(getattr(targets, name), dtype)
    beside["targets names"], beside["targets name ends"] = _pack(targets.names)
    beside["targets sums"] = _digest_bytes(targets.file_sums)
    return header, beside


def name_in_file(name: str, part: int | None = None) -> str:
    """Return the name of an index's array in a file, with the part's number if several."""
    return f"{_OWN}{name}" if part is None else f"{_OWN}{name} {part}"


class _Joined(Mapping[str, np.ndarray | Pieces]):
    """Arrays of an index, loaded on demand, with those besides them."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray | Pieces], beside: Mapping[str, np.ndarray]
    ) -> None:
        self._arrays, self._beside = arrays, beside
        self._names = [*map(name_in_file, arrays), *beside]

    def __getitem__(self, name: str) -> np.ndarray | Pieces:
        return self._beside[name] if name in self._beside else self._arrays[name[len(_OWN) :]]

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_index(
    path: str | os.PathLike[str],
    rule: str | None = None,
    *,
    part: tuple[int, int] | None = None,
    has_arrays: bool = True,
) -> SavedIndex:
    """Return the contents of an index file after verifying its checksums.

    Parameters
    ----------
    path : path or fsspec URL
    rule : str, optional
        The rule that it must have.
    part : (int, int), optional
        Of a file that has as many parts as the second number says, only that of the first one's
        number is read; of others all.
    has_arrays : bool
        Whether arrays of the index are read, beside distributions of reads.

    Raises
    ------
    FormatError
        When the file is another one, of another rule, or damaged.
    OSError
        When it is not there, or cannot be read.
    """
    name = os.fspath(path)
    if part is not None and header_of(path).get("parts") != part[1]:
        part = None

    def is_wanted(buffer: str) -> bool:
        is_read = part is None or buffer.endswith(f" {part[0]}")
        return not buffer.startswith(_OWN) or buffer in _WHOLE or (has_arrays and is_read)

    header, raw, _ = map_file(path, is_wanted)
    with interpreting(path):
        _check_kind(name, header)
        if rule is not None and header["rule"] != rule:
            raise FormatError(
                f"{name} is an index of the rule {header['rule']!r}, but {rule!r} was requested; "
                f"pass another file, or load it with its own rule"
            )
        taxonomy, targets = targets_in(name, header, raw)
        own = {key[len(_OWN) :]: array for key, array in raw.items() if key.startswith(_OWN)}
        numbers = range(header.get("parts", 0)) if part is None else [part[0]]
        arrays = PartBuffers(name, own, numbers) if numbers else Buffers(name, own)
        return SavedIndex(
            header["rule"], header["settings"], arrays, taxonomy, targets, header["told"]
        )


def targets_in(
    name: str, header: Mapping[str, Any], raw: Mapping[str, np.ndarray]
) -> tuple[Taxonomy | None, Targets]:
    """Return the taxonomy and targets from a header and arrays of `head_and_arrays`.

    Parameters
    ----------
    name : str
        Of the file, for errors.
    header : mapping
    raw : mapping of arrays of uint8

    Raises
    ------
    FormatError
        When they are damaged.
    """
    beside = Buffers(name, dict(raw))
    taxonomy = None
    if "taxonomy" in header:
        taxonomy = Taxonomy.from_arrays(header["taxonomy"], beside)
    beside.check(
        type(header["settings"]) is dict
        and all(type(file) is str for file in header["files"])
        and all(_is_plain(key, value) for key, value in header["told"].items()),
        "its header is malformed",
    )
    names = _unpack(beside)
    columns = {field: beside.get(f"targets {field}", _COLUMNS[field]) for field in _COLUMNS}
    beside.check(
        all(len(column) == len(names) for column in columns.values()),
        "its columns of targets differ in length",
    )
    of = columns["file_of"]
    beside.check(
        not len(of) or (of.min() >= 0 and of.max() < len(header["files"])),
        "its targets are of unknown files",
    )
    beside.check(
        bool((columns["record_in_file"] >= 0).all() and (columns["lengths"] >= 0).all()),
        "its targets have numbers or lengths below 0",
    )
    taxids = columns["taxids"]
    beside.check(
        taxonomy is None
        or bool(((taxonomy.tree.numbers(taxonomy.current(taxids)) != 0) | (taxids == 0)).all()),
        "its targets have unknown taxa",
    )
    # Columns outlive the file's map, and may be written to.
    copies = {field: column.copy() for field, column in columns.items()}
    files = list(header["files"])
    sums = _sums_in(beside, len(files)) if "targets sums" in raw else []
    return taxonomy, Targets(names=names, files=files, sums=sums, **copies)


class PartBuffers(Buffers):
    """Arrays of an index file with several parts, readable as whole arrays."""

    def __init__(self, path: str, buffers: dict[str, np.ndarray], numbers: Sequence[int]) -> None:
        super().__init__(path, buffers)
        self.parts: list[Buffers] = [
            Buffers(path, {
                name.removesuffix(f" {part}"): array
                for name, array in buffers.items()
                if name.endswith(f" {part}")
            })
            for part in numbers
        ]  # fmt: skip

    def has(self, name: str) -> bool:
        """Return whether all parts have an array, or it is of no part."""
        return super().has(name) or all(part.has(name) for part in self.parts)

    def get(self, name: str, dtype: np.dtype[Any], length: int | None = None) -> np.ndarray:
        """Return an array of all parts concatenated, or one of no part."""
        if super().has(name):
            return super().get(name, dtype, length)
        pieces = [part.get(name, dtype) for part in self.parts]
        if name == _ENDS:
            self.check(all(map(len, pieces)), f"buffer {name!r} is empty")
            before = np.cumsum([0, *(int(piece[-1]) for piece in pieces)])
            moved = [piece[1:] + start for piece, start in zip(pieces, before, strict=False)]
            pieces = [np.zeros(1, dtype), *moved]
        found = np.concatenate(pieces)
        self.check(
            length in (None, len(found)), f"it has {len(found):,} instead of {length} {name}"
        )
        return found


def nbytes_of(path: str | os.PathLike[str]) -> int:
    """Return the bytes of a file."""
    if "://" not in os.fspath(path):
        return Path(path).stat().st_size
    import fsspec

    system, inner = fsspec.core.url_to_fs(os.fspath(path))
    return int(system.size(inner))


def rule_of(path: str | os.PathLike[str]) -> str:
    """Return the rule of an index file without reading its arrays.

    Raises
    ------
    FormatError
        When the file is another one.
    OSError
        When it is not there.
    """
    header = header_of(path)
    _check_kind(os.fspath(path), header)
    with interpreting(path):
        return str(header["rule"])


def _check_kind(name: str, header: Mapping[str, Any]) -> None:
    if header.get("kind") != _KIND:
        raise FormatError(
            f"{name} is not an index of sequences; pass a file that SketchIndex.save or "
            f"MinimizerIndex.save wrote"
        )


def _is_plain(name: str, told: Any) -> bool:
    """Return whether a header field has its type: notes, steps, or numbers."""
    if name in {"notes", "steps"}:
        kind = str if name == "notes" else dict
        return type(told) is list and all(type(each) is kind for each in told)
    return type(told) is int


def _pack(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as bytes, with the offset of each."""
    coded = [name.encode("utf-8", "surrogateescape") for name in names]
    ends = np.zeros(len(names) + 1, _INT64)
    np.cumsum([len(name) for name in coded], out=ends[1:])
    return np.frombuffer(b"".join(coded), _BYTE), ends


def _unpack(buffers: Buffers) -> list[str]:
    text = buffers.get("targets names", _BYTE)
    ends = buffers.get("targets name ends", _INT64)
    buffers.check(
        len(ends) > 0
        and ends[0] == 0
        and ends[-1] == len(text)
        and bool((np.diff(ends) >= 0).all()),
        "the names of its targets have no ends",
    )
    coded, places = text.tobytes(), ends.tolist()
    return [coded[start:end].decode("utf-8", "surrogateescape") for start, end in pairwise(places)]


def _digest_bytes(sums: list[str]) -> np.ndarray:
    """Return SHA-256 sums as bytes, zeros for unknown ones."""
    packed = b"".join(bytes.fromhex(each).ljust(_SUM_NBYTES, b"\0") for each in sums)
    return np.frombuffer(packed, _BYTE)


def _sums_in(buffers: Buffers, n: int) -> list[str]:
    packed = buffers.get("targets sums", _BYTE, n * _SUM_NBYTES).reshape(n, _SUM_NBYTES)
    return [row.tobytes().hex() if row.any() else "" for row in packed]
