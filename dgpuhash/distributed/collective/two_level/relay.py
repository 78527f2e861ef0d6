"""Two-level allgather of small values, through gateway ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dgpuhash.distributed.collective.membership import Post

if TYPE_CHECKING:
    from dgpuhash.distributed.collective.membership import Membership

Values = Mapping[int, Any]


class Relay:
    """Allgather in two levels, in three steps that all ranks take.

    The steps are apart because the first and the last may go through memory that the ranks of a
    host share.

    Parameters
    ----------
    membership : Membership
        Of a group whose hosts are known.

    Attributes
    ----------
    near : tuple of int
        The ranks of this rank's host.
    gateways : list of int
        Ranks of other hosts that this rank exchanges messages with.
    """

    def __init__(self, membership: Membership) -> None:
        layout, rank = membership.layout, membership.rank
        assert layout is not None
        here = layout.host_numbers[rank]
        self.near: tuple[int, ...] = layout.hosts[here]
        self.gateways: list[int] = [layout.gateway(host, here) for host in layout.served(rank)]
        self._membership = membership
        self._peers = layout.peers(rank)
        self._servers = [each for each in layout.servers(rank) if each != rank]

    async def gather(self, topic: str, number: int, value: Any) -> list[Any]:
        """Return the values that all ranks gave for this topic and number."""
        values = await self.within(topic, number, value)
        far = await self.between(topic, number, values)
        return self.merged([values, *await self.spread(topic, number, far)])

    async def within(self, topic: str, number: int, value: Any) -> dict[int, Any]:
        """Return the values of all ranks of this host."""
        posts = dict.fromkeys(self._peers, Post.of(value))
        return {self._membership.rank: value} | await self._swap(
            f"{topic} within", number, posts, self._peers
        )

    async def between(self, topic: str, number: int, values: Values) -> dict[int, Any]:
        """Send the values of this host to the hosts that this rank serves; return theirs.

        Returns the values of all their ranks, by rank.
        """
        posts = dict.fromkeys(self.gateways, Post.of(dict(values)))
        found = await self._swap(f"{topic} between", number, posts, self.gateways)
        return {rank: value for each in found.values() for rank, value in each.items()}

    async def spread(self, topic: str, number: int, far: Values) -> list[Values]:
        """Give the ranks of this host the values of other hosts; return all of them."""
        serves = bool(self.gateways)
        posts = dict.fromkeys(self._peers if serves else (), Post.of(dict(far)))
        found = await self._swap(f"{topic} spread", number, posts, self._servers)
        return [far, *found.values()]

    def merged(self, parts: list[Values]) -> list[Any]:
        """Return the values of `parts` in the order of ranks."""
        values = {rank: value for part in parts for rank, value in part.items()}
        return [values[rank] for rank in range(self._membership.size)]

    async def _swap(
        self, topic: str, number: int, posts: Mapping[int, Post], sources: Any
    ) -> dict[int, Any]:
        found = await self._membership.swap(topic, number, posts, sources)
        return {source: post.value for source, post in found.items()}
