"""Aggregates of cuDF columns over sorted groups, and sums of decimals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpuhash.frames.dataframes.cudf_columns import array_column, take_series
from dgpuhash.frames.groupby.aggregates.options import Options
from dgpuhash.frames.groupby.cudf.groups import as_keys
from dgpuhash.frames.groupby.cudf.values import list_column
from dgpuhash.frames.merge.distinct import number_keys
from dgpuhash.tables.columns.aggregates import ColumnReduction
from dgpuhash.tables.select import gather_rows

if TYPE_CHECKING:
    from dgpuhash.frames.groupby.cudf.states import CudfStates

_HALF = np.uint64(2**32 - 1)


def decimal_sums(states: CudfStates, options: Options) -> Any:
    """Return the sums of decimals, in the dtype of the column."""
    import pylibcudf as plc

    values, groups, xp = states.values, states.groups, states.xp
    if not len(groups):
        return values.series.iloc[:0].reset_index(drop=True)
    parts = values.unscaled
    if len(parts) == 1:
        made = _sum(states, "sum", parts[0]).astype(_integer(values))
    else:
        words = parts[0].view(np.uint64)
        # Sums of 32 bits each leave room for their carries.
        low = _sum(states, "low", (words & _HALF).view(np.int64)).view(np.uint64)
        middle = _sum(states, "middle", (words >> np.uint64(32)).view(np.int64)).view(np.uint64)
        middle += low >> np.uint64(32)
        high = _sum(states, "high", parts[1]).view(np.uint64) + (middle >> np.uint64(32))
        made = xp.empty((len(groups), 2), np.uint64)
        made[:, 0] = (low & _HALF) | (middle << np.uint64(32))
        made[:, 1] = high
        made = made.reshape(-1)
    own = values.series.to_pylibcudf()[0]
    whole = plc.Column.from_cuda_array_interface(xp.ascontiguousarray(made))
    column = plc.Column(own.type(), len(groups), whole.data(), None, 0, 0, [])
    found = type(values.series).from_pylibcudf(column)
    found = found if found.dtype == values.dtype else found.astype(values.dtype)
    void = states.void(options.least(0), options)
    if void is None or not bool(void.any()):
        return found
    return found.where(groups.frames.series(~void))


def _integer(values: Any) -> Any:
    return np.int32 if type(values.dtype).__name__ == "Decimal32Dtype" else np.int64


def _sum(states: CudfStates, name: str, column: Any) -> Any:
    reduction = ColumnReduction(column, "i8", "integer", "sum")
    return states.groups.words((id(states), "decimal", name), reduction).view(np.int64)


_WORD_BITS = 64


def fused(function: Any, xp: Any) -> Any:
    """Return a function of arrays with its steps fused into one kernel where possible."""
    fuse = getattr(xp, "fuse", None)
    return function if fuse is None else fuse()(function)


@functools.cache
def _ranking(xp: Any, bits: int) -> Any:
    word = np.dtype(f"u{bits // 8}").type
    sign, least_nan = word(1 << (bits - 1)), word({32: 0x7F800001, 64: 0x7FF0000000000001}[bits])
    most, quiet = word(2**bits - 1), word(bits - 1)

    def rank(words: Any) -> Any:
        # All NaNs are one and come last, and both zeros are one.
        plain = xp.where((words & ~sign) == word(0), word(0), words)
        ranked = xp.where((plain >> quiet) != word(0), ~plain, plain | sign)
        return xp.where((words & ~sign) >= least_nan, most, ranked)

    return fused(rank, xp)


@functools.cache
def _joining(xp: Any) -> Any:
    def join(codes: Any, words: Any, kept: Any, lost: Any) -> Any:
        return (codes << kept) | (words >> lost)

    return fused(join, xp)


@functools.cache
def _within(xp: Any) -> Any:
    def lie(words: Any, least: Any, most: Any) -> Any:
        return (words >= least) & (words <= most)

    return fused(lie, xp)


def _words(numbers: Any, xp: Any) -> tuple[Any, int, Callable[[Any], Any]]:
    """Return numbers as uint64 words in the same order, their bits, and the inverse."""
    dtype = numbers.dtype
    if dtype.kind == "f":
        word = np.dtype(f"u{dtype.itemsize}")
        sign = word.type(1 << (8 * word.itemsize - 1))
        ranked = _ranking(xp, 8 * word.itemsize)(numbers.view(word))

        def real(words: Any) -> Any:
            bits = words.astype(word)
            # The bits of the word of all NaNs are those of a NaN.
            return xp.where(bits & sign, bits ^ sign, ~bits).view(dtype)

        return ranked.astype(np.uint64, copy=False), 8 * word.itemsize, real
    wide = numbers.astype(np.uint64 if dtype.kind in "ub" else np.int64, copy=False)
    if not len(wide):
        return wide.view(np.uint64), 0, lambda words: words.view(wide.dtype)
    least, most = int(wide.min()), int(wide.max())
    words = wide.view(np.uint64) - np.uint64(least % 2**64)

    def whole(words: Any) -> Any:
        return (words + np.uint64(least % 2**64)).view(wide.dtype)

    return words, (most - least).bit_length(), whole


class Ranked:
    """Sorted values of each group, by one sort of words with group and value.

    Where group and value do not fit 64 bits, the last bits of values are left out at first; rows
    whose other bits are those of a value that is asked for are then compared in full.
    """

    def __init__(self, states: CudfStates) -> None:
        values, groups, xp = states.values, states.groups, states.xp
        self.xp = xp
        numbers, codes = values.numbers, groups.numbers
        if values.nulls is not None:
            there = xp.flatnonzero(~values.nulls)
            numbers, codes = gather_rows(numbers, there), gather_rows(codes, there)
        self._codes, self._groups = codes, groups.numbered_groups
        self._words, bits, self._decoded = _words(numbers, xp)
        group_bits = max(self._groups - 1, 0).bit_length()
        self._lost = max(0, bits + group_bits - _WORD_BITS)
        self._kept = bits - self._lost
        self._small = bits + group_bits <= 32

    @functools.cached_property
    def _composite(self) -> Any:
        """A sort word for each row: its group number, then the leading bits of its value."""
        kept, lost = np.uint64(min(self._kept, _WORD_BITS - 1)), np.uint64(self._lost)
        made = _joining(self.xp)(self._codes.view(np.uint64), self._words, kept, lost)
        return made.astype(np.uint32) if self._small else made

    @functools.cached_property
    def sorted(self) -> Any:
        """The sorted words of all rows."""
        if self._lost:
            return gather_rows(self._composite, self._order)
        return self.xp.sort(self._composite)

    @property
    def is_exact(self) -> bool:
        """Whether the words have all bits of the values."""
        return self._lost == 0

    def distinct(self, ends: Any) -> Any:
        """Return the number of distinct values before the end of each group, if exact."""
        steps = self.xp.zeros(len(self.sorted) + 1, np.int32)
        steps[1] = 1
        steps[2:] = self.sorted[1:] != self.sorted[:-1]
        steps = self.xp.cumsum(steps, dtype=np.int32)
        before = self.xp.concatenate([ends[:1] * 0, ends])
        return self.xp.diff(steps[before]).astype(np.int64)

    def at(self, low: Any, high: Any, groups: Any) -> tuple[Any, Any]:
        """Return the numbers at two neighbouring positions of the sorted rows.

        Both are of the group with this number.
        """
        if len(self._codes) == 0:
            nothing = self._decoded(self.xp.zeros(len(low), np.uint64))
            return nothing, nothing
        last = len(self._codes) - 1
        places = [each.clip(0, last) for each in (low, high)]
        if self._lost:
            words = self._full_words(places, groups)
        else:
            value = np.uint64((1 << self._kept) - 1)
            found = (gather_rows(self.sorted, each) for each in places)
            words = [each.astype(np.uint64, copy=False) & value for each in found]
        return self._decoded(words[0]), self._decoded(words[1])

    @functools.cached_property
    def _order(self) -> Any:
        """The row numbers in the order of their words, which may lack some bits."""
        return self.xp.argsort(self._composite)

    def _full_words(self, places: list[Any], groups: Any) -> list[Any]:
        """Return the complete words of the values at positions."""
        xp, order = self.xp, self._order
        rows = [gather_rows(order, each) for each in places]
        words = [gather_rows(self._words, each) for each in rows]
        begins = [gather_rows(self._composite, each) for each in rows]
        # Values that begin alike are in any order.
        alike = (begins[0] == begins[1]) & (places[0] != places[1])
        for place, begin, step in zip(places, begins, (-1, 1), strict=True):
            beside = (place + step).clip(0, len(order) - 1)
            same = gather_rows(self._composite, gather_rows(order, beside)) == begin
            alike |= same & (beside != place)
        unsure = xp.flatnonzero(alike)
        if len(unsure):
            begins, places = ([each[unsure] for each in both] for both in (begins, places))
            rests = self._lost_bits(begins, places, groups[unsure])
            for word, rest in zip(words, rests, strict=True):
                lost = np.uint64(self._lost)
                word[unsure] = ((word[unsure] >> lost) << lost) | rest
        return words

    def _lost_bits(self, found: list[Any], places: list[Any], groups: Any) -> list[Any]:
        """Return the missing bits of the values at positions, by comparing equal words."""
        xp = self.xp
        # Of groups that are not asked for no row lies within these.
        least, most = ~xp.zeros(self._groups, np.uint64), xp.zeros(self._groups, np.uint64)
        least[groups], most[groups] = found
        asked = (gather_rows(each, self._codes) for each in (least, most))
        rows = xp.flatnonzero(_within(xp)(self._composite, *asked))
        alike = gather_rows(self._composite, rows)
        rest = gather_rows(self._words, rows) & np.uint64((1 << self._lost) - 1)
        order = xp.lexsort(xp.stack([rest, alike]))
        alike, rest = alike[order], rest[order]
        made = []
        for each, place in zip(found, places, strict=True):
            at = xp.searchsorted(alike, each) + place - xp.searchsorted(self.sorted, each)
            made.append(rest[at.clip(0, len(rest) - 1)])
        return made


def _rank(states: CudfStates) -> tuple[Ranked, Any, Any]:
    """Return the sorted values, and the offsets and numbers of the result's groups."""
    groups, xp = states.groups, states.xp
    ranked = states.once("words", lambda: Ranked(states))
    counts = states.by_number("count").view(np.int64)
    starts = groups.arrange(xp.cumsum(counts) - counts)
    numbers = groups.order if groups.order is not None else xp.arange(groups.numbered_groups)
    return ranked, starts, numbers


