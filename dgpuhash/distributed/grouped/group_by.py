"""DistributedGroupBy: aggregates by group on a Dask cluster, updated with new rows."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self, Unpack

from distributed import Client

from dgpuhash.distributed.cluster.client import client_of
from dgpuhash.distributed.cluster.dask_internals import new_collection
from dgpuhash.distributed.cluster.serialization import CachedPickle
from dgpuhash.distributed.index.creation import NamedHandle
from dgpuhash.distributed.ingest.commit import shard_addresses
from dgpuhash.distributed.ingest.source import collection_of, meta_of
from dgpuhash.distributed.merge.steps import RowsExpr
from dgpuhash.distributed.merge.tasks import Built
from dgpuhash.distributed.partition.descriptor import Descriptor
from dgpuhash.distributed.partition.registry import check_name, generated_name
from dgpuhash.distributed.storage.folder import Folder
from dgpuhash.errors import SpecError, UnsupportedError
from dgpuhash.frames import KeyEncoder
from dgpuhash.frames.groupby.partial.cudf.host import on_device
from dgpuhash.frames.grouped.aggregation import Aggregation, LabelledResults
from dgpuhash.typing import AnyFrame, Device, Promote, PruningSettings, QueryLike, RowsLike


class DistributedGroupBy(NamedHandle):
    """Aggregates by group on the workers of a Dask cluster, updated incrementally.

    Make one with `build`, `load` or `open`. Workers hold the states that the aggregates follow
    from: `update` adds the rows of a batch, `retract` takes some off again, and both cost the
    batch, not what is held. As with a `DistributedIndex`, changes are whole or absent, `epoch`
    counts them, and each answer is of one epoch.

    Examples
    --------
    >>> import pandas as pd
    >>> from distributed import Client
    >>> from dgpuhash.distributed import DistributedGroupBy
    >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
    >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
    >>> state = DistributedGroupBy.build(
    ...     sales, "shop", paid=("price", "sum"), sold=("price", "count"), client=client
    ... )
    >>> state.update(pd.DataFrame({"shop": ["b", "c"], "price": [4.0, 9.0]}))
    2
    >>> state.result().compute().sort_index()
          paid  sold
    shop
    a      6.0     2
    b      5.0     2
    c      9.0     1
    >>> state.lookup(["c", "d"])
      shop  paid  sold
    0    c   9.0   1.0
    1    d   NaN   NaN
    >>> state.close(); client.close()
    """

    _holds_groups: ClassVar[bool] = True

    @classmethod
    def build(
        cls,
        data: RowsLike,
        by: Hashable | Sequence[Hashable],
        aggregates: Mapping[Hashable, Sequence[Hashable]] | None = None,
        *,
        dropna: bool = True,
        sort: bool = True,
        client: Client | None = None,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        durable: str | None = None,
        single_writer: bool = False,
        **named: Sequence[Hashable],
    ) -> DistributedGroupBy:
        """Group the rows of `data`, and keep the partial states on the workers.

        Parameters
        ----------
        data : Dask, pandas or cuDF DataFrame, or mapping of arrays
            A Dask DataFrame is reduced by its workers, a partition at a time. The handle keeps a
            reference to it, and to the rows of changes, for `rebuild`, until `save`; none with
            `durable`.
            Rows of cuDF are reduced on their GPU, and results are cuDF frames. States of numbers,
            datetimes and booleans stay on the GPU; those of other keys or values are on the host,
            as ``frames`` and ``device`` of `stats` say.
        by : label or list of labels
            The key columns.
        aggregates : dict, optional
            Pairs of a column and the name of an aggregate by the label of their result, where the
            label cannot be a keyword.
        dropna : bool
            Whether rows with a null in a key are in no group.
        sort : bool
            Whether each partition of `result` is in the order of the keys.
        client, name, workers
            As for `DistributedIndex.build`.
        durable : str or path, optional
            URL of a write-ahead log, as for `DistributedIndex.build`: the states of each change are
            there before the call returns.
        single_writer : bool
            As for `DistributedIndex.build`.
        **named
            The same as `aggregates`: ``total=("price", "sum")``, or ``pandas.NamedAgg``.

        Raises
        ------
        ColumnError, KeyTypeError
            When a column is missing, doubled, or cannot be a key.
        SpecError
            When no aggregate is given, there is none of that name, a label repeats one of a key, or
            there is an index of this name.
        UnsupportedError
            When an aggregate cannot be kept up to date from states, such as a median; and as for
            `DistributedIndex.build`.
        ExistsError, OSError, IndexLost, OutOfMemoryError
            As for `DistributedIndex.build`.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedGroupBy
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> sales = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> with DistributedGroupBy.build(sales, "shop", most=("price", "max")) as state:
        ...     state.lookup("a")["most"].tolist()
        [3.5]
        >>> client.close()
        """
        client = client_of(client)
        check_name(name)
        keys = list(by) if isinstance(by, list | tuple) else [by]
        collection = collection_of(data, keys)
        groups = Aggregation.of(
            meta_of(collection), keys, {**(aggregates or {}), **named}, dropna=dropna, sort=sort
        )
        uid = uuid.uuid4().hex
        descriptor = Descriptor(
            uid=uid,
            name=name or generated_name(uid),
            epoch=1,
            shards=shard_addresses(client, workers, known=True),
            encoder=KeyEncoder.for_frame(groups.key_frame, keys),
            meta=groups.results,
            unique=True,
            log=None if durable is None else Folder(durable).url,
            groups=groups,
        )
        state = cls._create(descriptor, client, collection, single_writer=single_writer)
        state._forget_logged()
        return state

    @classmethod
    def load(
        cls,
        url: str,
        client: Client | None = None,
        *,
        name: str | None = None,
        workers: Sequence[str] | None = None,
        device: Device | None = None,
        durable: str | None = None,
        single_writer: bool = False,
    ) -> Self:
        """Load saved groups, or groups with a log, from `url`.

        Arguments and errors are those of `DistributedIndex.load`. The epochs of `changed` begin
        anew: all groups are those of epoch 1. Results of groups of cuDF frames are pandas frames
        then.

        Raises
        ------
        SpecError
            When what was saved there is a `DistributedIndex`.
        UnsupportedError
            When `device` is ``"cuda"``.
        FormatError, IndexChanged, IndexLost, DeviceError, OutOfMemoryError, OSError
            As `DistributedIndex.load`.
        """
        if device == "cuda":
            raise UnsupportedError(
                "groups on GPUs cannot be loaded here; load them with device='cpu'"
            )
        return super().load(
            url, client, name=name, workers=workers, durable=durable, single_writer=single_writer
        )

    @property
    def by(self) -> list[Hashable]:
        """Labels of the key columns."""
        return self.on

    @property
    def _groups(self) -> Aggregation:
        groups = self._descriptor.groups
        assert groups is not None
        return groups

    def update(self, rows: RowsLike) -> int:
        """Add rows to their groups, all or none; return the number of groups that changed.

        The rows are added at the newest epoch, whichever client made it, and follow all earlier
        ones. When the call returns, all workers have them.

        Parameters
        ----------
        rows : Dask, pandas or cuDF DataFrame, or mapping of arrays
            Of the library that the groups were built of, with at least the columns that are read,
            of the dtypes that they were built with.

        Raises
        ------
        ColumnError, KeyTypeError
            When columns are missing, or have other dtypes; nothing is changed then.
        IndexNotFound, IndexLost, IndexChanged, OutOfMemoryError, OSError
            As for `DistributedIndex.insert`.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedGroupBy
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> first = pd.DataFrame({"shop": ["a", "b"], "price": [2.5, 1.0]})
        >>> state = DistributedGroupBy.build(first, "shop", paid=("price", "sum"), client=client)
        >>> state.update(pd.DataFrame({"shop": ["b", "b"], "price": [4.0, 9.0]}))
        1
        >>> state.lookup("b")["paid"].tolist(), state.epoch
        ([14.0], 2)
        >>> state.close(); client.close()
        """
        return self._changed_by("update", rows)

    def retract(self, rows: RowsLike) -> int:
        """Remove rows from their groups, all or none; return the number of groups that changed.

        Groups without rows are dropped. Sums, counts and means are those of the other rows;
        variances lose digits where what is taken off lay far further apart than the rows that stay:
        `result` raises where they are not known to 10⁻⁶. Values that were never added cannot be
        noticed where the group has as many.

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
        KeyTypeError, IndexNotFound, IndexLost, IndexChanged, OutOfMemoryError, OSError
            As for `update`.

        Examples
        --------
        >>> import pandas as pd
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedGroupBy
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> first = pd.DataFrame({"shop": ["a", "b", "a"], "price": [2.5, 1.0, 3.5]})
        >>> state = DistributedGroupBy.build(first, "shop", paid=("price", "mean"), client=client)
        >>> state.retract(first.iloc[1:])
        2
        >>> state.result().compute()["paid"].to_dict()
        {'a': 2.5}
        >>> state.close(); client.close()
        """
        self._groups.check_retractable()
        return self._changed_by("retract", rows)

    def _changed_by(self, verb: str, rows: Any) -> int:
        self._check_open()
        columns = list(self._groups.source.columns)
        collection = collection_of(rows, columns)
        self._groups.check(meta_of(collection))
        changed = self._change(verb, collection, columns)
        self._forget_logged()
        return changed

    def _forget_logged(self) -> None:
        """Drop the references to rows whose states are in the log."""
        if self.durable is not None:
            self._history.forget(self._descriptor.revision)

    def save(self, url: str, *, overwrite: bool = False) -> None:
        """Save the states to a folder: an Arrow file a shard, and a manifest.

        Arguments and errors are those of `DistributedIndex.save`. From then on the handle refers to
        no rows of changes before: `rebuild` reads the save.
        """
        super().save(url, overwrite=overwrite)
        self._history.forget(self._descriptor.revision)

    def lookup(
        self, keys: QueryLike, *, promote: Promote | None = None, **options: Unpack[PruningSettings]
    ) -> AnyFrame:
        """Return the aggregates of each key; null for keys without a group.

        Arguments and errors are those of `DistributedIndex.lookup`. Of groups of cuDF frames it is
        a cuDF frame.
        """
        if self._groups.are_on_gpu:
            return super().lookup(keys, promote=promote, **options)
        asked: Any = keys
        if type(keys).__module__.partition(".")[0] == "cudf":
            asked = asked.to_pandas()
        elif type(keys).__module__.partition(".")[0] == "cupy":
            asked = asked.get()
        found = super().lookup(asked, promote=promote, **options)
        groups = self._groups
        return found if groups.like is None else on_device(found, groups.results_on_gpu)

    def result(self) -> AnyFrame:
        """Return the aggregates as a lazy Dask DataFrame, one partition per hash range.

        Labels are those of ``data.groupby(by).agg(**named)``, and so are dtypes, which do not
        depend on the data. The groups are those of the epoch of this call: computing it after a
        change raises `IndexChanged`. Where `retract` took the digits of a ``var``, ``std`` or
        ``sem``, computing it raises `UnsupportedError`; other columns of it are told.
        """
        return self._labelled(0)

    def changed(self, since: int) -> AnyFrame:
        """Return the aggregates of the groups that changed after an epoch, as `result` does.

        Groups that were dropped since are not told. Those that a `rebuild` has read again may be
        told although their aggregates are the same.

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
        >>> from distributed import Client
        >>> from dgpuhash.distributed import DistributedGroupBy
        >>> client = Client(processes=False, n_workers=2, dashboard_address=None)
        >>> first = pd.DataFrame({"shop": ["a", "b"], "price": [2.5, 1.0]})
        >>> state = DistributedGroupBy.build(first, "shop", paid=("price", "sum"), client=client)
        >>> before = state.epoch
        >>> state.update(pd.DataFrame({"shop": ["b"], "price": [4.0]}))
        1
        >>> state.changed(since=before).compute()["paid"].to_dict()
        {'b': 5.0}
        >>> state.close(); client.close()
        """
        whole = not isinstance(since, bool) and isinstance(since, int)
        self._refresh(self._current())
        if not whole or not 0 <= since <= self.epoch:
            raise SpecError(f"since={since!r}; give an epoch, from 0 to {self.epoch}")
        return self._labelled(since)

    def _labelled(self, since: int) -> Any:
        self._refresh(self._current())
        descriptor = self._current()
        built = Built("", "", CachedPickle.of(descriptor), since=since)
        plan = LabelledResults(self._groups)
        return new_collection(RowsExpr(built, plan, plan.meta, len(descriptor.shards)))

    def _held_in_words(self) -> str:
        return super()._held_in_words().replace(" rows", " groups")
