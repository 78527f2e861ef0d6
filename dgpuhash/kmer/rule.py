"""Interface of a classification rule: Kraken 2's minimizers or MetaCache's sketches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.backend import Backend
from dgpuhash.kmer.databases.estimators import Estimator
from dgpuhash.kmer.index_file import SavedIndex
from dgpuhash.kmer.references import References, Targets
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.arguments.checksums import Pieces
from dgpuhash.typing import Device

if TYPE_CHECKING:
    from dgpuhash.kmer.target_runs import TargetRun

Rows = tuple[Any, Any]
"""Keys and a value of each, on a device."""

Batch = tuple[Sequence[Any], Mapping[str, Any]]
"""Letters and offsets of reads, and of mates; qualities by the names that `call` has for them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Keys of an index with their values, all or some; a task's result.

    Attributes
    ----------
    table : HashMap or MultiMap
    found : int
        Keys of references before equal ones were folded, where the rule counts them.
    """

    table: Any
    found: int = 0

    def __sizeof__(self) -> int:
        return int(self.table.nbytes) + 2**10


@dataclass(frozen=True, slots=True)
class CallQuery:
    """Options of calls, and the form of parts' results.

    Attributes
    ----------
    options : CallOptions
        Those of the rule.
    detail : bool
        Whether calls have details.
    by_targets : bool
        Whether each part has all keys of some targets, and not some keys of all.
    """

    options: Any
    detail: bool = False
    by_targets: bool = False


class Rule(ABC):
    """Rule for turning references into keys and keys into calls, on one device.

    An index is a rule and a part, or several parts on workers. It is built by `keys` and `fold`,
    and reads are called by `deal`, `find` and `call`. A rule does not change: with further targets
    it is another one.

    Parameters
    ----------
    backend : Backend
    settings : MinimizerSettings or SketchSettings
    taxonomy : Taxonomy or None
        The taxa of the targets.
    targets : Targets
    """

    name: ClassVar[str]
    settings_of: ClassVar[Callable[..., Any]]
    # Bytes of a table for each of its file.
    of_file: ClassVar[float]

    def __init__(
        self, backend: Backend, settings: Any, taxonomy: Taxonomy | None, targets: Targets
    ) -> None:
        self.backend, self.settings = backend, settings
        self.taxonomy, self.targets = taxonomy, targets

    def on(self, device: Device | None) -> Self:
        """Return the rule on another device."""
        return type(self)(backends.get(device), self.settings, self.taxonomy, self.targets)

    @property
    @abstractmethod
    def nbytes_of_letter(self) -> float:
        """Expected bytes of memory per letter of references."""

    @classmethod
    @abstractmethod
    def estimator(cls, device: Device, settings: Any, **given: Any) -> Estimator:
        """Return the estimator of an index with these settings."""

    @abstractmethod
    def with_targets(self, whole: Taxonomy | None, targets: Targets) -> Self:
        """Return the rule extended by further targets, whose taxa are in `whole`."""

    @classmethod
    def common_settings(cls, own: Any, other: Any) -> Any:
        """Return the settings of one index as they are after a merge with another one."""
        return own

    @abstractmethod
    def empty(self) -> Part:
        """Return an index part without keys, for a build to fill."""

    @abstractmethod
    def room(self, letters: int) -> int:
        """Return the expected number of keys of references with a number of letters."""

    @abstractmethod
    def checked_letters(self, letters: Any, offsets: Any) -> Rows:
        """Return references in arrays as arrays of the device, or raise SequenceError."""

    @abstractmethod
    def keys(self, references: References | TargetRun) -> Iterator[Rows]:
        """Yield the keys of references with their values."""

    @abstractmethod
    def keys_of_letters(self, letters: Any, offsets: Any, first: int) -> Iterator[Rows]:
        """Yield the same for references in arrays, numbered from `first`."""

    def distinct_keys(self, run: TargetRun) -> Iterator[Rows]:
        """Yield the keys of a run, deduplicated if that pays before sending."""
        return self.keys(run)

    @abstractmethod
    def fold(
        self, before: Part | None, rows: Iterable[Rows], room: int, *, in_place: bool = False
    ) -> Part:
        """Return a part with further keys, about `room` of them.

        Its values are those of this rule. With `in_place` the part before may be changed.
        """

    def part_of_run(self, run: TargetRun, letters: int, before: Part | None) -> Part:
        """Build the part of a run of a number of letters, next to an existing one."""
        return self.fold(None, self.keys(run), self.room(letters))

    @abstractmethod
    def rows(self, part: Part) -> Rows:
        """Return the keys of a part with their values under this rule."""

    def dropped(self, part: Part) -> np.ndarray | None:
        """Return the keys that a part dropped, on the host, if the rule drops any."""
        return None

    def part_of_rows(self, rows: Iterable[Rows], dropped: Sequence[Any] = ()) -> Part:
        """Return a part of the rows of others, and of their dropped keys."""
        return self.fold(None, rows, 0)

    @abstractmethod
    def merge(self, parts: Iterator[tuple[Any, Any]]) -> Part:
        """Merge the parts of several indexes, given one by one.

        With each comes the rule of its targets and all before.
        """

    @abstractmethod
    def query(self, options: Mapping[str, Any], *, detail: bool = False) -> CallQuery:
        """Return checked call options, or raise SpecError."""

    def prepare(
        self, answers: Callable[[Any], Iterable[Any]], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return options for calls, after a first pass over all reads if they need one.

        Parameters
        ----------
        answers : callable
            Is given a query, and returns what the index has of all reads.
        options : mapping
        """
        return options

    @abstractmethod
    def call_here(self, part: Part, batch: Batch, query: Any) -> Any:
        """Return the calls of a batch on the host, by a part with all keys."""

    @abstractmethod
    def deal(self, batch: Batch, query: Any, n: int) -> list[Any]:
        """Return the keys of a batch for each of n parts, and the state for `call`."""

    @abstractmethod
    def find(self, part: Any, keys: Any, query: Any) -> Any:
        """Return a part's results for the keys of a batch."""

    @abstractmethod
    def call(self, rest: Any, found: list[Any], query: Any) -> Any:
        """Return the calls of a batch on the host, from the results of all parts."""

    @abstractmethod
    def size(self, part: Any) -> Any:
        """Return the sizes of a part, the input of `stats`."""

    @abstractmethod
    def stats(self, sizes: Sequence[Any], told: Mapping[str, Any]) -> dict[str, Any]:
        """Return figures of parts with disjoint keys, and of header fields."""

    @abstractmethod
    def told(self, found: int) -> dict[str, Any]:
        """Return header fields besides settings, taxonomy, targets, notes and steps."""

    @classmethod
    @abstractmethod
    def saved_settings(cls, settings: Mapping[str, Any]) -> Any:
        """Return the settings in a file."""

    @classmethod
    def of_saved(cls, saved: SavedIndex, device: Device | None) -> Self:
        """Return the rule of an index in a file."""
        settings = cls.saved_settings(saved.settings)
        return cls(backends.get(device), settings, saved.taxonomy, saved.targets)

    @abstractmethod
    def load(self, saved: SavedIndex) -> Part:
        """Load the whole index from a file."""

    @abstractmethod
    def load_share(self, saved: SavedIndex, at: int, n: int, *, by_targets: bool) -> Part:
        """Load part number `at` of n of an index from a file."""

    @abstractmethod
    def saved_arrays(self, part: Any) -> tuple[Mapping[str, np.ndarray | Pieces], dict[str, Any]]:
        """Return the arrays of a whole index for a file, and header fields."""

    @abstractmethod
    def part_arrays(
        self, part: Any, *, is_whole: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the arrays of a worker's part for a file, and header fields."""
