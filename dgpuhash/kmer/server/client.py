"""ServedIndex: client of a k-mer server."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import fields
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from dgpuhash import backend as backends
from dgpuhash import errors
from dgpuhash.errors import ClosedError, FormatError, SpecError, UnsupportedError
from dgpuhash.kmer.calls import Calls, call_alone, calls_of_slices, reads_of, slices
from dgpuhash.kmer.classify import Classification
from dgpuhash.kmer.index_file import SavedIndex, targets_in
from dgpuhash.kmer.minimizers.calling import SeenMinimizers, SeenPiece
from dgpuhash.kmer.references import Targets
from dgpuhash.kmer.rule import Batch, Rule
from dgpuhash.kmer.sequences.files import Paths
from dgpuhash.kmer.server import protocol
from dgpuhash.kmer.server.databases import RULES
from dgpuhash.kmer.server.protocol import Address, BadMessage, Channel, Message, check_size
from dgpuhash.kmer.sketches.candidates import TopLists
from dgpuhash.kmer.taxonomy.taxonomy import Taxonomy
from dgpuhash.tables.arguments.file_layout import interpreting
from dgpuhash.tables.serialization import Buffers
from dgpuhash.typing import Device, HasArray, KeysLike

Item = TypeVar("Item")
_CALLS = ("taxids", "hits", "detail_offsets", "detail_taxids", "detail_counts")


class ServedIndex:
    """Index on a ``dgpuhash kmer serve`` server, for classifying this process's reads.

    Calls are those of the index itself. It is the epoch of the database that there was when this
    connected: connect again for a newer one.

    Parameters
    ----------
    address : str
        ``tcp://host:port``, ``tls://host:port`` or ``unix:///path``; certificates are those of
        Dask's configuration.
    database : str, optional
        Its name; None: the only one.

    Raises
    ------
    SpecError
        When there is no such database, or the address is none.
    UnsupportedError
        When the server speaks another version of the protocol, or has clients enough.
    OSError
        When no server answers there, or it refuses the certificate.

    Examples
    --------
    >>> ServedIndex("unix:///no/such.socket", "viruses")
    Traceback (most recent call last):
    OSError: no server answers at unix:///no/such.socket: [Errno 2] No such file or directory; ...
    """

    device: Device = "cpu"

    def __init__(self, address: str, database: str | None = None) -> None:
        self._connection = _Connection(Address.of(address))
        try:
            request = Message("open", {"database": database or ""})
            opened = self._connection.ask(request).result()
            self._rule: Rule = _rule_of(str(address), opened)
        except BaseException:
            self._connection.close()
            raise
        self._database = str(opened.fields["database"])
        limits = ("memory", "share", "letters")
        self._memory, self._share, self._letters = (opened.fields[name] for name in limits)

    @property
    def rule(self) -> str:
        """``"kraken2"`` or ``"metacache"``."""
        return self._rule.name

    @property
    def database(self) -> str:
        """The name of the database."""
        return self._database

    @property
    def taxonomy(self) -> Taxonomy | None:
        """The taxonomy of the references."""
        return self._rule.taxonomy

    @property
    def targets(self) -> Targets:
        """References in the order of their numbers, without file names."""
        return self._rule.targets

    def __repr__(self) -> str:
        return (
            f"<ServedIndex: {self._database}, {len(self.targets.names):,} sequences, "
            f"{self._connection.address}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def call(
        self, *arrays: HasArray | KeysLike | None, detail: bool = False, **options: Any
    ) -> Calls:
        """Return the calls of reads or pairs in arrays, on the host.

        Parameters
        ----------
        *arrays : array
            Letters (uint8) and offsets (int64) of reads, and those of mates, on the host.
        detail : bool
            Whether calls have details.
        **options
            As `MinimizerIndex.call` or `SketchIndex.call` takes them.

        Raises
        ------
        SpecError, SequenceError
            As the index itself.
        ClosedError
            When the server stops.
        OSError
            When the connection is lost.
        """
        return call_alone(self, arrays, detail, options)

    def call_many(
        self,
        batches: Iterable[tuple[Item, Batch]],
        options: Mapping[str, Any],
        *,
        detail: bool = False,
    ) -> Iterator[tuple[Item, Calls]]:
        """Yield items and the calls of their batches in order, with later ones in flight.

        Parameters
        ----------
        batches : iterable of (item, (arrays, qualities))
            As `call` takes them.
        options : mapping
            As for `call`.
        detail : bool
            Whether calls have details.
        """
        seen: ServedMinimizers | None = options.get("seen")
        self._rule.query(options, detail=detail)
        plain = {name: value for name, value in options.items() if name not in ("seen", "kept")}
        beside: dict[str, np.ndarray] = {}
        if options.get("kept") is not None:
            beside = {"kept": np.packbits(options["kept"])}
        settings = {"options": plain, "detail": detail, "minimizers": seen is not None}
        for item, replies in self._replies(batches, {**settings, "candidates": False}, beside):
            if seen is not None:
                for arrays in replies:
                    seen.count(arrays)
            calls = [Calls(*(arrays.get(name) for name in _CALLS)) for arrays in replies]
            yield item, calls_of_slices(backends.get("cpu"), calls)

    def prepare(
        self, batches: Callable[[], Iterator[Sequence[HasArray | KeysLike | None]]], **options: Any
    ) -> dict[str, Any]:
        """Return options for `call`, after a first pass over the reads if needed.

        See `SketchIndex.prepare`.
        """
        settings = {"options": options, "detail": False, "minimizers": False, "candidates": True}

        def answers(_: Any) -> Iterator[TopLists]:
            pairs: Iterator[tuple[None, Batch]] = ((None, (batch, {})) for batch in batches())
            for _, replies in self._replies(pairs, settings, {}):
                for arrays in replies:
                    yield TopLists(*(arrays[each.name] for each in fields(TopLists)))

        return {**self._rule.prepare(answers, options)}

    @property
    def seen_minimizers(self) -> Callable[[], ServedMinimizers]:
        """Factory of a counter for the minimizers that calls find, under Kraken 2's rule."""
        taxonomy = self.taxonomy
        if self.rule != "kraken2" or taxonomy is None:
            raise AttributeError("minimizers are counted by the rule of Kraken 2 alone")
        return lambda: ServedMinimizers(backends.get("cpu"), taxonomy.tree)

    def classify(
        self,
        reads: Paths,
        mates: Paths | None = None,
        *,
        interleaved: bool = False,
        name_check: bool = True,
        **options: Any,
    ) -> Classification:
        """Classify the reads of files, which this process reads.

        Parameters and errors are those of `Classification`, and of `call`.
        """
        return Classification(
            self, reads, mates, interleaved=interleaved, name_check=name_check, **options  # type: ignore[arg-type]
        )  # fmt: skip

    def _replies(
        self,
        batches: Iterable[tuple[Item, Batch]],
        settings: Mapping[str, Any],
        beside: Mapping[str, np.ndarray],
    ) -> Iterator[tuple[Item, list[Mapping[str, np.ndarray]]]]:
        """Yield items with the reply arrays for the pieces of their batches.

        As many batches are under way as the server takes of a client.
        """
        running: deque[tuple[Item, int, list[Future[Message]]]] = deque()
        nbytes = 0
        for item, batch in batches:
            requests = [
                Message("call", settings, {**arrays, **beside})
                for arrays in pieces_of(batch, self._letters)
            ]
            for each in requests:
                check_size(each.nbytes, self._memory)
            sent = [self._connection.ask(each) for each in requests]
            running.append((item, sum(each.nbytes for each in requests), sent))
            nbytes += running[-1][1]
            while nbytes > self._share:
                item, size, replies = running.popleft()
                nbytes -= size
                yield item, [each.result().arrays for each in replies]
        for item, _, replies in running:
            yield item, [each.result().arrays for each in replies]


