"""What a server does with bytes that no client of ours sends, and a client with a server's."""

from __future__ import annotations

import json
import pickle
import socket
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from distributed.protocol import dumps
from kmer.server.conftest import serving
from kmer.worlds import arrays

from dgpuhash.kmer.server import protocol
from dgpuhash.kmer.server.client import ServedIndex
from dgpuhash.kmer.server.protocol import MAGIC, VERSION

GREETING = MAGIC + VERSION.to_bytes(2, "little")
OPEN = {"kind": "open", "fields": {"database": "kraken2"}, "arrays": []}
FIELDS = {"options": {}, "detail": False, "minimizers": False, "candidates": False}


class Trap:
    """Unpickled, it would tell."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True


def message(head, *bodies):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(4, "little") + text + b"".join(bodies)


def call(listed, **fields):
    return {"kind": "call", "fields": {**FIELDS, **fields}, "arrays": listed}


@contextmanager
def connected(address):
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        yield wire


def replies(address, *sent):
    """Return the heads of replies up to the end of the connection."""
    with connected(address) as wire, wire.makefile("rb") as stream:
        wire.sendall(b"".join(sent))
        wire.shutdown(socket.SHUT_WR)
        if stream.read(len(GREETING)) != GREETING:
            return []
        found = []
        while size := stream.read(4):
            found.append(json.loads(stream.read(int.from_bytes(size, "little"))))
            nbytes = sum(
                np.dtype(dtype).itemsize * int(np.prod(shape))
                for _, dtype, shape in found[-1]["arrays"]
            )
            assert len(stream.read(nbytes)) == nbytes
        return found


@pytest.fixture(scope="module")
def server(databases):
    with serving(databases, memory=2**24) as both:
        yield both


@pytest.fixture(autouse=True)
def goes_on(server):
    """After each test the server serves, and has all of its memory."""
    yield
    running, address = server
    with ServedIndex(address, "kraken2") as served:
        assert len(served.call(*arrays(["ACGT" * 20]))) == 1
    end = time.monotonic() + 30
    while running._clients or running._budget.free != running._budget.nbytes:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not Trap.sprung


def last_error(address, *sent):
    found = replies(address, GREETING, *sent)
    assert found, "the server said nothing"
    return found[-1]["kind"], found[-1]["fields"].get("text", "")


LETTERS = [["letters", "|u1", [4]], ["sizes", "<u4", [1]]]
READ = (b"ACGT", (4).to_bytes(4, "little"))


def test_a_message_that_is_right(server):
    found = replies(server[1], GREETING, message(OPEN), message(call(LETTERS), *READ))
    # A client that ends its side is gone: what it is owed it may have or not.
    assert [each["kind"] for each in found] in ([], ["opened"], ["opened", "called"])


@pytest.mark.parametrize(
    "sent",
    [
        b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", pickle.dumps(Trap()),
        b"".join(dumps({"op": "x", "trap": Trap()})), bytes(1000), MAGIC[:-1] + b"x\0\0",
    ],
    ids=["nothing", "a_letter", "http", "pickle", "dask", "zeros", "magic"],
)  # fmt: skip
def test_no_greeting(server, sent):
    with connected(server[1]) as wire:
        wire.sendall(sent)
        wire.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert wire.recv(100) == b""


@pytest.mark.parametrize(
    "head",
    [
        pickle.dumps(Trap()), b"", b"{", b"[]", b"null", b"[" * 60_000, b"\xff\xfe", b'"open"',
        b'{"kind": "open"}', b"1" * 6000, {**OPEN, "kind": "reload"}, {**OPEN, "kind": ["open"]},
        {**OPEN, "kind": "opened"}, {**OPEN, "fields": {"database": 1}}, {**OPEN, "fields": []},
        {**OPEN, "fields": {"database": "kraken2", "path": "/etc/passwd"}},
        {**OPEN, "arrays": [["letters", "|u1", [4]]]}, {**OPEN, "arrays": {"a": 1}},
        call([["letters", "|O", [1]]]), call([["letters", "<f8", [1]]]),
        call([["letters", "|u1", [-1]]]), call([["letters", "|u1", [2**62, 2**62]]]),
        call([["letters", "|u1", [1.5]]]), call([["letters", "|u1", []]]),
        call([["letters", "|u1", [True]]]), call([["letters", "|u1", 4]]),
        call([["pickle", "|u1", [4]]]), call([*LETTERS, LETTERS[0]]), call([[1, "|u1", [4]]]),
        call(LETTERS, detail=1), call(LETTERS, more=1), call([["letters", "|u1", [1, 1, 1]]]),
    ],
)  # fmt: skip
def test_malformed_heads(server, head):
    kind, text = last_error(server[1], message(OPEN), message(head))
    assert kind == "closed"
    assert "is malformed" in text or "are malformed" in text


@pytest.mark.parametrize(
    ("listed", "bodies"),
    [
        (LETTERS, (b"ACGT", (5).to_bytes(4, "little"))),
        (LETTERS, (b"ACGT", (2**32 - 1).to_bytes(4, "little"))),
        (LETTERS[:1], READ[:1]),
        (LETTERS[1:], READ[1:]),
        ([], ()),
        ([["letters", "|u1", [2, 2]], LETTERS[1]], READ),
        ([*LETTERS, ["qualities", "|u1", [3]]], (*READ, b"III")),
        ([*LETTERS, ["mate_letters", "|u1", [0]]], READ),
        ([*LETTERS, ["mate_letters", "|u1", [0]], ["mate_sizes", "<u4", [0]]], READ),
    ],
)
def test_arrays_that_do_not_fit(server, listed, bodies):
    """They are an error of this request; the next one is answered."""
    with connected(server[1]) as wire, wire.makefile("rb") as stream:
        wire.sendall(
            GREETING
            + message(OPEN)
            + message(call(listed), *bodies)
            + message(call(LETTERS), *READ)
        )
        assert stream.read(len(GREETING)) == GREETING
        kinds = []
        for _ in range(3):
            head = json.loads(stream.read(int.from_bytes(stream.read(4), "little")))
            kinds.append(head["kind"])
            for _, dtype, shape in head["arrays"]:
                stream.read(np.dtype(dtype).itemsize * int(np.prod(shape)))
        assert kinds == ["opened", "error", "called"]


@pytest.mark.parametrize(
    "options",
    [
        {"kept": 1}, {"seen": True}, {"confidence": "x"}, {"confidence": [0.1]},
        {"confidence": {"a": 1}}, {"no": 1}, {"minimum_hit_groups": 10**30}, {"quick": None},
    ],
)  # fmt: skip
def test_options_that_no_index_has(server, options):
    kind = replies_of_one(server[1], message(call(LETTERS, options=options), *READ))
    assert kind in ("error", "called")
    if "confidence" in options or "no" in options:
        assert kind == "error"


def replies_of_one(address, sent):
    with connected(address) as wire, wire.makefile("rb") as stream:
        wire.sendall(GREETING + message(OPEN) + sent)
        stream.read(len(GREETING))
        for _ in range(2):
            head = json.loads(stream.read(int.from_bytes(stream.read(4), "little")))
            for _, dtype, shape in head["arrays"]:
                stream.read(np.dtype(dtype).itemsize * int(np.prod(shape)))
        return head["kind"]


def test_oversized_messages(server):
    _, address = server
    # Nothing of it is read, nor room made.
    huge = call([["letters", "|u1", [2**39]], ["sizes", "<u4", [1]]])
    kind, text = last_error(address, message(OPEN), message(huge))
    assert kind == "closed"
    assert "the server takes" in text
    kind, text = last_error(address, message(OPEN), (2**32 - 1).to_bytes(4, "little"))
    assert kind == "closed"
    assert "the header of a message has 4,294,967,295 bytes" in text


def test_answers_larger_than_the_memory(server):
    """Reads without letters are few bytes, and each has as many candidates as were wanted."""
    many = call([["letters", "|u1", [0]], ["sizes", "<u4", [2**22]]])
    many["fields"] = {**many["fields"], "options": {"maxcand": 1024}}
    kind, text = last_error(server[1], message(OPEN), message(many))
    assert kind == "closed"
    assert "the server takes" in text


def test_reads_before_a_database(server):
    kind, text = last_error(server[1], message(call(LETTERS), *READ))
    assert kind == "closed"
    assert "before a database was opened" in text


def test_a_message_that_ends_or_stalls(server, monkeypatch):
    running, address = server
    with connected(address) as wire:
        wire.sendall(GREETING + message(OPEN) + message(call(LETTERS), b"AC"))
        wait_for(lambda: running._budget.free < running._budget.nbytes)
    wait_for(lambda: running._budget.free == running._budget.nbytes)
    with (
        monkeypatch.context() as patch,
        connected(address) as wire,
        wire.makefile("rb") as stream,
    ):
        patch.setattr(protocol, "STALL_SECONDS", 0.3)
        wire.sendall(GREETING + message(OPEN) + message(call(LETTERS), b"AC"))
        stream.read()
    wait_for(lambda: running._budget.free == running._budget.nbytes)


def wait_for(is_so):
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_client_of_another_version(server):
    with connected(server[1]) as wire:
        wire.sendall(MAGIC + b"\7\0")
        assert wire.recv(100) == GREETING
        assert wire.recv(100) == b""


@contextmanager
def answering(*sent):
    """Yield the address of a server that sends some bytes to each client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run():
            wire, _ = listener.accept()
            with wire:
                for each in sent:
                    wire.recv(2**16)
                    wire.sendall(each)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(30)


LIMITS = {"memory": 1, "share": 1, "letters": 1}
OPENED = {"kind": "opened", "fields": {"database": "", "header": {}, **LIMITS}}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "no server answers|closed the connection"),
        ((MAGIC + b"\2\0",), "speaks version 2 of the protocol, and this client 1"),
        ((GREETING,), "closed the connection"),
        ((GREETING, b"\x10\0\0\0" + pickle.dumps(Trap())), "an invalid reply"),
        ((GREETING, message(OPEN)), "an invalid reply"),
        ((GREETING, message({**OPENED, "arrays": []})), "unknown rule|damaged"),
        ((GREETING, message({"kind": "called", "fields": {}, "arrays": []})), "an invalid reply"),
    ],
)
def test_a_server_that_is_none(sent, said):
    with answering(*sent) as address, pytest.raises(Exception, match=said) as told:
        ServedIndex(address, "kraken2")
    assert isinstance(told.value, (OSError, ValueError))
