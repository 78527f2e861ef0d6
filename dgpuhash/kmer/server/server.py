"""Asynchronous server of k-mer databases, fair between clients and bounded in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgpuhash.errors import ClosedError, DgpuhashError, ExistsError, SpecError, UnsupportedError
from dgpuhash.kmer.server import protocol
from dgpuhash.kmer.server.databases import Databases, Epoch, failure
from dgpuhash.kmer.server.protocol import Address, BadMessage, Channel, Head, Message, check_size

# Of the memory for requests, that of one client.
_SHARES = 16
_MOST_CLIENTS = 256
# Time to finish when the server stops.
_STOP_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Budget:
    """Memory budget in bytes, granted in order of request.

    Parameters
    ----------
    nbytes : int

    Examples
    --------
    >>> budget = Budget(10)
    >>> asyncio.run(budget.take(8))
    >>> budget.give(8)
    >>> budget.free
    10
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = self.free = nbytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, nbytes: int) -> None:
        """Take bytes, after waiting for earlier requests and for enough free bytes."""
        if not self._waiting and nbytes <= self.free:
            self.free -= nbytes
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(nbytes)
            else:
                # `give` may have taken it out.
                with suppress(ValueError):
                    self._waiting.remove((nbytes, turn))
                self.give(0)
            raise

    def give(self, nbytes: int) -> None:
        """Give bytes back."""
        self.free += nbytes
        while self._waiting and self._waiting[0][0] <= self.free:
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= nbytes
                turn.set_result(None)


@dataclass(eq=False, slots=True)
class _Piece:
    """Reads of a client, and the reply once they are called."""

    epoch: Epoch
    request: Message
    nbytes: int
    reply: asyncio.Future[Message]


@dataclass(eq=False, slots=True)
class _Client:
    """Connection with its waiting pieces and its replies in request order."""

    channel: Channel
    budget: Budget
    epoch: Epoch | None = None
    pieces: deque[_Piece] = field(default_factory=deque)
    # With each its bytes of the budgets. None: the end.
    replies: asyncio.Queue[tuple[asyncio.Future[Message], int] | None] = field(
        default_factory=asyncio.Queue
    )
    is_queued: bool = False
    # Bytes of replies that were made and not sent.
    unsent: int = 0
    reading: asyncio.Task[None] | None = None


