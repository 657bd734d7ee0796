"""Hit-and-runs that wait for the end of the grace period, and those that are none any more."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redis.exceptions import ResponseError

from tracker.store.client.clock import seconds_ahead
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import ranked, score
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard, Shards, StorePart, in_parts
from tracker.store.swarms.rules import LiveRules
from tracker.system.logger import Logger

USERS_PER_CALL = 200
TORRENTS_A_CALL = 1000
"""Torrents that one command looks for among the pending hit-and-runs."""
_TORRENTS_PER_CALL = 100
_DECIDED_PER_CALL = 200
_MAX_CALLS = 500
"""Per run, so that a run ends although grace periods end meanwhile."""
_MEMBER = re.compile(r"([0-9]{1,15}):([0-9]{1,15})", re.ASCII)

log = Logger("tracker.store")


class Pending(NamedTuple):
    """A torrent that a user has left, and that becomes a hit-and-run at ``at`` (epoch s) unless the user comes back."""

    user_id: str
    torrent_id: str
    at: int


class HitAndRuns(StorePart):
    """The work that no announce does. ``clock`` returns epoch seconds. ``drop`` walks through all users with
    hit-and-runs, a page of each shard per call. Each process keeps its own positions."""

    def __init__(self, shards: Shards, rules: LiveRules, clock: Callable[[], float]) -> None:
        super().__init__(shards, clock)
        self._rules = rules
        self._cursors = dict.fromkeys(shards, 0)

    async def decide(self) -> int:
        """Ends the grace periods that are over. Returns how many hit-and-runs that made."""
        return sum((await self._shards.gather(self._decide_in)).values())

    async def _decide_in(self, shard: Shard) -> int:
        added = 0
        for _ in range(_MAX_CALLS):
            rules = self._rules.current
            argv: list[Argument] = [int(self._clock()), _DECIDED_PER_CALL]
            argv += (rules.packed_hit_and_run, rules.grace, rules.max_changes)
            seen, some = await shard.scripts.decide_hit_and_runs(argv)
            added += int(some)
            if int(seen) < _DECIDED_PER_CALL:
                break
        return added

    async def pending(self, offset: int = 0, count: int = 100) -> list[Pending]:
        """Returns ``count`` pending ones from ``offset`` on, the next to be decided first."""
        pairs = await top_of(
            self._shards, lambda shard: shard.keys.pending_hit_and_runs(), count, offset, ascending=True
        )
        gaps = await self._shards.each(lambda shard: ("GET", shard.keys.gap()))
        # They are the same, but after an outage of one shard only.
        ahead = max(map(seconds_ahead, gaps.values()), default=0)
        found = ((_MEMBER.fullmatch(member), score(at)) for member, at in pairs)
        return [Pending(match[1], match[2], at + ahead) for match, at in found if match]

    async def pending_count(self) -> int:
        found = await self._shards.each(lambda shard: ("ZCARD", shard.keys.pending_hit_and_runs()))
        return sum(found.values())

    async def pending_of(self, user_id: str, torrent_ids: Sequence[str]) -> list[Pending]:
        """The pending ones of a user among these torrents, the next to be decided first."""
        by_shard = await self._shards.parts_of_torrents(torrent_ids)
        parts = [(shard, some) for shard, ids in by_shard.items() for some in in_parts(ids, TORRENTS_A_CALL)]
        commands: list[tuple[Shard, tuple[str, ...]]] = []
        for shard, some in parts:
            members = (f"{user_id}:{each}" for each in some)
            commands.append((shard, ("ZMSCORE", shard.keys.pending_hit_and_runs(), *members)))
            commands.append((shard, ("GET", shard.keys.gap())))
        replies = await self._shards.ask(commands)
        pending = [
            Pending(user_id, torrent_id, score(at) + seconds_ahead(gap))
            for (_, some), times, gap in zip(parts, replies[::2], replies[1::2], strict=True)
            for torrent_id, at in zip(some, times or [None] * len(some), strict=True)
            if at is not None
        ]
        return sorted(pending, key=lambda each: each.at)

    async def drop(self) -> int:
        """Checks the next users, about USERS_PER_CALL of each shard. Returns how many hit-and-runs it dropped: on
        removed torrents, and those that are none by the rules in force."""
        return sum((await self._shards.gather(self._drop_in)).values())

    async def _drop_in(self, shard: Shard) -> int:
        how = ("ZSCAN", shard.keys.hit_and_runs(), self._cursors[shard], "COUNT", USERS_PER_CALL)
        after, pairs = await shard.connection.command(*how)
        dropped = 0
        for user_id, _ in ranked(pairs):
            try:
                dropped += await self._drop_of(shard, user_id)
            except ResponseError as error:  # a key of the wrong type: skip this user only
                log.error("cannot check the hit-and-runs of a user", error=str(error))
        self._cursors[shard] = int(after)
        if dropped:
            log.info("dropped hit-and-runs on removed torrents or by changed rules", hit_and_runs=dropped)
        return dropped

    async def _drop_of(self, shard: Shard, user_id: str) -> int:
        cursor, dropped = b"0", 0
        while True:
            rules = self._rules.current
            cursor, removed = await shard.scripts.drop_hit_and_runs(
                [user_id, cursor, rules.packed_hit_and_run, _TORRENTS_PER_CALL, rules.max_changes]
            )
            dropped += int(removed)
            if cursor == b"0":
                return dropped
