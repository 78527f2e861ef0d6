"""Every use of an undocumented name of Dask and distributed.

Names of modules that a release of Dask may move stand here once, and so do the fields of its
scheduler, workers and clients. `make matrix` runs what touches them under several releases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from time import time
from typing import Any

from dask import config
from dask._expr import optimize_until
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.dataframe.dask_expr import _collection as expression_collections
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import (
    And,
    Assign,
    Binop,
    Blockwise,
    DelayedsExpr,
    Expr,
    Filter,
    Index,
    Isin,
    MapPartitions,
    Partitions,
    PartitionsFiltered,
    Projection,
    ResetIndex,
    ToFrame,
    Unaryop,
    determine_column_projection,
    is_filter_pushdown_available,
)
from dask.dataframe.dask_expr._groupby import Aggregation, GroupBy, SeriesGroupBy
from dask.dataframe.dask_expr._repartition import Repartition, RepartitionToFewer
from dask.dataframe.dask_expr.io import FromPandas, ReadParquetPyarrowFS
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.io import BlockwiseIO, FromGraph
from dask.dataframe.dask_expr.io.parquet import ReadParquet
from dask.dataframe.io.parquet.arrow import ArrowDatasetEngine
from dask.dataframe.utils import UNKNOWN_CATEGORIES, clear_known_categories, has_known_categories
from dask.tokenize import _tokenize_deterministic as tokenize_deterministic
from distributed import Client, Future, Worker, stealing
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError
from distributed.core import Status, clean_exception, error_message, send_recv
from distributed.protocol import Serialize, Serialized, deserialize, pickle, serialize, to_serialize
from distributed.utils import LoopRunner, sync

# Errors of futures that a client has lost.
CANCELLED = FutureCancelledError, FuturesCancelledError


class LoweredExpr(PartitionsFiltered, Expr):
    """Expression that lowers itself to others, and has their graph."""

    def _layer(self) -> dict[Any, Any]:
        """Return the graph: Dask 2026.1.1 calls this to recognize an expression."""
        return dict(self.lower_completely().__dask_graph__())


def known_clients() -> Iterable[Client]:
    """Return the clients of this process."""
    return list(Client._instances)


def client_on(worker: Worker) -> Client:
    """Return a new client on the event loop of a worker, which closes it when it ends."""
    client = Client(
        worker.scheduler.address,
        loop=worker.loop,
        security=worker.security,
        set_as_default=False,
        direct_to_workers=True,
        name="worker",
    )
    Worker._initialized_clients.add(client)
    return client


def rpc_handlers(process: Any) -> dict[str, Any]:
    """Return the handlers of a scheduler or worker, by the names of their operations."""
    handlers: dict[str, Any] = process.handlers
    return handlers


def is_client_connected(scheduler: Any, client: str) -> bool:
    """Return whether the scheduler is connected to the client with this id.

    Runs on the scheduler. The last call of a lost client may end after the loss: Dask then has the
    client's name again, and keeps it.
    """
    comm = scheduler.client_comms.get(client)
    return comm is not None and not comm.closed()


def scheduler_plugin(scheduler: Any, name: str, make: Callable[[], Any]) -> Any:
    """Return the scheduler's plugin of this name, created by `make` if missing."""
    if name not in scheduler.plugins:
        scheduler.add_plugin(make(), name=name)
    return scheduler.plugins[name]


def datasets_of(scheduler: Any) -> dict[str, dict[str, Any]]:
    """Return a scheduler's published datasets by name."""
    found: dict[str, dict[str, Any]] = scheduler.extensions["publish"].datasets
    return found


def semaphores_of(scheduler: Any) -> Any:
    """Return the scheduler extension for semaphores and locks."""
    return scheduler.extensions["semaphores"]


def move_tasks(scheduler: Any, states: dict[Any, str], stimulus_id: str) -> None:
    """Transition tasks of a scheduler to other states, and start tasks that became ready."""
    scheduler.transitions(states, stimulus_id=stimulus_id)
    scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=stimulus_id)


def prefer_worker(task: Any, address: str) -> None:
    """Make a scheduler run a task on a certain worker while that worker exists."""
    task.worker_restrictions, task.loose_restrictions = {address}, True


def paused_workers(scheduler: Any) -> list[Any]:
    """Return the scheduler's states of workers that Dask paused for full memory."""
    return [each for each in scheduler.workers.values() if each.status is Status.paused]


def waits_on(task: Any, scheduler: Any) -> bool:
    """Return whether a task waits for a paused worker, or for any running worker.

    A heartbeat tells what a worker carries out.
    """
    worker = task.processing_on
    if worker is not None:
        return worker.status is Status.paused and task not in worker.executing
    return task.state in ("queued", "no-worker") and not scheduler.running


