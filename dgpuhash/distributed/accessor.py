"""``ddf.dgpuhash``: Dask DataFrame accessor with the verbs of an index."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from dask.dataframe.extensions import register_dataframe_accessor

from dgpuhash.distributed.index import DistributedIndex
from dgpuhash.distributed.pruning.policy import Switch
from dgpuhash.errors import UnsupportedError

__all__ = ["IndexAccessor"]


@register_dataframe_accessor("dgpuhash")
class IndexAccessor:
    """Accessor ``ddf.dgpuhash``, registered by importing this package.

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
    0       7      N2  182.0
    1       8      N9    NaN
    >>> client.close()
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def merge(
        self,
        index: DistributedIndex,
        on: Hashable | Sequence[Hashable] | None = None,
        *,
        left_on: Hashable | Sequence[Hashable] | None = None,
        how: str = "inner",
        columns: Sequence[Hashable] | None = None,
        suffixes: tuple[str | None, str | None] = ("_x", "_y"),
        persist: bool = False,
        bloom_filter: Switch = "auto",
        deduplicate: Switch = "auto",
    ) -> Any:
        """Merge each partition of this frame with `index`; return it lazily.

        The result is a Dask DataFrame, with order and labels as in `DistributedIndex.merge`.

        Parameters
        ----------
        index : DistributedIndex
        on, left_on, how, columns, suffixes, persist, bloom_filter, deduplicate
            As for `DistributedIndex.merge`; this frame is its `left`.

        Raises
        ------
        UnsupportedError
            When `index` is no `DistributedIndex`, and as for `DistributedIndex.merge`.
        ColumnError, KeyTypeError, ClosedError, SpecError
            As for `DistributedIndex.merge`.

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
        if not isinstance(index, DistributedIndex):
            raise UnsupportedError(
                f"a {type(index).__name__} is no index; make one of it with "
                "DistributedIndex.build(frame, on=…)"
            )
        return index.merge(
            self._frame, on, left_on=left_on, how=how, columns=columns, suffixes=suffixes,
            persist=persist, bloom_filter=bloom_filter, deduplicate=deduplicate,
        )  # fmt: skip
