"""cuDF: pylibcudf's joins to row numbers, merges and group-bys."""

from __future__ import annotations

from typing import Any

from dgpuhash.bench.peers.base import Peer, Task

# Initial size of the memory pool, which grows.
_FIRST_BYTES = 2**32


def share_pool() -> str:
    """Have all libraries of the process allocate from cuDF's memory pool; return its version."""
    name = CuDF().name
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    cupy.cuda.set_allocator(rmm_cupy_allocator)
    return name


class CuDF(Peer):
    """cuDF with an RMM memory pool.

    Raises
    ------
    ImportError
        When cuDF is not installed.
    """

    def __init__(self) -> None:
        import cupy
        import rmm

        cupy.get_default_memory_pool().free_all_blocks()
        current = rmm.mr.get_current_device_resource()
        if not isinstance(current, rmm.mr.PoolMemoryResource):
            rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(current, _FIRST_BYTES))
        import cudf
        import pylibcudf

        # Importing cuDF changes CuPy's allocator; this package is measured with CuPy's own pool.
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
        self._cupy, self._cudf, self._pylibcudf = cupy, cudf, pylibcudf
        self.name: str = f"cuDF {cudf.__version__}"

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        cp, lib = self._cupy, self._pylibcudf
        lefts, rights = self._frame(left, "left"), self._frame(right, "right")
        tables = [lib.Table([lib.Column.from_cuda_array_interface(keys)]) for keys in (left, right)]
        equal = lib.types.NullEquality.EQUAL

        def joined(name: str) -> Any:
            return lambda: getattr(lib.join, name)(*tables, equal)

        def gathered(columns: Any) -> tuple[Any, Any]:
            left_rows, right_rows = (
                cp.asarray(self._cudf.Series.from_pylibcudf(each).values) for each in columns
            )
            # The row number of a missing partner is the smallest int32.
            return left_rows, cp.where(right_rows < 0, -1, right_rows)

        return {
            "inner": Task(joined("inner_join"), gathered),
            "left": Task(joined("left_join"), gathered),
            "semi": Task(
                joined("left_semi_join"),
                lambda column: (
                    cp.asarray(self._cudf.Series.from_pylibcudf(column).values), None
                ),
            ),
            "merge": Task(
                lambda: lefts.merge(rights, on="key"),
                lambda made: (made["left"].values, made["right"].values),
            ),
        }  # fmt: skip

    def groups(self, keys: Any, values: Any) -> dict[str, Task]:
        frame = self._cudf.DataFrame({"key": keys, "value": values})
        column = frame["key"]
        return {
            "sum + count": Task(
                lambda: frame.groupby("key", sort=False)["value"].agg(["sum", "count"]),
                lambda made: (made.index.values, made["count"].values, made["sum"].values),
            ),
            "factorize": Task(
                column.factorize, lambda made: (self._cupy.asarray(made[0]), made[1].values)
            ),
            "value_counts": Task(
                column.value_counts, lambda made: (made.index.values, made.values, None)
            ),
            "unique": Task(column.unique, lambda made: (made.values, None, None)),
        }

    def _frame(self, keys: Any, rows: str) -> Any:
        return self._cudf.DataFrame({"key": keys, rows: self._cupy.arange(len(keys))})
