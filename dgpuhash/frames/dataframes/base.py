"""Abstract interface of a DataFrame library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dgpuhash.errors import KeyTypeError
from dgpuhash.frames.key_columns import KeyColumn, LogicalType, check_comparable
from dgpuhash.typing import Device, Promote

if TYPE_CHECKING:
    from dgpuhash.frames.merge.keys import JoinKeys, KeyPair
    from dgpuhash.frames.merge.result import MergePlan


@dataclass(frozen=True, slots=True)
class Compared:
    """A Series used for comparing keys, and its values as a key column."""

    series: Any
    column: KeyColumn


@dataclass(frozen=True, slots=True)
class JoinedSide:
    """One side of a merge and its rows in the result.

    Attributes
    ----------
    frame : DataFrame
    rows : int64 array or None
        Positions, -1 where it has no row; None for all of them in order.
    lacks : bool
        Whether there is a -1.
    stays : bool
        Whether the merge keeps all of its rows.
    """

    frame: Any
    rows: Any
    lacks: bool
    stays: bool

    def all_rows(self, xp: Any) -> Any:
        """Return the row positions, as an array even for all rows in order."""
        return xp.arange(len(self.frame), dtype="i8") if self.rows is None else self.rows


class Frames(ABC):
    """Functions over the frames of one DataFrame library.

    Attributes
    ----------
    name : str
        ``"pandas"`` or ``"cudf"``.
    device : str
        Where the columns live: ``"cpu"`` or ``"cuda"``.
    promotion : {"pandas", "nullable"}
        What integers and booleans become where rows lack, unless another is asked for.
    selects_pairs : bool
        Whether the device selects the pairs of an inner merge in one pass over all keys, as GPUs
        do; elsewhere each key's row is found first, by direct address where keys are dense.
    rounds_keys : bool
        Whether the library's own merges compare integers with floats rounded, and warn of that.
    xp : module
        Array module of the columns: NumPy or CuPy.
    """

    name: str
    device: Device
    promotion: Promote
    selects_pairs: bool
    rounds_keys: bool
    xp: ModuleType

    @abstractmethod
    def make(self, columns: Mapping[Hashable, Any]) -> Any:
        """Return a frame of these columns."""

    def of_columns(self, columns: dict[Hashable, Any]) -> Any:
        """Return a frame of Series numbered from 0, without a copy if the library can."""
        return self.make(columns)

    def moments(self, series: Any, like: Any) -> Any:
        """Return a column from a list of datetimes, in a dtype like that of `like`.

        The default returns `series`; pandas needs a cast where it does not merge the two dtypes.
        """
        return series

    @abstractmethod
    def array(self, series: Any, like: Any = None) -> Any:
        """Return the values as an array of the type of `like`.

        Without `like` the array is a NumPy one, or for cuDF a CuPy one.

        Raises
        ------
        UnsupportedError
            When an array of that type cannot hold the values.
        """

    @abstractmethod
    def series(self, values: Any, index: Any = None) -> Any:
        """Return a Series of the array `values` with the labels `index`.

        By default it is numbered from 0.
        """

    @abstractmethod
    def column(self, frame: Any, label: Hashable) -> Any | None:
        """Return the column or columns with this label; None if there is none."""

    @abstractmethod
    def key_values(self, frame: Any, label: Hashable) -> Any | None:
        """Return the column with this label in the form for reading keys: a Series numbered from 0.

        Of cuDF it is the column itself, of which a Series takes some twenty calls. None where there
        is none, and a frame where there are several.
        """

    @abstractmethod
    def label_levels(self, frame: Any) -> int:
        """Return the number of levels of the column labels."""

    @abstractmethod
    def key_column(self, series: Any, name: object) -> KeyColumn:
        """Return the values of a key column.

        Raises
        ------
        KeyTypeError
            When the dtype cannot be a key; the message names the cast that helps.
        """

    @abstractmethod
    def key_type(self, series: Any, name: object) -> LogicalType:
        """Return the type of a key column, reading values only if its dtype is ambiguous.

        Raises KeyTypeError as `key_column`.
        """

    def key_columns(
        self, left: Any, right: Any, name: object, *, as_text: bool | None = None
    ) -> list[tuple[Compared, Compared]]:
        """Return columns by which to compare the keys of two Series.

        Parameters
        ----------
        left, right : Series
        name : label
            What errors call the key.
        as_text : bool, optional
            Whether keys are compared by their tagged texts; all partitions are compared alike.
            Default: what the dtypes ask for, and objects of one type only beside others.

        Raises
        ------
        KeyTypeError
            When a value cannot be a key, or no value of one side can equal one of the other.
        """
        found = []
        for series, other in self.typed(left, right, name, as_text):
            try:
                ours = self.key_column(series, name)
                theirs = ours if other is series else self.key_column(other, name)
                if ours.type is not theirs.type:
                    check_comparable(name, ours.type, theirs.type)
            except KeyTypeError as error:
                series, other = self.unlike(series, other, name, error)
                ours, theirs = self.key_column(series, name), self.key_column(other, name)
            found.append((Compared(series, ours), Compared(other, theirs)))
        return found

    @abstractmethod
    def typed(
        self, left: Any, right: Any, name: object, as_text: bool | None
    ) -> Iterable[tuple[Any, Any]]:
        """Return key columns with the values of two Series; see `key_columns`."""

    @abstractmethod
    def unlike(self, left: Any, right: Any, name: object, error: KeyTypeError) -> tuple[Any, Any]:
        """Return never-equal Series in place of keys whose types have no common values.

        Raises KeyTypeError where the library merges no such keys.
        """

    def compares_as_text(self, left: Any, right: Any) -> bool:
        """Return whether keys of two dtypes are compared by tagged text."""
        return False

    @abstractmethod
    def arrays(self, frame: Any, dtypes: Sequence[Any] | None = None) -> list[Any] | None:
        """Return the columns as contiguous arrays on the frame's own memory.

        Datetimes and timedeltas are int64 counts. Returns None when there are no columns, or one
        has nulls or values that no array on this device can hold. `dtypes` are those of the frame,
        if they are known.
        """

    @abstractmethod
    def from_arrays(self, arrays: Sequence[Any], like: Any) -> Any:
        """Return a frame on `arrays`, uncopied, with labels and dtypes of `like`."""

    def append(self, frame: Any, arrays: Sequence[Any], added: Sequence[Any], like: Any) -> Any:
        """Return all rows of `frame` with the columns `added` appended.

        `arrays` are the columns of `frame`. The result has the labels and dtypes of `like`, is
        numbered from 0, and can be written to without changing `frame`.
        """
        return self.from_arrays([*(array.copy() for array in arrays), *added], like)

    @abstractmethod
    def take(self, frame: Any, rows: Any) -> Any:
        """Return the rows at positions `rows`, numbered from 0."""

    @abstractmethod
    def take_or_null(self, frame: Any, rows: Any, rounded: list[Any] | None = None) -> Any:
        """Return the rows at positions `rows`, with nulls where a position is -1.

        Numbered from 0; dtypes are promoted as the library does. `rounded` gets the labels of
        columns of which that rounds an integer.

        Raises
        ------
        ColumnError
            When an integer would be rounded, and `rounded` is None.
        """

    def nullable(self, frame: Any, but: Collection[Hashable] = (), levels: Any = None) -> Any:
        """Return a frame whose integers and booleans can hold nulls, except in columns `but`.

        Labels can, too, where `levels` are given, which names those that stay as they are.
        """
        return frame

    @abstractmethod
    def keep(self, frame: Any, rows: Any) -> Any:
        """Return the rows at positions `rows` with their index labels."""

    @abstractmethod
    def keep_where(self, frame: Any, found: Any, kind: str) -> Any:
        """Return the rows with a match (semi), or without one (anti), with their index labels.

        `found` masks those with a match, and may be overwritten.
        """

    @abstractmethod
    def check_takeable(self, frame: Any) -> None:
        """Raise ColumnError for columns of which the library cannot take rows."""

    @abstractmethod
    def concat(self, frames: Sequence[Any]) -> Any:
        """Return the rows of all `frames`, numbered from 0, with the union of categories."""

    @abstractmethod
    def reduce(self, frame: Any, groups: Any, how: str) -> Any:
        """Return the minimum, maximum or sum of each column for each group.

        Nulls are skipped.

        Parameters
        ----------
        frame : DataFrame
        groups : int64 array
            The group of each row, ascending from 0 without a gap.
        how : {"min", "max", "sum"}
        """

    @abstractmethod
    def beside(self, left: Any, right: Any, labels: Sequence[Hashable]) -> Any:
        """Return the columns of two equally long frames side by side.

        The columns of the result are called `labels`.
        """

    # Merges.

    @abstractmethod
    def labels(self, frame: Any) -> Any:
        """Return the column labels as a pandas index, or as a list if that is faster."""

    @abstractmethod
    def without(self, frame: Any, labels: Sequence[Hashable]) -> Any:
        """Return a frame without some columns and index levels."""

    def to_frame(self, series: Any) -> Any:
        """Return a frame of one column."""
        return series.to_frame()

    @abstractmethod
    def to_pandas(self, values: Any) -> Any:
        """Return a frame or Series as a pandas one."""

    @abstractmethod
    def agree(self, pair: KeyPair, how: str, *, nullable: bool = False) -> tuple[Any, Any] | None:
        """Return both sides' dtypes of a key in the result; None to leave both unchanged.

        Those of categories of integers and booleans are nullable, if they hold nulls or `nullable`.

        Raises
        ------
        KeyTypeError
            When no value of one side can equal one of the other.
        """

    @abstractmethod
    def with_dtype(self, frame: Any, label: Hashable, dtype: Any) -> Any:
        """Return a frame with another dtype of one of its columns, if it has the column."""

    def with_agreed_keys(
        self, left: Any, right: Any, keys: JoinKeys, how: str, *, nullable: bool = False
    ) -> tuple[Any, Any]:
        """Return both sides of a merge with their keys in the dtypes of `agree`."""
        if keys.left_index and keys.right_index:
            return left, right
        for pair in keys.pairs:
            alike = pair.dtypes[0] == pair.dtypes[1]
            dtypes = None if alike else self.agree(pair, how, nullable=nullable)
            if dtypes is not None:
                left = self.with_dtype(left, pair.name, dtypes[0])
                right = self.with_dtype(right, pair.name, dtypes[1])
        return left, right

    @abstractmethod
    def with_planned_keys(
        self, left: Any, right: Any, keys: JoinKeys, plan: MergePlan
    ) -> tuple[Any, Any]:
        """Return rows of both sides with their keys in the dtypes of a merge plan."""

    @abstractmethod
    def with_dtypes(self, frame: Any, like: Any, *, kept: bool) -> Any:
        """Return a result with differing dtypes cast to those of `like`.

        Columns whose values a dtype of `like` cannot hold may be `kept` as they are.

        Raises
        ------
        ColumnError
            When a dtype of `like` cannot hold the values of others.
        """

    @abstractmethod
    def key_order(self, keys: JoinKeys, places: Any) -> Any:
        """Return the order of rows of both sides by their keys, nulls last.

        Nulls of categories come first, as in pandas; rows of equal keys stay in order.

        Parameters
        ----------
        keys : JoinKeys
        places : int64 array
            The rows of each side's keys, those of the right one behind those of the left one.
        """

    @abstractmethod
    def row_order(self, rows: Any) -> Any:
        """Return the stable sort order of an array of row numbers."""

    @abstractmethod
    def index_of(
        self, levels: Sequence[Any], names: Sequence[Hashable | None], coded: Callable[..., Any],
        *, guess: bool,
    ) -> Any:  # fmt: skip
        """Return an index from one or several levels, given as Series numbered from 0.

        Parameters
        ----------
        levels, names : sequences of one length
        coded : callable
            Returns the different values of a level, and each row's among them.
        guess : bool
            Whether levels of objects get another type, where that changes no value.
        """

    @abstractmethod
    def range_index(self, n: int) -> Any:
        """Return the labels 0, 1, … of a number of rows."""

    @abstractmethod
    def take_labels(
        self, side: JoinedSide, other: JoinedSide, promote: str, rounded: list[Any] | None
    ) -> Any:
        """Return the index labels of one side's rows; null for absent rows.

        `promote` and `rounded` are as in `join_sides`.
        """

    @abstractmethod
    def take_level(
        self, side: JoinedSide, name: Hashable, promote: str, rounded: list[Any] | None
    ) -> Any:
        """Return one index level of a side's rows; null for absent rows."""

    @abstractmethod
    def complete_labels(
        self, side: JoinedSide, pairs: Sequence[KeyPair], name: str, how: str
    ) -> Any:
        """Return the index labels of the side `name`, which has all rows of a merge by indexes."""

    @abstractmethod
    def one_key(
        self, left: Any, right: Any, sides: Sequence[JoinedSide], how: str, dtype: Any,
        label: Hashable, rounded: list[Any] | None, *, of_levels: bool = False,
    ) -> Any:  # fmt: skip
        """Return a key for each row, the left one if present, numbered from 0.

        Parameters
        ----------
        left, right : Series
            The key on both sides.
        sides : pair of JoinedSide
        how : str
        dtype : dtype or None
            That of the column, if the plan gave it one.
        label : label
            What errors call it.
        rounded : list or None
            As in `join_sides`.
        of_levels : bool
            Whether it is a level of both indexes.
        """

    @abstractmethod
    def categories(self, codes: Any, values: Sequence[str]) -> Any:
        """Return a categorical column from codes."""

    @abstractmethod
    def join_sides(
        self, sides: Sequence[JoinedSide], keys: Mapping[int, Any], labels: Any, index: Any,
        added: Sequence[tuple[int | None, Hashable, Any]], promote: str,
        rounded: list[Any] | None,
    ) -> Any:  # fmt: skip
        """Return rows of both sides side by side.

        Parameters
        ----------
        sides : pair of JoinedSide
        keys : mapping of int to Series
            Columns of both sides by their position among those of the left and then the right side.
        labels : labels of all columns
        index : Index
        added : sequence of (position, label, column)
            More columns; position None is the end.
        promote : {"pandas", "nullable", "each"}
            What integers become on a side that lacks rows; see `MergePlan`.
        rounded : list or None
            Gets the labels of columns of which integers were rounded; None: that is an error.
        """

    @abstractmethod
    def conform(self, frame: Any, like: Any) -> Any:
        """Return `frame` in the dtypes of `like`, if no value changes.

        Raises
        ------
        ColumnError
            When a column cannot be converted.
        """

    def is_typed(self, series: Any) -> bool:
        """Return whether the dtype alone determines the type of the values."""
        return True

    def dtypes(self, frame: Any) -> list[Any]:
        """Return the dtypes of the columns."""
        return list(frame.dtypes)

    @abstractmethod
    def nbytes(self, frame: Any) -> int:
        """Return the bytes of the columns."""

    def rows_nbytes(self, frame: Any) -> int:
        """Return the bytes of the rows, without those of categories.

        Categories take the same memory with any number of rows.
        """
        return self.nbytes(frame) - self.nbytes(frame.iloc[:0])

    def widest(self, frame: Any) -> dict[Hashable, int]:
        """Return the maximum bytes per row of each column that is slow to measure.

        Other columns are left out.
        """
        return {}

    @abstractmethod
    def to_arrow(self, frame: Any) -> Any:
        """Return a `pyarrow.Table` from which `from_arrow` makes an equal frame."""

    @abstractmethod
    def from_arrow(self, table: Any) -> Any:
        """Return the frame from a table that `to_arrow` of either library wrote."""
