"""Run a table verb on one rank, from stored arguments to stored results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Multisplit
from dgpuhash.distributed.cluster.device_thread import ThreadProgress
from dgpuhash.distributed.cluster.locality import LocalInputs, TaskOutput
from dgpuhash.distributed.collective.base import Collective
from dgpuhash.distributed.collective.local import LocalCollective
from dgpuhash.distributed.pipeline.bulk_insert import BulkInsert, Offer
from dgpuhash.distributed.pipeline.merge import (
    conflict_error,
    has_conflict,
    matched_rows,
    merge_answers,
    serve_once,
    store_merged,
)
from dgpuhash.distributed.pipeline.room import AddedRows, ShardDraft, make_room, prune_keys
from dgpuhash.distributed.pipeline.rounds import PipelinedRounds, partition_piece
from dgpuhash.distributed.pipeline.slices import Chunk, KeyPiece, RoundPlan, SentPiece
from dgpuhash.distributed.pruning.policy import gather_lists
from dgpuhash.distributed.pruning.probe_keys import PrunedKeys
from dgpuhash.distributed.shards import table_store
from dgpuhash.distributed.shards.plugin import ShardHost
from dgpuhash.distributed.shards.table_shard import Answer, TableShard, Verb
from dgpuhash.distributed.shards.table_store import (
    TableShardSize,
    VerbRequest,
    VerbResult,
    answer_name,
    answer_of,
    at,
    stored_shapes,
)
from dgpuhash.errors import IndexLost, OutOfMemoryError, ShapeError
from dgpuhash.tables.arguments.lookup_keys import LookupKeys, joined_rows
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.open_addressing.bulk_build import fill_ones
from dgpuhash.tables.open_addressing.bulk_stream import StreamedBuild
from dgpuhash.tables.stores.list_batches import check_list_codes
from dgpuhash.tables.stores.mixed import OP_DTYPE, Op, count_stores, stores, values_missing

# Answers from which the number of absent keys is estimated; fewer give no estimate.
_TOLD_ROWS = 2**16


class VerbExecution:
    """Execution of one verb on one rank.

    Parameters
    ----------
    part : Part
        The rank's own shard of the table.
    verb : Verb
    chunks : sequence of sequence of Chunk
        Chunks of all ranks.
    rank : int
    columns : sequence of list of array
        Arrays of the keys, and values, of each of the rank's own chunks.
    advance : callable
        Called with the number of rows that this rank has served.
    """

    def __init__(
        self,
        part: TableShard,
        verb: Verb,
        chunks: Sequence[Sequence[Chunk]],
        rank: int,
        columns: Sequence[list[Any]],
        advance: Callable[[int], object] = bool,
    ) -> None:
        self._part, self._verb, self._advance = part, verb, advance
        self._chunks, self._mine = chunks, chunks[rank]
        self._backend = backends.get(part.table.device)
        self._asked: list[LookupKeys] = []
        if verb.mixed:
            self._asked = [part.layout.asked(self._backend, keys) for (keys,) in columns]
            columns = [[asked.keys] for asked in self._asked]
        else:
            pairs = zip(columns, self._mine, strict=True)
            columns = [self._words(each, chunk.first) for each, chunk in pairs]
        self._columns = columns
        self._check_rows()
        self._nothing = part.no_rows[: 2 if verb.stores else 1]
        if verb.name == "execute":
            ops = self._backend.empty(0, OP_DTYPE)
            self._nothing = [*part.no_rows[: 2 if verb.valued else 1], ops]
        if verb.call is not None:
            self._nothing = [part.no_rows[0], self._empty(np.uint64)]
        self._rows = sum(chunk.rows for chunk in self._mine)
        self._answers: list[Any] = []
        self._lists: list[tuple[Any, ...]] = []
        self._placing: BulkInsert | None = None
        self._draft: ShardDraft | None = None
        asks_all = part.mode.independent and verb.name != "distinct" and len(chunks) > 1
        self._stays, self._to_all = asks_all and verb.stores, asks_all and not verb.stores
        self.refused: Exception | None = None
        """Why the answers of all shards have no merge, or a function failed."""
        self.results: list[object] = []
        """What the function of a ``for_each`` gave for the entries of this shard."""

    def offer(self, collective: Collective, piece_rows: int) -> Offer | None:
        """Return this rank's offer of a bulk insert by ranges; None for no offer.

        All ranks tell each other their offers, and then call `go`.
        """
        if collective.size == 1 or self._rows > piece_rows or self._stays:
            return None
        # A rank may send few rows, or none: what pays depends on the rows that arrive.
        coming = sum(chunk.rows for chunks in self._chunks for chunk in chunks) // collective.size
        ranges = self._part.ranges(self._verb, self._nothing, coming, collective.size)
        if ranges is None:
            return None
        plan = RoundPlan([self._mine], most_rows=max(1, self._rows), in_order=False)
        columns = self._take(plan.piece(0, 0))
        placing = None
        try:
            placing = BulkInsert(self._backend, collective, self._part, ranges, columns)
            offer = placing.offer()
            if offer is not None:
                self._placing, placing = placing, None
            return offer
        except Exception as error:
            if not isinstance(error, OutOfMemoryError) and not backends.is_out_of_memory(error):
                raise
        finally:
            if placing is not None:
                placing.give_up()
            elif self._placing is None:
                self._part.side.rejoin()
        return None

    def go(
        self,
        collective: Collective,
        piece_rows: int,
        slice_rows: int,
        offers: Sequence[Offer | None] = (None,),
    ) -> list[list[Any]]:
        """Run the verb; return the result arrays of each own chunk."""
        placing, self._placing = self._placing, None
        if placing is None or not placing.agreed(offers):
            if placing is not None:
                placing.give_up()
            del placing
            self._ask(collective, piece_rows, slice_rows)
            return self._result()
        answered = self._part.answers(self._verb)
        if answered:
            # Nearly all keys are new: the answers need no wait then, and their memory is allocated
            # before the table changes.
            self._answers = [self._backend.empty(self._rows, np.uint8)]
        placing.send_all(slice_rows)
        if answered:
            fill_ones(self._answers[0])
        intake = placing.place(self._advance)
        all_new = intake.finish()
        peak_nbytes = self._part.peak_nbytes = placing.peak_nbytes
        del placing
        if answered and not all(collective.gather(all_new)):
            self._answers = []
            self._ask(collective, piece_rows, slice_rows, intake)
        self._part.peak_nbytes = max(self._part.peak_nbytes, peak_nbytes)
        return self._result()

    def _ask(
        self,
        collective: Collective,
        piece_rows: int,
        slice_rows: int,
        claiming: StreamedBuild | None = None,
    ) -> None:
        """Send all rows to their owners, and collect the results.

        With `claiming`, the rows are stored already, and answers say which have brought keys.
        """
        part, verb = self._part, self._verb
        in_order = part.in_order(verb)
        spared, chunks = self._prune(collective)
        everyone = collective
        if part.counts(verb):
            added = AddedRows.of(part, self._columns, verb.term)
            self._columns, self._rows = [added.columns], len(added.columns[0])
            chunks, self._draft = added.agreed(part, collective)

        def serve(columns: list[Any], counts: np.ndarray, to: list[list[Any]]) -> list[Answer]:
            if claiming is None:
                if self._draft is not None:
                    answers = self._draft.serve(verb, columns, counts)
                else:
                    part.written |= verb.changes
                    answers = self._serve(columns, counts, to)
                self._advance(int(counts.sum()))
                return answers
            keys, *values = columns
            return [Answer([claiming.claim(keys, values[0] if values else None)], counts)]

        if self._stays:
            chunks = [chunks[collective.rank]]
            (collective,) = LocalCollective.group(1)
        if collective.size == 1:
            # Nothing travels, and nothing but answers takes memory.
            piece_rows = max(1, self._rows)
        elif self._to_all:
            # Rows are received, and answered, once for each rank.
            piece_rows = max(1, piece_rows // collective.size)
            if verb.changes:
                # Ranks choose the same rows where all serve the same ones at once.
                slice_rows = sys.maxsize
        seed = None if self._to_all else part.owner_seed
        rounds = PipelinedRounds(
            self._backend,
            collective,
            RoundPlan(chunks, most_rows=piece_rows, in_order=in_order),
            part.side,
            deal=lambda piece: partition_piece(
                part.side, piece, self._take(piece), collective.size, seed
            ),
            serve=serve,
            deliver=self._deliver,
            like=lambda: self._like(claiming is not None),
            slice_rows=slice_rows,
            to_all=self._to_all,
        )
        if in_order:
            rounds.run_together()
        else:
            rounds.run()
        part.peak_nbytes = rounds.peak_nbytes + (0 if spared is None else spared.nbytes)
        if spared is not None:
            self._expand(spared)
        if self._draft is not None:
            self.refused = self._draft.publish(everyone)

    def _serve(self, columns: list[Any], counts: np.ndarray, to: list[list[Any]]) -> list[Answer]:
        """Run the verb on received rows."""
        part, verb = self._part, self._verb
        if verb.call is not None:
            try:
                self.results += [] if self.refused else part.visit(verb.call, *columns)
            except Exception as error:  # the other ranks go on
                self.refused = error
            return []
        if verb.name == "distinct" or (verb.name == "erase" and self._to_all):
            return [serve_once(part, verb, columns[0], counts)]
        if verb.name == "settle":
            part.replica = None
            store_merged(part, *columns)
            return []
        return part.serve(verb, columns, counts, to)

    def _like(self, claiming: bool) -> list[Any]:
        """Return empty columns like results with one row per key."""
        part, verb = self._part, self._verb
        if claiming:
            return [self._backend.empty(0, np.uint8)]
        if not part.answers(verb) or part.has_list_answers(verb):
            return []
        return part.absent(verb, 0)

    def _prune(self, collective: Collective) -> tuple[PrunedKeys | None, Sequence[Sequence[Chunk]]]:
        """Prune rows that need not travel, where the verb allows it.

        Returns the pruned keys, or None, and the chunks that are left.
        """
        part = self._part
        part.absent_rows = part.repeated_rows = 0
        mixed = self._verb.mixed
        if (self._verb.changes or self._verb.call is not None) and not mixed:
            return None, self._chunks
        most = max(sum(chunk.rows for chunk in chunks) for chunks in self._chunks)
        keys = [columns[0] for columns in self._columns] or self._nothing
        rows = joined_rows(self._backend, self._asked) if mixed else None
        found = None
        if not self._verb.changes:
            found = prune_keys(part, collective, self._verb.sparing, keys, most, rows)
        if found is None and mixed:
            fitting = PrunedKeys(self._backend, keys, None, deduplicate=False, rows=rows)
            found = fitting, collective.gather(len(fitting.keys))
        if found is None:
            return None, self._chunks
        spared, counts = found
        part.absent_rows, part.repeated_rows = spared.absent, spared.repeated
        self._columns, self._rows = [[spared.keys]], len(spared.keys)
        return spared, [[Chunk(0, (), 0, count)] for count in counts]

    def _expand(self, spared: PrunedKeys) -> None:
        """Expand the results of the unpruned rows to all rows."""
        self._rows = sum(chunk.rows for chunk in self._mine)
        if self._part.has_list_answers(self._verb):
            counts, values, *_ = self._joined_lists()
            blank = self._backend.zeros(self._rows, np.int64)
            self._lists = [spared.spread_lists(counts, values, blank)]
            return
        blank = self._part.absent(self._verb, self._rows)
        self._answers = spared.spread(self._answers or [each[:0] for each in blank], blank)

    @property
    def absent_rows(self) -> int:
        """Estimated number of rows whose keys are absent, from a sample."""
        if self._rows < _TOLD_ROWS:
            return 0
        if self._part.has_list_answers(self._verb):
            answers = self._backend.xp.concatenate([counts for counts, _ in self._lists])
        else:
            answers = self._answers[-1]
        told = answers[:: self._rows // _TOLD_ROWS]
        return int((told == 0).sum()) * self._rows // len(told)

    def _check_rows(self) -> None:
        counts = [[len(column) for column in columns] for columns in self._columns]
        if self._verb.mixed:
            counts = [[asked.count] for asked in self._asked]
        for chunk, rows_of in zip(self._mine, counts, strict=True):
            for rows in rows_of:
                if rows != chunk.rows:
                    raise ShapeError(
                        f"a chunk of {rows:,} rows was said to have {chunk.rows:,}; give "
                        "its Dask array the right chunks (those of numpy.nan are counted)"
                    )

    def _words(self, arrays: Sequence[Any], first: int) -> list[Any]:
        """Return the columns of a chunk for the exchange; its first row has number `first`."""
        layout, others = self._part.layout, list(arrays[1:])
        columns, ops = [layout.keys(self._backend, arrays[0])], []
        if self._verb.name == "execute":
            ops = [layout.ops(self._backend, others.pop())]
            stored = count_stores(self._backend, ops[0], first)
            if self._part.has_list_answers(self._verb):
                check_list_codes(self._backend, ops[0], first)
            if stored and layout.value is not None and not others:
                raise values_missing(stored)
        if others:
            taken = layout.counts if self._part.counts(self._verb) else layout.values
            columns.append(taken(self._backend, others[0]))
        if self._verb.call is not None:
            rows = self._backend.xp.arange(first, first + len(columns[0]))
            columns.append(rows.view(np.uint64))
        return columns + ops

    def make_room(
        self, collective: Collective, piece_rows: int, slice_rows: int
    ) -> tuple[bool, Exception | None]:
        """Make room on all ranks for what a mixed batch may store; see `room.make_room`.

        Lists are changed in a `ShardDraft`, as no count of rows says what memory they need.
        """
        if self._part.has_list_answers(self._verb):
            changes = any(bool((chunk[-1] != int(Op.FIND)).any()) for chunk in self._columns)
            self._draft, ready, error = ShardDraft.agreed(self._part, collective, changes=changes)
            return ready, error
        keys = [chunk[0][stores(chunk[-1])] for chunk in self._columns]
        together = self._backend.xp.concatenate([self._nothing[0], *keys])
        return make_room(self._part, collective, together, piece_rows, slice_rows)

    def _take(self, piece: KeyPiece | None) -> list[Any]:
        if piece is None:
            return self._nothing
        found = []
        for column in range(len(self._nothing)):
            parts = [
                self._columns[chunk][column][start:stop] for chunk, start, stop in piece.slices
            ]
            found.append(parts[0] if len(parts) == 1 else self._backend.xp.concatenate(parts))
        return found

    def _deliver(self, sent: SentPiece, came: list[Answer]) -> None:
        if sent.piece is None or not came:
            return
        first, rows = sent.piece.place, sent.piece.rows
        if self._to_all:
            contested = has_conflict(self._part, self._verb, came, rows)
            if contested is not None and bool(contested.any()):
                key = self._part.shown_keys(sent.columns[0][contested][:1])
                self.refused = conflict_error(self._part.on_host(key)[0])
            came = merge_answers(self._part, self._verb, came, rows)
        if self._part.has_list_answers(self._verb):
            (counts, *flags), (values,) = (each.columns for each in came)
            self._lists.append(self._unmix(sent.deal, counts, values, *flags))
            return
        columns = came[0].columns
        if rows == self._rows and sent.deal is None:
            self._answers = columns
            return
        if not self._answers:
            self._answers = [
                self._backend.empty((self._rows, *column.shape[1:]), column.dtype)
                for column in columns
            ]
        places = [answer[first : first + rows] for answer in self._answers]
        if sent.deal is not None:
            sent.deal.restore_order(columns, places, came[0].pads)
            return
        for place, column in zip(places, columns, strict=True):
            place[...] = column

    def _unmix(
        self, deal: Multisplit | None, counts: Any, values: Any, *flags: Any
    ) -> tuple[Any, ...]:
        """Return counts and values of lists, and flags, in the order of the piece's rows."""
        if deal is None:
            return counts, values, *flags
        columns = [counts, self._backend.xp.cumsum(counts) - counts, *flags]
        counts, starts, *flags_of = places = [self._backend.xp.empty_like(it) for it in columns]
        deal.restore_order(columns, places)
        return counts, gather_lists(self._backend, counts, starts, values), *flags_of

    def _result(self) -> list[list[Any]]:
        """Return the results of each chunk in user form."""
        if not self._part.answers(self._verb):
            return [[] for _ in self._mine]
        if self._part.has_list_answers(self._verb):
            return self._result_of_lists()
        answers = self._answers or [self._backend.empty(0, np.uint8)]
        shown = self._shown(answers)
        return [[column[first:last] for column in shown] for first, last in self._edges()]

    def _shown(self, answers: list[Any]) -> list[Any]:
        if self._verb.name == "distinct":
            words = self._backend.xp.concatenate(
                [self._nothing[0], *(keys for (keys,) in self._columns)]
            )
            return [self._part.shown_keys(words), answers[0].view(bool)]
        if self._verb.name == "count":
            return [answers[0].view(np.int64) if len(answers[0]) else self._empty(np.int64)]
        if not self._part.shows_values(self._verb):
            return [answers[0].view(bool)]
        if len(answers) == 1:
            answers = [self._part.layout.column(self._backend, 0), answers[0]]
        values, found = answers
        return [self._part.layout.answer(self._backend, values), found.view(bool)]

    def _result_of_lists(self) -> list[list[Any]]:
        xp, layout = self._backend.xp, self._part.layout
        counts, words, *flags = self._joined_lists()
        values = layout.answer(self._backend, words)
        offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts)])
        edges = self._edges()
        ends = self._backend.to_host(offsets[xp.asarray(np.array(edges, np.int64).reshape(-1, 2))])
        return [
            [
                *(values[start:stop], offsets[first : last + 1] - start),
                *(each[first:last].view(bool) for each in flags),
            ]
            for (first, last), (start, stop) in zip(edges, ends.tolist(), strict=True)
        ]

    def _joined_lists(self) -> list[Any]:
        """Return the lengths and values of all lists, and flags of a mixed batch."""
        nothing: list[Any] = [self._empty(np.int64), self._part.layout.column(self._backend, 0)]
        nothing += [self._empty(np.uint8)] * (self._verb.name == "execute")
        columns = zip(*(self._lists or [tuple(nothing)]), strict=True)
        return [self._backend.xp.concatenate(column) for column in columns]

    def _edges(self) -> list[tuple[int, int]]:
        edges, last = [], 0
        for chunk in self._mine:
            edges.append((last, last + chunk.rows))
            last += chunk.rows
        return edges

    def _empty(self, dtype: Any) -> Any:
        return self._backend.empty(0, dtype)


