"""Distinct keys of a frame, and membership of its keys in another frame."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dgpuhash import backend
from dgpuhash.errors import SpecError
from dgpuhash.frames.dataframes import as_series, frames_of
from dgpuhash.frames.dataframes.pandas_casts import is_unknown
from dgpuhash.frames.dataframes.partition_dtypes import PandasDtypes, with_nullable
from dgpuhash.frames.dataframes.promotion import nullable_rows
from dgpuhash.frames.dataframes.strings import ArrowStrings
from dgpuhash.frames.key_columns import KeyColumn, LogicalType
from dgpuhash.frames.keys.categories import as_values, with_texts
from dgpuhash.frames.keys.encoding import EncodedKeys, KeyColumns, KeyEncoder
from dgpuhash.frames.merge.arguments import OnRounding
from dgpuhash.frames.merge.index import index_of
from dgpuhash.frames.merge.keys import JoinKeys, KeyPair, of_objects
from dgpuhash.frames.merge.rows import StoredKeys, encoder_of, with_short_words
from dgpuhash.tables import unique
from dgpuhash.tables.columns.direct import DenseKeys
from dgpuhash.tables.columns.isin import membership_mask
from dgpuhash.tables.columns.join import filtered_rows

# Nulls of an object column that differ from each other where it is the only one compared.
_NULLS: tuple[type, ...] = (type(None), float, type(pd.NaT), type(pd.NA))
# Rows of a sample by which parts are known whose keys hardly occur again, and of such parts.
_SAMPLE, _SAMPLED_ROWS = 2**13, 2**16
# From so many rows on a mask of a byte a row takes less time than their numbers.
_MASKED_ROWS = 2**24


def numbered(keys: pd.DataFrame, *, of_rows: bool = True) -> tuple[Any, Any]:
    """Return the number of each row's key, and the first row of each key.

    Keys are numbered in order of first appearance. Rows of one code are compared with the first of
    them; those that differ have another round. Without `of_rows` the numbers may be None.

    Examples
    --------
    >>> numbered(pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 1, 1]}))
    (array([0, 1, 0]), array([0, 1]))
    """
    if len(keys) == 0:
        xp = frames_of(keys).xp
        return xp.empty(0, np.int64), xp.empty(0, np.int64)
    return number_keys(KeyColumns.of(keys), of_rows=of_rows)


def number_keys(keys: KeyColumns, *, of_rows: bool = True) -> tuple[Any, Any]:
    """Return the number of each key and the first row of each, as `numbered`."""
    keys, close = _with_words(keys), None
    if all(each.nulls is None is not each.values for each in keys.columns):
        close = DenseKeys.of([each.values for each in keys.columns])
    if close is not None:
        return close.numbers(of_rows=of_rows)
    return KeyEncoder.for_types(keys.stored_types).for_call(keys)[1].numbers(of_rows=of_rows)


def _with_words(keys: KeyColumns) -> KeyColumns:
    """Return keys with integers in place of short strings, equal where the strings are.

    Unchanged where some strings are longer and have many values, or are null.
    """
    alone = len(keys.columns) == 1
    numbers = (_with_numbers(each, alone=alone) for each in keys.columns)
    columns = [each for each in numbers if each is not None]
    return replace(keys, columns=columns) if len(columns) == len(keys.columns) else keys


def _with_numbers(column: KeyColumn, *, alone: bool) -> KeyColumn | None:
    """Return a string column as integers; None if it is no string column."""
    strings = column.strings
    if not isinstance(strings, ArrowStrings):
        return None if column.values is None else column
    codes = strings.dictionary_codes()
    if codes is not None:
        return KeyColumn(LogicalType("int", 32), codes)
    words = strings.words()
    if words is None:
        return None
    # Numbers of distinct strings lie close together, and leave bits to other columns.
    close: Any = words if alone else unique(words, return_inverse=True)[1]
    return KeyColumn(LogicalType("uint", 64), close.view(np.uint64))


def occurs(left: KeyColumns, right: KeyColumns, *, nulls_equal: bool = True) -> Any:
    """Return a mask of the left keys that occur on the right.

    A left row is matched once, however many right rows have its key.

    Examples
    --------
    >>> sides = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [2, 2, 3]})
    >>> occurs(*map(KeyColumns.of, sides))
    array([False,  True])
    """
    xp = left.frames.xp
    if len(left) == 0 or len(right) == 0:
        return xp.zeros(len(left), bool)
    if left.columns[0].strings is not None:
        left, right = with_short_words(left, right)
    encoder, known = encoder_of(left, right).for_call(right)
    asked = encoder.encode_columns(left)
    if known.proves and asked.proves:
        words = map(xp.ascontiguousarray, (asked.codes, known.codes))
        found = membership_mask(backend.get(left.frames.device), *words)
        found = found if asked.valid is None else found & asked.valid
    else:
        # Each row of a code is compared, and thousands may have one key.
        heads = number_keys(right, of_rows=False)[1]
        distinct = right if len(heads) == len(right) else right.take(heads)
        partners, pairs = StoredKeys(distinct, encoder, len(left)).find_matches(left)
        if partners is None:
            found = xp.zeros(len(left), bool)
            found[pairs[0]] = True
        else:
            found = partners >= 0
    return found if nulls_equal else found & left.complete


def filter_rows(frame: Any, keys: JoinKeys, kind: str, *, nulls_equal: bool = True) -> Any:
    """Return a frame's rows whose keys occur on the right (semi) or do not (anti)."""
    left, right = keys.sides
    frames = left.frames
    # A GPU gathers few rows by their numbers in less time than by a mask.
    if frames.selects_pairs and nulls_equal and 0 < len(left) < _MASKED_ROWS and len(right):
        encoder = encoder_of(left, right)
        if encoder.packing != "hashed":
            asked, known = encoder.encode_columns(left), encoder.encode_stored(right)
            if known.proves and asked.proves and asked.valid is None:
                device = backend.get(frames.device)
                words, alone = (asked.codes, known.codes), kind == "anti"
                return frames.keep(frame, filtered_rows(device, *words, alone=alone))
    found = occurs(left, right, nulls_equal=nulls_equal)
    return frames.keep_where(frame, found, kind)


