"""Counting by its rules in plain Python; imports nothing of dgpuhash."""

from __future__ import annotations

from collections import Counter

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def records_of(text: str) -> list[tuple[str, str, str]]:
    """Return name, letters and qualities of a file's records; qualities are "" of FASTA."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[0]:
        del lines[0]
    if lines[0].startswith("@"):
        rows = [lines[at : at + 4] for at in range(0, len(lines) - 3, 4)]
        return [(name[1:], letters, quality) for name, letters, _, quality in rows]
    found: list[tuple[str, str, str]] = []
    for line in lines:
        if line.startswith(">"):
            found.append((line[1:], "", ""))
        elif line:
            name, letters, _ = found[-1]
            found[-1] = name, letters + line, ""
    return found


def reverse_complement(kmer: str) -> str:
    return kmer[::-1].translate(COMPLEMENT)


def kmer_counts(
    records: list[tuple[str, str, str]],
    k: int,
    *,
    canonical: bool = True,
    min_count: int = 1,
    max_count: int | None = None,
    min_quality: int = 0,
) -> dict[str, int]:
    """Return the count of each k-mer, in the order of their letters."""
    counts: Counter[str] = Counter()
    for _, letters, quality in records:
        masked = "".join(
            "N" if quality and ord(quality[at]) - 33 < min_quality else letter
            for at, letter in enumerate(letters.upper())
        )
        for at in range(len(masked) - k + 1):
            kmer = masked[at : at + k]
            if set(kmer) <= set("ACGT"):
                counts[min(kmer, reverse_complement(kmer)) if canonical else kmer] += 1
    return {
        kmer: count
        for kmer, count in sorted(counts.items())
        if count >= min_count and (max_count is None or count <= max_count)
    }


def histogram(counts: dict[str, int]) -> dict[int, int]:
    return dict(sorted(Counter(counts.values()).items()))


def dump(counts: dict[str, int]) -> bytes:
    return "".join(f"{kmer}\t{count}\n" for kmer, count in counts.items()).encode()
