"""Partial states of groups on the owners of their hash ranges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dgpuhash.distributed.cluster.dask_internals import rpc_handlers
from dgpuhash.distributed.cluster.rpc import fire_and_forget
from dgpuhash.distributed.cluster.serialization import concat_payloads, to_message
from dgpuhash.distributed.groupby.categories import PartCategories, UnknownCategories
from dgpuhash.distributed.groupby.heavy.held import Held, HeldRows, Target
from dgpuhash.distributed.groupby.heavy.rounds import Found
from dgpuhash.distributed.groupby.spilling import SpillingStates
from dgpuhash.distributed.partition.skew import HeavyKeys
from dgpuhash.distributed.shards.plugin import replying
from dgpuhash.errors import IndexLost, UnsupportedError
from dgpuhash.frames.groupby.partial import GroupPlan
from dgpuhash.tables.memory_errors import memory_errors_of

# Names of the handlers on workers.
FOLD = "dgpuhash_fold"
HOLD = "dgpuhash_hold"
RESULT = "dgpuhash_groups"
# The attempt that rows of a hash range are, whose keys are heavy in other partitions.
RANGE = "range"


@dataclass(frozen=True, slots=True)
class FoldReceipt:
    """Confirmation that an attempt at a partition sent its states to their owners.

    Attributes
    ----------
    partition : int
    digest : str
        Of the rows that were reduced.
    rows : tuple of int
        The number of states for each hash range.
    categories : PartCategories
    held : Held, optional
        The rows that stayed where they were, as a worker is not to have all of a key.
    """

    partition: int
    digest: str
    rows: tuple[int, ...]
    categories: PartCategories
    held: Held | None = None


@dataclass(slots=True)
class Folded:
    """Attempt at a partition whose states were merged, and the event of their completion."""

    digest: str
    rows: int
    work: asyncio.Future[Any]


@dataclass(slots=True)
class RangeStates:
    """Partial states of one hash range, merged from partitions.

    Attributes
    ----------
    states : SpillingStates
    folded : dict
        By partition: the attempt that counts.
    waiting : dict
        By partition and attempt: the pieces of attempts that are not complete.
    is_sealed : bool
        Whether all partitions are there.
    categories : sequence of PartCategories
        Those of each partition.
    result : frame, optional
        The answer, once it was asked for; it is made anew where a file has the states.
    """

    plan: GroupPlan
    states: SpillingStates | None
    unknown: UnknownCategories | None
    folded: dict[int, Folded] = field(default_factory=dict)
    waiting: dict[tuple[int, str], dict[int, Any]] = field(default_factory=dict)
    is_sealed: bool = False
    categories: Sequence[PartCategories] = ()
    result: Any = None

    def fold(self, payloads: Sequence[Any], form: int) -> None:
        """Merge the states of a partition; `form` is the plan's number of their schema."""
        assert self.states is not None
        with memory_errors_of("groupby"):
            self.states.fold(concat_payloads(payloads, self.plan.forms[form].states_meta))

    def told(self) -> Any:
        """Return the result."""
        if self.states is None:
            return self.result
        with memory_errors_of("groupby"):
            result = self.states.result(self.unknown, self.categories)
        if not self.states.is_spilled:
            # They are not needed any more.
            self.result, self.states = result, None
        return result


