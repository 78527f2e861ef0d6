"""All that this package uses of Dask and distributed beyond their documented interfaces.

Names of modules that a release of Dask may move stand here once, and so do the fields of its
scheduler, workers and clients. `make matrix` runs what touches them under several releases.
"""

from __future__ import annotations

from typing import Any

from dask._expr import optimize_until
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.dataframe.dask_expr import _collection as expression_collections
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import (
    And,
    Blockwise,
    DelayedsExpr,
    Expr,
    Filter,
    Index,
    MapPartitions,
    Partitions,
    PartitionsFiltered,
    Projection,
    determine_column_projection,
    is_filter_pushdown_available,
)
from dask.dataframe.dask_expr._groupby import GroupBy, SeriesGroupBy
from dask.dataframe.dask_expr.io import FromPandas, ReadParquetPyarrowFS
from dask.dataframe.dask_expr.io._delayed import FromDelayed
from dask.dataframe.dask_expr.io.io import BlockwiseIO, FromGraph
from dask.dataframe.io.parquet.arrow import ArrowDatasetEngine
from dask.dataframe.utils import UNKNOWN_CATEGORIES, clear_known_categories
from dask.tokenize import _tokenize_deterministic as tokenize_deterministic
from distributed.client import FutureCancelledError, FuturesCancelledError
from distributed.comm import CommClosedError
from distributed.core import Status, clean_exception, error_message, send_recv
from distributed.protocol import (
    Serialize,
    Serialized,
    deserialize,
    pickle,
    serialize,
    to_serialize,
)
from distributed.utils import LoopRunner, sync

# Errors of futures that a client has lost.
CANCELLED = FutureCancelledError, FuturesCancelledError

__all__ = [
    "CANCELLED",
    "UNKNOWN_CATEGORIES",
    "Alias",
    "And",
    "ArrowDatasetEngine",
    "Blockwise",
    "BlockwiseIO",
    "CommClosedError",
    "DataNode",
    "DelayedsExpr",
    "Expr",
    "Filter",
    "FromDelayed",
    "FromGraph",
    "FromPandas",
    "GroupBy",
    "Index",
    "LoopRunner",
    "LoweredExpr",
    "MapPartitions",
    "Partitions",
    "PartitionsFiltered",
    "Projection",
    "ReadParquetPyarrowFS",
    "Serialize",
    "Serialized",
    "SeriesGroupBy",
    "Status",
    "Task",
    "TaskRef",
    "clean_exception",
    "clear_known_categories",
    "deserialize",
    "determine_column_projection",
    "error_message",
    "expression_collections",
    "is_filter_pushdown_available",
    "new_collection",
    "optimize_until",
    "pickle",
    "send_recv",
    "serialize",
    "sync",
    "to_serialize",
    "tokenize_deterministic",
]


class LoweredExpr(PartitionsFiltered, Expr):
    """Expression that lowers itself to others, and has their graph."""

    def _layer(self) -> dict[Any, Any]:
        """Return the graph: Dask 2026.1.1 asks an expression for it, to see that it is one."""
        return dict(self.lower_completely().__dask_graph__())
