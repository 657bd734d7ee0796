"""The intervals of answers, and the timeouts that go with them."""

from typing import NamedTuple

from tracker.settings.public import AnnounceSettings
from tracker.store.swarms.codec import Admitted, WithoutPeers, WithoutSlot
from tracker.store.swarms.rules import TIMEOUT_INTERVALS

JITTER_STEPS = 10
"""Few, because the store writes one list for all peers of a batch whose timeouts end together."""
_THROTTLED_TIMES = 2
_THROTTLED_SLACK_SECONDS = 300
"""A throttled interval ends at least this long before the timeout of the peer."""
MIN_SOCKET_TIMEOUT_SECONDS = 180.0
"""The least timeout of a peer that announces over a WebSocket."""
WITHOUT_PEERS_SECONDS = 300
"""The least interval of an answer that has no peers because the user has no budget for one. announce.lua knows it."""


class Step(NamedTuple):
    """One of the intervals of answers, with its timeout (s)."""

    interval: int
    min_interval: int
    timeout: float


def steps(announce: AnnounceSettings, min_timeout: float) -> list[Step]:
    """The intervals of answers, with jitter: peers that join together do not return together."""
    base, min_interval = announce.interval_seconds, announce.min_interval_seconds
    intervals = [base + int(base * announce.interval_jitter * n / JITTER_STEPS) for n in range(JITTER_STEPS)]
    return [Step(n, min(n, min_interval), max(TIMEOUT_INTERVALS * n, min_timeout)) for n in intervals]


def throttled_steps(announce: AnnounceSettings, min_timeout: float) -> list[Step]:
    """The intervals of throttled peers: twice the usual ones, but at least 5 minutes before the usual timeout."""
    usual = steps(announce, min_timeout)
    max_interval = usual[0].timeout - _THROTTLED_SLACK_SECONDS
    stretch = min(_THROTTLED_TIMES, max(1.0, max_interval / usual[-1].interval))
    stretched = [step._replace(interval=int(step.interval * stretch)) for step in usual]
    max_min_interval = _THROTTLED_TIMES * announce.min_interval_seconds
    return [step._replace(min_interval=min(step.interval, max_min_interval)) for step in stretched]


def socket_steps(interval_seconds: int, jitter: float, stretch: int = 1) -> list[Step]:
    """The intervals over WebSockets; ``stretch`` times as long for throttled peers. The usual jitter does not lengthen
    timeouts: peers of a process that was killed are gone within three minutes."""
    base = interval_seconds * stretch
    intervals = [base + int(base * jitter * n / JITTER_STEPS) for n in range(JITTER_STEPS)]
    timeout = max(TIMEOUT_INTERVALS * base, MIN_SOCKET_TIMEOUT_SECONDS)
    return [Step(n, n, max(timeout, 1.2 * n)) for n in intervals]


def step_after(outcome: Admitted, step: Step, min_credit_interval: int) -> Step:
    """The intervals of an outcome of a class of its own. A user's announce sooner than the minimum credit interval has
    no peers either."""
    if not isinstance(outcome, WithoutPeers | WithoutSlot):
        return step
    seconds = max(WITHOUT_PEERS_SECONDS, min(min_credit_interval, step.interval))
    return step._replace(interval=seconds, min_interval=seconds)
