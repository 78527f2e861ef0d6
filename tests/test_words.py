"""Names that were replaced by the field's terms do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("cluster", "dgpuhash", "docs", "examples", "kernels", "scripts", "tests")
SUFFIXES = {".py", ".md", ".cuh", ".h", ".cpp", ".sh", ".toml", ".yaml"}

# Whole words, by the term that replaced them.
DEAD = {
    "shard": "clear_part compact_part copy_part drop_part holds_part reserve_part write_part",
    "serialize, cache": "Sealed Sealing WithMetas kind_of_meta unloaded",
    "broadcast": "all_answer on_those_there relayed run_phase seen_through",
    "RPC": "ask_scheduler begun_calls handlers_of on_scheduler take_calls",
    "liveness, watchdog": "Attendance Awaited unattended",
    "plugin": "arriving_host_of host_of hosting_worker the_plugin",
    "data locality": "CarrierLost Lying Departures",
    "collective": "Board Door Letter Mailbox Pace PeerLanding WorkerEnd resting take_part",
    "hash partition": "PARCEL_NBYTES Parted parcel_nbytes split_to_all thinning",
    "multisplit": "Dealing KeyRuns key_runs owners_of",
    "semi-join, Bloom filter": "SPARE_NOTHING Sieve Thinned thinned undisturbed",
    "coalesce": "Sibling Siblings most_ahead",
    "change, transaction": "Mending acts_of moved_on put_share read_beside send_on settling",
    "merge plan": "MapHeld held_partitions map_held merge_here merge_together",
    "lease": "Holding free_of_the_dead",
    "secede": "giving_way",
    "grouping": "Witnesses adds_at_once winners",
    "arguments": "adopt_host key_bits value_bits Taken",
    "memory errors": "call_says_memory ran_out saying_memory says_memory",
    "dtype": "numbers_together refuse_mixture warn_of_fractions",
}
TERM_OF = {word: term for term, words in DEAD.items() for word in words.split()}


def texts() -> list[Path]:
    """The files of this project that people read."""
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [
        path
        for path in [*files, *ROOT.glob("*.md"), *ROOT.glob("*.toml")]
        if path.suffix in SUFFIXES and path.name != Path(__file__).name
    ]


@pytest.mark.parametrize("word", sorted(TERM_OF))
def test_a_dead_word_stays_dead(word: str, found: dict[str, list[str]]) -> None:
    assert not found.get(word), f"the field says {TERM_OF[word]}"


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The files that have each dead word."""
    places: dict[str, list[str]] = {}
    for path in texts():
        if "generated" in path.parts:
            continue
        for word in TERM_OF.keys() & set(re.findall(r"\w+", path.read_text())):
            places.setdefault(word, []).append(str(path.relative_to(ROOT)))
    return places
