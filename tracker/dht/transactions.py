"""Our queries that are under way. An answer counts only from the address that was asked, with the right id."""

import random
from dataclasses import dataclass

from tracker.bittorrent import Endpoint
from tracker.wire.krpc import NodeId

MAX_PENDING = 256
TIMEOUT_SECONDS = 10
_ID_LENGTH = 4
_ID_FIELD = b"1:t4:"


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    endpoint: Endpoint
    id: NodeId | None
    """``None`` for a node that is known by its address only."""
    query: str
    """The name of the query."""
    sent_at: float
    purpose: object = None
    """The asker of the query; this module does not use it."""


class Transactions:
    def __init__(self) -> None:
        self._pending: dict[tuple[Endpoint, bytes], Pending] = {}  # in the order they were sent

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def full(self) -> bool:
        return len(self._pending) >= MAX_PENDING

    def begin(self, pending: Pending, rng: random.Random) -> bytes:
        """Returns the transaction id to send. Not to be called when full. ``rng`` must not be guessable."""
        assert not self.full
        transaction = rng.randbytes(_ID_LENGTH)
        while (pending.endpoint, transaction) in self._pending:
            transaction = rng.randbytes(_ID_LENGTH)
        self._pending[pending.endpoint, transaction] = pending
        return transaction

    def awaited(self, endpoint: Endpoint, data: bytes) -> bytes | None:
        """The transaction id of a query that a datagram claims to answer, by its bytes alone; ``None`` where it answers
        none, or has its fields in an unusual order. It tells answers from a flood before they are decoded."""
        at = data.rfind(_ID_FIELD) + len(_ID_FIELD)
        transaction = data[at : at + _ID_LENGTH]
        return transaction if (endpoint, transaction) in self._pending else None

    def finish(self, endpoint: Endpoint, transaction: bytes) -> Pending | None:
        """The query that an answer or error belongs to; ``None`` for a late, forged or repeated one."""
        return self._pending.pop((endpoint, transaction), None)

    def fail(self, endpoint: Endpoint) -> list[Pending]:
        """The queries to an address that the network reports as unreachable."""
        return self._take([key for key in self._pending if key[0] == endpoint])

    def expire(self, now: float) -> list[Pending]:
        """The queries that were not answered in time. For every second."""
        keys = []
        for key, pending in self._pending.items():
            if now - pending.sent_at < TIMEOUT_SECONDS:
                break
            keys.append(key)
        return self._take(keys)

    def _take(self, keys: list[tuple[Endpoint, bytes]]) -> list[Pending]:
        return [self._pending.pop(key) for key in keys]
