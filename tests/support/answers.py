"""Expected answers from pandas for keys in every form, and assertions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal

__all__ = ["answers_like_pandas", "left_merge", "same_array"]


def answers_like_pandas(index: Any, keys: pd.DataFrame, rows: pd.DataFrame, on: list[str]) -> None:
    """Assert that an index of `rows` answers as pandas does for these keys.

    The verbs are `lookup`, `contains` and `find`.
    """
    merged, query_rows, found = left_merge(keys, rows, on)
    stored = [label for label in rows.columns if label not in on]
    answer = index.lookup(keys)
    for label in on:
        # pandas takes the finer unit of two, or the wider dtype, only when it has to move rows.
        if answer[label].dtype.kind == "M" or not len(keys):
            merged[label] = merged[label].astype(answer[label].dtype)
    assert_frame_equal(answer, merged)
    details = index.find(keys)
    assert_frame_equal(details.frame, merged)
    same_array(details.query_rows, query_rows)
    same_array(details.found, found)
    assert_series_equal(index.contains(keys), pd.Series(found, index=keys.index))

    columns = {name: keys[name] for name in on}
    arrays = index.lookup(columns)
    assert list(arrays) == [*on, *stored]
    for label, array in arrays.items():
        same_array(alike(array), alike(merged[label].to_numpy()))
    same_array(index.contains(columns), found)
    if len(on) == 1:
        one_column_like_pandas(index, keys[on[0]], merged[stored or on], query_rows, found)


def one_column_like_pandas(
    index: Any, keys: pd.Series, merged: pd.DataFrame, query_rows: np.ndarray, found: np.ndarray
) -> None:
    """Assert as `answers_like_pandas`, for the forms with one key column."""
    labelled = merged.set_axis(keys.index.take(query_rows), axis=0)
    if len(query_rows) == len(keys):
        labelled = merged.set_axis(keys.index, axis=0)
    single = len(merged.columns) == 1
    answer = index.lookup(keys)
    if single:
        assert_series_equal(answer, labelled.iloc[:, 0])
    else:
        assert_frame_equal(answer, labelled)
    mask = pd.Series(found, index=keys.index, dtype=keys.isin([]).dtype)
    assert_series_equal(index.contains(keys), mask)

    forms = [keys.array, pd.Index(keys)]
    forms += [keys.to_numpy()] if isinstance(keys.dtype, np.dtype) else []
    for form in forms:
        arrays = index.lookup(form)
        arrays = {merged.columns[0]: arrays} if single else arrays
        assert list(arrays) == list(merged.columns)
        for label, array in arrays.items():
            same_array(array, in_form(merged[label], form))
        same_array(index.contains(form), in_form(pd.Series(found, dtype=mask_dtype(form)), form))


def mask_dtype(form: Any) -> str:
    """Return the dtype of a mask of keys in this form.

    It is nullable where the keys are, of pandas' own dtypes or Arrow's.
    """
    if isinstance(form.dtype, pd.ArrowDtype):
        return "bool[pyarrow]"
    return str(pd.Series(form).isin([]).dtype)


def left_merge(
    keys: pd.DataFrame, rows: pd.DataFrame, on: Sequence[str]
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return the left merge, the key position of each row, and the found keys."""
    on = list(on)
    numbered = keys[on].assign(position=np.arange(len(keys)))
    distinct = rows[on].drop_duplicates()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = keys[on].merge(rows, how="left", on=on)
        query_rows = numbered.merge(rows[on], how="left", on=on)["position"].to_numpy()
        there = numbered.merge(distinct, on=on)["position"]
    return merged, query_rows, np.isin(np.arange(len(keys)), there)


def alike(array: np.ndarray) -> np.ndarray:
    """Return `array` with None for every null.

    Which null value an array has depends on the storage of strings.
    """
    return np.where(pd.isna(array), None, array) if array.dtype == object else array


def in_form(series: pd.Series, form: Any) -> Any:
    """Return the values of `series` as an array of the kind of `form`."""
    if isinstance(form, pd.Index):
        return pd.Index(series)
    return series.to_numpy() if isinstance(form, np.ndarray) else series.array


def same_array(found: Any, wanted: Any) -> None:
    """Assert equal kinds, dtypes and values; nulls are equal."""
    assert type(found) is type(wanted)
    assert found.dtype == wanted.dtype
    if isinstance(wanted, pd.Index):
        assert_index_equal(found, wanted)
    else:
        assert_series_equal(
            pd.Series(found, dtype=found.dtype), pd.Series(wanted, dtype=wanted.dtype)
        )
