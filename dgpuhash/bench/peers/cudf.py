"""cuDF: pylibcudf's joins to row numbers, merges and groupbys."""

from __future__ import annotations

from typing import Any, ClassVar

from dgpuhash.bench.peers.base import Join, Task, Work
from dgpuhash.bench.peers.pandas import Pandas

# Initial size of the memory pool, which grows.
_FIRST_BYTES = 2**32


class CuDF(Pandas):
    """cuDF with an RMM memory pool.

    Raises
    ------
    ImportError
        When cuDF is not installed.
    """

    title, package = "cuDF", "cudf"

    def __init__(self) -> None:
        import cupy
        import rmm

        cupy.get_default_memory_pool().free_all_blocks()
        current = rmm.mr.get_current_device_resource()
        if not isinstance(current, rmm.mr.PoolMemoryResource):
            rmm.mr.set_current_device_resource(rmm.mr.PoolMemoryResource(current, _FIRST_BYTES))
        super().__init__()
        # Importing cuDF changes CuPy's allocator; this package is measured with CuPy's own pool.
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
        self._cupy = cupy

    def join(self, join: Join, left: Any, right: Any) -> Work:
        how = {"semi": "leftsemi", "anti": "leftanti"}.get(join.how, join.how)
        return lambda: left.merge(right, how=how, on=join.on)

    def joins(self, left: Any, right: Any) -> dict[str, Task]:
        import pylibcudf as lib

        cp, frame = self._cupy, self._library.DataFrame
        lefts, rights = (
            frame({"key": keys, name: cp.arange(len(keys))})
            for name, keys in (("left", left), ("right", right))
        )
        tables = [lib.Table([lib.Column.from_cuda_array_interface(keys)]) for keys in (left, right)]
        equal = lib.types.NullEquality.EQUAL

        def rows(made: Any) -> tuple[Any, Any]:
            columns = made if isinstance(made, tuple | list) else (made,)
            left_rows, *others = (
                cp.asarray(self._library.Series.from_pylibcudf(each).values) for each in columns
            )
            # The row number of a missing partner is the smallest int32.
            return left_rows, cp.where(others[0] < 0, -1, others[0]) if others else None

        return {
            **{
                how: Task(lambda name=name: getattr(lib.join, name)(*tables, equal), rows)  # type: ignore[misc]
                for how, name in (
                    ("inner", "inner_join"), ("left", "left_join"), ("semi", "left_semi_join"),
                )
            },
            "merge": Task(
                lambda: lefts.merge(rights, on="key"),
                lambda made: (made["left"].values, made["right"].values),
            ),
        }  # fmt: skip

    def columns(self, keys: Any, others: Any = None) -> dict[str, Task]:
        column = self._library.DataFrame({"key": keys})["key"]
        return {
            "factorize": Task(
                column.factorize, lambda made: (self._cupy.asarray(made[0]), made[1].values)
            ),
            "value_counts": Task(
                column.value_counts, lambda made: (made.index.values, made.values)
            ),
            "unique": Task(column.unique, lambda made: (made.values,)),
        }

    def aggregated(self, keys: Any, values: Any, *hows: str) -> Task:
        frame = self._library.DataFrame({"key": keys, "value": values})
        return Task(
            lambda: frame.groupby("key", sort=False)["value"].agg(list(hows)),
            lambda made: (made.index.values, *(made[how].values for how in hows)),
        )


class SharedCuDF(CuDF):
    """cuDF whose memory pool serves every library of the process."""

    hows: ClassVar[dict[str, str]] = Pandas.hows

    def __init__(self) -> None:
        super().__init__()
        from rmm.allocators.cupy import rmm_cupy_allocator

        self._cupy.cuda.set_allocator(rmm_cupy_allocator)
