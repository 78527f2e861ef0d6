"""Look up the taxids of accessions in files too large for memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dgpuhash.backend.native import native
from dgpuhash.errors import SequenceError, TaxonomyError
from dgpuhash.kmer.sequences.ahead import threads_of_a_generator
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, strings_of
from dgpuhash.kmer.sequences.files import text_of
from dgpuhash.kmer.taxonomy.gtdb import gtdb_lineage, gtdb_taxid

# Of text; what is read of it takes a few times as much.
BLOCK_NBYTES = 2**23
_THREADS = 4
_LEAST_BITS, _MOST_BITS = 20, 28
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_Made = TypeVar("_Made")
_ACCESSION = re.compile(r"[A-Z]{1,6}_?[A-Z]{0,6}[0-9]+\.[0-9]+")
_VERSION = re.compile(r"\.[0-9]+$")
_GTDB_PREFIX = re.compile(r"^(?:RS|GB)_(GC[AF]_)")
_REMEDY = "download the file again, or correct the line"


class Accession(NamedTuple):
    """Entry of a file for a wanted accession.

    Attributes
    ----------
    distance : int
        0 of the same text, 1 with another version or none, 2 with ``NZ_`` in one of both.
    taxid : int
    file : str
    line : int

    Examples
    --------
    >>> Accession(0, 562, "nucl_gb.accession2taxid", 2).place
    'nucl_gb.accession2taxid, line 2'
    """

    distance: int
    taxid: int
    file: str
    line: int

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}, line {self.line}"


def accession_key(name: str) -> str:
    """Return a name without its version suffix and without ``NZ_``.

    Examples
    --------
    >>> accession_key("NZ_CP017438.1")
    'CP017438'
    """
    return _VERSION.sub("", name).removeprefix("NZ_")


def taxids_of(wanted: Iterable[str], files: Sequence[str]) -> dict[str, list[Accession]]:
    """Return the entries of files for each wanted name.

    Files are read once, a block at a time; what is not wanted is not kept.

    Parameters
    ----------
    wanted : iterable of str
        Accessions with or without version and ``NZ_``, or other names of sequences and files.
    files : sequence of str
        Compressed or not: NCBI's ``accession2taxid``, assembly_summary.txt, a taxonomy of GTDB, or
        two columns, name and taxid.

    Raises
    ------
    TaxonomyError
        When a line has no taxid, or a file is damaged or has none of these forms.
    OSError
        When a file cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "map.tsv")
    >>> _ = file.write_text("NC_000913\\t511145\\nNC_003197\\t99287\\n")
    >>> [each.taxid for each in taxids_of(["NC_000913.3", "X"], [str(file)])["NC_000913.3"]]
    [511145]
    """
    by_key: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(wanted):
        key = accession_key(name)
        by_key[key] = (*by_key.get(key, ()), name)
    found: dict[str, list[Accession]] = {}
    if not by_key:
        return found
    keys = _Keys(by_key)
    for file in files:
        for there, line, taxid in _hits(file, keys):
            for name in by_key[accession_key(there)]:
                if _is_another(name, there):
                    continue
                each = Accession(_distance(name, there), taxid, file, line)
                others = found.setdefault(name, [])
                # A file may say the same of each of many sequences.
                if not any(each[:2] == other[:2] for other in others):
                    others.append(each)
    return found


def _distance(name: str, there: str) -> int:
    if name == there:
        return 0
    return 1 if name.startswith("NZ_") == there.startswith("NZ_") else 2


def _is_another(name: str, there: str) -> bool:
    """Return whether contig.1 and contig.2 are two names, rather than versions of one."""
    versions = {found[0] for found in map(_VERSION.search, (name, there)) if found}
    return len(versions) > 1 and not _ACCESSION.fullmatch(name.removeprefix("NZ_"))


class _Form(NamedTuple):
    """Format of a file: its columns, its separator, and its header line if any."""

    name: int
    taxid: int
    delimiter: str
    is_gtdb: bool
    header: str


def _form_of(file: str, head: str) -> _Form:
    """Return the format of a file by its first lines."""
    for line in head.splitlines():
        titles = line.lstrip("#").strip().lower().split("\t")
        if "taxid" in titles:
            for title in ("assembly_accession", "accession", "accession.version"):
                if title in titles:
                    return _Form(titles.index(title), titles.index("taxid"), "\t", False, line)
        if line.startswith("#") or not line.strip():
            continue
        delimiter = "\t" if "\t" in line else " "
        fields = line.strip().split(delimiter)
        if len(fields) < 2:
            break
        if fields[1].startswith("d__"):
            return _Form(0, 1, "\t", True, "")
        return _Form(0, 1 if len(fields) == 2 else 2, delimiter, False, "")
    raise TaxonomyError(
        f"{file}: its first line is not an accession and a taxid; pass an accession2taxid file, "
        "assembly_summary.txt, a taxonomy of GTDB, or names and taxids with a tab between them"
    )


def _hits(file: str, keys: _Keys) -> Iterator[tuple[str, int, int]]:
    """Yield the name, line and taxid of each line with a wanted name."""
    blocks = _blocks(file)
    first = next(blocks, b"")
    form = _form_of(file, first[: 2**16].decode(errors="replace"))

    def work(block: bytes) -> tuple[bytes, list[tuple[str, int, int | str]] | None]:
        return block, _hits_at_once(block, form, keys)

    line = 1
    for block, at_once in _map_blocks(chain([first], blocks), work):
        rows = _hits_by_lines(file, line, block, form, keys) if at_once is None else at_once
        for name, row, text in rows:
            taxid = text if isinstance(text, int) else _taxid_in(text, file, line + row, form)
            # NCBI's files of dead sequences have 0 where no taxon is left.
            if taxid:
                yield name, line + row, taxid
        line += block.count(b"\n")


def _map_blocks(blocks: Iterable[bytes], work: Callable[[bytes], _Made]) -> Iterator[_Made]:
    """Yield the result of `work` for each block in order; Arrow works without the GIL."""
    threads = min(_THREADS, native().threads())
    running: deque[Future[_Made]] = deque()
    with threads_of_a_generator(threads, "dgpuhash-accessions") as pool:
        for block in blocks:
            running.append(pool.submit(work, block))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _blocks(file: str) -> Iterator[bytes]:
    """Yield the text in blocks of whole lines."""
    parts: list[bytes] = []
    size = 0
    try:
        for text in text_of(file):
            parts.append(text)
            size += len(text)
            if size >= BLOCK_NBYTES and b"\n" in text:
                block, _, rest = b"".join(parts).rpartition(b"\n")
                yield block + b"\n"
                parts, size = [rest], len(rest)
    except SequenceError as error:
        raise TaxonomyError(str(error)) from error
    rest = b"".join(parts)
    if rest.strip():
        yield rest


def _hits_at_once(
    block: bytes, form: _Form, keys: _Keys
) -> list[tuple[str, int, int | str]] | None:
    """Return the wanted rows of a block, or None if one of its lines is irregular."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    text, skipped = block, 0
    header = form.header.encode()
    while text[:1] in (b"#", b"\n", b"\r") or (header and text.startswith(header)):
        text, skipped = text.partition(b"\n")[2], skipped + 1
    if not text:
        return []
    taxid = pa.string() if form.is_gtdb else pa.int64()
    types = {f"f{form.name}": pa.string(), f"f{form.taxid}": taxid}
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            read_options=csv.ReadOptions(autogenerate_column_names=True, block_size=2**21),
            parse_options=csv.ParseOptions(delimiter=form.delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(
                include_columns=list(types), column_types=types, strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    names, taxids = (table[name].combine_chunks() for name in types)
    if taxids.null_count or not (form.is_gtdb or pc.min(taxids).as_py() >= 0):
        return None
    # Arrow passes over lines without text, and then lines have other numbers.
    if len(names) != text.count(b"\n") + (not text.endswith(b"\n")):
        return None
    if form.is_gtdb:
        names = pc.replace_substring_regex(names, _GTDB_PREFIX.pattern, r"\1")
    plain = names
    # Most files have accessions without versions.
    if pc.any(pc.match_substring(names, ".")).as_py():
        plain = pc.replace_substring_regex(names, _VERSION.pattern, "")
    rows = keys.rows(plain)
    return list(
        zip(
            names.take(numbers_of(rows)).to_pylist(),
            (rows + skipped).tolist(),
            taxids.take(numbers_of(rows)).to_pylist(),
            strict=True,
        )
    )


class _Keys:
    """Wanted accessions, with a bitmap to skip most others of an array."""

    def __init__(self, keys: Collection[str]) -> None:
        self.all = keys
        self._shift = 64 - min(max(_LEAST_BITS, len(keys).bit_length() + 5), _MOST_BITS)
        self._bits = np.zeros(2 ** (64 - self._shift), bool)
        for prefix in ("", "NZ_"):
            names = strings_of([prefix + key for key in keys])
            self._bits[_hashes(names, self._shift)] = True

    def rows(self, names: Any) -> np.ndarray:
        """Return the rows of wanted names in an Arrow array of names without versions."""
        maybe = np.flatnonzero(self._bits[_hashes(names, self._shift)])
        there = names.take(numbers_of(maybe)).to_pylist()
        return maybe[np.array([name.removeprefix("NZ_") in self.all for name in there], bool)]


def _hashes(names: Any, shift: int) -> np.ndarray:
    """Return the high bits of hashes of the first and the last 8 bytes of each name."""
    _, ends, text = names.buffers()
    ends = np.frombuffer(ends, np.int32)[names.offset : names.offset + len(names) + 1]
    raw = np.frombuffer(text or b"", np.uint8)
    if len(raw) < 8:
        raw = np.append(raw, np.zeros(8, np.uint8))
    words = np.ndarray((len(raw) - 7,), "<u8", raw.data, strides=(1,))
    starts, ends = ends[:-1], ends[1:]
    last = words[np.clip(ends - 8, 0, len(words) - 1)]
    first = words[np.minimum(starts, len(words) - 1)]
    mixed = (first * _MULTIPLIER ^ last) * _MULTIPLIER >> np.uint64(shift)
    # What is next to a short name is none of it.
    return np.where(ends - starts < 8, 0, mixed).astype(np.int64)


def _hits_by_lines(
    file: str, first: int, block: bytes, form: _Form, keys: _Keys
) -> Iterator[tuple[str, int, int | str]]:
    for row, line in enumerate(block.decode("utf-8-sig", errors="replace").split("\n")):
        if not line.strip() or line.startswith("#") or line.rstrip("\r") == form.header:
            continue
        fields = line.rstrip("\r").split(form.delimiter if form.delimiter == "\t" else None)
        if len(fields) <= max(form.name, form.taxid):
            raise TaxonomyError(
                f"{file}, line {first + row}: {len(fields)} columns, and "
                f"{max(form.name, form.taxid) + 1} are needed; {_REMEDY}"
            )
        name, text = fields[form.name].strip(), fields[form.taxid].strip()
        if form.is_gtdb:
            name = _GTDB_PREFIX.sub(r"\1", name)
        taxid = _taxid_in(text, file, first + row, form)
        if accession_key(name) in keys.all:
            yield name, row, taxid


def _taxid_in(text: str, file: str, line: int, form: _Form) -> int:
    if form.is_gtdb:
        return gtdb_taxid(gtdb_lineage(text, f"{file}, line {line}")[-1])
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise TaxonomyError(f"{file}, line {line}: {text!r} is not a taxid; {_REMEDY}")
