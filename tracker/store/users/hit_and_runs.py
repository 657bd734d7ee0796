"""Hit-and-runs that wait for the end of the grace period, and those that are none any more."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import structlog
from redis.exceptions import ResponseError

from tracker.store.client.clock import seconds_ahead
from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked

USERS_PER_CALL = 200
TORRENTS_A_CALL = 1000
"""Torrents that one command looks for among the pending hit-and-runs."""
_TORRENTS_PER_CALL = 100
_DECIDED_PER_CALL = 200
_MAX_CALLS = 500
"""Per run, so that a run ends although grace periods end meanwhile."""
_MEMBER = re.compile(r"([0-9]{1,15}):([0-9]{1,15})", re.ASCII)

log = structlog.get_logger("tracker.store")


class HitAndRunRules(NamedTuple):
    """``packed``: as hit_and_run_rules.lua reads them; ``outage_grace_seconds``: time to come back after an outage;
    ``max_changes``: as in SwarmRules."""

    packed: bytes
    outage_grace_seconds: int
    max_changes: int


class Pending(NamedTuple):
    """A torrent that a user has left, and that becomes a hit-and-run at ``at`` (epoch s) unless the user comes back."""

    user_id: str
    torrent_id: str
    at: int


class HitAndRuns:
    """The work that no announce does. ``rules`` returns those in force; ``clock`` epoch seconds.

    ``drop`` walks through all users with hit-and-runs, a page per call. Each process keeps its own position.
    """

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        rules: Callable[[], HitAndRunRules],
        clock: Callable[[], float],
        users_per_call: int = USERS_PER_CALL,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._users_per_call = users_per_call
        self._cursor = 0

    async def decide(self) -> int:
        """Ends the grace periods that are over. Returns how many hit-and-runs that made."""
        added = 0
        for _ in range(_MAX_CALLS):
            rules = self._rules()
            seen, some = await self._scripts.decide_hit_and_runs(
                [int(self._clock()), _DECIDED_PER_CALL, *rules]
            )
            added += int(some)
            if int(seen) < _DECIDED_PER_CALL:
                break
        return added

    async def pending(self, offset: int = 0, count: int = 100) -> list[Pending]:
        """Returns ``count`` pending ones from ``offset`` on, the next to be decided first."""
        gap, pairs = await self._connection.pipeline(
            ("GET", self._keys.gap()),
            ("ZRANGE", self._keys.pending_hit_and_runs(), offset, offset + count - 1, "WITHSCORES"),
        )
        return pending_of(ranked(pairs), seconds_ahead(gap))

    async def pending_count(self) -> int:
        return int(await self._connection.command("ZCARD", self._keys.pending_hit_and_runs()))

    async def pending_of(self, user_id: str, torrent_ids: Sequence[str]) -> list[Pending]:
        """The pending ones of a user among these torrents, the next to be decided first."""
        times: list[bytes | None] = []
        for first in range(0, len(torrent_ids), TORRENTS_A_CALL):
            members = (
                f"{user_id}:{torrent_id}" for torrent_id in torrent_ids[first : first + TORRENTS_A_CALL]
            )
            key = self._keys.pending_hit_and_runs()
            times += await self._connection.command("ZMSCORE", key, *members)
        ahead = seconds_ahead(await self._connection.command("GET", self._keys.gap()))
        return sorted_pending(user_id, torrent_ids, dict(zip(torrent_ids, times, strict=True)), ahead)

    async def drop(self) -> int:
        """Checks the next users, about ``users_per_call`` of them. Returns how many hit-and-runs it dropped: on removed
        torrents, and those that are none by the rules in force."""
        after, pairs = await self._connection.command(
            "ZSCAN", self._keys.hit_and_runs(), self._cursor, "COUNT", self._users_per_call
        )
        dropped = 0
        for user_id, _ in ranked(pairs):
            try:
                dropped += await self._drop_of(user_id)
            except ResponseError as error:  # a key of the wrong type: skip this user only
                log.error("cannot check the hit-and-runs of a user", error=str(error))
        self._cursor = int(after)
        if dropped:
            log.info("dropped hit-and-runs on removed torrents or by changed rules", hit_and_runs=dropped)
        return dropped

    async def _drop_of(self, user_id: str) -> int:
        cursor, dropped = b"0", 0
        while True:
            rules = self._rules()
            cursor, removed = await self._scripts.drop_hit_and_runs(
                [user_id, cursor, rules.packed, _TORRENTS_PER_CALL, rules.max_changes]
            )
            dropped += int(removed)
            if cursor == b"0":
                return dropped


def sorted_pending(
    user_id: str, torrent_ids: Sequence[str], times: Mapping[str, float | bytes | None], ahead: int = 0
) -> list[Pending]:
    """The pending ones of a user, the next to be decided first. ``times``: those of the index, None if it has none;
    ``ahead``: as of seconds_ahead()."""
    found = ((torrent_id, times.get(torrent_id)) for torrent_id in torrent_ids)
    pending = [Pending(user_id, each, int(float(at)) + ahead) for each, at in found if at is not None]
    return sorted(pending, key=lambda each: each.at)


def pending_of(pairs: Sequence[tuple[str, int]], ahead: int) -> list[Pending]:
    """Parses entries of the index; others are left out."""
    found = ((_MEMBER.fullmatch(member), at) for member, at in pairs)
    return [Pending(match[1], match[2], at + ahead) for match, at in found if match]
