"""Rate limit for failed authentication, per address and in total.

Only failures count, and only failures are delayed. A valid token is always accepted, because its address may be that of
a proxy. Tokens of 256 bits cannot be guessed; the limit bounds load and log lines.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from tracker.token_bucket import TokenBucket
from tracker.wire.endpoint import pack_address

MAX_ADDRESSES = 4096
"""Max addresses kept; beyond that the one with the oldest failure is dropped."""


class Pace(NamedTuple):
    """Allows ``burst`` failures at once, then one every ``seconds``."""

    burst: int
    seconds: float


PER_ADDRESS = Pace(10, 6.0)
OVERALL = Pace(200, 0.3)


class Attempts:
    """Counts failed attempts. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], per_address: Pace = PER_ADDRESS, overall: Pace = OVERALL) -> None:
        self._clock = clock
        self._per_address = per_address
        self._buckets: OrderedDict[bytes, TokenBucket] = OrderedDict()
        self._all = _bucket(overall, clock())

    def failed(self, address: str) -> float:
        """Counts a failure. Returns 0.0, or the seconds to wait if there were too many."""
        now = self._clock()
        # Of IPv6 the /64, because a client usually controls all of it. A unix socket has no address.
        name = (pack_address(address.partition("%")[0]) or b"")[:8]
        bucket = self._buckets.setdefault(name, _bucket(self._per_address, now))
        self._buckets.move_to_end(name)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return max(_take(bucket, now), _take(self._all, now))


def _bucket(pace: Pace, now: float) -> TokenBucket:
    return TokenBucket(1 / pace.seconds, pace.burst, now)


def _take(bucket: TokenBucket, now: float) -> float:
    return 0.0 if bucket.take(now) else bucket.wait(now)
