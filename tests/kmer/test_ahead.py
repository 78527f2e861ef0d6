"""Threads that make items ahead: in order, with errors, and no finaliser waits for them."""

from __future__ import annotations

import gzip
import threading
import time

import pytest

from dgpuhash.kmer.sequences import files
from dgpuhash.kmer.sequences.ahead import ahead, threads_of_a_generator
from dgpuhash.kmer.sequences.batches import read_sequences


def names():
    return [each.name for each in threading.enumerate() if each.name.startswith("dgpuhash-")]


def gone(before):
    """Return whether all further threads end within a while."""
    end = time.monotonic() + 20
    while set(names()) - set(before) and time.monotonic() < end:
        time.sleep(0.01)
    return not set(names()) - set(before)


def test_items_come_in_order_and_one_ahead():
    made = []
    items = ahead(made.append(n) or n for n in range(5))
    before = names()
    assert next(items) == 0
    assert list(items) == [1, 2, 3, 4] == made[1:]
    assert gone(before)


def test_an_error_comes_where_it_was_made():
    def items():
        yield 1
        raise ValueError("two")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="two"):
        next(found)


@pytest.mark.parametrize("how", ["one ahead", "many"])
def test_who_leaves_off_waits_for_nothing(how):
    """A finaliser that waits for a thread, while another one starts, would wait for ever."""
    before, begun, goes_on = names(), threading.Event(), threading.Event()

    def later():
        begun.set()
        goes_on.wait(20)

    def one():
        yield 0
        later()

    def many():
        with threads_of_a_generator(2, "dgpuhash-many") as pool:
            pool.submit(later)
            yield 0

    items = ahead(one()) if how == "one ahead" else many()
    assert next(items) == 0
    assert begun.wait(20)
    items.close()
    assert set(names()) - set(before)
    goes_on.set()
    assert gone(before)


def test_a_packed_file_that_is_left_off_leaves_no_thread(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_NBYTES", 100)
    path = tmp_path / "reads.fa.gz"
    path.write_bytes(gzip.compress(b">a\n" + b"ACGT" * 10_000 + b"\n@\n"))
    before = names()
    for _ in range(20):
        batches = read_sequences(path, overlap=3, batch_letters=50)
        assert len(next(batches)) == 1
        del batches
    assert gone(before)