class ServedMinimizers(SeenMinimizers):
    """Exact counts of reads' minimizers, as a server reports them for each piece."""

    owners = 1

    def count(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Count the minimizers of a reply."""
        piece = SeenPiece(arrays["minimizers"], arrays["minimizer_taxa"])
        self.add_piece(arrays["seen_taxa"], arrays["seen_counts"], piece)


def pieces_of(batch: Batch, letters: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays of a batch in message form, of about a number of letters each.

    Examples
    --------
    >>> reads = np.frombuffer(b"ACGTACG", np.uint8), np.array([0, 3, 4, 7])
    >>> [piece["sizes"].tolist() for piece in pieces_of((reads, {}), 3)]
    [[3], [1, 3]]
    """
    backend = backends.get("cpu")
    for sides in slices(backend, reads_of(backend, *batch), letters):
        piece = {}
        for name, side in zip(("", "mate_"), sides, strict=False):
            piece[f"{name}letters"] = side.letters
            piece[f"{name}sizes"] = np.diff(side.offsets).astype(np.uint32)
            if side.qualities is not None:
                piece[f"{name}qualities"] = side.qualities
        yield piece


def _rule_of(name: str, opened: Message) -> Rule:
    """Return the rule in a server's message, with taxonomy and targets."""
    header = {"told": {}, **opened.fields["header"]}
    raw = dict(opened.arrays)
    try:
        with interpreting(name):
            taxonomy, targets = targets_in(name, header, raw)
            saved = SavedIndex(
                header["rule"], header["settings"], Buffers(name, raw), taxonomy, targets, {}
            )
            return RULES[saved.rule].of_saved(saved, "cpu")
    except KeyError as error:
        raise FormatError(f"{name} serves an index of an unknown rule; update dgpuhash") from error


class _Connection:
    """Connection to a server on its own thread; replies come in order.

    Parameters
    ----------
    address : Address
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        # Replies in the order of requests, with their kinds.
        self._waiting: deque[tuple[str, Future[Message]]] = deque()
        self._failure: BaseException | None = None
        self._channel: Channel | None = None
        self._receiving: Future[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="dgpuhash-served", daemon=True
        )
        self._thread.start()
        try:
            self._receiving = self._do(self._receive(self._do(self._connect()).result()))
        except BaseException:
            self.close()
            raise

    def _do(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def ask(self, request: Message) -> Future[Message]:
        """Send a request; return a future of its reply."""
        reply: Future[Message] = Future()
        if self._channel is None:
            raise ClosedError("the connection to the server was closed; connect again")
        self._do(self._send(self._channel, request, reply))
        return reply

    def close(self) -> None:
        """Close the connection, and end its thread."""
        if self._loop.is_closed():
            return
        if self._channel is not None:
            channel, self._channel = self._channel, None
            for work in (self._do(channel.finish(at_once=True)), self._receiving):
                if work is not None:
                    with suppress(OSError, TimeoutError):
                        work.result(protocol.GREETING_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(protocol.GREETING_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _connect(self) -> Channel:
        address, size = self.address, protocol.CHUNK_NBYTES
        tls = address.tls(listens=False)
        try:
            async with asyncio.timeout(protocol.GREETING_SECONDS):
                if address.scheme == "unix":
                    streams = await asyncio.open_unix_connection(address.path, limit=size)
                else:
                    streams = await asyncio.open_connection(
                        address.host, address.port, ssl=tls, limit=size
                    )
                self._channel = Channel(*streams)
                await self._channel.send_greeting()
                version = await self._channel.receive_greeting()
        except ssl.SSLError as error:
            raise OSError(
                f"{address} and this client refuse each other ({error}); {_TLS}"
            ) from error
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            why = _TLS if tls is not None else "check what listens there"
            raise OSError(f"{address} closed the connection at once; {why}") from error
        except (OSError, TimeoutError) as error:
            said = "it says nothing" if isinstance(error, TimeoutError) else error
            remedy = "start dgpuhash kmer serve, or check the address"
            raise OSError(f"no server answers at {address}: {said}; {remedy}") from error
        if version != protocol.VERSION:
            raise UnsupportedError(
                f"{address} speaks version {version} of the protocol, and this client "
                f"{protocol.VERSION}; install the same release of dgpuhash on both sides"
            )
        return self._channel

    async def _send(self, channel: Channel, request: Message, reply: Future[Message]) -> None:
        if self._failure is not None:
            reply.set_exception(self._failure)
            return
        try:
            request.head()
        except (TypeError, ValueError) as error:
            reply.set_exception(SpecError(str(error)))
            return
        self._waiting.append((_REPLY_OF[request.kind], reply))
        try:
            await channel.send(request)
        except (OSError, TimeoutError):
            # What receives fails all that wait.
            channel.close()

    async def _receive(self, channel: Channel) -> None:
        """Receive replies until the connection ends, then fail pending requests."""
        lost = f"{self.address} closed the connection; see the server's log, and repeat the command"
        failure: BaseException = OSError(lost)
        try:
            while True:
                head = await channel.receive_head(protocol.REPLIES, protocol.REPLY_HEAD_NBYTES)
                message = await channel.receive_arrays(head)
                if message.kind == "closed":
                    failure = _error_of(message)
                    break
                kind, reply = self._waiting[0]
                if message.kind not in (kind, "error"):
                    raise BadMessage(f"{message.kind!r} in place of {kind!r}")
                self._waiting.popleft()
                if message.kind == "error":
                    reply.set_exception(_error_of(message))
                else:
                    reply.set_result(message)
        except (BadMessage, IndexError) as error:
            failure = OSError(f"{self.address} sent an invalid reply ({error}); update dgpuhash")
        except ssl.SSLError as error:
            failure = OSError(f"{self.address} refused this client ({error}); {_TLS}")
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass
        except Exception as error:
            failure = OSError(f"a reply of {self.address} could not be read ({error!r})")
        self._failure = failure
        while self._waiting:
            self._waiting.popleft()[1].set_exception(failure)
        channel.close()


_REPLY_OF = {"open": "opened", "call": "called"}
_TLS = "both need certificates of one authority, below distributed.comm.tls of Dask's configuration"


def _error_of(message: Message) -> BaseException:
    """Return the error in a message, of this package's class or an OSError."""
    name, text = message.fields["error"], message.fields["text"]
    kind = getattr(errors, name, None) if name in errors.__all__ else None
    return kind(text) if isinstance(kind, type) and issubclass(kind, Exception) else OSError(text)
