"""Base class of indexes with the verbs `lookup`, `contains` and `find`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, overload

from dgpuhash.frames.key_input import Query
from dgpuhash.frames.lookup import Lookup
from dgpuhash.frames.merge.arguments import check_promote
from dgpuhash.typing import AnyFrame, Array, ArrayKind, Promote, QueryLike

if TYPE_CHECKING:
    import pandas as pd


class LookupMixin(ABC):
    """Base of `FrameIndex` and `DistributedIndex`: look up rows by key.

    The verbs accept keys as

    * a DataFrame with the key columns; others are ignored;
    * a Series or an array, for an index on one column: pandas, cuDF, NumPy, CuPy, Arrow, or
      any type that supports DLPack or the CUDA array interface;
    * a mapping of arrays, one for each key column;
    * a scalar or a list of scalars, and for several key columns a tuple or a list of tuples.

    Keys are compared by value, whatever their dtypes: a key that the index's type cannot hold, such
    as 2.5 or 2**70 among integers, is absent.

    Keys for cuDF rows are on the GPU, keys for pandas rows on the host; lists follow the rows.
    """

    @abstractmethod
    def _query(self, keys: Any) -> Query:
        """Return the query for `keys`."""

    @abstractmethod
    def _look_up(self, asked: Any, *, keyed: bool, promote: str | None) -> Lookup:
        """Return the lookup of a frame of keys, as `lookup_rows` does."""

    @abstractmethod
    def _found(self, asked: Any) -> Any:
        """Return a mask of the stored keys in `asked`, a frame of key columns."""

    @overload
    def lookup(self, keys: pd.DataFrame, *, promote: Promote | None = None) -> pd.DataFrame: ...
    @overload
    def lookup(self, keys: QueryLike, *, promote: Promote | None = None) -> AnyFrame: ...
    def lookup(self, keys: QueryLike, *, promote: Promote | None = None) -> AnyFrame:
        """Return the rows stored for each of `keys`, in the form of the keys.

        In input order; all rows of a key in insertion order. A key that is not stored has one row
        of nulls; `contains` and `find` distinguish it from a key with nulls.

        Parameters
        ----------
        keys : DataFrame, Series, array, mapping of arrays, scalar, list, tuple or list of tuples
            As `LookupMixin` says.
        promote : {"nullable", "pandas"}, optional
            What integers and booleans become that are null for some key: nullable dtypes, or
            float64 and object (default), which raises ColumnError where it would round an integer.

        Returns
        -------
        DataFrame
            For a DataFrame: ``keys[on].merge(rows, how="left", on=on)``, of the same library. For
            scalars, lists and tuples: the same merge as a pandas frame, or a cuDF one when the rows
            are cuDF.
        Series or DataFrame
            For a Series: the stored columns with the labels of the keys, like ``Series.map``. A
            Series when the index has one column beside its keys.
        array, or dictionary of arrays by column
            For an array: the stored columns as arrays of its type (NumPy or CuPy for DLPack and
            CUDA array interface types), with the dtypes of the left merge. One array when
            the index has one column beside its keys. For a mapping of arrays: a dictionary of all
            columns of the left merge.

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError
            When keys do not fit the key columns.
        DeviceError
            When the keys are on the host and the rows on the GPU, or the other way round.
        UnsupportedError
            When keys are lazy; when a CuPy array cannot hold a column (text, dates, booleans
            with nulls): give the keys as a cuDF Series or DataFrame.
        IndexLost
            When a shard of a distributed index is lost; `IndexNotFound` when another client closed
            the index; `IndexChanged` when other clients keep changing it during the lookup.

        Notes
        -----
        An index of key columns alone returns the keys themselves for a Series or an array, null
        where a key is not stored.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> from dgpuhash import FrameIndex
        >>> ages = pd.DataFrame({"name": ["Ada", "Bo"], "age": [36, 7]})
        >>> index = FrameIndex.build(ages, on="name")
        >>> index.lookup(pd.DataFrame({"name": ["Bo", "Eve"], "seat": [1, 2]}))
          name  age
        0   Bo  7.0
        1  Eve  NaN
        >>> index.lookup(pd.Series(["Bo", "Ada"], index=["x", "y"]))
        x     7
        y    36
        Name: age, dtype: int64
        >>> index.lookup(np.array(["Bo", "Ada"]))
        array([ 7, 36])
        >>> index.lookup({"name": np.array(["Bo", "Ada"])})["age"]
        array([ 7, 36])
        >>> index.lookup("Ada")
          name  age
        0  Ada   36

        With several rows of a key, and several stored columns:

        >>> visits = {"who": ["Ada", "Bo", "Ada"], "day": [1, 1, 2], "hour": [9, 8, 7]}
        >>> index = FrameIndex.build(pd.DataFrame(visits), on="who")
        >>> index.lookup(pd.Series(["Bo", "Ada"], index=["x", "y"]))
           day  hour
        x    1     8
        y    1     9
        y    2     7
        >>> index.lookup(np.array(["Ada"]))
        {'day': array([1, 2]), 'hour': array([9, 7])}
        """
        check_promote(promote)
        query = self._query(keys)
        return query.answer(self._look_up(query.frame, keyed=query.keyed, promote=promote))

    @overload
    def contains(self, keys: ArrayKind) -> ArrayKind: ...
    @overload
    def contains(self, keys: QueryLike) -> Array: ...
    def contains(self, keys: QueryLike) -> Array:
        """Return whether each of `keys` is stored, in input order.

        No stored column beside the keys is read or moved.

        Parameters
        ----------
        keys : DataFrame, Series, array, mapping of arrays, scalar, list, tuple or list of tuples
            As `LookupMixin` says.

        Returns
        -------
        bool array or Series
            For a DataFrame or Series, a Series with its labels; for an array, an array of its type;
            for a mapping of arrays, a NumPy or CuPy array; for scalars, lists and tuples, a NumPy
            array. It has no nulls. As with ``Series.isin``, a Series of masked integers, floats or
            booleans gives dtype ``boolean``, any other Series plain bool. An array with one of
            pandas' nullable or Arrow dtypes gives a boolean array of that dtype family.

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError, DeviceError, UnsupportedError, IndexLost
            As for `lookup`.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> from dgpuhash import FrameIndex
        >>> index = FrameIndex.build(pd.DataFrame({"k": [5, 6], "v": ["a", "b"]}), on="k")
        >>> index.contains(np.array([6, 7, 5]))
        array([ True, False,  True])
        >>> index.contains(pd.Series([6, 7], index=["x", "y"]))
        x     True
        y    False
        dtype: bool
        >>> index.contains(5)
        array([ True])
        """
        query = self._query(keys)
        return query.mask(self._found(query.frame))

    def find(self, keys: QueryLike, *, promote: Promote | None = None) -> Lookup:
        """Return rows, key positions and a mask of the stored keys, for `keys`.

        Parameters
        ----------
        keys : DataFrame, Series, array, mapping of arrays, scalar, list, tuple or list of tuples
            As `LookupMixin` says.
        promote : {"nullable", "pandas"}, optional
            As for `lookup`.

        Returns
        -------
        Lookup
            ``frame``, ``query_rows`` and ``found``: a DataFrame and arrays, whatever the form of
            the keys.

        Raises
        ------
        ColumnError, KeyTypeError, ShapeError, DeviceError, UnsupportedError, IndexLost
            As for `lookup`.

        Examples
        --------
        >>> import pandas as pd
        >>> from dgpuhash import FrameIndex
        >>> visits = pd.DataFrame({"who": ["Ada", "Bo", "Ada"], "day": [1, None, 2]})
        >>> found = FrameIndex.build(visits, on="who").find(["Bo", "Eve", "Ada"])
        >>> found.frame
           who  day
        0   Bo  NaN
        1  Eve  NaN
        2  Ada  1.0
        3  Ada  2.0
        >>> found.query_rows
        array([0, 1, 2, 2])
        >>> found.found
        array([ True, False,  True])
        """
        check_promote(promote)
        query = self._query(keys)
        return query.whole(self._look_up(query.frame, keyed=True, promote=promote))
