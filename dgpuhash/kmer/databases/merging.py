"""Merge indexes of different references into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.databases.provenance import step_told
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxa import unite_taxa
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy


def merge_indexes(first: Any, others: Iterable[Any]) -> Any:
    """Merge indexes as `LocalIndex.merge` does, without all of them in memory at once.

    Each of `others` is asked for when those before it were taken.

    Raises
    ------
    SpecError, TaxonomyError, SequenceError
        As `LocalIndex.merge`.
    """
    rule, whole = first._rule, first._whole
    notes, steps, sizes = [*first._notes], [*first._steps], [len(rule.targets.names)]
    files_by_id = _files_by_id(rule.targets)

    def parts() -> Iterator[tuple[Any, Any]]:
        """Yield the rule of all targets so far, and the part of the last ones."""
        nonlocal rule, whole
        yield rule, first._part
        for other in others:
            _check_alike(first, other)
            ids = _files_by_id(other.targets)
            for name in ids:
                if name in files_by_id:
                    raise SequenceError(
                        f"{name} of {ids[name]} is there already, in {files_by_id[name]}; build "
                        "one of the indexes without it, or give it another id"
                    )
            files_by_id.update(ids)
            own = rule.taxonomy
            if own is not None and other.taxonomy is not None:
                own = Taxonomy(unite_taxa(own._taxa, other.taxonomy._taxa))
            whole = whole if whole is other._whole else own
            settings = rule.common_settings(rule.settings, other.settings)
            rule = type(rule)(rule.backend, settings, own, rule.targets.join(other.targets))
            sizes.append(len(other.targets.names))
            notes.extend(other._notes)
            steps.extend(other._steps)
            yield rule, other._part

    part = rule.merge(parts())
    steps.append(step_told("merge", 0, sequences=sizes))
    return type(first)._of(rule, part, whole, notes, steps)


def _check_alike(one: Any, other: Any) -> None:
    if type(one) is not type(other):
        raise SpecError(
            f"a {type(one).__name__} does not merge with a {type(other).__name__}; pass indexes of "
            "one rule, and of one device: gather() those of workers"
        )
    common = one._rule.common_settings
    own = asdict(common(one.settings, other.settings))
    its = asdict(common(other.settings, one.settings))
    for name in own:
        # The order is that of each one's files; all are taken as they are given.
        if own[name] != its[name] and name != "order":
            raise SpecError(
                f"{name} is {own[name]} here and {its[name]} there; build both with one {name}"
            )
    if one.device != other.device:
        raise SpecError(
            f"the indexes are on {one.device} and on {other.device}; load both on one device"
        )
    if (one.taxonomy is None) != (other.taxonomy is None):
        raise SpecError(
            "one of the indexes has a taxonomy and one has none; build both with one taxonomy"
        )


def _files_by_id(targets: Targets) -> dict[str, str]:
    files = np.array(targets.files, object)[targets.file_of].tolist()
    return dict(zip(targets.names, files, strict=True))