class Server:
    """Server for databases at one address; `run` serves until `stop`.

    Requests are read while their bytes fit a limit, of all clients and of each. Clients take turns:
    at each the oldest piece of one is called. A client's memory is free once it is gone. The server
    opens no file for clients, and reads no pickles.

    Parameters
    ----------
    databases : Databases
    address : str
        ``tcp://host:port``, ``tls://host:port`` or ``unix:///path``. Port 0 is any free one.
    memory : int
        Most bytes of requests at a time; also of one request.
    clients : int
        Most connections at a time.
    say : callable, optional
        Is told what happens, in lines.
    """

    def __init__(
        self,
        databases: Databases,
        address: str,
        *,
        memory: int = 2**30,
        clients: int = _MOST_CLIENTS,
        say: Callable[[str], object] = logger.info,
    ) -> None:
        if memory < (least := _SHARES * protocol.CHUNK_NBYTES):
            raise SpecError(f"memory={memory:,}; requests need {least:,} at least")
        self._databases, self._address, self._say = databases, Address.of(address), say
        self._most_clients = clients
        self._budget = Budget(memory)
        self._clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: asyncio.Queue[_Client] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(databases.threads, "dgpuhash-serve")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._renewing: asyncio.Future[None] | None = None

    async def run(self, ready: Callable[[str], object]) -> None:
        """Serve until `stop`; call `ready` with the address once clients can connect.

        Raises
        ------
        OSError
            When the address cannot be listened on.
        SpecError
            When its certificates are missing.
        """
        self._loop = asyncio.get_running_loop()
        listener, address = await self._listen()
        callers = [asyncio.create_task(self._call()) for _ in range(self._databases.threads)]
        try:
            ready(address)
            await self._stopping.wait()
            listener.close()
            await self._finish()
        finally:
            listener.close()
            if self._address.scheme == "unix":
                Path(self._address.path).unlink(missing_ok=True)
            for task in (*callers, *self._tasks):
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Refuse waiting pieces, finish running ones, and end `run`; thread-safe."""
        assert self._loop is not None
        # It may have ended already.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopping.set)

    def renew(self) -> None:
        """Load databases with replaced files, while calls go on."""
        if self._renewing is not None and not self._renewing.done():
            self._say("databases are being loaded already")
            return
        assert self._loop is not None
        self._renewing = self._loop.run_in_executor(None, self._databases.renew, self._say)

    async def _listen(self) -> tuple[asyncio.Server, str]:
        address, streams = self._address, self._accept
        if address.scheme == "unix":
            _check_free(address)
            before = os.umask(0o177)
            try:
                return await asyncio.start_unix_server(
                    streams, address.path, limit=protocol.CHUNK_NBYTES
                ), str(address)
            finally:
                os.umask(before)
        tls = address.tls(listens=True)
        timeout = None if tls is None else protocol.GREETING_SECONDS
        listener = await asyncio.start_server(
            streams, address.host, address.port, ssl=tls, ssl_handshake_timeout=timeout,
            limit=protocol.CHUNK_NBYTES,
        )  # fmt: skip
        port = listener.sockets[0].getsockname()[1]
        return listener, str(address._replace(port=port))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end."""
        task: Any = asyncio.current_task()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        channel = Channel(reader, writer)
        client = _Client(channel, Budget(self._budget.nbytes // _SHARES))
        try:
            version = await channel.receive_greeting()
            await channel.send_greeting()
            if version != protocol.VERSION:
                return
            if len(self._clients) >= self._most_clients:
                raise UnsupportedError(
                    f"the server has {self._most_clients} clients already; connect later"
                )
            self._clients.add(client)
            await self._serve(client)
        except UnsupportedError as error:
            with suppress(OSError, TimeoutError):
                await channel.send(failure(error, "closed"))
                await channel.linger()
        except BadMessage as error:
            self._say(f"a connection was refused: {error}")
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            logger.debug("a connection ended: %r", error)
        finally:
            self._free(client)
            with suppress(OSError, TimeoutError):
                await channel.finish()

    async def _serve(self, client: _Client) -> None:
        """Read and answer requests concurrently; end when either does."""
        client.reading = asyncio.create_task(self._read(client))
        writing = asyncio.create_task(self._write(client))
        both = {client.reading, writing}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                is_stopped = client.reading.cancelled()
                error = ClosedError(_STOPPED) if is_stopped else client.reading.exception()
                if isinstance(error, _SAID):
                    self._refuse(client, error)
                    await writing
                    await client.channel.linger()
                    if not isinstance(error, BadMessage):
                        return
            for task in both:
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    def _refuse(self, client: _Client, error: BaseException) -> None:
        """Answer a client's waiting pieces with an error, and end its connection."""
        while client.pieces:
            client.pieces.popleft().reply.set_result(failure(error))
        last: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        last.set_result(failure(error, "closed"))
        client.replies.put_nowait((last, 0))
        client.replies.put_nowait(None)

    async def _read(self, client: _Client) -> None:
        """Read requests while memory is available, until the client ends."""
        loop = asyncio.get_running_loop()
        while True:
            head = await client.channel.receive_head(protocol.REQUESTS, protocol.HEAD_NBYTES)
            reply: asyncio.Future[Message] = loop.create_future()
            if head.kind == "open":
                reply.set_result(opened := self._open(client, head))
                client.unsent += opened.nbytes
                client.replies.put_nowait((reply, 0))
                continue
            if client.epoch is None:
                raise BadMessage("reads came before a database was opened")
            nbytes = head.answered_nbytes
            check_size(nbytes, self._budget.nbytes)
            await self._take(client, nbytes)
            try:
                request = await client.channel.receive_arrays(head)
            except BaseException:
                self._give(client, nbytes)
                raise
            client.pieces.append(_Piece(client.epoch, request, nbytes, reply))
            client.replies.put_nowait((reply, nbytes))
            self._queue(client)

    def _open(self, client: _Client, head: Head) -> Message:
        try:
            client.epoch = self._databases.epoch(head.fields["database"])
        except DgpuhashError as error:
            return failure(error)
        memory, share = self._budget.nbytes, client.budget.nbytes
        return client.epoch.opened(
            memory=memory, share=share, letters=self._databases.piece_letters
        )

    async def _take(self, client: _Client, nbytes: int) -> None:
        # A request that is larger than a share is alone.
        await client.budget.take(min(nbytes, client.budget.nbytes))
        try:
            await self._budget.take(nbytes)
        except BaseException:
            client.budget.give(min(nbytes, client.budget.nbytes))
            raise

    def _give(self, client: _Client, nbytes: int) -> None:
        client.budget.give(min(nbytes, client.budget.nbytes))
        self._budget.give(nbytes)

    async def _write(self, client: _Client) -> None:
        """Send replies in request order, and release their memory."""
        while (item := await client.replies.get()) is not None:
            reply, nbytes = item
            try:
                message = await reply
                await client.channel.send(message)
                client.unsent -= message.nbytes
            finally:
                self._give(client, nbytes)
            self._queue(client)

    def _queue(self, client: _Client) -> None:
        """Queue a client for a turn, if it has pieces and no turn yet."""
        if client.pieces and not client.is_queued and client.unsent <= client.budget.nbytes:
            client.is_queued = True
            self._ready.put_nowait(client)

    async def _call(self) -> None:
        """Call pieces one after another, taking clients in turn."""
        loop = asyncio.get_running_loop()
        while True:
            client = await self._ready.get()
            client.is_queued = False
            if not client.pieces:
                continue
            piece = client.pieces.popleft()
            self._queue(client)
            reply = await loop.run_in_executor(self._threads, piece.epoch.answer, piece.request)
            if not piece.reply.done():
                client.unsent += reply.nbytes
                piece.reply.set_result(reply)

    def _free(self, client: _Client) -> None:
        """Free the memory of a departed client."""
        self._clients.discard(client)
        client.pieces.clear()
        while not client.replies.empty():
            item = client.replies.get_nowait()
            if item is not None:
                item[0].cancel()
                self._give(client, item[1])

    async def _finish(self) -> None:
        """Refuse waiting pieces, and send the replies of running ones."""
        for client in self._clients:
            if client.reading is not None:
                client.reading.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)


_STOPPED = "the server stops; start it again, and repeat what was not done"
# Errors that a client is sent, behind what it is owed, before its connection ends.
_SAID = (BadMessage, ClosedError, UnsupportedError)


def _check_free(address: Address) -> None:
    """Raise ExistsError unless a socket path is free or left by a dead server."""
    try:
        mode = Path(address.path).stat().st_mode
    except FileNotFoundError:
        return
    remedy = "name another path"
    if not stat.S_ISSOCK(mode):
        raise ExistsError(f"{address.path} exists and is not a socket; {remedy}")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address.path)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise ExistsError(f"{address.path} cannot be reached ({error}); {remedy}") from error
    raise ExistsError(f"another server listens on {address}; stop it, or {remedy}")
