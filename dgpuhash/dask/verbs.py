"""Replacements for Dask's verbs, with the same arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.typing import no_default
from distributed import Client
from pandas.api.types import is_extension_array_dtype

from dgpuhash.dask.answering import answering
from dgpuhash.distributed.cluster.client import worker_ids
from dgpuhash.distributed.cluster.dask_internals import has_known_categories
from dgpuhash.distributed.groupby.counts import nunique_lazily, value_counts_lazily
from dgpuhash.distributed.merge.verb import distinct_lazily, merge_lazily
from dgpuhash.distributed.runs.rounding import LoggedRounding
from dgpuhash.errors import UnsupportedError
from dgpuhash.frames import frames_of
from dgpuhash.frames.dataframes.remedies import astype
from dgpuhash.frames.merge.arguments import JoinArguments, join_kind
from dgpuhash.frames.merge.verb import as_frame
from dgpuhash.typing import Build

Verb = Callable[..., Any]


def merge_in_place(original: Verb) -> Verb:
    """Return a replacement for `dask.dataframe.merge`, which its frames call too.

    `npartitions` is honoured, unless divisions are known. `broadcast=True` puts a copy of the
    smaller side on each worker where `how` allows it. `shuffle_method` is for Dask alone: ours has
    no such choice.
    """

    @functools.wraps(original)
    def merge(
        left: Any,
        right: Any,
        how: Any = "inner",
        on: Any = None,
        left_on: Any = None,
        right_on: Any = None,
        left_index: Any = False,
        right_index: Any = False,
        suffixes: Any = ("_x", "_y"),
        indicator: Any = False,
        shuffle_method: Any = None,
        npartitions: Any = None,
        broadcast: Any = None,
    ) -> Any:
        given = {
            "how": how, "on": on, "left_on": left_on, "right_on": right_on,
            "left_index": left_index, "right_index": right_index, "suffixes": suffixes,
            "indicator": indicator,
        }  # fmt: skip
        return answering.answer(
            "merge",
            lambda client: _merged(left, right, client, given, npartitions, broadcast),
            lambda: original(
                left, right, shuffle_method=shuffle_method, npartitions=npartitions,
                broadcast=broadcast, **given,
            ),
        )  # fmt: skip

    return merge


def _merged(
    left: Any, right: Any, client: Client, given: dict[str, Any], npartitions: Any, broadcast: Any
) -> Any:
    by_keys = any(given[name] is not None for name in ("on", "left_on", "right_on"))
    by_index = given["left_index"] or given["right_index"]
    natural = given["how"] != "cross" and not (by_keys or by_index)
    if natural and not set(left.columns) & set(right.columns):
        # Frames without a common column are merged by their indexes in Dask.
        given, by_index = given | {"left_index": True, "right_index": True}, True
    if not any(isinstance(side, dd.DataFrame | dd.Series) for side in (left, right)):
        left = dd.from_pandas(left, npartitions=1)
    build = _build(left, right, given["how"], by_index=by_index, broadcast=broadcast is True)
    made = _merge(left, right, client, build, **given)
    if npartitions is not None and not made.known_divisions:
        made = made.repartition(npartitions=npartitions)
    return made


def _merge(
    left: Any, right: Any, client: Client, build: Build = "auto", *, how: Any, left_index: Any,
    right_index: Any, **given: Any,
) -> dd.DataFrame:  # fmt: skip
    """Return the merge with Dask's meta; its partitions have pandas' dtypes."""
    arguments = JoinArguments(
        join_kind(how), left_index=bool(left_index), right_index=bool(right_index),
        promote="each", on_rounding=answering.rounding_of(client), **given,
    )  # fmt: skip
    left, right = (
        side if isinstance(side, dd.DataFrame | dd.Series) else as_frame(side)
        for side in (left, right)
    )
    return merge_lazily(left, right, arguments, build=build, client=client)


def _build(left: Any, right: Any, how: Any, *, by_index: bool, broadcast: bool) -> Build:
    """Return the build side: the side with fewer partitions, where `how` leaves a choice."""
    counts = [getattr(side, "npartitions", 1) for side in (left, right)]
    if how == "inner" and 1 < counts[0] < counts[1] and not by_index:
        return "left"
    if broadcast and how in ("inner", "left", "right", "leftsemi"):
        return "replicate"
    return "auto"


def join_in_place(original: Verb) -> Verb:
    """Return a replacement for `DataFrame.join`, which joins lists in pairs, as Dask does."""

    @functools.wraps(original)
    def join(self: Any, other: Any, on: Any = None, how: Any = "left", **given: Any) -> Any:
        if isinstance(other, list):
            return answering.answer(
                "join",
                lambda client: _join(self, other, how, client),
                lambda: original(self, other, on, how, **given),
            )
        with answering.named("join"):
            # It goes to `self.merge` from there.
            return original(self, other, on, how, **given)

    return join


def _join(frame: dd.DataFrame, others: list[Any], how: Any, client: Client) -> Any:
    if not all(isinstance(each, dd.DataFrame | dd.Series) for each in others):
        raise UnsupportedError("other must be DataFrame or list of DataFrames of Dask")
    if how not in ("left", "outer"):
        raise UnsupportedError(
            f"merge_multi only supports left or outer joins, not how={how!r}; join one by one"
        )
    if how == "left":
        return _by_index(frame, _outer_of(others, client), "left", client)
    return _outer_of([frame, *others], client)


def _outer_of(frames: Sequence[Any], client: Client) -> Any:
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    left, right = (_outer_of(some, client) for some in (frames[:middle], frames[middle:]))
    return _by_index(left, right, "outer", client)


def _by_index(left: Any, right: Any, how: str, client: Client) -> dd.DataFrame:
    return _merge(left, right, client, how=how, left_index=True, right_index=True)


def distinct_in_place(original: Verb) -> Verb:
    """Return a replacement for `drop_duplicates` of frames and Series.

    A number as `split_out` is that of partitions. `split_every` and `shuffle_method` are for Dask
    alone: ours has no tree and no such choice.
    """

    @functools.wraps(original)
    def drop_duplicates(self: Any, *args: Any, **given: Any) -> Any:
        return answering.answer(
            "drop_duplicates",
            lambda client: _distinct(self, client, *args, **given),
            lambda: original(self, *args, **given),
        )

    return drop_duplicates


def _distinct(frame: Any, client: Client, *args: Any, **given: Any) -> Any:
    if isinstance(frame, dd.DataFrame):
        return _distinct_rows(frame, client, *args, **given)
    return _distinct_values(frame, client, *args, **given)


def _distinct_rows(
    frame: dd.DataFrame,
    client: Client,
    subset: Any = None,
    split_every: Any = None,
    split_out: Any = True,
    shuffle_method: Any = None,
    ignore_index: bool = False,
    keep: Any = "first",
) -> dd.DataFrame:
    del split_every, shuffle_method
    with client.as_current():
        made = distinct_lazily(
            frame, subset, keep, _ranges(split_out, frame, client), rounding_of(frame, client)
        )
    return made.reset_index(drop=True) if ignore_index else made


def _distinct_values(
    values: dd.Series,
    client: Client,
    ignore_index: bool = False,
    split_every: Any = None,
    split_out: Any = True,
    shuffle_method: Any = None,
    keep: Any = "first",
) -> dd.Series:
    frame = values.to_frame(name="values")
    made = _distinct_rows(
        frame, client, None, split_every, split_out, shuffle_method, ignore_index, keep
    )  # fmt: skip
    if isinstance(values, dd.Index):
        return made.map_partitions(_labels, values.name, meta=values._meta)
    return made["values"].rename(values.name)


def _labels(frame: Any, name: Any) -> Any:
    """Return the values of a partition as an Index."""
    return frame.set_index("values").index.rename(name)


def _ranges(split_out: Any, frame: Any, client: Client) -> int:
    """Return the hash ranges of a result: one a worker, at most the frame's partitions."""
    asked = hash_ranges(split_out(frame.npartitions) if callable(split_out) else split_out)
    return asked or min(frame.npartitions, max(1, len(worker_ids(client))))


