"""Layout of words of eight bytes with a minimizer and the number of its taxon."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

LINE_WORDS = 8
# As kernels/table/quotient.cuh has them.
STEP_BITS, WORD_BITS = 10, 64
LEAST_LINES = 2**STEP_BITS
_MOST_TAXON_BITS = 32
# Words that have a minimizer, of all: how many at most while it is filled, and in a file.
LOAD = 0.875
# Of a minimizer that is a whole key, and the number of its taxon.
WHOLE_KEY_NBYTES = 12
# NCBI has 2.7 million.
_USUAL_TAXA = 2**22


class WordLayout(NamedTuple):
    """How many lines of words there are, and what the bits of a word mean.

    The line where a minimizer belongs tells the upper bits of its hash, which is a bijection. A
    word has the lower ones, the taxon, and how many lines behind its own the minimizer stands.

    Attributes
    ----------
    lines : int
        Of eight words.
    minimizer_bits : int
        Bits of a minimizer that count, and of its hash.
    lower_bits, taxon_bits : int
        Of a word.

    Examples
    --------
    >>> layout = WordLayout.of(48, 37_000_000)
    >>> layout.lower_bits, layout.taxon_bits, round(layout.nbytes / 37_000_000, 1)
    (26, 28, 9.1)
    """

    lines: int
    minimizer_bits: int
    lower_bits: int
    taxon_bits: int

    @classmethod
    def of(cls, minimizer_bits: int, minimizers: int, taxa: int = 1) -> Self:
        """Return the layout for a number of minimizers, and numbers of taxa below `taxa`."""
        lower = max(WORD_BITS - STEP_BITS - max(taxa - 1, 1).bit_length(), 0)
        needed = int(minimizers / (LINE_WORDS * LOAD)) + 1
        return cls.of_lines(
            minimizer_bits, max(needed, LEAST_LINES, -(-(2**minimizer_bits) >> lower))
        )

    @classmethod
    def of_lines(cls, minimizer_bits: int, lines: int) -> Self:
        """Return the layout of a number of lines; the remaining bits are for the taxon."""
        lower = (-(-(2**minimizer_bits) // lines) - 1).bit_length()
        return cls(
            lines, minimizer_bits, lower, min(WORD_BITS - STEP_BITS - lower, _MOST_TAXON_BITS)
        )

    @property
    def words(self) -> int:
        """How many words there are."""
        return self.lines * LINE_WORDS

    @property
    def nbytes(self) -> int:
        """Bytes of all words."""
        return self.words * WORD_BITS // 8

    @property
    def room(self) -> int:
        """How many minimizers there is room for."""
        return int(self.words * LOAD)

    def has_bits_for(self, taxa: int) -> bool:
        """Return whether numbers below `taxa` fit into words."""
        return self.taxon_bits >= max(taxa - 1, 1).bit_length()


def why_whole_keys(minimizer_bits: int, minimizers: int, taxa: int | None = None) -> str:
    """Return why a map of minimizers has these as whole keys; "" where words have them.

    Parameters
    ----------
    minimizer_bits : int
    minimizers : int
        For which there is room.
    taxa : int, optional
        Numbers of taxa are below; None: as many as may be expected.

    Examples
    --------
    >>> why_whole_keys(48, 37_000_000)
    ''
    >>> why_whole_keys(62, 10_000_000, 100_000)
    'of words of 8 bytes 42 bits of a minimizer leave 12 for 100,000 taxa'
    >>> why_whole_keys(48, 100)
    'for 100 minimizers they take fewer bytes'
    """
    most = WHOLE_KEY_NBYTES * minimizers / LOAD
    taxa = usual_taxa(minimizers) if taxa is None else taxa
    if WordLayout.of(minimizer_bits, minimizers, taxa).nbytes <= most:
        return ""
    layout = WordLayout.of(minimizer_bits, minimizers)
    if layout.nbytes > most:
        return f"for {minimizers:,} minimizers they take fewer bytes"
    left = max(layout.taxon_bits, 0)
    return (
        f"of words of {WORD_BITS // 8} bytes {layout.lower_bits} bits of a minimizer leave {left} "
        f"for {taxa:,} taxa"
    )


def usual_taxa(minimizers: int) -> int:
    """Return the expected number of taxa for a number of minimizers."""
    return min(minimizers, _USUAL_TAXA)


def minimizer_bits_of(settings: Any) -> int:
    """Return how many bits of minimizers count by `MinimizerSettings`."""
    return 2 * (int(settings.l) - int(settings.spaces))
