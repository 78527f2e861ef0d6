"""Down-sample minimizers by their hashes, to fit the map into a number of bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dgpuhash.kmer.databases.estimate import minimizers_within
from dgpuhash.kmer.databases.owners import key_hashes
from dgpuhash.kmer.databases.taxon_words import minimizer_bits_of
from dgpuhash.kmer.minimizers import building
from dgpuhash.kmer.minimizers.settings import MinimizerSettings
from dgpuhash.kmer.options import whole_number

_HASHES = 2**64
# Bytes of a map; the smallest one has some hundreds.
_SIZES = 2**12, 2**62


def is_sampled(minimizers: Any, least_hash: int) -> Any:
    """Return whether each minimizer's hash reaches a bound, as in Kraken 2."""
    return key_hashes(minimizers) >= np.uint64(least_hash)


def sampled_rows(rule: Any, keys: Any, nodes: Any) -> tuple[Any, Any]:
    """Return minimizers and taxon numbers after down-sampling by a rule's hash bound."""
    if not rule.settings.least_hash:
        return keys, nodes
    rows = is_sampled(keys, rule.settings.least_hash)
    return keys[rows], nodes[rows]


def sampled_part(rule: Any, part: Any) -> Any:
    """Return a part after down-sampling by a rule's hash bound, in a map of its size."""
    keys, nodes = sampled_rows(rule, *part.table.items())
    taxa = len(rule.taxonomy.taxids)
    table = building.empty_map(rule.backend, rule.settings, len(keys), taxa)
    table._add(keys, nodes)
    return replace(part, table=table)


def most_minimizers(max_db_size: int, settings: MinimizerSettings) -> int:
    """Return the capacity in minimizers of a map of a given size in bytes.

    Raises
    ------
    SpecError
        When the number is too low for any map.
    """
    least, most = _SIZES
    nbytes = whole_number("max_db_size", max_db_size, least, most)
    return minimizers_within(nbytes, minimizer_bits_of(settings))


def least_hash_for(most: int, distinct: int, least: int = 0) -> int:
    """Return the hash bound that keeps about a given number of minimizers."""
    if distinct <= most:
        return least
    return least + (_HASHES - least) * (distinct - most) // distinct


def limit_part(rule: Any, part: Any, most: int) -> tuple[Any, Any]:
    """Return the rule and the part limited to a number of minimizers."""
    least, (keys, _) = rule.settings.least_hash, part.table.items()
    while len(keys) > most:
        least = least_hash_for(most, len(keys) + 1, least)
        keys = keys[is_sampled(keys, least)]
    settings = replace(rule.settings, least_hash=least)
    limited = type(rule)(rule.backend, settings, rule.taxonomy, rule.targets)
    return limited, sampled_part(limited, part)