def medians(states: CudfStates, options: Options) -> Any:
    """Return the median of each group's values."""
    return states.values.results(_quantile(states, 0.5, "linear"), states.void(1, options))


def quantiles(states: CudfStates, options: Options) -> Any:
    """Return the quantiles of each group's values, concatenated for several q."""
    values, xp = states.values, states.xp
    each = [_quantile(states, float(q), options.interpolation) for q in options.shares()]
    made, void = each[0], states.count < 1
    if len(each) > 1:
        made, void = xp.stack(each, axis=1).reshape(-1), xp.repeat(void, len(each))
    kind = values.numbers.dtype.kind
    exact = kind != "f" and options.interpolation in {"lower", "higher", "nearest"}
    flavoured = not isinstance(values.dtype, np.dtype) and hasattr(values.dtype, "numpy_dtype")
    if flavoured and not hasattr(values.dtype, "pyarrow_dtype"):
        dtype = values.numbers.dtype if kind == "f" or exact else np.float64
        return values.results(made.astype(dtype), void)
    return values.plain(made.astype(np.int64 if exact else np.float64), void)


def _quantile(states: CudfStates, q: float, how: str) -> Any:
    """Return one quantile of each group, undefined for groups without values."""
    xp = states.xp
    ranked, starts, groups = states.once("ranked", lambda: _rank(states))
    last = xp.maximum(states.count - 1, 0)
    exact = q * last
    low = xp.floor(exact).astype(np.int64)
    part = exact - low
    high = xp.minimum(low + (part > 0), last)
    below, above = ranked.at(starts + low, starts + high, groups)
    if how == "lower":
        return below
    if how == "higher":
        return above
    if how == "nearest":
        return xp.where((part > 0.5) | ((part == 0.5) & (low % 2 == 1)), above, below)
    share = xp.where(part > 0, 0.5, 0) if how == "midpoint" else part
    below, above = below.astype(np.float64), above.astype(np.float64)
    # Of two that are infinite there is no difference.
    step = xp.where((share > 0) & (below != above), (above - below) * share, 0)
    return below + step


