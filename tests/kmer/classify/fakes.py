"""An index of k-mers that answers by a rule a test can repeat in plain Python."""

from __future__ import annotations

import numpy as np

from dgpuhash.errors import SpecError
from dgpuhash.kmer.calls import Calls

CALLS = [562, 0, -1, 573, -2, 1280, 2]


class FakeIndex:
    """Calls by the sum of the letters of a read and its mate."""

    device = "cpu"

    def __init__(self, taxonomy, targets, rule="kraken2", calls=CALLS):
        self.taxonomy, self.targets, self.rule, self._calls = taxonomy, targets, rule, calls
        self.batches, self.qualities = [], []

    def call_of(self, *sequences):
        """Return taxid, hits and details of one read."""
        total = sum(sum(each) for each in sequences)
        taxid = self._calls[total % len(self._calls)]
        if self.rule == "metacache":
            details = [(taxid, total % 50), (9606 - 9044, 3)][: total % 3] if taxid else []
            return taxid, total % 50, details
        details = []
        for at, each in enumerate(sequences):
            if at:
                details.append((-2, 1))
            if len(each) > 4:
                details += [(562, len(each) - 4), (-1, 7), (0, 2)][: total % 4]
        return taxid, total % 50, details

    def call(
        self, letters, offsets, mate_letters=None, mate_offsets=None, *, qualities=None,
        mate_qualities=None, detail=False, minimum_base_quality=0, confidence=0.0,
    ):  # fmt: skip
        if not 0 <= confidence <= 1:
            raise SpecError(f"confidence={confidence}; use 0 to 1")
        sides = [(letters, offsets, qualities)]
        if mate_offsets is not None:
            sides.append((mate_letters, mate_offsets, mate_qualities))
        self.batches.append(len(offsets) - 1)
        self.qualities.append([each[2] for each in sides])
        made = [
            self.call_of(*(text[ends[row] : ends[row + 1]].tobytes() for text, ends, _ in sides))
            for row in range(len(offsets) - 1)
        ]
        found = Calls(
            np.array([each[0] for each in made], np.int64),
            np.array([each[1] for each in made], np.uint32),
        )
        if detail:
            runs = [run for each in made for run in each[2]]
            found.detail_offsets = np.cumsum([0, *(len(each[2]) for each in made)])
            found.detail_taxids = np.array([run[0] for run in runs], np.int64)
            found.detail_counts = np.array([run[1] for run in runs], np.uint32)
        return found
