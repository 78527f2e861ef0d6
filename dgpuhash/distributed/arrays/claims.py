"""Answers that workers keep, claimed by the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributed import Client

from dgpuhash.distributed.arrays.batch import Kept
from dgpuhash.distributed.arrays.hosted import Outcome, answer_name
from dgpuhash.distributed.claim import claim

__all__ = ["claimed", "disclaimed"]


def claimed(
    client: Client, workers: Sequence[str], outcomes: Sequence[Outcome], answer: str, columns: int
) -> list[Kept]:
    """The columns of an answer, as futures that keep them where they are."""
    who_has, nbytes, shapes = {}, {}, {}
    for worker, outcome in zip(workers, outcomes, strict=True):
        for stored in outcome.stored:
            who_has[stored.key] = [worker]
            nbytes[stored.key] = stored.nbytes
            shapes[stored.key] = stored.shape
    futures = claim(client, who_has, nbytes)
    kept = []
    for column in range(columns):
        name = answer_name(answer, column)
        keys = sorted(key for key in who_has if key[0] == name)
        kept.append(Kept(name, [futures[key] for key in keys], [shapes[key] for key in keys]))
    return kept


def disclaimed(
    client: Client, held: Mapping[str, Sequence[int]], answer: str, columns: int
) -> None:
    """Let workers drop what they may have kept for an answer that nobody gets.

    Parameters
    ----------
    held : mapping of str to sequence of int
        The numbers of each worker's chunks.
    """
    there = client.nthreads()
    who_has = {
        (answer_name(answer, column), number): [worker]
        for worker, numbers in held.items()
        if worker in there
        for number in numbers
        for column in range(columns)
    }
    claim(client, who_has, {})
