"""Indexes of other references made one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash.backend import Backend
from dgpuhash.errors import SequenceError, SpecError
from dgpuhash.kmer.databases.provenance import Step, provenance_of, step_told
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.kmer.taxonomy.union import united


class Mergeable:
    """An index that merges with others of its rule, and tells where it came from."""

    rule: ClassVar[str]
    _backend: Backend
    _settings: Any
    _targets: Targets
    _told: dict[str, Any]

    @property
    def provenance(self) -> list[Step]:
        """What was done to make the index, in order: dates, versions, options, files."""
        return provenance_of(self._told["steps"], self._targets)

    def merge(self, *others: Self) -> Self:
        """Return the index of the references of this one and of others.

        It is that of one build of all files in this order, as they are given; numbers of the
        second one's sequences go on behind the first one's. Features that one of them dropped as
        overpopulated stay dropped.

        Parameters
        ----------
        *others : index
            Of the same rule, settings and device.

        Raises
        ------
        SpecError
            When the rule, a setting or the device differs.
        TaxonomyError
            When a taxon has another parent, rank or name in one than in another.
        SequenceError
            When an id of a sequence is in two.
        """
        return merged(self, others)

    @abstractmethod
    def _take_all(self, indexes: Iterator[Self], joined: Joined) -> Self:
        """Return an index of what others hold, which come one by one, the first one this one.

        `joined` has what else is known of those that came already.
        """


class Joined:
    """What indexes have beside their tables, made one.

    Parameters
    ----------
    first : index
    """

    def __init__(self, first: Any) -> None:
        self._first = first
        self.taxonomy: Taxonomy | None = first._taxonomy
        self.whole: Taxonomy | None = first._whole
        self.targets: Targets = first._targets
        self._sizes = [len(first._targets.names)]
        self._ids = _files_by_id(first._targets)
        self._told: dict[str, Any] = dict(first._told)

    def add(self, other: Any) -> None:
        """Take what another index has beside its table.

        Raises
        ------
        SpecError, TaxonomyError, SequenceError
            As `Mergeable.merge`.
        """
        _check_alike(self._first, other)
        ids = _files_by_id(other._targets)
        for name in ids:
            if name in self._ids:
                raise SequenceError(
                    f"{name} of {ids[name]} is there already, in {self._ids[name]}; build one of "
                    "the indexes without it, or give it another id"
                )
        self._ids.update(ids)
        own = self.taxonomy
        if own is not None and other._taxonomy is not None:
            own = Taxonomy(united(own._taxa, other._taxonomy._taxa))
        self.whole = self.whole if self.whole is other._whole else own
        self.taxonomy, self.targets = own, self.targets.join(other._targets)
        self._sizes.append(len(other._targets.names))
        for name, value in self._told.items():
            self._told[name] = value + other._told[name]

    @property
    def told(self) -> dict[str, Any]:
        """What is told of all, and that they were merged just now."""
        step = step_told("merge", 0, sequences=self._sizes)
        return {**self._told, "steps": [*self._told["steps"], step]}


def merged(first: Any, others: Iterable[Any]) -> Any:
    """Return `Mergeable.merge` of indexes that need not be there at once.

    Each of `others` is asked for when those before it were taken.

    Raises
    ------
    SpecError, TaxonomyError, SequenceError
        As `Mergeable.merge`.
    """
    joined = Joined(first)

    def checked() -> Iterator[Any]:
        yield first
        for other in others:
            joined.add(other)
            yield other

    return first._take_all(checked(), joined)


def _check_alike(one: Any, other: Any) -> None:
    if type(one) is not type(other):
        raise SpecError(
            f"a {type(one).__name__} does not merge with a {type(other).__name__}; pass indexes of "
            "one rule, and of one device: gather() those of workers"
        )
    own, its = asdict(one.settings), asdict(other.settings)
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
