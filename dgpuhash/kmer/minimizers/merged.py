"""Indexes of minimizers made one, and how large they will be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.databases.distinct import DistinctSample
from dgpuhash.kmer.databases.estimate import Estimate
from dgpuhash.kmer.databases.estimators import MinimizerEstimator, memory_of
from dgpuhash.kmer.databases.merging import Joined, Mergeable
from dgpuhash.kmer.minimizers.building import (
    BATCH_LETTERS,
    renumbered,
    room_for,
)
from dgpuhash.kmer.minimizers.held import HeldMinimizers
from dgpuhash.kmer.minimizers.runs import minimizer_runs
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.options import MinimizerOptions
from dgpuhash.kmer.references import References
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.tables import lca
from dgpuhash.typing import Device, IndexMode

if TYPE_CHECKING:
    from typing import Unpack

    from distributed import Client

    from dgpuhash.kmer.target_runs import TargetRun

_NODE = np.dtype(np.uint32)


class MergedMinimizers(HeldMinimizers, Mergeable):
    """What an index of minimizers holds, which may come of several.

    Parameters are those of `HeldMinimizers`.
    """

    def _take_all(self, indexes: Iterator[Self], joined: Joined) -> Self:
        backend, put = self._backend, self._backend.from_host
        first = next(indexes)
        held = first._taxonomy
        table = first._table.copy()
        for index in indexes:
            own = joined.taxonomy
            assert own is not None
            table = renumbered(table, held, own, backend)
            keys, nodes = index._table.items()
            if len(keys):
                numbers = put(own.numbers(index._taxonomy.taxids).astype(_NODE))
                table._insert_combined(keys, numbers[nodes], lca(own.parents).on(backend))
            held = own
        made = type(self)(backend, self._settings, held, joined.targets, table, joined.told)
        made._whole = joined.whole
        return made

    @classmethod
    def estimate(
        cls,
        references: Paths | References,
        *,
        quick: bool = False,
        device: Device | None = None,
        client: Client | None = None,
        mode: IndexMode = "auto",
        **settings: Unpack[MinimizerOptions],
    ) -> Estimate:
        """Return how large an index of the sequences in files will be, and whether it fits.

        Numbers are within 15 percent of the truth after the minimizers of all letters were found,
        of which a sample is kept. All references count, also those without a place.

        Parameters
        ----------
        references, device, client, mode, **settings
            As for `MinimizerIndex.build`; this process reads the files.
        quick : bool
            Whether the files' sizes are enough, within 40 percent of the truth.

        Raises
        ------
        SpecError, SequenceError, FileNotFoundError, OSError
            As `MinimizerIndex.build`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> fasta = pathlib.Path(tempfile.mkdtemp(), "one.fa")
        >>> _ = fasta.write_text(">one\\nACGTTGCATTGCCGATA\\n")
        >>> MergedMinimizers.estimate(fasta, k=9, l=7, spaces=1).distinct
        5
        """
        made, name = MinimizerSettings.of(**settings), backends.get(device).name
        estimator = estimator_of(name, made, memory=memory_of(client, mode, name))
        return estimator.estimate(references, quick=quick)


def estimator_of(device: Device, settings: MinimizerSettings, **given: Any) -> MinimizerEstimator:
    """Return what estimates the index that settings make."""
    return MinimizerEstimator(device, settings, _minimizers, room=room_for, **given)


def sampled_run(settings: MinimizerSettings, device: Device, run: TargetRun) -> DistinctSample:
    """Return a sample of the minimizers of a run of targets."""
    return estimator_of(device, settings).sampled(run)


def _minimizers(
    backend: Backend, settings: MinimizerSettings, references: References | TargetRun
) -> Iterator[Any]:
    for batch in references.batches(
        overlap=settings.k - 1, batch_letters=BATCH_LETTERS[backend.name]
    ):
        letters, offsets = backend.from_host(batch.letters), backend.from_host(batch.offsets)
        yield minimizer_runs(backend, settings, letters, offsets).minimizers
