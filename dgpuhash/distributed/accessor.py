"""``ddf.dgpuhash``: Dask DataFrame accessor with the verbs of an index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Unpack

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.groupby.counts import nunique_lazily, value_counts_lazily
from dgpuhash.distributed.groupby.explain import explain_frame
from dgpuhash.distributed.groupby.group_by import LazyGroupBy
from dgpuhash.distributed.groupby.verb import groupby_lazily
from dgpuhash.distributed.index.index import DistributedIndex
from dgpuhash.distributed.merge.verb import distinct_lazily, isin_lazily
from dgpuhash.errors import SpecError
from dgpuhash.frames.merge import merge
from dgpuhash.typing import (
    AnyFrame,
    Frame,
    GroupingLike,
    KeepEqual,
    MergeHow,
    MergeOptions,
    NamedColumn,
    RowIndex,
)


class IndexAccessor:
    """Accessor ``ddf.dgpuhash``, registered by ``import dgpuhash``.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> from distributed import Client
    >>> from dgpuhash.distributed import DistributedIndex
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
    >>> flights = dd.from_pandas(pd.DataFrame({"flight": [7, 8], "tailnum": ["N2", "N9"]}))
    >>> with DistributedIndex.build(planes, on="tailnum", client=client) as index:
    ...     flights.dgpuhash.merge(index, how="left").compute()
       flight tailnum  seats
    0       7      N2    182
    1       8      N9   <NA>
    >>> flights.dgpuhash.merge(dd.from_pandas(planes), how="semi").compute()
       flight tailnum
    0       7      N2
    >>> client.close()
    """

    def __init__(self, frame: Frame) -> None:
        self._frame: Any = frame

    def merge(
        self,
        right: Frame | NamedColumn | RowIndex,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: MergeHow = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: tuple[str | None, str | None] = ("_x", "_y"),
        **options: Unpack[MergeOptions],
    ) -> AnyFrame:
        """Return the lazy merge of this frame with an index or another frame.

        Parameters
        ----------
        right : DistributedIndex, Dask or pandas DataFrame
        on, left_on, how, columns, suffixes
            As for `DistributedIndex.merge`, or `dgpuhash.merge`; this frame is the `left`.
        **options
            The others of that verb: indicator, validate and promote; for an index persist,
            bloom_filter and deduplicate; for a frame right_on, left_index, right_index, sort,
            nulls_equal, build, npartitions and client.

        Raises
        ------
        UnsupportedError, ColumnError, KeyTypeError, ClosedError, SpecError
            As for those; SpecError also when an option is unknown.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedIndex
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> planes = pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]})
        >>> flights = dd.from_pandas(pd.DataFrame({"plane": ["N2", "N9"]}))
        >>> with DistributedIndex.build(planes, on="tailnum", client=client) as index:
        ...     flights.dgpuhash.merge(index, left_on="plane", how="anti").compute()
          plane
        1    N9
        >>> client.close()
        """
        side: Any = right
        asked: Any = how
        given: Any = options
        standing = isinstance(right, DistributedIndex)
        unknown = sorted(options.keys() - (_OF_INDEXES if standing else _OF_FRAMES))
        if unknown:
            what = "an index" if standing else "a frame"
            known = sorted(_OF_INDEXES if standing else _OF_FRAMES)
            raise SpecError(f"{unknown[0]}= in a merge with {what}; known options are {known}")
        if standing:
            return side.merge(
                self._frame, on, left_on=left_on, how=asked, columns=columns, suffixes=suffixes,
                **given,
            )  # fmt: skip
        return merge(
            self._frame, side, asked, on, left_on, columns=columns, suffixes=suffixes, **given
        )

    def drop_duplicates(
        self,
        subset: Hashable | Sequence[Hashable] | None = None,
        *,
        keep: KeepEqual = "first",
        npartitions: int | None = None,
    ) -> AnyFrame:
        """Return the distinct rows by key, lazily, one partition per hash range of the keys.

        Parameters
        ----------
        subset : label or list of labels, optional
            The columns that are the key; default: all.
        keep : {"first", "last", False}
            Which row of a key is kept, in the order of the partitions and their rows; False keeps
            only rows whose key no other row has.
        npartitions : int, optional
            Default: the number of workers.

        Returns
        -------
        Dask DataFrame
            The rows that `pandas.DataFrame.drop_duplicates` returns, with their labels; in each
            partition in the order of the frame. Few rows are all in the first one.

        Raises
        ------
        ColumnError, KeyTypeError, SpecError, UnsupportedError
            When a column is missing or cannot be a key, an argument is unknown, or there is no
            client.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> visits = dd.from_pandas(pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]}))
        >>> visits.dgpuhash.drop_duplicates("who", keep="last").compute().sort_index()
           who  day
        1   Bo    1
        2  Ada    2
        >>> client.close()
        """
        return distinct_lazily(self._frame, subset, keep, npartitions)

    def groupby(
        self,
        by: GroupingLike | None = None,
        *,
        level: Hashable | Sequence[Hashable] = None,
        sort: bool = True,
        dropna: bool = True,
        observed: bool = True,
        as_index: bool = True,
        npartitions: int | None = None,
    ) -> LazyGroupBy:
        """Group the rows by key; the aggregates of the result are lazy.

        Parameters
        ----------
        by, level, sort, dropna, observed, as_index, npartitions
            As for `dgpuhash.groupby`.

        Raises
        ------
        ColumnError, ShapeError, SpecError, KeyTypeError, UnsupportedError
            As for `dgpuhash.groupby`.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> visits = dd.from_pandas(pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]}))
        >>> last = visits.dgpuhash.groupby("who", npartitions=1)["day"].max()
        >>> last.compute().to_dict()
        {'Ada': 2, 'Bo': 1}
        >>> client.close()
        """
        return groupby_lazily(
            self._frame, by, level=level, sort=sort, dropna=dropna, observed=observed,
            as_index=as_index, npartitions=npartitions,
        )  # fmt: skip

    def nunique(
        self,
        subset: Hashable | Sequence[Hashable] | None = None,
        *,
        dropna: bool = True,
        npartitions: int | None = None,
    ) -> AnyFrame:
        """Return the number of distinct values of one or several columns, lazily.

        Parameters
        ----------
        subset : label or list of labels, optional
            Default: all columns.
        dropna : bool
            Whether nulls are no value of their own.
        npartitions : int, optional
            Hash ranges of the values. Default: the number of workers.

        Returns
        -------
        Dask Scalar for a label, otherwise a Dask Series

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError
            When a column is missing or cannot be a key, or there is no client.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> visits = dd.from_pandas(pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 1]}))
        >>> int(visits.dgpuhash.nunique("who").compute())
        2
        >>> visits.dgpuhash.nunique().compute().to_dict()
        {'who': 2, 'day': 1}
        >>> client.close()
        """
        return nunique_lazily(self._frame, subset, dropna=dropna, npartitions=npartitions)

    def value_counts(
        self,
        subset: Hashable | Sequence[Hashable] | None = None,
        *,
        normalize: bool = False,
        sort: bool = True,
        ascending: bool = False,
        dropna: bool = True,
        npartitions: int | None = None,
    ) -> AnyFrame:
        """Return how often each distinct row occurs, as a lazy Series.

        Categories that no row has count as well, as in pandas: then there is one partition.

        Parameters
        ----------
        subset : label or list of labels, optional
            The columns; default: all.
        normalize : bool
            Whether shares of all rows are told.
        sort, ascending : bool
            Whether counts come in their order, in one partition, and in which. Otherwise there is a
            partition for each hash range of the values.
        dropna : bool
            Whether rows with a null are left out.
        npartitions : int, optional
            Hash ranges of the values. Default: the number of workers.

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError
            When a column is missing or cannot be a key, or there is no client.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> visits = dd.from_pandas(pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2]}))
        >>> visits.dgpuhash.value_counts("who").compute().to_dict()
        {'Ada': 2, 'Bo': 1}
        >>> client.close()
        """
        return value_counts_lazily(
            self._frame, subset, normalize=normalize, sort=sort, ascending=ascending,
            dropna=dropna, npartitions=npartitions,
        )  # fmt: skip

    def isin(
        self, values: Frame | NamedColumn, on: Hashable | Sequence[Hashable] | None = None
    ) -> AnyFrame:
        """Return a lazy boolean Series: whether each row's key occurs in another frame.

        Parameters
        ----------
        values : Dask or pandas DataFrame
        on : label or list of labels, optional
            The key columns of both; default: the columns that both have.

        Raises
        ------
        ColumnError, KeyTypeError, UnsupportedError
            As for `dgpuhash.merge`.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> flights = dd.from_pandas(pd.DataFrame({"tailnum": ["N2", "N9"]}))
        >>> flights.dgpuhash.isin(pd.DataFrame({"tailnum": ["N1", "N2"]})).compute().tolist()
        [True, False]
        >>> client.close()
        """
        return isin_lazily(self._frame, values, on)

    def explain(self) -> str:
        """Describe in words how this library's merges and groupbys of the frame will run.

        Of each merge: who asks and which side is indexed, and why; where its rows are placed, and
        which columns are stored; what is read of each side once Dask has moved columns and
        conditions there, with the bytes that are known beforehand; what is sent, and the partitions
        of the result. Of each groupby: whether states or rows are sent, to how many hash ranges,
        and what is read. A frame without either says so. Nothing is computed; of Parquet files that
        PyArrow reads, Dask reads the statistics of three.

        Raises
        ------
        UnsupportedError
            When there is no client.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> planes = dd.from_pandas(pd.DataFrame({"tailnum": ["N1", "N2"], "seats": [55, 182]}))
        >>> flights = dd.from_pandas(
        ...     pd.DataFrame({"tailnum": ["N2", "N9"], "day": [1, 2], "gate": [4, 5]}),
        ...     npartitions=2,
        ... )
        >>> merged = flights.dgpuhash.merge(planes, on="tailnum", how="outer")
        >>> print(merged[["tailnum", "day"]].dgpuhash.explain())  # doctest: +ELLIPSIS
        outer merge by 'tailnum': 2 partitions of the left side ask, in their order
        indexed: the right side, as rows come in the order of the left side
        placed: distributed over 2 hash ranges of its keys
        stored: its keys alone
        left side: 2 partitions, ..., columns ['tailnum', 'day'] of 3
        right side: 1 partition, ..., columns ['tailnum'] of 2
        sent: keys to their owners; back: []
        then: 2 partitions with rows of the right side that nothing matches
        result: 4 partitions, divisions unknown
        >>> client.close()
        """
        return explain_frame(self._frame, client_of(None))


class SeriesAccessor:
    """Accessor ``series.dgpuhash`` of Dask Series, registered by ``import dgpuhash``.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> from distributed import Client
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> days = dd.from_pandas(pd.Series([3, 1, 3], name="day"), npartitions=2)
    >>> days.dgpuhash.value_counts().compute().to_dict()
    {3: 2, 1: 1}
    >>> int(days.dgpuhash.nunique().compute())
    2
    >>> client.close()
    """

    def __init__(self, series: Any) -> None:
        self._series = series

    def groupby(self, by: Any = None, **options: Any) -> LazyGroupBy:
        """Group the values by key; see `dgpuhash.groupby`."""
        return groupby_lazily(self._series, by, **options)

    def nunique(self, *, dropna: bool = True, npartitions: int | None = None) -> Any:
        """Return the number of distinct values, lazily; see `IndexAccessor.nunique`."""
        return nunique_lazily(self._series, dropna=dropna, npartitions=npartitions)

    def value_counts(self, **options: Any) -> Any:
        """Return how often each value occurs, lazily; see `IndexAccessor.value_counts`."""
        return value_counts_lazily(self._series, **options)

    def drop_duplicates(
        self, *, keep: str | bool = "first", npartitions: int | None = None
    ) -> Any:  # fmt: skip
        """Return the distinct values, lazily; see `IndexAccessor.drop_duplicates`."""
        rows = distinct_lazily(self._series, None, keep, npartitions)
        return rows[rows.columns[0]].rename(self._series.name)

    def explain(self) -> str:
        """Describe in words how this library's merges and groupbys of the Series will run.

        Examples
        --------
        >>> import dask.dataframe as dd, pandas as pd
        >>> from distributed import Client
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> visits = dd.from_pandas(pd.DataFrame({"who": ["Ada", "Bo"], "day": [1, 2]}))
        >>> last = visits.dgpuhash.groupby("who")["day"].max()
        >>> print(last.dgpuhash.explain())  # doctest: +ELLIPSIS
        max by 'who': the source is one partition, whose groups one task makes
        source: 1 partition, ..., columns ['who', 'day']
        sent: nothing
        result: 1 partition, groups in the order of their keys
        >>> client.close()
        """
        return explain_frame(self._series, client_of(None))


_OF_INDEXES = frozenset(
    {"indicator", "validate", "promote", "persist", "bloom_filter", "deduplicate"}
)
_OF_FRAMES = frozenset(
    {
        "right_on", "left_index", "right_index", "sort", "indicator", "validate", "nulls_equal",
        "promote", "build", "npartitions", "client",
    }
)  # fmt: skip
