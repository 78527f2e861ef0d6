"""Layout of ranks on hosts, with gateway ranks for messages between hosts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# Message times that one more step of an exchange takes: it begins when the last message of the step
# before has come.
STEP = 1.5


@dataclass(frozen=True, slots=True)
class HostLayout:
    """Ranks of each host.

    Two hosts exchange one message in each direction. On either host one rank sends and receives
    them, its gateway for the other host; the ranks of a host are gateways for about as many hosts
    each.

    Attributes
    ----------
    hosts : tuple of tuple of int
        Ranks of each host, ascending.
    host_numbers : tuple of int
        The host of each rank, as a position in `hosts`.

    Examples
    --------
    >>> two = HostLayout.of(["a", "a", "a", "b", "b"])
    >>> two.hosts, two.gateway(0, 1), two.gateway(1, 0)
    (((0, 1, 2), (3, 4)), 0, 3)
    >>> two.peers(1), two.routed_ranks(1), two.routed_ranks(0)
    ((0, 2), (1,), (0, 3, 4))
    """

    hosts: tuple[tuple[int, ...], ...]
    host_numbers: tuple[int, ...]

    @classmethod
    def of(cls, names: Sequence[Hashable]) -> HostLayout:
        """Return the layout of ranks on hosts of these names, one name a rank."""
        ranks: dict[Hashable, list[int]] = {}
        for rank, name in enumerate(names):
            ranks.setdefault(name, []).append(rank)
        numbers = {name: number for number, name in enumerate(ranks)}
        return cls(tuple(map(tuple, ranks.values())), tuple(numbers[name] for name in names))

    @property
    def has_levels(self) -> bool:
        """Whether there are several hosts, and one of them has several ranks."""
        return 1 < len(self.hosts) < len(self.host_numbers)

    @property
    def pays(self) -> bool:
        """Whether two levels are faster than direct messages between all ranks.

        Most messages of a rank count, and the two further steps of an exchange in two levels.

        Examples
        --------
        >>> HostLayout.of([rank // 8 for rank in range(16)]).pays
        False
        >>> HostLayout.of([rank // 8 for rank in range(32)]).pays
        True
        """
        if not self.has_levels:
            return False
        most = max(
            2 * (len(ranks) - 1) + math.ceil((len(self.hosts) - 1) / len(ranks))
            for ranks in self.hosts
        )
        return most + 2 * STEP < len(self.host_numbers) - 1

    def peers(self, rank: int) -> tuple[int, ...]:
        """Return the other ranks of the rank's host."""
        return tuple(each for each in self.hosts[self.host_numbers[rank]] if each != rank)

    def order(self, rank: int) -> list[int]:
        """Return the other ranks in a send order that differs between ranks of a host.

        Those of its own host come first.

        Examples
        --------
        >>> four = HostLayout.of(["a", "a", "b", "b"])
        >>> four.order(0), four.order(1)
        ([1, 2, 3], [0, 3, 2])
        """
        here = self.host_numbers[rank]
        place = self.hosts[here].index(rank)
        found = []
        for step in range(len(self.hosts)):
            ranks = self.hosts[(here + step) % len(self.hosts)]
            found += [ranks[(place + each) % len(ranks)] for each in range(len(ranks))]
        return found[1:]

    def gateway(self, host: int, other: int) -> int:
        """Return the rank of `host` that exchanges messages with host `other`."""
        ranks = self.hosts[host]
        return ranks[((other - host - 1) % len(self.hosts)) % len(ranks)]

    def served(self, rank: int) -> tuple[int, ...]:
        """Return the other hosts that the rank exchanges messages with."""
        host = self.host_numbers[rank]
        step = len(self.hosts[host])
        first = self.hosts[host].index(rank)
        count = len(self.hosts)
        return tuple((host + 1 + each) % count for each in range(first, count - 1, step))

    def servers(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of the rank's host that exchange messages with any host."""
        ranks = self.hosts[self.host_numbers[rank]]
        return ranks[: len(self.hosts) - 1]

    def far(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of the hosts that `rank` exchanges messages with."""
        return tuple(each for host in self.served(rank) for each in self.hosts[host])

    def routed_ranks(self, rank: int) -> tuple[int, ...]:
        """Return the ranks whose rows this host's other ranks give to `rank`: itself and `far`."""
        return (rank, *self.far(rank))

    @property
    def most_in_message(self) -> int:
        """Most pairs of ranks whose rows travel in one message.

        Examples
        --------
        >>> HostLayout.of([rank // 8 for rank in range(1024)]).most_in_message
        129
        """
        widest = max(map(len, self.hosts))
        routed = max(len(self.routed_ranks(rank)) for rank in range(len(self.host_numbers)))
        return max(widest * widest, routed)
