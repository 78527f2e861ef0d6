"""The changes of an index that this client knows of, and so the ways to make it anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from dgpuhash.distributed.change import Act
from dgpuhash.distributed.checkpoint import read_manifest, saved_partitions
from dgpuhash.distributed.descriptor import Descriptor, Saved
from dgpuhash.distributed.shard import Lost
from dgpuhash.distributed.source import partitions_of
from dgpuhash.frames import frames_of

__all__ = ["History", "Step", "acts_of"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change: ``"build"``, ``"insert"`` or ``"erase"``, and where its rows come from."""

    verb: str
    rows: Any | Saved

    def partitions(self, client: Client, descriptor: Descriptor, lost: Lost | None) -> list[Any]:
        """The rows, read anew; of a save with as many parts, only the files of lost ones."""
        if isinstance(self.rows, Saved):
            manifest = read_manifest(self.rows.url)
            library = frames_of(descriptor.meta).name
            files = list(manifest.shards)
            if lost is not None and len(files) == lost.parts:
                files = [files[part] for part in sorted(lost.gone)]
            return saved_partitions(self.rows.url, files, library)
        names = descriptor.encoder.names if self.verb == "erase" else descriptor.meta.columns
        return partitions_of(client, self.rows, list(names))


@dataclass
class History:
    """The steps that this client has made, by the revision that they led to."""

    _steps: dict[int, Step] = field(default_factory=dict)

    def record(self, revision: int, step: Step) -> None:
        """Remember what led to `revision`."""
        self._steps[revision] = step

    def ways_to(self, descriptor: Descriptor) -> list[list[Step]]:
        """Lists of steps that lead to the rows of `descriptor`, the best first.

        From the source where this client has built the index and made every change since; else
        from the last save, with the changes since.
        """
        starts = [(number, step) for number, step in self._steps.items() if step.verb == "build"]
        starts.sort(key=lambda start: start[0], reverse=True)
        if descriptor.saved is not None:
            starts.append((descriptor.saved.revision, Step("build", descriptor.saved)))
        ways = []
        for start, step in starts:
            later = range(start + 1, descriptor.revision + 1)
            if all(revision in self._steps for revision in later):
                ways.append([step, *(self._steps[revision] for revision in later)])
        return ways


def acts_of(
    client: Client, descriptor: Descriptor, steps: Sequence[Step], lost: Lost | None = None
) -> list[Act]:
    """What carries out `steps` in one change; rows that are added in a row are added at once."""
    acts: list[Act] = []
    for step in steps:
        partitions = step.partitions(client, descriptor, lost)
        if acts and step.verb == "insert" and acts[-1].verb != "erase":
            acts[-1] = Act(acts[-1].verb, [*acts[-1].partitions, *partitions])
        else:
            acts.append(Act(step.verb, partitions))
    return acts
