"""One round of each fault; ``scripts/rounds`` plays as many as wanted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import Hosts, why_no_hosts
from rounds.cluster import Cluster
from rounds.faults import FAULTS
from rounds.play import play

pytestmark = pytest.mark.cluster

HERE = [name for name, fault in FAULTS.items() if fault.needs in {None, "cpus"}]
BETWEEN_HOSTS = [name for name, fault in FAULTS.items() if fault.needs == "hosts"]


@pytest.fixture(scope="module")
def processes_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("rounds"), 2)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def processes_on_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    hosts = Hosts(3, bandwidth="1gbit", delay_ms=1)
    cluster = Cluster(tmp_path_factory.mktemp("rounds"), 3, hosts)
    try:
        yield cluster
    finally:
        cluster.close()
        hosts.close()


@pytest.mark.parametrize("fault", HERE)
def test_a_round(processes_here, fault, monkeypatch):
    if fault == "stop":
        # Only here: a worker that has just been started, on a busy machine, is slow to answer.
        monkeypatch.setattr("dgpuhash.distributed.phase.PATIENCE", 1.0)
        monkeypatch.setattr("dgpuhash.distributed.phase.SILENCE", 8.0)
    (outcome,) = play(processes_here, fault, [0])
    assert not outcome.failed, outcome


@pytest.mark.parametrize(("fault", "work"), [("kill", "map insert"), ("late", "map find")])
def test_a_round_with_a_table(processes_here, fault, work):
    (outcome,) = play(processes_here, fault, [0], [work])
    assert not outcome.failed, outcome


@pytest.mark.parametrize("fault", BETWEEN_HOSTS)
@pytest.mark.filterwarnings("ignore:links have")
def test_a_round_between_hosts(processes_on_hosts, fault):
    (outcome,) = play(processes_on_hosts, fault, [0])
    assert not outcome.failed, outcome
