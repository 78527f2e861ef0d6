"""What an index of sketches holds, and its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.kmer.databases.merging import Joined, Mergeable
from dgpuhash.kmer.databases.provenance import steps_of
from dgpuhash.kmer.index_file import read_index, write_index
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.sketches.building import append, are_few, stored, table_settings
from dgpuhash.kmer.sketches.calling import SketchCaller
from dgpuhash.kmer.sketches.contents import digests_of, lists_in, saved_arrays, sizes_of
from dgpuhash.kmer.sketches.settings import SketchSettings
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashSet, MultiMap
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.bucket_list.storage import pair_slices
from dgpuhash.tables.open_addressing.slot_order import SlotOrder
from dgpuhash.typing import Device

_LOCATION = np.dtype(np.uint64)


class HeldSketches(SketchCaller, Mergeable):
    """The locations of features, and what they are of.

    Parameters
    ----------
    settings : SketchSettings
    taxonomy : Taxonomy, optional
    device : {"cpu", "cuda"}, optional
    """

    rule: ClassVar[str] = "metacache"

    def __init__(
        self,
        settings: SketchSettings,
        taxonomy: Taxonomy | None = None,
        device: Device | None = None,
    ) -> None:
        self._backend = backends.get(device)
        self._settings = settings
        # All taxa, and those of references.
        self._whole = self._taxonomy = taxonomy
        self._targets = Targets.none()
        self._table = MultiMap(
            settings.feature, _LOCATION, **table_settings(settings, self._backend.name)
        )
        self._dropped = HashSet(settings.feature, device=self._backend.name)
        self._told: dict[str, Any] = {"found": 0, "notes": [], "steps": []}

    @property
    def settings(self) -> SketchSettings:
        """What the index was built with."""
        return self._settings

    @property
    def taxonomy(self) -> Taxonomy | None:
        """The taxonomy of the references."""
        return self._taxonomy

    @property
    def targets(self) -> Targets:
        """The references in the order of their numbers."""
        return self._targets

    @property
    def device(self) -> Device:
        """Where the index is."""
        return self._backend.name

    @property
    def table(self) -> MultiMap:
        """The locations, ``target << 32 | window``, of each feature."""
        return self._table

    def __len__(self) -> int:
        return len(self._targets.names)

    def __repr__(self) -> str:
        table = self._table
        return (
            f"<SketchIndex: {len(self):,} sequences, {table.n_keys:,} features at "
            f"{len(table):,} places, {self._backend.name}>"
        )

    def stats(self) -> dict[str, Any]:
        """Return what was read and what is stored.

        Returns
        -------
        dict
            ``rule`` and the settings; ``targets``, their ``letters`` and ``windows``; ``found``
            features of windows; ``features`` and ``locations`` that are stored, and features that
            were ``dropped`` as overpopulated; ``longest_list``; ``nbytes`` of the table,
            ``nbytes_per_feature`` and ``nbytes_per_location``; ``notes`` on the places of
            references.

        Examples
        --------
        >>> HeldSketches(SketchSettings()).stats()["locations"]
        0
        """
        return {
            "rule": self.rule,
            **asdict(self._settings),
            "targets": len(self),
            "letters": int(self._targets.lengths.sum()),
            "windows": int(self._windows().sum()),
            "found": self._told["found"],
            **sizes_of(self._table),
            "dropped": len(self._dropped),
            "notes": list(self._told["notes"]),
        }

    def digests(self) -> dict[str, str]:
        """Return SHA-256 sums of all features' lines, in the order of their bytes.

        Returns
        -------
        dict
            ``locations``: of lines ``feature -> (target,window)(target,window)...``, targets from
            0; ``features``: of lines ``feature -> number of locations``.
        """
        return digests_of(*map(self._backend.to_host, self._table.lists()))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to a file, whole or not at all.

        Parameters
        ----------
        path : path or fsspec URL
            By custom its name ends in ``.dgki``.
        overwrite : bool
            Whether it may be there already.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "none.dgki")
        >>> HeldSketches(SketchSettings(k=12)).save(path)
        >>> HeldSketches.load(path).settings.k
        12
        """
        # A table with the same seed takes the features nearly in the order of its slots.
        told = {**self._told, "seed": self._table._seed}
        write_index(
            path, rule=self.rule, settings=asdict(self._settings),
            arrays=saved_arrays(self._backend, self._table, self._dropped),
            taxonomy=self._taxonomy, targets=self._targets, told=told, overwrite=overwrite,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Return the index that `save` wrote, on the CPU or another device.

        Raises
        ------
        FormatError, OSError
            When the file is no index of this rule, is damaged, or cannot be read.
        """
        with interpreting(path):
            saved = read_index(path, cls.rule)
            settings, arrays = SketchSettings(**saved.settings), saved.arrays
            arrays.check({"found", "notes", "seed"} <= saved.told.keys(), "its header is malformed")
            seed = saved.told.pop("seed")
            made = cls(settings, saved.taxonomy, device)
            made._targets = saved.targets
            up = made._backend.from_host
            lists = lists_in(arrays, settings.feature, made._windows())
            features, offsets, locations = map(up, lists)
            made._table = MultiMap(
                settings.feature, _LOCATION, seed=seed, **table_settings(settings, made.device)
            )
            order = SlotOrder.of_buffers(arrays)
            made._table._build(features, offsets, locations, order)
            made._dropped.insert(up(arrays.get("dropped", settings.feature)))
            made._told = {**saved.told, "steps": steps_of(saved.told, saved.targets)}
            return made

    def _take_all(self, indexes: Iterator[Self], joined: Joined) -> Self:
        made = type(self)(self._settings, None, self.device)
        dropped, first = made._dropped, next(indexes)
        dropped.insert(first._dropped.items())
        table, before = first._table, len(first)

        def moved(index: Self) -> Iterator[tuple[Any, Any]]:
            nonlocal before
            dropped.insert(index._dropped.items())
            shift, before = np.uint64(before << 32), before + len(index)
            for features, locations in pair_slices(index._table._lists):
                yield features, locations + shift

        for index in indexes:
            if are_few(len(index._table), table):
                table = table.copy() if table is first._table else table
                append(table, moved(index), self._settings, dropped)
            else:
                # This one and all others at once.
                pairs = chain.from_iterable(map(moved, chain([index], indexes)))
                table = stored(self._backend, table, pairs, self._settings, dropped)
        table = table.copy() if table is first._table else table
        # What a later one dropped, those before may have had.
        if len(dropped):
            table.erase(dropped.items())
        made._table, made._targets, made._told = table, joined.targets, joined.told
        made._taxonomy, made._whole = joined.taxonomy, joined.whole
        return made
