"""The queries of TPC-H on frames of pandas or Dask, with the parameters of the specification.

Each takes the tables and the verbs that merge and group, with the arguments of `dgpuhash.merge` and
`dgpuhash.groupby`, and returns a frame with the columns of the SQL beside it, lazy if the tables
are. Rows have no order, and all of them come back: `suites.tpch.answers` orders and cuts.
"""

from __future__ import annotations

from suites.tpch.queries import first, second
from suites.tpch.queries.shared import Query, Verbs

__all__ = ["QUERIES", "Query", "Verbs"]

QUERIES: dict[int, Query] = {
    int(query.__name__[1:]): query for query in (*first.QUERIES, *second.QUERIES)
}
