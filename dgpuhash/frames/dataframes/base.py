"""What the frames layer needs of a dataframe library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType
from typing import Any

from dgpuhash.frames.key_columns import KeyColumn

__all__ = ["Frames"]


class Frames(ABC):
    """Functions over the frames of one library.

    Attributes
    ----------
    name : str
        ``"pandas"`` or ``"cudf"``.
    device : str
        Where the columns live: ``"cpu"`` or ``"cuda"``.
    """

    name: str
    device: str

    @property
    @abstractmethod
    def xp(self) -> ModuleType:
        """The array module of the columns: NumPy or CuPy."""

    @abstractmethod
    def make(self, columns: Mapping[Hashable, Any]) -> Any:
        """A frame of these columns."""

    def moments(self, series: Any, like: Any) -> Any:
        """A column made of a list, with moments of the kind of `like` where others do not merge."""
        return series

    @abstractmethod
    def array(self, series: Any, like: Any = None) -> Any:
        """The values as an array of the kind of `like`; else as NumPy, or for cuDF as CuPy.

        Raises
        ------
        UnsupportedError
            When that kind of array cannot hold them.
        """

    @abstractmethod
    def series(self, values: Any, index: Any = None) -> Any:
        """A Series of the array `values`, with these labels; default: numbered from 0."""

    @abstractmethod
    def key_column(self, series: Any, name: object) -> KeyColumn:
        """The values of a key column.

        Raises
        ------
        KeyTypeError
            When the dtype cannot be a key; the message names the cast that helps.
        """

    @abstractmethod
    def arrays(self, frame: Any, dtypes: Sequence[Any] | None = None) -> list[Any] | None:
        """The columns as contiguous arrays on their own memory, moments as their int64 counts.

        None when there are none, or one has nulls, or values that no array of this device holds.
        `dtypes` are those of the frame, where they are known.
        """

    @abstractmethod
    def from_arrays(self, arrays: Sequence[Any], like: Any) -> Any:
        """The frame with the columns and dtypes of `like` on these `arrays`; nothing is copied."""

    def widened(self, frame: Any, arrays: Sequence[Any], added: Sequence[Any], like: Any) -> Any:
        """All rows of `frame`, which has the columns `arrays`, with those of `added` beside them.

        The result has the columns and dtypes of `like`, and rows of its own, numbered from 0.
        """
        return self.from_arrays([*(array.copy() for array in arrays), *added], like)

    @abstractmethod
    def take(self, frame: Any, rows: Any) -> Any:
        """The rows at positions `rows`, numbered from 0."""

    @abstractmethod
    def take_or_null(self, frame: Any, rows: Any) -> Any:
        """As `take`; nulls where the position is -1, with dtypes promoted as the library does."""

    @abstractmethod
    def keep(self, frame: Any, rows: Any) -> Any:
        """The rows at positions `rows` with their index labels."""

    @abstractmethod
    def concat(self, frames: Sequence[Any]) -> Any:
        """The rows of all `frames`, numbered from 0; categories are united."""

    @abstractmethod
    def reduce(self, frame: Any, groups: Any, how: str) -> Any:
        """The least, greatest or sum of each column for each group; nulls are left out.

        Parameters
        ----------
        frame : DataFrame
        groups : int64 array
            The group of each row, ascending from 0 without a gap.
        how : {"min", "max", "sum"}
        """

    @abstractmethod
    def beside(self, left: Any, right: Any, labels: Sequence[Hashable]) -> Any:
        """The columns of two frames of equal length side by side, called `labels`."""

    @abstractmethod
    def conform(self, frame: Any, like: Any) -> Any:
        """`frame` with the dtypes of `like` where that keeps every value.

        Raises
        ------
        ColumnError
            When a column cannot be converted.
        """

    @abstractmethod
    def merge_meta(
        self,
        left: Any,
        right: Any,
        left_on: Sequence[Hashable],
        right_on: Sequence[Hashable],
        suffixes: tuple[str | None, str | None],
    ) -> Any:
        """An empty frame with the columns and dtypes of the inner merge of two frames."""

    def is_typed(self, series: Any) -> bool:
        """Whether the dtype alone tells what kind of values there are."""
        return True

    def dtypes(self, frame: Any) -> list[Any]:
        """The columns' dtypes."""
        return list(frame.dtypes)

    @abstractmethod
    def nbytes(self, frame: Any) -> int:
        """Bytes of the columns."""

    def rows_nbytes(self, frame: Any) -> int:
        """Bytes of the rows; not those of categories, which are there with any number of rows."""
        return self.nbytes(frame) - self.nbytes(frame.iloc[:0])

    def widest(self, frame: Any) -> dict[Hashable, int]:
        """The most bytes of a row in each column whose bytes are slow to count; most have none."""
        return {}

    @abstractmethod
    def to_arrow(self, frame: Any) -> Any:
        """A `pyarrow.Table` from which `from_arrow` makes an equal frame."""

    @abstractmethod
    def from_arrow(self, table: Any) -> Any:
        """The frame that `to_arrow` of this or the other library was given."""
