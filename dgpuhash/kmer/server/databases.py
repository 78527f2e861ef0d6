"""Databases of a server: saved indexes by name and epoch, and their calls of reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dgpuhash import backend as backends
from dgpuhash.errors import DgpuhashError, SequenceError, SpecError
from dgpuhash.kmer.calls import Calls
from dgpuhash.kmer.databases.estimate import Memory
from dgpuhash.kmer.databases.estimators import memory_of
from dgpuhash.kmer.index_file import head_and_arrays, nbytes_of, rule_of
from dgpuhash.kmer.loading import load_index
from dgpuhash.kmer.minimizers.rule import MinimizerRule
from dgpuhash.kmer.rule import Batch, Rule
from dgpuhash.kmer.server.protocol import Arrays, Message
from dgpuhash.kmer.sketches.candidates import TopLists, concatenate_candidates
from dgpuhash.kmer.sketches.rule import SketchRule
from dgpuhash.typing import Device, IndexMode

RULES: dict[str, type[Rule]] = {MinimizerRule.name: MinimizerRule, SketchRule.name: SketchRule}
# Letters that a client sends at a time: others wait as long as these are called.
_PIECE_LETTERS = {"cpu": 2**18, "cuda": 2**22}
# On workers a piece is a task, and several are under way.
_TASK_LETTERS, _TASKS = 2**22, 8
_SIDES = ("", "mate_")
_PLAIN = (bool, int, float, str, type(None))

logger = logging.getLogger(__name__)


class Epoch:
    """Index loaded from one version of a file; a client stays with the epoch it opened.

    Parameters
    ----------
    name : str
        Of the database.
    index : SketchIndex, MinimizerIndex or one on workers
    """

    def __init__(self, name: str, index: Any) -> None:
        self._index = index
        targets = index.targets
        # Files are the server's own matter.
        targets = targets._replace(
            files=[""] * bool(len(targets.names)), sums=[], file_of=np.zeros_like(targets.file_of)
        )
        header, arrays = head_and_arrays(
            rule=index.rule, settings=asdict(index.settings), taxonomy=index.taxonomy,
            targets=targets, told=None,
        )  # fmt: skip
        self._fields = {"database": name, "header": header}
        self._arrays = {key: _bytes_of(array) for key, array in arrays.items()}

    def opened(self, **limits: int) -> Message:
        """Return the index's facts for a client, and the limits of its messages."""
        return Message("opened", {**self._fields, **limits}, self._arrays)

    def answer(self, request: Message) -> Message:
        """Return the calls of a batch of reads, or its error."""
        try:
            return Message("called", {}, self._called(request))
        except DgpuhashError as error:
            return failure(error)
        except Exception as error:
            logger.exception("a batch of reads failed")
            text = f"the server failed ({type(error).__name__}: {error}); its log has the traceback"
            return failure(DgpuhashError(text))

    def _called(self, request: Message) -> Arrays:
        rule, options = self._index._rule, request.fields["options"]
        if not all(isinstance(value, _PLAIN) for value in options.values()):
            raise SpecError("options of calls must be numbers or texts")
        batch = _batch_in(request.arrays)
        if "kept" in request.arrays:
            options = {**options, "kept": _bits(request.arrays["kept"], len(rule.targets.names))}
        query = rule.query(options, detail=request.fields["detail"])
        if request.fields["minimizers"] and rule.name == MinimizerRule.name:
            query = replace(query, owners=1)
        if request.fields["candidates"] and rule.name == SketchRule.name:
            query = replace(query, runs=True)
        return _arrays_of(self._index._batch_calls(batch, query))


