"""What an index of minimizers holds, and its files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.databases.provenance import steps_of
from dgpuhash.kmer.formats.report import kreport
from dgpuhash.kmer.minimizers.building import counts_of_taxa, figures
from dgpuhash.kmer.minimizers.calling import TreeArrays
from dgpuhash.kmer.minimizers.saved import load_table, save_table
from dgpuhash.kmer.minimizers.seen import SeenMinimizers
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables import HashMap
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.typing import Device


class HeldMinimizers:
    """A map of minimizers, what they are of, and how they were made.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings
    taxonomy : Taxonomy
        Whose numbers the map has.
    targets : Targets
    table : HashMap
    told : mapping
        What was read.
    """

    rule: ClassVar[str] = "kraken2"

    def __init__(
        self,
        backend: Backend,
        settings: MinimizerSettings,
        taxonomy: Taxonomy,
        targets: Targets,
        table: HashMap,
        told: Mapping[str, Any],
    ) -> None:
        self._backend, self._settings = backend, settings
        self._taxonomy, self._targets, self._table = taxonomy, targets, table
        self._told = {**told, "steps": steps_of(told, targets)}
        self._whole: Taxonomy | None = None
        self._tree = TreeArrays(backend, taxonomy.tree)

    @property
    def settings(self) -> MinimizerSettings:
        """What the index was built with."""
        return self._settings

    @property
    def taxonomy(self) -> Taxonomy:
        """The taxa of the references, and their ancestors."""
        return self._taxonomy

    @property
    def targets(self) -> Targets:
        """The references."""
        return self._targets

    @property
    def device(self) -> Device:
        """``"cpu"`` or ``"cuda"``."""
        return self._backend.name

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return (
            f"<MinimizerIndex: {len(self):,} minimizers of {len(self._targets.names):,} sequences, "
            f"{self.device}>"
        )

    def taxon_counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the taxids that minimizers have (int64), and how many have each (int64).

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from dgpuhash.kmer import MinimizerIndex
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "gtdb.tsv").write_text("GB_GCA_000000001.1\\td__Archaea\\n")
        >>> _ = (folder / "GCA_000000001.1.fna").write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> taxonomy = Taxonomy.from_gtdb(folder / "gtdb.tsv")
        >>> index = MinimizerIndex.build(folder / "*.fna", taxonomy=taxonomy, k=9, l=7, spaces=1)
        >>> index.taxon_counts()[1].sum() == len(index)
        np.True_
        """
        counts = counts_of_taxa(self._backend, self._table, self._taxonomy)
        numbers = np.flatnonzero(counts)
        return self._taxonomy.taxids[numbers].astype(np.int64), counts[numbers]

    def seen_minimizers(self) -> SeenMinimizers:
        """Return what counts the minimizers that `call` finds, for a report of them."""
        return SeenMinimizers(self._backend, self._taxonomy.tree)

    def inspect(self) -> Iterator[str]:
        """Yield the lines of a report of how many minimizers taxa have."""
        yield from kreport(self._taxonomy, *self.taxon_counts())

    def stats(self) -> dict[str, Any]:
        """Return what was read and what is stored.

        Returns
        -------
        dict
            ``rule``, ``k``, ``l``, ``spaces``; ``targets`` and ``letters`` that were read;
            ``distinct`` minimizers, ``taxa`` that they have, ``nbytes`` and ``load`` of their map.
        """
        return {
            "rule": self.rule,
            **figures(self._settings, self._table, self._told),
            "targets": len(self._targets.names),
            "taxa": len(self.taxon_counts()[0]),
        }

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index to a file, whole or not at all.

        Parameters
        ----------
        path : path or fsspec URL
            By custom its name ends in ``.dgki``.
        overwrite : bool
            Whether a file that is there may be replaced.

        Raises
        ------
        ExistsError
            When the file is there already.
        OSError
            When it cannot be written.
        """
        save_table(
            path, self._backend, self._table, rule=self.rule, settings=asdict(self._settings),
            taxonomy=self._taxonomy, targets=self._targets, told=self._told, overwrite=overwrite,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Device | None = None) -> Self:
        """Return the index that `save` wrote, on the CPU or another device.

        Raises
        ------
        FormatError
            When the file is another one, or damaged.
        OSError
            When it is not there, or cannot be read.
        """
        backend = backends.get(device)
        with interpreting(path):
            return cls(backend, *load_table(path, backend, cls.rule))
