"""Answers that workers keep, as columns of futures."""

from __future__ import annotations

from collections.abc import Sequence

from dgpuhash.distributed.cluster.locality import Made
from dgpuhash.distributed.shards.table_store import Outcome, answer_name
from dgpuhash.distributed.tables.batch import Kept

__all__ = ["columns_of"]


def columns_of(made: Sequence[Made[Outcome]], columns: int) -> list[Kept]:
    """The columns of an answer, whose chunks stay where they are."""
    shapes = {stored.key: stored.shape for each in made for stored in each.result.stored}
    futures = {key: future for each in made for key, future in each.data.items()}
    kept = []
    for column in range(columns):
        name = answer_name(made[0].result.answer, column)
        keys = sorted(key for key in shapes if key[0] == name)
        kept.append(Kept(name, [futures[key] for key in keys], [shapes[key] for key in keys]))
    return kept