def run_verb(
    host: ShardHost, collective: Collective, order: VerbRequest, given: LocalInputs
) -> TaskOutput[VerbResult]:
    """Run this rank's share of `order`, and return its outcome.

    Before a change all ranks tell each other whether they can carry it out; a failure after a shard
    was written to breaks the table.
    """
    start = time.perf_counter()
    hosted = at(host, order.uid, order.epoch)
    part = hosted.part
    asking, refused = None, None
    part.written = False
    rows = sum(chunk.rows for chunk in given.own)
    if part.mode.independent and not order.verb.changes:
        # All ranks serve all rows.
        rows = sum(chunk.rows for chunks in given.dealt for chunk in chunks)
    progress = ThreadProgress(order.uid, order.verb.method_verb, "exchange and serve rows", rows)
    try:
        asking = _asking(host, part, order.verb, given, progress)
    except Exception as error:
        refused = error
    quiet = collective.with_quiet_loop(part.table.device)
    with host.thread.telling(progress), quiet, part.side.ended():
        piece_rows, slice_rows = order.piece_rows or table_store.PIECE_ROWS, table_store.SLICE_ROWS
        offers: list[Offer | None] = [None]
        if order.verb.changes:
            offer = None if asking is None else asking.offer(collective, piece_rows)
            taking_part = collective.gather(
                (refused is None, _has_room(part, order.verb, given), offer)
            )
            if not all(ready for ready, *_ in taking_part):
                return TaskOutput(VerbResult([], refused=refused), {})
            offers = [offer for *_, offer in taking_part]
            if not all(enough for _, enough, _ in taking_part):
                # A shard copies its content each time it grows: on four H200s new shards took
                # 2**27 pairs of each rank in 70 ms at once, and in 170 ms in four slices.
                slice_rows = table_store.PIECE_ROWS
            if order.verb.name == "execute" and asking is not None:
                ready, refused = asking.make_room(collective, piece_rows, slice_rows)
                if not ready:
                    return TaskOutput(VerbResult([], refused=refused), {})
        if refused is not None:
            raise refused
        assert asking is not None
        try:
            answers = asking.go(collective, piece_rows, slice_rows, offers)
            if asking.refused is not None:
                return TaskOutput(VerbResult([], refused=asking.refused), {})
            absent_rows = 0 if order.verb.changes else asking.absent_rows
            backend = backends.get(part.table.device)
            if order.verb.matching:
                lists = part.has_list_answers(order.verb)
                answers = matched_rows(backend, given.own, answers, lists=lists)
            backend.synchronize()
            part.seconds = time.perf_counter() - start
        except BaseException as error:
            if part.written:
                hosted.broken = f"{type(error).__name__}: {error}"
            raise
    hosted.epoch += order.verb.changes
    answer = answer_of(order.verb.name, given.token)
    data = _label_results(order, answer, given.own, answers)
    held = TableShardSize.by(part) if order.verb.changes else None
    result = VerbResult(stored_shapes(data), answer, None, absent_rows, asking.results, held)
    return TaskOutput(result, data)


