"""MetaCache's rule of classification in plain Python; imports nothing of dgpuhash."""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kmer.taxonomy_model import SLOTS, Model

CODES = {
    **dict(zip("ACGT", range(4), strict=True)),
    **dict(zip("acgt", range(4), strict=True)),
    "U": 3,
    "u": 3,
}
SEQUENCE, ROOT = SLOTS.index("sequence"), SLOTS.index("root")


class Reference(NamedTuple):
    """A reference sequence; taxid 0 is none."""

    name: str
    letters: str
    taxid: int = 0


class Candidate(NamedTuple):
    """The best run of windows of a target, and what it counts for."""

    target: int
    hits: int
    first: int
    last: int
    taxid: int
    slot: int


def canonical_codes(letters: str, k: int, codes: dict[str, int] = CODES) -> list[int | None]:
    """Return the code of the k-mer at each place, None of one with another letter in it."""
    found: list[int | None] = []
    mask, high = 4**k - 1, 2 * (k - 1)
    forward = backward = valid = 0
    for letter in letters:
        code = codes.get(letter)
        if code is None:
            forward = backward = valid = 0
        else:
            forward = (forward << 2 | code) & mask
            backward = backward >> 2 | (3 - code) << high
            valid += 1
        found.append(min(forward, backward) if valid >= k else None)
    return found[k - 1 :]


def mixed_32(code: int) -> int:
    for _ in range(2):
        code = ((code >> 16 ^ code) * 0x45D9F3B) & 0xFFFFFFFF
    return code >> 16 ^ code


