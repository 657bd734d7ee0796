"""What the settings come to: the rules of the store's scripts, and the intervals of answers."""

from typing import NamedTuple

from tracker.settings import AnnounceSettings, LimitSettings, ReaperSettings, TorrentSettings, UserSettings
from tracker.store.swarms import SwarmRules

JITTER_STEPS = 10
"""Few, because the store writes one list for all peers of a batch whose timeouts end together."""
_TIMEOUT_INTERVALS = 1.5
_LONGEST_GAP_INTERVALS = 4
_LATE_SECONDS = 60
"""A client that obeys its interval may come this much later."""


def swarm_rules(
    announce: AnnounceSettings,
    torrents: TorrentSettings,
    users: UserSettings,
    reaper: ReaperSettings,
    limits: LimitSettings,
) -> SwarmRules:
    """The settings as the store's scripts take them."""
    return SwarmRules(
        private=users.private,
        open=torrents.mode == "open",
        peer_memory=users.peer_memory_seconds,
        hnr_min_bytes=users.hnr_min_bytes,
        hnr_threshold=users.hnr_threshold_seconds,
        longest_gap=_LONGEST_GAP_INTERVALS * announce.interval_seconds,
        shortest_timeout=max(_TIMEOUT_INTERVALS * announce.interval_seconds, reaper.interval_seconds),
        longest_timeout=max(_TIMEOUT_INTERVALS * announce.longest_interval_seconds, reaper.interval_seconds),
        max_credit=users.max_credit_bytes_per_second,
        max_torrents=torrents.max_torrents,
        new_per_address_hour=torrents.new_per_address_hour,
        # After an outage everybody gets the time to announce, however long they were told to wait.
        grace=max(int(reaper.interval_seconds), announce.longest_interval_seconds + _LATE_SECONDS),
        forget_after=torrents.forget_after_seconds,
        early=_early(announce, limits) if limits.enabled else 0,
    )


def _early(announce: AnnounceSettings, limits: LimitSettings) -> float:
    """Never more than a share of what peers are told to keep to, however short that is set."""
    return min(limits.early_seconds, min(announce.interval_seconds, announce.min_interval_seconds) / 4)


class Step(NamedTuple):
    """One of the intervals an answer may name, and the timeout that goes with it (s)."""

    interval: int
    min_interval: int
    timeout: float


def steps(announce: AnnounceSettings, least_timeout: float, times: int = 1) -> list[Step]:
    """The intervals of answers: jittered, so that peers that came together do not come back together; ``times`` as long as usual."""
    base, least = times * announce.interval_seconds, times * announce.min_interval_seconds
    intervals = [base + int(base * announce.interval_jitter * n / JITTER_STEPS) for n in range(JITTER_STEPS)]
    return [Step(n, min(n, least), max(_TIMEOUT_INTERVALS * n, least_timeout)) for n in intervals]
