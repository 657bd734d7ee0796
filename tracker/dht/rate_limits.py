"""Limits on datagrams: of one address and of all, in and out. Source addresses can be forged, so nothing that is over a
limit is answered, not even with an error. All tables are bounded."""

from typing import Literal

from tracker.bittorrent import Address
from tracker.dht.node_id import network_of
from tracker.token_bucket import TokenBucket

MAX_HOSTS = 4096
IGNORE_SECONDS = 300
IGNORE_TIMES = 10
"""A host that sends this many times its limit for IGNORE_WINDOW_SECONDS is ignored for IGNORE_SECONDS."""
IGNORE_WINDOW_SECONDS = 10

DropReason = Literal["ignored", "address", "total"]


class _Host(TokenBucket):
    __slots__ = ("ignored_until", "window_count", "window_start")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        super().__init__(rate, burst, now)
        self.window_start = now
        self.window_count = 0
        self.ignored_until = now

    def is_ignored(self, now: float) -> bool:
        """Counts a datagram."""
        if now < self.ignored_until:
            return True
        if now - self.window_start >= IGNORE_WINDOW_SECONDS:
            self.window_start, self.window_count = now, 0
        self.window_count += 1
        if self.window_count > IGNORE_TIMES * self.rate * IGNORE_WINDOW_SECONDS:
            self.ignored_until = now + IGNORE_SECONDS
            return True
        return False


class _Hosts:
    """What is known of each address (IPv6: /64). The least recently seen makes room."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._hosts: dict[bytes, _Host] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def at(self, address: Address, now: float) -> _Host:
        key = network_of(address, 32, 64)
        host = self._hosts.pop(key, None)
        if host is None:
            host = _Host(self._rate, self._burst, now)
            if len(self._hosts) >= MAX_HOSTS:
                del self._hosts[next(iter(self._hosts))]
        self._hosts[key] = host
        return host


class InboundLimits:
    """The limit for queries, in datagrams and bytes per second. Answers to our own queries are bounded by the queries,
    and do not count here."""

    def __init__(
        self,
        now: float,
        *,
        address_rate: float = 1,
        address_burst: float = 10,
        total_rate: float = 200,
        total_burst: float = 400,
        answer_bytes: float = 64_000,
    ) -> None:
        self.hosts = _Hosts(address_rate, address_burst)
        self._total = TokenBucket(total_rate, total_burst, now)
        self._bytes = TokenBucket(answer_bytes, answer_bytes, now)

    def refuse(self, address: Address, now: float) -> DropReason | None:
        """Why a datagram is dropped, before it is decoded; ``None`` where it is not."""
        if not self._total.has(now):
            # A flood of forged addresses displaces no other address: the table grows no faster than the total limit.
            return "total"
        host = self.hosts.at(address, now)
        if host.is_ignored(now):
            return "ignored"
        if not host.take(now):
            return "address"
        self._total.take(now)
        return None

    def may_answer(self, size: int, now: float) -> bool:
        return self._bytes.take(now, size)


class OutboundLimits:
    """The limit for our own queries. Some clients ban an address for five datagrams a second."""

    def __init__(self, now: float, rate: float = 50, address_rate: float = 1, address_burst: float = 4) -> None:
        self.hosts = _Hosts(address_rate, address_burst)
        self._total = TokenBucket(rate, rate, now)

    def take(self, address: Address, now: float) -> bool:
        """Whether a query may be sent to this address now. Where not, nothing is used up."""
        host = self.hosts.at(address, now)
        return host.has(now) and self._total.take(now) and host.take(now)
