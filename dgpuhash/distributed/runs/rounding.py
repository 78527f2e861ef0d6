"""Count columns of integers rounded to floats, as pandas does beside nulls.

Tasks log an event of the topic ``dgpuhash-rounded`` for each partition; the scheduler counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from dgpuhash.distributed.events import topic_of

TOPIC = topic_of("rounded")


@dataclass(frozen=True, slots=True)
class LoggedRounding:
    """Function that logs a partition's rounded columns, called in its merge task.

    Attributes
    ----------
    uid : str
        Of all merges that are counted together.
    """

    uid: str

    def __call__(self, columns: Sequence[Hashable | None]) -> None:
        get_worker().log_event(TOPIC, {"uid": self.uid, "columns": list(map(str, columns))})


class RoundedColumns:
    """Counts of the partitions in which columns were rounded, on the scheduler."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def note(self, topic: str, event: Any) -> None:
        """Count an event of this topic."""
        if topic == TOPIC:
            self._counts.setdefault(event["uid"], Counter()).update(event["columns"])

    def of(self, uid: str) -> Counter[str]:
        """Return in how many partitions the merges of a uid have rounded each column."""
        return self._counts.get(uid, Counter())
