"""Indexes on workers: where they came from, what they take, and merges of what was gathered."""

from __future__ import annotations

import hashlib

import pytest
from click.testing import CliRunner
from kmer.workers.pairs import MODES, WORLD

from dgpuhash.cli import main
from dgpuhash.errors import OutOfMemoryError, SpecError
from dgpuhash.kmer import MinimizerIndex, SketchIndex, load_index, worker_index
from dgpuhash.kmer.cluster import Workers
from dgpuhash.kmer.databases import estimate
from dgpuhash.kmer.sketches import building

SMALL = {"k": 11, "sketch": 8, "window": 40}


def undated(steps):
    return [step._replace(date="") for step in steps]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rule", "settings"), [(SketchIndex, SMALL), (MinimizerIndex, {})])
def test_provenance_is_that_of_one_device(clients, folder, tmp_path, rule, settings, mode):
    files, taxonomy = sorted(folder.glob("*.fa")), folder / "taxonomy"
    one = rule.build(files[:2], taxonomy=taxonomy, **settings)
    made = rule.build(files[:2], taxonomy=taxonomy, client=clients[3], mode=mode, **settings)
    for index in (one, made):
        index.add(files[2:], taxonomy=taxonomy)
    expected = undated(one.provenance)
    assert undated(made.provenance) == expected
    assert [file.sha256 for step in expected for file in step.files] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    made.save(tmp_path / "x.dgki")
    assert undated(load_index(tmp_path / "x.dgki").provenance) == expected
    assert undated(load_index(tmp_path / "x.dgki", client=clients[2]).provenance) == expected


def test_what_was_gathered_merges(clients, folder, monkeypatch):
    files, taxonomy = sorted(folder.glob("*.fa")), folder / "taxonomy"
    given = {**SMALL, "cap": 2, "order": "given", "taxonomy": taxonomy}
    made = SketchIndex.build(files[:3], client=clients[2], mode="independent", **given)
    last = SketchIndex.build(files[3], **given)
    whole = SketchIndex.build(files, **given)
    # Many pieces, most of which go to a file.
    monkeypatch.setattr(worker_index, "_GATHERED_ROWS", 7)
    monkeypatch.setattr(building, "HELD_NBYTES", 100)
    assert made.gather().merge(last).digests() == whole.digests()
    with pytest.raises(SpecError, match=r"gather\(\) those of workers"):
        last.merge(made)


@pytest.mark.parametrize("rule", [SketchIndex, MinimizerIndex])
def test_builds_that_do_not_fit_workers_are_refused(clients, folder, monkeypatch, rule):
    given = {"client": clients[3], "mode": "distributed"}
    for name in ("_SKETCHED_NBYTES", "_MINIMIZED_NBYTES"):
        monkeypatch.setattr(estimate, name, {"cpu": 0})
    monkeypatch.setattr(building, "HELD_NBYTES", 0)
    files = sorted(folder.glob("*.fa"))
    each = rule.estimate(files, **given).nbytes_each
    assert 3 * each >= rule.estimate(files).build_nbytes > 2 * each
    with monkeypatch.context() as patch:
        patch.setattr(Workers, "memory", round(each * 1.01))
        assert rule.estimate(files, **given).fits
        index = rule.build(files, taxonomy=folder / "taxonomy", **given)
        assert len(index.targets.names) == len(WORLD.references)
        patch.setattr(Workers, "memory", round(each * 0.7))
        told = rule.estimate(files, **given)
        assert not told.fits and told.memory.workers == 3
        with pytest.raises(OutOfMemoryError, match=r"each of 3 workers has .*5 workers of that"):
            rule.build(files, taxonomy=folder / "taxonomy", **given)
        given["mode"] = "replicated"
        patch.setattr(Workers, "memory", each * 2)
        assert rule.estimate(files, **given).remedies[0] == "mode=distributed"


def test_the_command_asks_workers(clients, folder):
    arguments = ["kmer", "estimate", str(folder), "--rule", "metacache", "--scheduler"]
    result = CliRunner().invoke(main, [*arguments, clients[2].scheduler.address])
    assert result.exit_code == 0, result.output
    told = dict(line.split("\t") for line in result.stdout.splitlines())
    assert (told["workers"], told["mode"], told["fits"]) == ("2", "replicated", "true")
