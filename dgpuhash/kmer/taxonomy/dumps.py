"""Read NCBI's taxonomy files: nodes, names, merged and delnodes.dmp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash.errors import TaxonomyError
from dgpuhash.kmer.sequences.arrow_arrays import numbers_of, numpy_of, strings_of
from dgpuhash.kmer.taxonomy.taxa import Taxa
from dgpuhash.kmer.taxonomy.tree import Tree

_REMEDY = "download the taxonomy again"


def taxa_in(home: Path) -> Taxa:
    """Return the taxa in a folder of NCBI's files.

    Raises
    ------
    TaxonomyError
        When a file is missing or malformed, or the taxa are no tree.
    """
    if not home.is_dir():
        raise TaxonomyError(f"{home} is not a folder; name the folder with nodes.dmp")
    (taxids, parents, (codes, ranks)), at = _read_dump(
        home / "nodes.dmp", {0: "int", 1: "int", 2: "label"}
    )
    if not len(taxids):
        raise TaxonomyError(f"{home / 'nodes.dmp'} is empty; download the taxonomy again")
    tree, rows = Tree.of(taxids, parents, at)
    (owners, texts, _), _ = _read_dump(
        home / "names.dmp", {0: "int", 1: "text", 3: "label"}, only="scientific name"
    )
    names = _names_of(tree, owners, texts)
    (old, new), _ = _read_dump(home / "merged.dmp", {0: "int", 1: "int"}, needs=False)
    (deleted,), _ = _read_dump(home / "delnodes.dmp", {0: "int"}, needs=False)
    return Taxa(
        tree,
        names,
        codes[rows].astype(np.uint16),
        list(ranks),
        np.stack([old, new], 1)[np.argsort(old, kind="stable")],
        np.sort(deleted),
    )


def _names_of(tree: Tree, owners: np.ndarray, texts: Any) -> Any:
    """Return each taxon's name by number from 1; its taxid if it has no name."""
    import pyarrow.compute as pc

    places = np.full(len(tree) + 1, -1, np.int64)
    # Of several names the first.
    places[tree.numbers(owners)[::-1]] = np.arange(len(owners))[::-1]
    places = places[1:]
    names = texts.take(numbers_of(places, places < 0))
    if names.null_count:
        names = pc.coalesce(names, strings_of([f"taxid {taxid}" for taxid in tree.taxids[1:]]))
    return names


def _read_dump(
    path: Path, columns: dict[int, str], *, only: str | None = None, needs: bool = True
) -> tuple[list[Any], Callable[[int], str]]:
    """Return columns of an NCBI taxonomy file, and a function for the position of a row.

    Parameters
    ----------
    path : Path
    columns : dict
        The kind of each column wanted: int, label (many rows have the same) or text.
    only : str, optional
        Rows whose last column is another are left out.
    needs : bool
        Whether a file that is not there is an error, or else empty.

    Returns
    -------
    columns : list
        Arrays of int64, ``(codes, names)`` of labels, Arrow arrays of text.
    at : callable

    Raises
    ------
    TaxonomyError
        When a line has too few columns, or another thing than a taxid in place of one.
    """

    def at(row: int) -> str:
        return f"{path}, line {_line_of(path, row)}"

    if not path.exists():
        if needs:
            raise TaxonomyError(
                f"{path} is not there; unpack NCBI's taxdump.tar.gz into {path.parent}, or name "
                "the folder that has it"
            )
        return [_column(kind, []) for kind in columns.values()], at
    found = _read_at_once(path, columns, only)
    return (_read_by_lines(path, columns, only) if found is None else found), at


def _read_at_once(path: Path, columns: dict[int, str], only: str | None) -> list[Any] | None:
    """Return the columns, or None if the file is not exactly in NCBI's form."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {
        "int": pa.int64(),
        "label": pa.dictionary(pa.int32(), pa.string()),
        "text": pa.string(),
    }
    # Between two columns is tab, bar, tab: each second one of those parted by tabs is a bar.
    types = {f"f{2 * column}": kinds[kind] for column, kind in columns.items()}
    bars = {f"f{2 * column + 1}": kinds["label"] for column in columns}
    batches = []
    try:
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(autogenerate_column_names=True, block_size=2**22),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=csv.ConvertOptions(
                include_columns=[*types, *bars],
                column_types={**types, **bars},
                strings_can_be_null=False,
            ),
        ) as reader:
            for batch in reader:
                if any(batch[name].null_count for name in types):
                    return None
                if any(batch[name].dictionary.to_pylist() != ["|"] for name in bars):
                    return None
                batches.append(_rows_with(batch.select(list(types)), only))
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    if not batches:
        return None
    table = pa.Table.from_batches(batches)
    return [_of_arrow(kind, table[f"f{2 * column}"]) for column, kind in columns.items()]


def _rows_with(batch: Any, only: str | None) -> Any:
    """Return the rows of a batch whose last column is `only`."""
    if only is None:
        return batch
    last = batch.columns[-1]
    names = last.dictionary.to_pylist()
    code = names.index(only) if only in names else -1
    return batch.filter(numbers_of(numpy_of(last.indices) == code))


def _of_arrow(kind: str, column: Any) -> Any:
    if kind == "int":
        return numpy_of(column)
    if kind == "text":
        return column.combine_chunks()
    whole = column.unify_dictionaries().combine_chunks()
    return numpy_of(whole.indices), whole.dictionary.to_pylist()


def _read_by_lines(path: Path, columns: dict[int, str], only: str | None) -> list[Any]:
    found: list[list[Any]] = [[] for _ in columns]
    for number, line in _lines(path):
        if not line.endswith(("\n", "|")):
            raise TaxonomyError(f"{path}, line {number}: the file ends within it; {_REMEDY}")
        fields = [field.strip() for field in line.rstrip().removesuffix("|").split("|")]
        if len(fields) <= max(columns):
            raise TaxonomyError(
                f"{path}, line {number}: {len(fields)} columns, and {max(columns) + 1} or more are "
                f"needed, with | between them; {_REMEDY}"
            )
        if only is not None and fields[max(columns)] != only:
            continue
        for (column, kind), values in zip(columns.items(), found, strict=True):
            field = fields[column]
            if kind != "int":
                values.append(field)
            elif field.isascii() and field.isdigit() and len(field) < 19:
                values.append(int(field))
            else:
                raise TaxonomyError(f"{path}, line {number}: {field!r} is not a taxid; {_REMEDY}")
    return [_column(kind, values) for kind, values in zip(columns.values(), found, strict=True)]


def _column(kind: str, values: Sequence[Any]) -> Any:
    if kind == "int":
        return np.array(values, np.int64)
    if kind == "text":
        return strings_of(values)
    names, codes = np.unique(np.array(values, object), return_inverse=True)
    return codes.astype(np.int32), names.tolist()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield non-empty lines with their numbers."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def _line_of(path: Path, row: int) -> int:
    for at, (number, _) in enumerate(_lines(path)):
        if at == row:
            return number
    return row + 1
