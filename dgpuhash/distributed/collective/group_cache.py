"""Groups that the tables of a client share, one for each set of workers and way to exchange."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakKeyDictionary, WeakSet

from distributed import Client

from dgpuhash.distributed.collective.group import Group, Transport, form_group

__all__ = ["Use", "joined"]

Key = tuple[tuple[str, ...], Transport]


class Use:
    """One table's use of a group.

    Parameters
    ----------
    group : Group
    users : WeakSet of Use
        Of all who share the group; a table that was interrupted while it was made is none of them.
    """

    def __init__(self, group: Group, users: WeakSet[Use]) -> None:
        self.group, self._users = group, users
        with _lock:
            users.add(self)

    def leave(self) -> bool:
        """End it; whether it was the last one, who frees the group."""
        with _lock:
            self._users.discard(self)
            if self._users:
                return False
            self.give_up()
            return True

    def give_up(self) -> None:
        """Let no other table begin to use the group, which is of no use any more."""
        with _lock:
            # Lists, as a signal handler of this thread may come in between.
            for groups in list(_shared.values()):
                for key, (group, _) in list(groups.items()):
                    if group == self.group:
                        groups.pop(key, None)


# Tables end on their client's event loop.
_lock = threading.RLock()
_shared: WeakKeyDictionary[Client, dict[Key, tuple[Group, WeakSet[Use]]]] = WeakKeyDictionary()


def joined(client: Client, workers: Sequence[str], exchange: Transport) -> Use:
    """A use of the group of `workers` that other tables of the client have, or of a new one.

    To form one takes 40 ms between GPUs of one host, each of which gives it up to 1 GiB.

    Raises
    ------
    SpecError, UnsupportedError, IndexLost
        As `form_group` does.
    """
    key = tuple(workers), exchange
    with _lock:
        found = _shared.setdefault(client, {}).get(key)
        if found is not None:
            return Use(*found)
    # Where two form one at once, the second is for those that come.
    made = form_group(client, workers, exchange), WeakSet[Use]()
    with _lock:
        _shared.setdefault(client, {})[key] = made
        return Use(*made)