def null_kinds(series: pd.Series) -> pd.Series:
    """Return a number for the kind of null of each value, 0 for non-nulls."""
    kinds = np.zeros(len(series), np.int64)
    for row in np.flatnonzero(series.isna().to_numpy()):
        value = series.iloc[row]
        # Others, such as Decimal's, equal nothing.
        known = [place for place, kind in enumerate(_NULLS, 1) if isinstance(value, kind)]
        kinds[row] = known[0] if known else len(_NULLS) + 1 + row
    return pd.Series(kinds)


def check_keep(keep: Any) -> None:
    """Raise SpecError unless `keep` is "first", "last" or False."""
    if not (keep is False or keep in ("first", "last")):
        raise SpecError(f"keep={keep!r}; use 'first', 'last' or False")


def kept_rows(keys: pd.DataFrame, keep: str | bool) -> Any:
    """Return the positions of the rows to keep of each key, ascending.

    Parameters
    ----------
    keys : DataFrame
    keep : {"first", "last", False}

    Examples
    --------
    >>> kept_rows(pd.DataFrame({"k": [1, 2, 1]}), False)
    array([1])
    """
    frames = frames_of(keys)
    xp = frames.xp
    if keep == "last":
        backward = frames.take(keys, xp.arange(len(keys))[::-1])
        return len(keys) - 1 - kept_rows(backward, "first")[::-1]
    if keep == "first":
        return numbered(keys, of_rows=False)[1]
    numbers, first = numbered(keys)
    return first[xp.bincount(numbers, minlength=len(first)) == 1]


def distinct_rows(frame: pd.DataFrame, places: Sequence[int], keep: str | bool) -> pd.DataFrame:
    """Return a frame's rows to keep, by the key columns at some positions.

    Examples
    --------
    >>> distinct_rows(pd.DataFrame({"k": [1, 2, 1], "v": [3, 4, 5]}), [0], "last")
       k  v
    1  2  4
    2  1  5
    """
    keys = DistinctPlan(frame, tuple(places), keep).keys(frame)
    return frame.take(kept_rows(keys, keep))


