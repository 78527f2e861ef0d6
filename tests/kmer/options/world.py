"""A world for tests of options, and what indexes make of it."""

from __future__ import annotations

from kmer.worlds import World, arrays

WORLD = World(1, pairs=90)
# Files of references that an index is built of, and that it gets later.
LATER = [((0, 1), (2, 3)), ((2,), (0, 1, 3)), ((0, 3), (1,))]


def called(index, pairs, *, with_mates=True, qualities=None, **options):
    firsts, seconds = zip(*pairs, strict=True)
    mates = arrays(seconds) if with_mates else ()
    if qualities:
        one, other = (arrays(each)[0] for each in zip(*qualities, strict=True))
        options |= {"qualities": one, "mate_qualities": other if with_mates else None}
    return index.call(*arrays(firsts), *mates, detail=True, **options)


def made_later(rule, folder, first, then, **settings):
    """Return an index that got some files after it was built of others."""
    files = [folder / f"{number}.fa" for number in (*first, *then)]
    index = rule.build(files[: len(first)], taxonomy=folder / "taxonomy", **settings)
    index.add(files[len(first) :], taxonomy=folder / "taxonomy")
    return index, [each for number in (*first, *then) for each in WORLD.files[number]]