def fail_tasks(scheduler: Any, keys: Iterable[Any], error: Exception, stimulus_id: str) -> None:
    """Fail tasks of the scheduler that have no worker, and their dependents.

    Each then counts as failed by itself; those that are not wanted any more are left out.
    """
    for key in keys:
        task = scheduler.tasks.get(key)
        if task is None or task.state not in ("queued", "no-worker", "processing"):
            continue
        worker = task.processing_on
        more = scheduler.transition(
            key, "erred", stimulus_id, cause=key,
            exception=pickle.dumps(error), exception_text=repr(error),
        )  # fmt: skip
        scheduler.transitions(more, stimulus_id)
        if worker is not None:
            drop_data(scheduler, worker.address, [key])


def never_steal(names: Iterable[str], dask_scheduler: Any) -> None:
    """Exclude tasks with these names from work stealing."""
    del dask_scheduler
    stealing.fast_tasks.update(names)


def wanting_clients(task: Any) -> set[str]:
    """Return the ids of the clients that want the result of a scheduler's task."""
    return {client.client_key for client in task.who_wants or ()}


def want_keys(scheduler: Any, client: str, keys: Collection[Any]) -> None:
    """Make a scheduler keep the results of keys for `client`, connected or not."""
    scheduler.client_desires_keys(keys=keys, client=client)


def unwant_keys(scheduler: Any, client: str, keys: Collection[Any]) -> None:
    """Undo `want_keys`, if the client is still known."""
    if client in scheduler.clients:
        scheduler.client_releases_keys(keys=keys, client=client)


def put_data(worker: Any, data: Mapping[Any, Any]) -> dict[Any, int]:
    """Put data into a worker under Dask keys, and return the bytes of each.

    Runs on the worker's event loop; `hold_data` then tells the scheduler.
    """
    nbytes: dict[Any, int] = worker.update_data(dict(data))["nbytes"]
    return nbytes


def hold_data(scheduler: Any, client: str, left: Mapping[str, Mapping[Hashable, int]]) -> None:
    """Register data on workers as wanted by `client`.

    Runs on the scheduler. `left`: the bytes of each label, by worker.
    """
    sizes = {label: nbytes for mine in left.values() for label, nbytes in mine.items()}
    holders = {label: [worker] for worker, mine in left.items() for label in mine}
    scheduler.update_data(who_has=holders, nbytes=sizes)
    wanting = scheduler.clients[client]
    # Dask's own method would also send the client each key, which the answer does.
    for label in sizes:
        task = scheduler.tasks[label]
        task.who_wants = {wanting, *(task.who_wants or ())}
        wanting.wants_what.add(task)


def futures_of_held(client: Client, labels: Collection[Any]) -> dict[Hashable, Future]:
    """Return futures for data that `hold_data` registered for `client`.

    The workers drop the data when its futures are released.
    """
    futures: dict[Hashable, Future] = {label: Future(label, client) for label in labels}
    for label in futures:
        client.futures[label].finish()
    return futures


def drop_data(scheduler: Any, worker: str, labels: Collection[Hashable]) -> None:
    """Let a worker drop data that no client will claim.

    Runs on the scheduler.
    """
    if labels and worker in scheduler.workers:
        message = {"op": "free-keys", "keys": list(labels), "stimulus_id": f"dgpuhash-{time()}"}
        scheduler.worker_send(worker, message)


def forget_data(scheduler: Any, worker: str, chosen: Callable[[Any], bool]) -> None:
    """Forget those keys whose only copy is on this worker and cannot be recomputed.

    Runs on the scheduler.
    """
    leaving = scheduler.workers.get(worker)
    if leaving is not None:
        gone = [
            task.key
            for task in leaving.has_what
            if chosen(task.key) and not task.run_spec and len(task.who_has) == 1
        ]
        scheduler.transitions(dict.fromkeys(gone, "forgotten"), f"dgpuhash-{time()}")


def memory_limit(worker: Any) -> int:
    """Return a worker's memory limit in bytes; 0 for no limit."""
    return int(worker.memory_manager.memory_limit or 0)


def memory_share(worker: Any, fraction: str) -> float:
    """Return the share of its limit at which a worker spills, pauses or is killed; 0: never.

    `fraction` is ``"target"``, ``"spill"``, ``"pause"`` or ``"terminate"``, which its nanny knows.
    """
    if fraction == "terminate":
        return float(config.get("distributed.worker.memory.terminate") or 0)
    return float(getattr(worker.memory_manager, f"memory_{fraction}_fraction") or 0)


def task_of(worker: Any, key: Any) -> Any:
    """Return a worker's task of this key, or None."""
    return worker.state.tasks.get(key)


def running_keys(worker: Any) -> list[Any]:
    """Return the keys of the tasks that a worker is running."""
    return [task.key for task in list(worker.state.executing)]


def ready_count(worker: Any) -> int:
    """Return the number of a worker's tasks that are ready to run."""
    return len(worker.state.ready)


def next_tasks(worker: Any, most: int, *, of: int = 1) -> list[Any]:
    """Return the worker's next ready tasks: one of `of` equal shares, at most `most`."""
    ready = worker.state.ready
    return list(ready.peekn(min(most, -(-len(ready) // of))))