def distinct(states: CudfStates, options: Options) -> Any:
    """Return the number of distinct values of each group."""
    values, groups, xp = states.values, states.groups, states.xp
    made = None
    if values.is_number and bool(states.count.sum()):
        ranked = states.once("words", lambda: Ranked(states))
        if ranked.is_exact:
            made = ranked.distinct(xp.cumsum(states.by_number("count").view(np.int64)))
    if made is None:
        rows = distinct_rows(states)
        if values.nulls is not None:
            rows = rows[~values.nulls[rows]]
        made = xp.bincount(groups.numbers[rows], minlength=groups.numbered_groups)
    found = groups.arrange(made).astype(np.int64)
    if options.dropna or values.nulls is None:
        return values.plain(found)
    return values.plain(found + (states.count < groups.sizes))


def distinct_rows(states: CudfStates) -> Any:
    """Return the first row of each distinct value of each group; nulls are one value."""
    codes = array_column(states.groups.numbers)
    return number_keys(as_keys([(None, states.values.column), (None, codes)]))[1]


def distinct_values(states: CudfStates, _: Options) -> Any:
    """Return a list of the distinct values of each group."""
    groups, xp = states.groups, states.xp
    heads = distinct_rows(states)
    codes = groups.codes[heads]
    order = groups.backend.stable_order(codes)
    heads, codes = heads[order], codes[order]
    kept = xp.flatnonzero(codes >= 0)
    ends = xp.zeros(len(groups) + 1, np.int64)
    ends[1:] = xp.cumsum(xp.bincount(codes[kept], minlength=len(groups)))
    return list_column(take_series(_of_values(states), heads[kept]), ends)


