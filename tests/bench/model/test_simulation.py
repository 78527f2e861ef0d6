"""Simulation of many GPUs: laws that hold whatever the figures are."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpuhash import bench
from dgpuhash.bench.model.forecast import Network
from dgpuhash.bench.model.simulation import exchanges
from dgpuhash.bench.model.simulation.cluster import Clock, Cluster, Signal
from dgpuhash.bench.model.simulation.exchanges import EXCHANGES, least_seconds
from dgpuhash.bench.model.simulation.verbs import VERBS, Costs, Outcome, moved_nbytes, simulate
from dgpuhash.distributed.collective.dask_comm import SMALL_NBYTES
from dgpuhash.distributed.collective.two_level.collective import small_nbytes
from dgpuhash.distributed.collective.two_level.layout import HostLayout
from dgpuhash.errors import SpecError

LATENCY, MESSAGE = 1e-3, 6e-4
COSTS = Costs(50e9, 12e9, 35e9, 15e9, 0.003, 0.0003)
# Bytes of a rank for each other one that every transport takes for few.
FEW = 1000.0


def network(host: int, latency: float = LATENCY, message: float = MESSAGE) -> Network:
    return Network(300e9, 50e9, host, latency, message)


def exchanged(cluster: Cluster, way: str, nbytes: float) -> Outcome:
    """Exchange this many bytes of each rank."""
    return simulate(cluster, "exchange", way, COSTS, nbytes / moved_nbytes("exchange", 1.0))


def near_and_far(cluster: Cluster) -> tuple[int, int]:
    """Return the ordered pairs of ranks on one host, and on two."""
    sizes = [len(ranks) for ranks in cluster.layout.hosts]
    near = sum(size * (size - 1) for size in sizes)
    return near, cluster.ranks[-1].number * len(cluster.ranks) - near


def hops(layout: HostLayout) -> int:
    """Return how often the rows of all pairs on two hosts travel within one, through gateways."""
    found = 0
    for source, here in enumerate(layout.host_numbers):
        for target, there in enumerate(layout.host_numbers):
            if here != there:
                found += source != layout.gateway(here, there)
                found += target != layout.gateway(there, here)
    return found


@settings(max_examples=30, deadline=None)
@given(
    ranks=st.integers(1, 40),
    host=st.integers(1, 9),
    part=st.sampled_from([0.0, FEW, float(SMALL_NBYTES), 3e6, 6e8]),
    way=st.sampled_from(list(EXCHANGES)),
)
def test_all_rows_arrive_and_links_bound_the_time(ranks, host, part, way):
    host = ranks if way == "peer" else host
    cluster = Cluster(network(host), ranks)
    found = exchanged(cluster, way, part * ranks)
    near, far = near_and_far(cluster)
    # Each row leaves for another host once, whoever sends it there.
    assert found.nic == pytest.approx(far * part)
    forwarded = 0
    if way == "two-level" and part <= small_nbytes(cluster.layout, "cuda"):
        forwarded = hops(cluster.layout)
    assert found.nvlink == pytest.approx((near + forwarded) * part)
    assert found.seconds >= least_seconds(cluster, part * ranks) * (1 - 1e-9)
    assert found.seconds >= found.talking * (1 - 1e-9)
    for rank in cluster.ranks:
        assert rank.loop.busy == pytest.approx(found.messages * MESSAGE / ranks, rel=ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("host", [1, 4])
def test_each_to_each_takes_what_the_model_says(ranks, host):
    """With a message a pair; the model adds what is on its way at the end to all messages."""
    net = network(host)
    for nbytes in (0.0, ranks * FEW, float(ranks * SMALL_NBYTES)):
        found = exchanged(Cluster(net, ranks), "comm", nbytes)
        modelled, _ = net.seconds(max(nbytes, 1.0), ranks)
        assert modelled - LATENCY - MESSAGE <= found.seconds <= modelled + 1e-9


@pytest.mark.parametrize(("ranks", "host"), [(4, 4), (8, 4), (16, 8), (64, 8)])
def test_links_alone_take_what_the_model_says(ranks, host):
    net = network(host, 0.0, 0.0)
    for way in ("comm", "two-level"):
        found = exchanged(Cluster(net, ranks), way, 1e9)
        assert found.seconds == pytest.approx(net.seconds(1e9, ranks)[0], rel=0.15)
    if ranks <= host:
        peer = exchanged(Cluster(net, ranks), "peer", 1e9)
        assert peer.seconds == pytest.approx(net.seconds(1e9, ranks)[0], rel=1e-9)


@pytest.mark.parametrize(("part", "chunks"), [(FEW, 0), (5.0 * SMALL_NBYTES, 1), (3e8, 2)])
def test_messages(part, chunks):
    """As counted between processes on two hosts of three in the test of the exchange itself."""
    flat = exchanged(Cluster(network(3), 6), "comm", 6 * part)
    assert (flat.messages, flat.far_messages) == (30 * (1 + chunks), 18 * (1 + chunks))
    two = exchanged(Cluster(network(3), 6), "two-level", 6 * part)
    assert (two.messages, two.far_messages) == (18 + 30 * chunks, 2 + 18 * chunks)
    peer = exchanged(Cluster(network(6), 6), "peer", 6 * part)
    assert peer.messages == 0


@pytest.mark.parametrize("part", [0.0, 9e5, 3.0 * SMALL_NBYTES])
@pytest.mark.parametrize("verb", ["exchange", "merge", "bulk insert"])
def test_messages_worked_out_at_once_take_what_each_one_takes(part, verb, monkeypatch):
    found = []
    for many in (1000, 0):
        monkeypatch.setattr(exchanges, "MANY", many)
        found.append(simulate(Cluster(network(8), 40), verb, "comm", COSTS, 40 * part / 17))
    each, once = found
    assert once.seconds == pytest.approx(each.seconds, rel=0.03)
    assert astuple(replace(once, seconds=0)) == pytest.approx(astuple(replace(each, seconds=0)))


def test_a_message_a_pair_of_hosts_and_few_of_a_rank():
    found = exchanged(Cluster(network(8), 256), "two-level", 256 * FEW)
    assert found.far_messages == 32 * 31
    assert found.most_messages == 7 + math.ceil(31 / 8) + 7
    assert exchanged(Cluster(network(8), 256), "comm", 256 * FEW).most_messages == 255


@pytest.mark.parametrize("verb", VERBS)
def test_two_levels_are_faster_on_many_hosts(verb):
    rows = 1e6
    flat, two = (
        simulate(Cluster(network(8), 64), verb, way, COSTS, rows) for way in ("comm", "two-level")
    )
    assert two.seconds < flat.seconds
    assert two.messages < flat.messages
    assert (two.nic, two.working) == pytest.approx((flat.nic, flat.working))


def test_a_rank_alone_only_works():
    found = simulate(Cluster(network(1), 1), "merge", "comm", COSTS, 7e9)
    assert (found.messages, found.nic, found.nvlink) == (0, 0, 0)
    # Seconds of the scheduler, of the partition and of the lookup.
    assert found.seconds == pytest.approx(0.003 + 0.0003 + 7 / 50 + 7 / 35)


def test_events_happen_in_the_order_of_their_times_and_plans():
    clock, seen = Clock(), []
    for time, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        clock.at(time, seen.append, name)
    both = Signal(2)

    def program():
        yield both
        seen.append(clock.now)
        yield clock.now + 5
        seen.append(clock.now)

    clock.start(program(), lambda: seen.append("ended"))
    clock.at(3.0, both.tell)
    clock.at(4.0, both.tell)
    assert clock.run() == 9.0
    assert seen == ["a", "b", "c", 4.0, 9.0, "ended"]


GIVEN: dict[str, Any] = {
    "partition_rate": 50.0, "insert_rate": 12.0, "find_rate": 35.0, "reduce_rate": 15.0,
    "link": 300.0, "latency": 1.0, "message": 0.6, "chunk_size": 10**6, "simulate": True,
}  # fmt: skip


def test_rows_of_the_benchmark(tmp_path, capsys):
    kept = tmp_path / "simulation.jsonl"
    rows = bench.run("model", device="cpu", **GIVEN, workers=[16, 8], json_path=kept)
    made = [row for row in rows if "messages" in row]
    assert [(row["workers"], row["verb"], row["exchange"]) for row in made] == [
        (count, verb, way)
        for count, ways in ((8, ["peer"]), (16, ["comm", "two-level"]))
        for verb in VERBS
        for way in ways
    ]
    assert all(row["model"] and "correct" not in row for row in made)
    assert "a simulation: milliseconds" in capsys.readouterr().out
    document, *_ = bench.report.write([kept], tmp_path / "report")
    assert "| bulk insert | 16 | 2 | two-level |" in document.read_text()
    some = bench.run(
        "model", device="cpu", quiet=True, **{**GIVEN, "reduce_rate": None}, workers=[8]
    )
    assert "groupby" not in {row.get("verb") for row in some}


def test_figures_that_lack():
    with pytest.raises(SpecError, match="--find-rate"):
        bench.run("model", device="cpu", quiet=True, **{**GIVEN, "find_rate": None})
