"""Names of mates in the forms of machines and archives, and mates in the wrong order."""

from __future__ import annotations

import warnings

import pytest
from kmer.bad_input.inputs import run, written

from dgpuhash.errors import SequenceError
from dgpuhash.kmer import read_pairs

# Of read n, before and behind which the number of the mate stands.
FORMS = {
    "Illumina": "HWI:1:{n}/{m}",
    "Casava 1.8": "M0:1:000:1:{n}:7 {m}:N:0:ACGT",
    "underscore": "read{n}_{m}",
    "SRA": "SRR1.{n}.{m}",
    "SRA with a comment": "SRR1.{n}.{m} {n} length=4",
    "ENA": "ERR1.{n} HWI:1:{n}/{m}",
    "R1": "read{n}_R{m}",
    "R1 behind a slash": "read{n}/R{m}",
    "colon": "read{n}:{m}",
    "dash": "read-{n}-{m}",
    "none": "read{n}",
}
by_form = pytest.mark.parametrize("form", FORMS)


def fastq(form, mate, reads=range(1, 6)):
    names = (FORMS[form].format(n=n, m=mate) for n in reads)
    return "".join(f"@{name}\nACGT\n+\nIIII\n" for name in names)


@pytest.fixture
def files(tmp_path):
    def write(form, first=1, second=2, **others):
        one = written(tmp_path / "one.fq", fastq(form, first))
        return one, written(tmp_path / "two.fq", fastq(form, second, **others))

    return write


@by_form
def test_forms_are_known(files, form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ((first, second),) = read_pairs(*files(form))
    assert len(first) == len(second) == 5


@by_form
def test_mates_that_are_shifted_are_refused(files, form):
    for reads in (range(2, 7), [1, 2, 4, 3, 5]):
        paths = files(form, reads=reads)
        with pytest.raises(SequenceError, match=r"are not one pair .*--no-name-check"):
            list(read_pairs(*paths))
        ((first, _),) = read_pairs(*paths, name_check=False)
        assert len(first) == 5


def test_mates_that_change_places_are_refused(files, tmp_path):
    one, two = files("underscore")
    mixed = two.read_text().replace("read3_2", "read3_1")
    with pytest.raises(SequenceError, match=r"record 3.*pair 3"):
        list(read_pairs(one, written(tmp_path / "mixed.fq", mixed)))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "none"])
def test_swapped_files_warn(files, form):
    with pytest.warns(UserWarning, match=r"one.fq and .*two.fq have second mates before first"):
        list(read_pairs(*files(form, 2, 1)))


@pytest.mark.parametrize("form", ["Illumina", "Casava 1.8", "ENA"])
def test_first_mates_twice_warn(files, form):
    with pytest.warns(UserWarning, match="have mates number 1 alone"):
        list(read_pairs(*files(form, 1, 1)))


def test_one_file_for_both_mates_warns(files, tmp_path):
    one, _ = files("none")
    link = tmp_path / "link.fq"
    link.symlink_to(one)
    with pytest.warns(UserWarning, match="are one file; pass that of the other mates"):
        list(read_pairs(one, link))


def test_interleaved_mates(tmp_path):
    records = [fastq("SRA", mate, [n]) for n in (1, 2) for mate in (2, 1)]
    path = written(tmp_path / "both.fq", "".join(records))
    with pytest.warns(UserWarning, match="both.fq have second mates before first ones"):
        list(read_pairs(path, interleaved=True))


def test_the_command_takes_other_names(files, tmp_path):
    one, two = files("none", reads=range(11, 16))
    reference = written(tmp_path / "x.fa", ">x\n" + "ACGTTGCA" * 9 + "\n")
    command = ["run", one, two, "--paired", "--references", reference, "--rule", "metacache"]
    command += ["--allow-unplaced", 1, "--format", "tsv"]
    assert "--no-name-check" in run(*command, code=2)
    assert len(run(*command, "--no-name-check").splitlines()) == 5