@dataclass(frozen=True)
class DistinctPlan:
    """Plan of a distributed drop_duplicates: store rows by key, keep one of each.

    Attributes
    ----------
    meta : DataFrame
        A few rows like the partitions'.
    places : tuple of int
        The columns that are the key.
    keep : {"first", "last", False}
    on_rounding : callable, optional
        Given where partitions may have integers and booleans as pandas promotes them beside nulls,
        whatever `meta` says: they are nullable while rows are stored. It is called in tasks with
        the labels of columns of which pandas' dtypes round an integer.
    """

    meta: pd.DataFrame
    places: tuple[int, ...]
    keep: str | bool
    on_rounding: OnRounding | None = None

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a partition in the stored dtypes."""
        if self.on_rounding is None:
            return frame
        return nullable_rows(with_nullable(frame, self.meta))

    def keys(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of a partition in comparable form."""
        return self.keys_of([as_series(frame.iloc[:, place]) for place in self.places])

    def keys_of(self, columns: Sequence[pd.Series]) -> pd.DataFrame:
        """Return the key columns in comparable form."""
        pairs = []
        for place, column in zip(self.places, columns, strict=True):
            label = self.meta.columns[place]
            pairs.append(KeyPair(label, label, label, (column, column)))
        as_text = [frames_of(self.meta).compares_as_text(each, each) for each in self.key_dtypes]
        keys = JoinKeys(pairs, as_text=as_text).frames[0]
        objects = isinstance(self.meta, pd.DataFrame) and self.key_dtypes == [np.dtype(object)]
        if objects:
            keys[1] = null_kinds(columns[0]).clip(upper=len(_NULLS) + 1)
        keys.columns = [f"k{place}" for place in range(keys.shape[1])]
        return keys

    @functools.cached_property
    def key_dtypes(self) -> list[Any]:
        """The dtypes of the key columns."""
        dtypes = frames_of(self.meta).dtypes(self.meta)
        return [dtypes[place] for place in self.places]

    def columns(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return a partition's columns (``c0``) and index levels (``i0``) in stored form.

        Those of objects are objects, and categories that Dask does not know are texts.
        """
        meta, made = self.meta, {}
        frame = frame if frame is meta else with_texts(frame, meta.dtypes, meta.index)
        for place, dtype in enumerate(frames_of(meta).dtypes(meta)):
            made[f"c{place}"] = of_objects(as_series(frame.iloc[:, place]), dtype)
        for level in range(frame.index.nlevels):
            labels, like = (each.index.get_level_values(level) for each in (frame, meta))
            made[f"i{level}"] = of_objects(as_series(labels), like.dtype)
        return made

    @property
    def stored_meta(self) -> pd.DataFrame:
        """An empty frame like the stored rows."""
        return self.stored(self.meta).iloc[:0]

    @property
    def stored_description(self) -> tuple[Any, ...]:
        """The options that determine `stored`."""
        asked = self.places, self.keep, self.on_rounding
        return ("distinct", repr(self.stored_meta.dtypes.to_dict()), *asked)

    @property
    def probing(self) -> str:
        """The probe side: none."""
        return ""

    def encoder(self) -> KeyEncoder:
        """Return a new encoder of the stored keys."""
        keys = self.keys(self.rows(self.meta))
        return KeyEncoder.for_frame(keys, list(keys))

    def stored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a partition that may be kept, with their labels."""
        frame = self.rows(frame)
        made = self.keys(frame)
        for label, column in self.columns(frame).items():
            made[label] = column
        if self.keep is False:
            return made
        keys = made[[label for label in made if str(label).startswith("k")]]
        return made.take(kept_rows(keys, self.keep))

    def restore(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return the rows to keep of all rows stored in one shard."""
        keys = found[[label for label in found if str(label).startswith("k")]]
        return self.labelled(found.take(kept_rows(keys.reset_index(drop=True), self.keep)))

    def labelled(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return columns (``c0``) and index levels (``i0``) as a frame like the original."""
        made = found[[f"c{n}" for n in range(self.meta.shape[1])]].reset_index(drop=True)
        for place, dtype in enumerate(frames_of(self.meta).dtypes(self.meta)):
            if is_unknown(dtype):
                made.isetitem(place, as_values(made.iloc[:, place]))
        made.columns = self.meta.columns
        names = list(self.meta.index.names)
        levels = [found[f"i{level}"] for level in range(len(names))]
        levels = [as_values(levels[0])] if is_unknown(self.meta.index.dtype) else levels
        made.index = index_of(levels, names, guess=False)
        return made if self.on_rounding is None else PandasDtypes(self.meta, self.on_rounding)(made)


@dataclass(frozen=True)
class DistinctRows:
    """Plan of a collective drop_duplicates, with the interface of a groupby's plan.

    It is a plan of rows as `GroupPlan` is one of groups: with columns (``c0``), those of the key
    first, labels (``i0``), and ``at``, which tells the order: 2^32 times the number of the part and
    the position in it.

    Attributes
    ----------
    plan : DistinctPlan
    encoder : KeyEncoder
        Of its keys.
    """

    needs_rows: ClassVar[bool] = True
    plan: DistinctPlan
    encoder: KeyEncoder

    @property
    def source(self) -> pd.DataFrame:
        """An empty part."""
        return self.plan.meta.iloc[:0]

    @property
    def meta(self) -> pd.DataFrame:
        """The empty result."""
        return self.source

    @functools.cached_property
    def states_meta(self) -> pd.DataFrame:
        """The reduced rows of an empty part."""
        return self._rows(self.source, 0)

    @property
    def key_labels(self) -> list[str]:
        """The labels of the key columns."""
        return [f"c{place}" for place in self.plan.places]

    @property
    def forms(self) -> list[DistinctRows]:
        """The plans for each form of a part's contribution."""
        return [self]

    def reduce_parts(
        self, parts: Iterable[tuple[int, pd.DataFrame]], agree: Any
    ) -> tuple[DistinctRows, list[pd.DataFrame]]:
        """Return this plan, and the rows of parts that may be kept."""
        return self, [self.reduce(part, number) for number, part in parts]

    def categories_of(self, part: Any) -> tuple[()]:
        """Return nothing, because categories are stored as values."""
        return ()

    def folded(self, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Return the rows of all parts as one frame."""
        return parts[0] if len(parts) == 1 else frames_of(parts[0]).concat(parts)

    def reduce(self, part: pd.DataFrame, number: int) -> pd.DataFrame:
        """Return the rows of a part that may be kept; all if most keys are distinct."""
        rows = frames_of(part).conform(self._rows(part, number), self.states_meta)
        if self.plan.keep is False or self._are_mostly_distinct(rows, number):
            return rows
        return frames_of(rows).take(rows, kept_rows(self.portable(rows), self.plan.keep))

    def _are_mostly_distinct(self, rows: pd.DataFrame, number: int) -> bool:
        """Return whether a sample repeats fewer keys than 3/2 rows a key would."""
        if len(rows) < _SAMPLED_ROWS:
            return False
        some = np.random.default_rng(number).choice(len(rows), _SAMPLE, replace=False)
        keys = self.portable(frames_of(rows).take(rows, some))
        again = _SAMPLE - len(kept_rows(keys, "first"))
        return 4 * again * len(rows) < _SAMPLE**2

    def _rows(self, part: pd.DataFrame, number: int) -> pd.DataFrame:
        columns = self.plan.columns(self.plan.rows(part))
        made = {label: columns[label] for label in dict.fromkeys([*self.key_labels, *columns])}
        made["at"] = pd.Series((number << 32) | np.arange(len(part)))
        return pd.DataFrame(made, copy=False)

    def portable(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of rows as columns that compare equal across parts."""
        return self.plan.keys_of([
            as_values(rows[label]) if is_unknown(dtype) else rows[label]
            for label, dtype in zip(self.key_labels, self.plan.key_dtypes, strict=True)
        ])  # fmt: skip

    def encoded(self, rows: pd.DataFrame) -> EncodedKeys:
        """Return the codes of the keys of rows."""
        return self.encoder.encode_rows(self.portable(rows))

    def result(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows to keep of rows from parts in any order."""
        order = np.argsort(rows["at"].to_numpy(), kind="stable")
        rows = frames_of(rows).take(rows, order)
        kept = kept_rows(self.portable(rows), self.plan.keep)
        return self.plan.labelled(frames_of(rows).take(rows, kept))