def nunique_in_place(original: Verb) -> Verb:
    """Return a replacement for `nunique` of frames and Series.

    A number as `split_out` is that of hash ranges; `split_every` is for Dask alone.
    """

    @functools.wraps(original)
    def nunique(self: Any, *args: Any, **given: Any) -> Any:
        ours = _numbers if isinstance(self, dd.DataFrame) else _number
        return answering.answer(
            "nunique",
            lambda client: ours(self, client, *args, **given),
            lambda: original(self, *args, **given),
        )

    return nunique


def _numbers(
    frame: dd.DataFrame, client: Client, axis: Any = 0, dropna: bool = True, split_every: Any = None
) -> Any:
    del split_every
    if axis not in (0, "index"):
        raise UnsupportedError(f"nunique with axis={axis!r} is not supported, only axis=0")
    with client.as_current():
        return nunique_lazily(frame, dropna=dropna, on_rounding=rounding_of(frame, client))


def _number(
    values: dd.Series,
    client: Client,
    dropna: bool = True,
    split_every: Any = None,
    split_out: Any = True,
) -> Any:
    del split_every
    values = values.to_series() if isinstance(values, dd.Index) else values
    with client.as_current():
        return nunique_lazily(
            values, dropna=dropna, npartitions=hash_ranges(split_out),
            on_rounding=rounding_of(values, client),
        )  # fmt: skip


