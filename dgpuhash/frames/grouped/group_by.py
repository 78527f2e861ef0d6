"""FrameGroupBy: aggregates by group in one process, updated by batches of rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dgpuhash.errors import SpecError
from dgpuhash.frames.groupby.partial.cudf.host import on_device
from dgpuhash.frames.grouped.aggregation import Aggregation, LabelledResults
from dgpuhash.frames.grouped.index import GroupChange, GroupIndex
from dgpuhash.frames.keys.encoding import KeyEncoder
from dgpuhash.tables.memory_errors import function_translates_memory_errors
from dgpuhash.tables.rwlock import ReadWriteLock, write_locked
from dgpuhash.typing import AnyFrame, Frame, QueryLike


class FrameGroupBy:
    """Aggregates by group in one process, kept up to date by batches of rows.

    Make one with `build`. It stores partial states of the aggregates: `update` adds the
    rows of a batch, `retract` takes some off again, and both cost the batch, not the groups. A
    change is whole or absent, and `epoch` counts them. `DistributedGroupBy` is the same on the
    workers of a Dask cluster.

    Examples
    --------
    >>> import pandas as pd
    >>> from dgpuhash import FrameGroupBy
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> state = FrameGroupBy.build(sales, "shop", paid=("price", "sum"), sold=("price", "count"))
    >>> state.update(pd.DataFrame({"shop": ["b", "c"], "price": [4.0, 9.0]}))
    2
    >>> state.retract(sales[:1])
    1
    >>> state.result()
          paid  sold
    shop
    a      3.5     1
    b      5.0     2
    c      9.0     1
    """

    def __init__(self, groups: Aggregation) -> None:
        self._groups = groups
        encoder = KeyEncoder.for_frame(groups.key_frame, list(groups.by))
        self._index = GroupIndex(groups, encoder, epoch=1)
        self._epoch = 0
        self._turns = ReadWriteLock()
        # A change that was prepared, and is stored now or by the next verb.
        self._pending: GroupChange | None = None

    @classmethod
    def build(
        cls, data: Frame, by: Hashable | Sequence[Hashable],
        aggregates: Mapping[Hashable, Sequence[Hashable]] | None = None, *, dropna: bool = True,
        sort: bool = True, **named: Sequence[Hashable],
    ) -> FrameGroupBy:  # fmt: skip
        """Group the rows of `data`, and keep the states of the groups.

        Parameters
        ----------
        data : pandas or cuDF DataFrame
            May be empty. Rows of cuDF are reduced on their GPU, and results are cuDF frames. States
            of numbers, datetimes and booleans stay on the GPU; those of other keys or values are on
            the host.
        by : label or list of labels
            The key columns.
        aggregates : dict, optional
            Pairs of a column and the name of an aggregate by the label of their result, where the
            label cannot be a keyword.
        dropna : bool
            Whether rows with a null in a key are in no group.
        sort : bool
            Whether `result` is in the order of the keys.
        **named
            The same as `aggregates`: ``total=("price", "sum")``, or ``pandas.NamedAgg``.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing, doubled, or cannot be a key.
        SpecError
            When no aggregate is given, there is none of that name, or a label repeats one of a key.
        UnsupportedError
            When an aggregate cannot be kept up to date from states, such as a median.
        OutOfMemoryError
            When there is not enough memory.

        Examples
        --------
        >>> import pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> FrameGroupBy.build(sales, "shop", most=("price", "max")).lookup("a")["most"].tolist()
        [3.5]
        """
        keys = list(by) if isinstance(by, list | tuple) else [by]
        results: dict[Any, Any] = {**(aggregates or {}), **named}
        made = cls(Aggregation.of(data, keys, results, dropna=dropna, sort=sort))
        made._change("update", data)
        return made

    @property
    def by(self) -> list[Hashable]:
        """Labels of the key columns."""
        return list(self._groups.by)

    @property
    def epoch(self) -> int:
        """Number of changes so far, including the build."""
        return self._epoch

    @property
    def nbytes(self) -> int:
        """Bytes of the states and the key table."""
        return self._settled().nbytes

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._settled())

    def __repr__(self) -> str:
        return f"<FrameGroupBy of {len(self):,} groups by {self.by!r}, epoch {self.epoch}>"

    def update(self, rows: Frame) -> int:
        """Add rows to their groups, all or none; return the number of groups that changed.

        Parameters
        ----------
        rows : pandas or cuDF DataFrame
            Of the library that the groups were built of, with at least the columns that are read,
            of the dtypes that they were built with.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing, or have other dtypes; nothing is changed then.
        OutOfMemoryError
            When there is not enough memory; nothing is changed then.

        Examples
        --------
        >>> import pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b"], "price": [2.5, 1.0]})
        >>> state = FrameGroupBy.build(sales, "shop", paid=("price", "sum"))
        >>> state.update(sales[1:]), state.lookup("b")["paid"].tolist()
        (1, [2.0])
        """
        return self._change("update", rows)

    def retract(self, rows: Frame) -> int:
        """Remove rows from their groups, all or none; return the number of groups that changed.

        Groups without rows are dropped; see `DistributedGroupBy.retract` for what variances lose.

        Parameters
        ----------
        rows : as for `update`
            Rows that were added by `build` or `update`.

        Raises
        ------
        UnsupportedError
            When an aggregate is none of count, size, sum, mean, var, std and sem; when infinite
            values are taken off a group that has other rows; when a sum would exceed float64.
        ColumnError
            When more rows of a group, or more values, are taken off than were added; and as for
            `update`. Nothing is changed then.
        KeyTypeError, OutOfMemoryError
            As for `update`.

        Examples
        --------
        >>> import pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> state = FrameGroupBy.build(sales, "shop", paid=("price", "mean"))
        >>> state.retract(sales[1:]), state.result()["paid"].to_dict()
        (2, {'a': 2.5})
        """
        self._groups.check_retractable()
        return self._change("retract", rows)

    @function_translates_memory_errors
    @write_locked
    def _change(self, verb: str, rows: Frame) -> int:
        self._turns.begin()
        self._finish()
        index = self._index
        states = self._groups.reduce(rows, 0)
        change = index.stage(verb, states, self._epoch + 1)
        self._pending = change
        try:
            index.commit(change)
        except BaseException:
            if not index.has_begun(change):
                self._pending = None
            raise
        self._finish(again=False)
        return change.groups

    def _finish(self, *, again: bool = True) -> None:
        """Complete an interrupted change."""
        if (change := self._pending) is not None:
            if again:
                self._index.commit(change, again=True)
            self._epoch = change.epoch
            self._pending = None

    @write_locked
    def _finish_later(self) -> None:
        self._turns.begin()
        self._finish()

    def _settled(self) -> GroupIndex:
        """Return the index after completing an interrupted change."""
        if self._pending is not None:
            self._finish_later()
        return self._index

    def lookup(self, keys: QueryLike) -> AnyFrame:
        """Return the aggregates of each key; null for keys without a group.

        Arguments and errors are those of `FrameIndex.lookup`. Of groups of cuDF frames it is a cuDF
        frame.

        Examples
        --------
        >>> import pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b"], "price": [2.5, 1.0]})
        >>> FrameGroupBy.build(sales, "shop", paid=("price", "sum")).lookup(["b", "c"])
          shop  paid
        0    b   1.0
        1    c   NaN
        """
        if self._groups.are_on_gpu:
            return self._settled().lookup(keys)
        given: Any = keys
        if type(keys).__module__.partition(".")[0] == "cudf":
            given = given.to_pandas()
        found = self._settled().lookup(given)
        return found if self._groups.like is None else on_device(found, self._groups.results_on_gpu)

    def result(self) -> AnyFrame:
        """Return the aggregates with the keys as index.

        Labels are those of ``data.groupby(by).agg(**named)``, and so are dtypes, which do not
        depend on the data. Where `retract` took the digits of a ``var``, ``std`` or ``sem`` it
        raises `UnsupportedError`.
        """
        return self.changed(0)

    def changed(self, since: int) -> AnyFrame:
        """Return the aggregates of the groups that changed after an epoch, as `result` does.

        Groups that were dropped since are not returned.

        Parameters
        ----------
        since : int
            An earlier value of `epoch`.

        Raises
        ------
        SpecError
            When `since` is no epoch so far.

        Examples
        --------
        >>> import pandas as pd
        >>> sales = pd.DataFrame({"shop": ["a", "b"], "price": [2.5, 1.0]})
        >>> state = FrameGroupBy.build(sales, "shop", paid=("price", "sum"))
        >>> before = state.epoch
        >>> state.update(sales[1:])
        1
        >>> state.changed(since=before)["paid"].to_dict()
        {'b': 2.0}
        """
        index = self._settled()
        whole = not isinstance(since, bool) and isinstance(since, int)
        if not whole or not 0 <= since <= self._epoch:
            raise SpecError(f"since={since!r}; give an epoch, from 0 to {self._epoch}")
        return LabelledResults(self._groups).restore(index.results(since))
