"""The changes of an index that this client knows of, and so the ways to make it anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client

from dgpuhash.distributed.change import carry_out, change_to
from dgpuhash.distributed.checkpoint import read_manifest, saved_partitions
from dgpuhash.distributed.descriptor import Descriptor, Saved
from dgpuhash.distributed.source import partitions_of
from dgpuhash.frames import frames_of

__all__ = ["History", "Step", "follow"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change: ``"build"``, ``"insert"`` or ``"erase"``, and where its rows come from."""

    verb: str
    rows: Any | Saved

    def partitions(self, client: Client, descriptor: Descriptor) -> list[Any]:
        """The rows, read anew."""
        if isinstance(self.rows, Saved):
            manifest = read_manifest(self.rows.url)
            return saved_partitions(self.rows.url, manifest, frames_of(descriptor.meta).name)
        names = descriptor.encoder.names if self.verb == "erase" else descriptor.meta.columns
        return partitions_of(client, self.rows, list(names))


@dataclass
class History:
    """The steps that this client has made, by the epoch that they led to."""

    _steps: dict[int, Step] = field(default_factory=dict)

    def record(self, epoch: int, step: Step) -> None:
        """Remember what led to `epoch`."""
        self._steps[epoch] = step

    def ways_to(self, descriptor: Descriptor) -> list[list[Step]]:
        """Lists of steps that lead to the rows of `descriptor`, the best first.

        From the source where this client has built the index and made every change since; else
        from the last save, with the changes since.
        """
        starts = [(epoch, step) for epoch, step in self._steps.items() if step.verb == "build"]
        starts.sort(key=lambda start: start[0], reverse=True)
        if descriptor.saved is not None:
            starts.append((descriptor.saved.epoch, Step("build", descriptor.saved)))
        ways = []
        for start, step in starts:
            later = range(start + 1, descriptor.epoch + 1)
            if all(epoch in self._steps for epoch in later):
                ways.append([step, *(self._steps[epoch] for epoch in later)])
        return ways


def follow(
    client: Client, start: Descriptor, steps: Sequence[Step], publish: Callable[[], None]
) -> int:
    """Carry out `steps`, the first of which leads to the epoch of `start`; publish at the end.

    Returns
    -------
    int
        The rows that the last step added or erased.
    """
    count = 0
    for number, step in enumerate(steps):
        descriptor = replace(start, epoch=start.epoch + number)
        last = number == len(steps) - 1
        count = carry_out(
            client,
            change_to(descriptor, step.verb),
            step.partitions(client, descriptor),
            publish if last else None,
        )
    return count