class Databases:
    """Databases by name; `renew` reloads those with changed files.

    Parameters
    ----------
    paths : mapping of str to path
        The files by the names of databases.
    device : {"cpu", "cuda"}
    client : distributed.Client, optional
        Of the cluster whose workers have the indexes.
    mode : {"auto", "distributed", "independent", "replicated"}
        How they lie there.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        device: Device = "cpu",
        *,
        client: Any = None,
        mode: IndexMode = "auto",
    ) -> None:
        self._paths, self._device, self._client, self._mode = dict(paths), device, client, mode
        self._stamps: dict[str, Any] = {}
        self._epochs: dict[str, Epoch] = {}
        for name in self._paths:
            self._load(name)

    def __iter__(self) -> Any:
        return iter(self._paths)

    @property
    def threads(self) -> int:
        """Number of pieces called at the same time."""
        return 2 if self._client is None else _TASKS

    @property
    def piece_letters(self) -> int:
        """Letters of a piece; a longer read is a piece by itself."""
        return _PIECE_LETTERS[self._device] if self._client is None else _TASK_LETTERS

    def epoch(self, name: str) -> Epoch:
        """Return the newest epoch of a database, by default of the only one.

        Raises
        ------
        SpecError
            When there is no such database.
        """
        names = list(self._paths)
        if not name and len(names) == 1:
            (name,) = names
        if name not in self._epochs:
            raise SpecError(f"the server has no database {name!r}; name one of {', '.join(names)}")
        return self._epochs[name]

    def renew(self, say: Callable[[str], object]) -> None:
        """Load the databases with replaced files, if both epochs fit the memory."""
        for name, path in self._paths.items():
            try:
                stamp = _stamp(path)
                if stamp is not None and stamp == self._stamps[name]:
                    say(f"{name}: the file is the same")
                    continue
                self._check_room(path)
                self._load(name)
                say(f"{name}: loaded anew; clients get it when they connect")
            except (DgpuhashError, OSError, MemoryError) as error:
                say(f"{name}: stays as it is: {error}")

    def _load(self, name: str) -> None:
        path = self._paths[name]
        stamp = _stamp(path)
        index = load_index(path, self._device, client=self._client, mode=self._mode)
        self._epochs[name], self._stamps[name] = Epoch(name, index), stamp

    def _check_room(self, path: str) -> None:
        """Raise MemoryError if a file's index does not fit beside the loaded ones."""
        needed, before = _nbytes_in_memory(path), 0
        find = memory_of(self._client, self._mode, self._device)
        if find is None:
            memory = Memory.of(backends.get(self._device))
        else:
            # Workers have a limit; what the databases take of it, their files say.
            memory, before = find(needed), sum(map(_nbytes_in_memory, self._paths.values()))
        if memory.share(needed) + memory.share(before) > memory.nbytes:
            raise MemoryError(
                f"{path} needs about {needed:,} bytes beside the loaded databases, but only "
                f"{memory.nbytes:,} are free; stop the server and start it again"
            )


def failure(error: BaseException, kind: str = "error") -> Message:
    """Return the message that reports an error."""
    return Message(kind, {"error": type(error).__name__, "text": str(error)})


def named_paths(texts: Sequence[str]) -> dict[str, str]:
    """Return paths by database name, from texts ``NAME=PATH`` or ``PATH``.

    Without a name it is that of the file, up to its first dot.

    Raises
    ------
    SpecError
        When two have one name, or a name is empty.

    Examples
    --------
    >>> named_paths(["viruses=/data/v.dgki", "/data/bacteria.dgki"])
    {'viruses': '/data/v.dgki', 'bacteria': '/data/bacteria.dgki'}
    """
    paths: dict[str, str] = {}
    for text in texts:
        name, sign, path = text.partition("=")
        if not sign or "/" in name:
            name, path = Path(text).name.partition(".")[0], text
        if not name or not path:
            raise SpecError(f"{text!r} does not name a database; write NAME=PATH")
        if name in paths:
            raise SpecError(f"two databases are {name!r}; give each a name, as NAME=PATH")
        paths[name] = path
    return paths


def _stamp(path: str) -> Any:
    """Return a value that changes if a file is replaced; None for a URL."""
    if "://" in path:
        return None
    status = Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _nbytes_in_memory(path: str) -> int:
    return int(nbytes_of(path) * RULES[rule_of(path)].of_file)


def _batch_in(arrays: Arrays) -> Batch:
    """Return letters and offsets of a message's reads, and of mates, and qualities.

    Raises
    ------
    SequenceError
        When arrays do not fit to each other.
    """
    letters: list[np.ndarray] = []
    qualities: dict[str, np.ndarray] = {}
    for side in _SIDES:
        own, sizes = arrays.get(f"{side}letters"), arrays.get(f"{side}sizes")
        if own is None and sizes is None and side:
            continue
        quality = arrays.get(f"{side}qualities")
        if own is None or sizes is None or sizes.ndim + own.ndim != 2:
            raise SequenceError("letters and sizes of reads are missing; send both")
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, dtype=np.int64, out=offsets[1:])
        if offsets[-1] != len(own) or (quality is not None and quality.shape != own.shape):
            raise SequenceError("sizes or qualities do not fit the letters; send one of each")
        letters += [own, offsets]
        if quality is not None:
            qualities[f"{side}qualities"] = quality
    return letters, qualities


def _bits(packed: np.ndarray, n: int) -> np.ndarray:
    if packed.shape != (-(-n // 8),):
        raise SpecError(f"kept does not have a bit for each of {n:,} targets; connect again")
    return np.unpackbits(packed, count=n)


def _arrays_of(answer: Any) -> dict[str, np.ndarray]:
    """Return the arrays of calls with their minimizers, or of candidates."""
    if isinstance(answer, list) and (not answer or isinstance(answer[0], TopLists)):
        top = concatenate_candidates(backends.get("cpu"), answer)
        return {each.name: getattr(top, each.name) for each in fields(top)}
    arrays: dict[str, np.ndarray] = {}
    calls: Calls = answer
    if isinstance(answer, list):
        (calls, (taxa, counts)), piece = answer
        arrays = {
            "seen_taxa": taxa, "seen_counts": counts,
            "minimizers": piece.minimizers, "minimizer_taxa": piece.taxa,
        }  # fmt: skip
    named = {name: getattr(calls, name) for name in Calls.__slots__}
    return {**arrays, **{name: array for name, array in named.items() if array is not None}}


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
