"""Files of k-mer indexes: rule, settings, arrays, targets and taxonomy in one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dgpuhash.errors import FormatError
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.serialization import Buffers, header_of, map_file, write_file

__all__ = ["SavedIndex", "read_index", "rule_of", "write_index"]

_KIND = "kmer index"
_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_BYTE = np.dtype(np.uint8)
# Arrays of targets by the names of their fields.
_COLUMNS: dict[str, np.dtype[Any]] = {
    "file_of": _INT32,
    "record_in_file": _INT64,
    "lengths": _INT64,
    "taxids": _INT64,
}


class SavedIndex(NamedTuple):
    """What is in the file of an index.

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


def write_index(
    path: str | os.PathLike[str],
    *,
    rule: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    taxonomy: Taxonomy | None,
    targets: Targets,
    told: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write an index to one file, whole or not at all.

    Parameters
    ----------
    path : path or fsspec URL
        By custom its name ends in ``.dgki``.
    rule : str
        ``"metacache"`` or ``"kraken2"``.
    settings, told : mapping
        What JSON can hold.
    arrays : mapping of arrays
        On the host. Of a mapping that makes its arrays as it is asked, one is there at a time.
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
    beside["targets names"], beside["targets name ends"] = _packed(targets.names)
    write_file(path, header, _Joined(arrays, beside), overwrite=overwrite)


class _Joined(Mapping[str, np.ndarray]):
    """Arrays of an index, as they are asked for, and those beside them."""

    def __init__(self, arrays: Mapping[str, np.ndarray], beside: Mapping[str, np.ndarray]) -> None:
        self._arrays, self._beside = arrays, beside
        self._names = [*(f"index {name}" for name in arrays), *beside]

    def __getitem__(self, name: str) -> np.ndarray:
        return self._beside[name] if name in self._beside else self._arrays[name[len("index ") :]]

    def __iter__(self) -> Any:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_index(path: str | os.PathLike[str], rule: str | None = None) -> SavedIndex:
    """Return what `write_index` wrote, after its checksums were found right.

    Parameters
    ----------
    path : path or fsspec URL
    rule : str, optional
        The rule that it must have.

    Raises
    ------
    FormatError
        When the file is another one, of another rule, or damaged.
    OSError
        When it is not there, or cannot be read.
    """
    name = os.fspath(path)
    header, raw, _ = map_file(path)
    _check_kind(name, header)
    if rule is not None and header["rule"] != rule:
        raise FormatError(
            f"{name} is an index of the rule {header['rule']!r}, and {rule!r} was asked for; pass "
            "another file, or load it as what it is"
        )
    beside = Buffers(name, raw)
    taxonomy = None
    if "taxonomy" in header:
        taxonomy = Taxonomy.from_arrays(header["taxonomy"], beside)
    names = _unpacked(beside)
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
    # Columns outlive the file's map, and may be written to.
    copies = {field: column.copy() for field, column in columns.items()}
    targets = Targets(names=names, files=list(header["files"]), **copies)
    own = {key[len("index ") :]: array for key, array in raw.items() if key.startswith("index ")}
    return SavedIndex(
        header["rule"], header["settings"], Buffers(name, own), taxonomy, targets, header["told"]
    )


def rule_of(path: str | os.PathLike[str]) -> str:
    """Return the rule of an index in a file; its arrays are not read.

    Raises
    ------
    FormatError
        When the file is another one.
    OSError
        When it is not there.
    """
    header = header_of(path)
    _check_kind(os.fspath(path), header)
    return str(header["rule"])


def _check_kind(name: str, header: Mapping[str, Any]) -> None:
    if header.get("kind") != _KIND:
        raise FormatError(
            f"{name} is no index of sequences; pass what SketchIndex.save or MinimizerIndex.save "
            "wrote"
        )


def _packed(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return text as bytes, and where each begins."""
    coded = [name.encode("utf-8", "surrogateescape") for name in names]
    ends = np.zeros(len(names) + 1, _INT64)
    np.cumsum([len(name) for name in coded], out=ends[1:])
    return np.frombuffer(b"".join(coded), _BYTE), ends


def _unpacked(buffers: Buffers) -> list[str]:
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