def value_counts_in_place(original: Verb) -> Verb:
    """Return a replacement for `value_counts` of Series.

    They are sorted where that is asked for, or `split_out` is 1, as in Dask. A number as
    `split_out` is that of hash ranges; `split_every` is for Dask alone.
    """

    @functools.wraps(original)
    def value_counts(self: Any, *args: Any, **given: Any) -> Any:
        return answering.answer(
            "value_counts",
            lambda client: _counts(self, client, *args, **given),
            lambda: original(self, *args, **given),
        )

    return value_counts


def _counts(
    values: dd.Series,
    client: Client,
    sort: bool | None = None,
    ascending: bool = False,
    dropna: bool = True,
    normalize: bool = False,
    split_every: Any = None,
    split_out: Any = True,
) -> Any:
    del split_every
    if isinstance(values.dtype, pd.CategoricalDtype):
        categories = values.dtype.categories.dtype if has_known_categories(values) else "object"
        raise UnsupportedError(
            "value_counts of a categorical column is not supported, because Dask also counts "
            "categories without rows; to count the others, convert the column with "
            f"{astype(categories)}"
        )
    ranges = hash_ranges(split_out)
    values = values.to_series() if isinstance(values, dd.Index) else values
    with client.as_current():
        made = value_counts_lazily(
            values, normalize=normalize, sort=ranges == 1 if sort is None else sort,
            ascending=ascending, dropna=dropna, npartitions=ranges,
            on_rounding=rounding_of(values, client),
        )  # fmt: skip
    if not is_extension_array_dtype(values.dtype):
        return made
    # Of nullable and Arrow values pandas has such counts.
    return made.astype(values._meta.value_counts(normalize=normalize).dtype)


def rounding_of(rows: Any, client: Client) -> LoggedRounding | None:
    """Return the callback for rounded integers of pandas rows; None for cuDF.

    Any column of cuDF can have nulls.
    """
    return answering.rounding_of(client) if frames_of(rows._meta).name == "pandas" else None


def hash_ranges(split_out: Any) -> int | None:
    """Return the number of hash ranges for Dask's `split_out`, None for any."""
    if split_out is None or split_out is True or split_out is no_default:
        return None
    return int(split_out) or 1