class GroupOwners:
    """Partial states of groups on one worker, by run."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[int, RangeStates]] = {}
        self.held: dict[str, HeldRows] = {}
        self._host: Any = None

    def open(
        self,
        host: Any,
        uid: str,
        plan: GroupPlan,
        unknown: UnknownCategories | None,
        ranges: int,
        parts: Sequence[int],
        ranked: Sequence[int] = (),
    ) -> None:
        """Create the states of some of a run's hash ranges.

        `ranked` are the columns of which only values at some places are asked for.
        """
        if self._host is None:
            self._host = host
            rpc_handlers(host.worker)[FOLD] = replying(self.fold)
            rpc_handlers(host.worker)[HOLD] = replying(self.hold)
            rpc_handlers(host.worker)[RESULT] = replying(self.told)
        memory = host.shards.memory
        self.runs[uid] = {
            part: RangeStates(plan, SpillingStates(plan, ranges, memory), unknown) for part in parts
        }
        if ranked:
            self.held[uid] = HeldRows(plan, ranked, memory)

    def drop(self, uid: str) -> None:
        """Free the states of a run."""
        if uid in self.held:
            self.held.pop(uid).free()
        for each in self.runs.pop(uid, {}).values():
            if (states := each.states) is not None:
                states.free()

    def _fold(self, states: RangeStates, payloads: Sequence[Any], form: int) -> None:
        """Fold the states of a partition; write the largest beyond the share of all."""
        here = states.states
        before = 0 if here is None else here.nbytes
        states.fold(payloads, form)
        self._make_room(0 if here is None else here.nbytes - before)

    def _make_room(self, more: int) -> None:
        if (memory := self._host.shards.memory) is not None:
            memory.spills.make_room(more)

    def _states(self, uid: str, part: int) -> RangeStates:
        found = self.runs.get(uid, {}).get(part)
        if found is None:
            raise lost()
        return found

    def _heavy(self, uid: str) -> HeldRows:
        if uid not in self.held:
            raise lost()
        return self.held[uid]

    async def fold(
        self,
        *,
        payload: Any,
        uid: str,
        part: int,
        partition: int,
        attempt: str,
        number: int,
        pieces: int,
        rows: int,
        digest: str,
        form: int,
    ) -> list[Any]:
        """Accept a batch of a partition's states or rows; return once its partition is merged.

        The first attempt of which all pieces are here counts. Others are left out, and must be of
        the same rows.
        """
        states = self._states(uid, part)
        first = states.folded.get(partition)
        if first is None:
            if states.is_sealed:
                raise changed_rows_error(partition)
            box = states.waiting.setdefault((partition, attempt), {})
            box.setdefault(number, payload)
            if len(box) < pieces:
                return []
            payloads = [box[each] for each in sorted(box)]
            for key in [key for key in states.waiting if key[0] == partition]:
                del states.waiting[key]
            work = fire_and_forget(self._host.thread.run(self._fold, states, payloads, form))
            first = states.folded[partition] = Folded(digest, rows, work)
        elif first.digest != digest:
            raise changed_rows_error(partition)
        await asyncio.shield(first.work)
        return []

    async def hold(self, *, payload: Any, uid: str, partition: int, attempt: str) -> list[Any]:
        """Store the rows of a partition's heavy keys."""
        await self._host.thread.run(self._hold, self._heavy(uid), partition, attempt, payload)
        return []

    def _hold(self, held: HeldRows, partition: int, attempt: str, rows: pd.DataFrame) -> None:
        before = held.nbytes
        with memory_errors_of("groupby"):
            held.add(partition, attempt, rows)
        self._make_room(held.nbytes - before)

    def choose(
        self, uid: str, attempts: Mapping[str, Sequence[tuple[int, str]]], heavy: HeavyKeys
    ) -> pd.DataFrame:
        """Choose the attempts, by worker, whose rows of heavy keys count; return their keys."""
        held, chosen = self._heavy(uid), list(attempts[self._host.worker.address])
        for part, each in self.runs.get(uid, {}).items():
            assert each.states is not None
            held.add(part, RANGE, each.states.take_out(heavy))
            chosen.append((part, RANGE))
        return held.chosen(chosen)

    def counts(self, uid: str, numbers: Any, targets: Sequence[Target], bits: int) -> Any:
        """Return histograms of the rows of heavy keys on this worker; see `HeldRows.counts`.

        `numbers` are by worker.
        """
        own = numbers[self._host.worker.address]
        return self._heavy(uid).counts(own, targets, bits)

    def add_found(self, uid: str, found: Mapping[int, Found]) -> None:
        """Add the results for heavy keys by hash range, and free their rows."""
        if uid in self.held:
            self.held.pop(uid).free()
        for part, each in self.runs.get(uid, {}).items():
            if part in found and each.states is not None:
                each.states.add_found(found[part])

    def seal(self, uid: str, receipts: Sequence[FoldReceipt]) -> None:
        """Check that the merged states match the receipts of all partitions.

        Raises
        ------
        IndexLost
            When states are missing.
        UnsupportedError
            When a partition had other rows in another attempt.
        """
        for part in self.runs.get(uid, {}):
            states = self._states(uid, part)
            for receipt in receipts:
                found = states.folded.get(receipt.partition)
                if found is not None and found.digest != receipt.digest:
                    raise changed_rows_error(receipt.partition)
                if (0 if found is None else found.rows) != receipt.rows[part]:
                    raise IndexLost(
                        f"states of partition {receipt.partition} are missing; compute it again"
                    )
            states.waiting.clear()
            states.categories = [receipt.categories for receipt in receipts]
            states.is_sealed = True

    async def told(self, *, uid: str, part: int) -> list[Any]:
        """Return the result of a hash range."""
        states = self._states(uid, part)
        if not states.is_sealed:
            raise IndexLost("the states of the groups are not complete; compute them again")
        return [to_message(await self._host.thread.run(states.told))]


def lost() -> IndexLost:
    """Return the error for states that a worker no longer has."""
    return IndexLost("the states of the groups are gone from a worker; compute them again")


def changed_rows_error(partition: int) -> UnsupportedError:
    """Return the error for a partition with other rows when its task ran again."""
    return UnsupportedError(
        f"partition {partition} of the frame that is grouped had other rows when its task ran "
        f"again, so rows would count twice or not at all; make the frame deterministic (a "
        "seed for random numbers, an order for what is read), or persist() it first"
    )


def drop_groups(uid: str, dask_worker: Any) -> None:
    """Free a worker's states of a run."""
    host = dask_worker.plugins.get("dgpuhash")
    if host is not None:
        host.service(GroupOwners).drop(uid)
