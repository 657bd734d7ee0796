"""Rate limit for failed authentication, per address and in total.

Only failures count, and only failures are delayed. A valid token is always accepted, because its address may be that of
a proxy. Tokens of 256 bits cannot be guessed; the limit bounds load and log lines.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from tracker.token_bucket import TokenBucket

MAX_ADDRESSES = 4096
"""Max addresses kept; beyond that the one with the oldest failure is dropped."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Allows ``burst`` failures at once, then one every ``seconds``."""

    burst: int
    seconds: float

    def bucket(self, now: float) -> TokenBucket:
        return TokenBucket(1 / self.seconds, self.burst, now)


PER_ADDRESS = Pace(10, 6.0)
OVERALL = Pace(200, 0.3)


class Attempts:
    """Counts failed attempts. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], per_address: Pace = PER_ADDRESS, overall: Pace = OVERALL) -> None:
        self._clock = clock
        self._per_address = per_address
        self._overall = overall
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._all = overall.bucket(clock())

    def failed(self, address: str) -> float:
        """Counts a failure. Returns 0.0, or the seconds to wait if there were too many."""
        now = self._clock()
        name = _network(address)
        bucket = self._buckets.setdefault(name, self._per_address.bucket(now))
        self._buckets.move_to_end(name)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return max(_take(bucket, now), _take(self._all, now))


def _take(bucket: TokenBucket, now: float) -> float:
    return 0.0 if bucket.take(now) else bucket.wait(now)


def _network(address: str) -> str:
    """The address; for IPv6 its /64, because a client usually controls all of it."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:  # a unix socket has none
        return ""
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, 64), strict=False))
    return str(found)