@function_translates_memory_errors
def _asking(
    host: ShardHost, part: TableShard, verb: Verb, given: LocalInputs, progress: ThreadProgress
) -> VerbExecution:
    """Read this rank's arrays, and return the execution of the verb."""
    try:
        columns = given.things
    except KeyError as error:
        raise IndexLost(
            f"chunk {error} has left worker {host.worker.address}; call it again"
        ) from error
    return VerbExecution(part, verb, given.dealt, given.rank, columns, progress.advance)


def _has_room(part: TableShard, verb: Verb, given: LocalInputs) -> bool:
    """Return whether a shard can store its share of rows without growing.

    All keys count as new.
    """
    if not verb.stores:
        return True
    rows = sum(chunk.rows for chunks in given.dealt for chunk in chunks)
    return part.has_room(-(-rows // len(given.dealt)))


def _label_results(
    order: VerbRequest, answer: str, chunks: Sequence[Chunk], answers: list[list[Any]]
) -> dict[tuple[str, int], Any]:
    """Return the results under the labels of the worker's data."""
    return {
        (answer_name(answer, column), chunk.number): _on_host(array) if order.hosted else array
        for chunk, arrays in zip(chunks, answers, strict=True)
        for column, array in enumerate(arrays)
    }


def _on_host(array: Any) -> Any:
    return backends.get(None, array).to_host(array)
