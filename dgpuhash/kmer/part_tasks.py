"""Tasks of an index on workers: build, load and query its parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dgpuhash.kmer.databases.owners import DistinctSample, dealt, on_device, stay_on_device
from dgpuhash.kmer.databases.part_files import PartArrays, part_arrays
from dgpuhash.kmer.index_file import read_index
from dgpuhash.kmer.rule import Part, Rows, Rule
from dgpuhash.kmer.target_runs import TargetRun
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device


def sampled_run(kind: type[Rule], settings: Any, device: Device, run: TargetRun) -> DistinctSample:
    """Return a sample of the keys of a run of targets."""
    return kind.estimator(device, settings).sample(run)


def keys_of_run(rule: Rule, run: TargetRun, n: int, nbytes: int) -> list[list[Rows]]:
    """Return the keys and values of a run for each of n owners.

    All runs together have about `nbytes` for an owner.
    """
    stay = stay_on_device(rule.backend, nbytes)
    pieces: list[list[Rows]] = [[] for _ in range(n)]
    for keys, values in rule.distinct_keys(run):
        dealt_rows = dealt(rule.backend, n, keys, values, stay=stay)
        for own, piece in zip(pieces, dealt_rows, strict=True):
            own.append(piece)
    return pieces


def part_with(rule: Rule, before: Part | None, pieces: list[list[Rows]]) -> Part:
    """Return a part extended by the keys that its owner received of runs."""
    room = sum(len(keys) for piece in pieces for keys, _ in piece)
    return rule.fold(before, _here(rule, pieces), room)


def loaded_part(
    kind: type[Rule], path: str, mode: str, n: int, at: int, device: Device | None
) -> Part:
    """Load a worker's part of an index file."""
    with interpreting(path):
        saved = read_index(path, kind.name, part=(at, n) if mode == "distributed" else None)
        rule = kind.of_saved(saved, device)
        if mode == "replicated":
            return rule.load(saved)
        return rule.load_share(saved, at, n, by_targets=mode == "independent")


def found_count(part: Part) -> int:
    """Return the number of keys given to a part."""
    return part.found


def dealt_part(rule: Rule, part: Part, n: int) -> list[Any]:
    """Return the rows of a part for each of n owners, then its dropped keys."""
    return [*([piece] for piece in dealt(rule.backend, n, *rule.rows(part))), rule.dropped(part)]


def joined_part(rule: Rule, pieces: list[list[Rows]], dropped: list[Any]) -> Part:
    """Return an owner's part from the rows received of all parts."""
    return rule.part_of_rows(_here(rule, pieces), [each for each in dropped if each is not None])


def arrays_in(rule: Rule, part: Part, is_whole: bool) -> PartArrays:
    """Return a part's arrays for a file, with slot order only for a whole index."""
    arrays, told = rule.part_arrays(part, is_whole=is_whole)
    return part_arrays(arrays, **told)


def contents_of(rule: Rule, part: Part) -> tuple[Any, Any, Any]:
    """Return the rows of a part on the host, and its dropped keys."""
    return *map(rule.backend.to_host, rule.rows(part)), rule.dropped(part)  # type: ignore[return-value]


def extent_of(contents: tuple[Any, Any, Any]) -> tuple[int, Any]:
    """Return the number of rows from `contents_of`, and the dropped keys."""
    keys, _, dropped = contents
    return len(keys), dropped


def rows_of(contents: tuple[Any, Any, Any], start: int, end: int) -> Rows:
    """Return some of the rows from `contents_of`."""
    keys, values, _ = contents
    return keys[start:end].copy(), values[start:end].copy()


def _here(rule: Rule, pieces: list[list[Rows]]) -> Iterator[Rows]:
    put = rule.backend
    for piece in pieces:
        for keys, values in piece:
            yield on_device(put, keys), on_device(put, values)


def same(part: Any) -> Any:
    return part