def lists(states: CudfStates, _: Options) -> Any:
    """Return a list of all values of each group, in order."""
    groups = states.groups
    return list_column(take_series(_of_values(states), groups.rows_by_group), groups.starts)


def _of_values(states: CudfStates) -> Any:
    series = states.values.series
    categories = getattr(series.dtype, "categories", None)
    return series if categories is None else series.astype(categories.dtype)


def join_text(states: CudfStates, options: Options) -> Any:
    """Return the concatenated text of each group."""
    import pylibcudf as plc

    values, groups = states.values, states.groups
    rows = groups.rows_by_group
    texts = take_series(values.series, rows)
    lists = list_column(texts.fillna("") if values.nulls is not None else texts, groups.starts)
    empty = plc.Scalar.from_py("")
    joined = plc.strings.combine.join_list_elements(
        lists.to_pylibcudf()[0], empty, empty, empty,
        plc.strings.combine.SeparatorOnNulls.YES,
        plc.strings.combine.OutputIfEmptyList.EMPTY_STRING,
    )  # fmt: skip
    made = type(values.series).from_pylibcudf(joined)
    made = made if made.dtype == values.dtype else made.astype(values.dtype)
    void = states.count < options.least(0)
    if not options.skipna:
        void |= states.count < groups.sizes
    return made.where(groups.frames.series(~void)) if bool(void.any()) else made


# Sums of values that kernels do not read, by their kind.
SUMS = {"text": join_text, "decimal": decimal_sums}
MEANS: dict[str, Any] = {}