def mixed_64(code: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        code = ((code ^ code >> 33) * factor) & 0xFFFFFFFFFFFFFFFF
    return code ^ code >> 33


def float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


class SketchModel:
    """References, and the windows where each feature of them is."""

    def __init__(
        self,
        references: Iterable[Reference],
        taxonomy: Model,
        *,
        k: int = 16,
        sketch: int = 16,
        window: int = 127,
        stride: int | None = None,
        cap: int = 254,
        remove_overpopulated: bool = False,
    ) -> None:
        self.taxonomy, self.references = taxonomy, list(references)
        self.k, self.sketch, self.window, self.cap = k, sketch, window, cap
        self.stride = window - k + 1 if stride is None else stride
        # Targets count from 1.
        self.lineages = [[0] * len(SLOTS)]
        self.windows = [0]
        lists: dict[int, list[tuple[int, int]]] = {}
        for target, reference in enumerate(self.references, 1):
            self.lineages.append(taxonomy.ranked(reference.taxid))
            self.lineages[-1][SEQUENCE] = -target
            sketches = list(self.sketches(reference.letters))
            self.windows.append(len(sketches))
            for at, features in enumerate(sketches):
                for feature in features:
                    places = lists.setdefault(feature, [])
                    # Places come in their order: the first ones are the smallest.
                    if len(places) < cap:
                        places.append((target, at))
        self.lists = lists
        if remove_overpopulated:
            self.lists = {each: places for each, places in lists.items() if len(places) < cap}

    def sketches(self, letters: str) -> Iterator[list[int]]:
        """Yield the features of each window, the smallest first."""
        mixed, none = (mixed_32, 2**32 - 1) if self.k <= 16 else (mixed_64, 2**64 - 1)
        codes = canonical_codes(letters, self.k)
        features = [none if code is None else mixed(code) for code in codes]
        for start, end in self.spans(len(letters)):
            n = end - start - self.k + 1
            if n > 0:
                smallest = sorted(set(features[start : start + n]) - {none})
                yield smallest[: min(self.sketch, n)]

    def spans(self, length: int) -> Iterator[tuple[int, int]]:
        """Yield where windows begin and end."""
        start = 0
        if length > self.window:
            while start + self.window <= length:
                yield start, start + self.window
                start += self.stride
        if start < length:
            yield start, length

    def feature_counts(self) -> list[str]:
        return sorted(f"{feature} -> {len(places)}\n" for feature, places in self.lists.items())

    def locations(self) -> list[str]:
        return sorted(
            f"{feature} -> " + "".join(f"({target - 1},{at})" for target, at in places) + "\n"
            for feature, places in self.lists.items()
        )

    def candidates(
        self,
        letters: str,
        mate: str = "",
        *,
        lowest: str = "sequence",
        maxcand: int = 2,
        insertsize: int = 0,
    ) -> list[Candidate]:
        """Return the top list of a read."""
        hits = sorted(
            place
            for each in (letters, mate)
            for features in self.sketches(each)
            for feature in features
            for place in self.lists.get(feature, ())
        )
        reach = 2 + max(len(letters) + len(mate), insertsize) // self.stride
        lowest_slot = SLOTS.index(lowest)
        top: list[Candidate] = []
        at = 0
        while at < len(hits):
            target = hits[at][0]
            end = bisect_left(hits, (target + 1, -1), at)
            best, first, last = best_run([place for _, place in hits[at:end]], reach)
            at = end
            if len(top) == maxcand and top[-1].hits >= best:
                continue
            lineage = self.lineages[target]
            slot = next((each for each in range(lowest_slot, len(SLOTS)) if lineage[each]), -1)
            if slot < 0:
                continue
            candidate = Candidate(target, best, first, last, lineage[slot], slot)
            same = [each for each in top if each.taxid == candidate.taxid]
            if same and same[0].hits >= best:
                continue
            # Sorting keeps the order of equals.
            top = sorted([each for each in top if each not in same] + [candidate], key=_by_hits)
            del top[maxcand:]
        return top

    def decide(
        self,
        top: list[Candidate],
        *,
        highest: str = "domain",
        hitmin: int | None = None,
        hitdiff: float = 100,
    ) -> int:
        """Return the call of a top list: a taxid, -t of target t, or 0."""
        least = self.least_hits(hitmin)
        if not top or top[0].hits < least:
            return 0
        highest_slot = min(SLOTS.index(highest), ROOT - 1)
        threshold = 0.0
        if top[0].hits > least:
            threshold = float32(float32(top[0].hits - least) * float32(hitdiff / 100))
        taxid, slot = top[0].taxid, top[0].slot
        lineage = self.lineages[top[0].target]
        for each in top[1:]:
            if each.hits <= threshold:
                break
            other = self.lineages[each.target]
            while slot < len(SLOTS) and not (lineage[slot] and lineage[slot] == other[slot]):
                slot += 1
            if slot > highest_slot:
                return 0
            taxid = lineage[slot]
        return taxid if slot <= highest_slot else 0

    def least_hits(self, hitmin: int | None) -> int:
        if hitmin is not None:
            return hitmin
        return self.sketch // 3 if self.sketch >= 6 else 2 if self.sketch >= 4 else 1

    def classify(
        self,
        reads: Iterable[tuple[str, str]],
        *,
        highest: str = "domain",
        hitmin: int | None = None,
        hitdiff: float = 100,
        cov_percentile: float = 0,
        **options,
    ) -> list[tuple[int, list[Candidate]]]:
        """Return the call and the top list of each read or pair."""
        tops = [self.candidates(*read, **options) for read in reads]
        if cov_percentile:
            kept = self.covered(tops, self.least_hits(hitmin), cov_percentile)
            tops = [[each for each in top if each.target in kept] for top in tops]
        decision = {"highest": highest, "hitmin": hitmin, "hitdiff": hitdiff}
        return [(self.decide(top, **decision), top) for top in tops]

    def covered(self, tops: list[list[Candidate]], least: int, percentile: float) -> set[int]:
        """Return the targets without those of the lowest share of summed coverage."""
        seen: dict[int, set[int]] = {}
        for top in tops:
            for each in top:
                if each.hits >= least:
                    seen.setdefault(each.target, set()).update(range(each.first, each.last + 1))
        shares = sorted((len(places) / self.windows[each], each) for each, places in seen.items())
        most = percentile / 100 * sum(share for share, _ in shares)
        removed, part = set(), 0.0
        for share, target in shares:
            part += share
            if part > most:
                break
            removed.add(target)
        return set(seen) - removed

    def abundances(self, calls: Iterable[int], rank: str) -> dict[int, float]:
        """Return how many reads each taxon has, shared out at a rank."""
        counts: Counter[int] = Counter(call for call in calls if call)
        slots, lineages = {}, {}
        for taxid in counts:
            lineages[taxid] = self.lineage_of(taxid)
            slots[taxid] = max(at for at, each in enumerate(lineages[taxid]) if each == taxid)
        wanted = SLOTS.index(rank)
        lifted: Counter[int] = Counter()
        for taxid, count in counts.items():
            above = taxid
            if slots[taxid] < wanted:
                above = next((each for each in lineages[taxid][wanted:] if each), taxid)
                lineages[above] = lineages[taxid]
                slots[above] = lineages[taxid].index(above)
            lifted[above] += count
        order = sorted(lifted, key=lambda taxid: slots[taxid])
        children: dict[int, list[int]] = {}
        weights = Counter(lifted)
        for taxid in order:
            above = lineages[taxid][slots[taxid] + 1 :]
            parent = next((each for each in above if each in lifted), 0)
            if parent:
                children.setdefault(parent, []).append(taxid)
                weights[parent] += weights[taxid]
        shared = {taxid: float(count) for taxid, count in lifted.items()}
        for taxid in reversed(order):
            below = children.get(taxid, [])
            for child in below:
                share = weights[child] / sum(weights[each] for each in below)
                shared[child] += shared[taxid] * share
            if below:
                del shared[taxid]
        return shared

    def lineage_of(self, taxid: int) -> list[int]:
        return self.lineages[-taxid] if taxid < 0 else self.taxonomy.ranked(taxid)

    def lift(self, taxid: int) -> int:
        """Return the taxid of a call, that of its reference where it is one."""
        return self.references[-taxid - 1].taxid if taxid < 0 else taxid


def best_run(places: list[int], reach: int) -> tuple[int, int, int]:
    """Return the most places that span less than `reach`, and the first such run's ends."""
    best = first = last = start = 0
    for end, place in enumerate(places):
        while place - places[start] >= reach:
            start += 1
        if end - start + 1 > best:
            best, first, last = end - start + 1, places[start], place
    return best, first, last


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _by_hits(candidate: Candidate) -> int:
    return -candidate.hits
