"""Lists users, their names and allowed clients that a site wrote into the store, and copies users to the shards.

Published changes apply at once, others by a walk of the store's keys, at the start and once per reap interval.

Rows, and sums for the main prefix, are copied at once where a tracker changes a user. The workers here do the rest:
changes of programs, of trackers that ended meanwhile, and of shards that were unavailable.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tracker.store.sharding.shards import Shard
from tracker.store.store import Store
from tracker.store.users.adoption import KEYS_A_STEP, START, adopt_some
from tracker.system.logger import Logger
from tracker.workers.loop import Sleep, follow, forever, survive

PAUSES = 4
"""The pause after a step is at least four times as long as the step: the scan takes a fifth of the store's time."""
_ERROR_SECONDS = 60.0


@dataclass(eq=False)
class AdoptionWorker:
    """``interval`` returns the seconds per round. ``wanted`` returns whether the tracker has users or an allow-list.
    Without both there is nothing to list."""

    main: Shard
    interval: Callable[[], float]
    wanted: Callable[[], bool]

    async def run(self) -> None:
        """After an error of the store it waits a minute."""
        seconds = 0.0

        async def next_round() -> float:
            nonlocal seconds
            await self.round(seconds)
            seconds = 0.9 * self.interval()
            return self.interval() / 10

        failure = "cannot index users and clients that the site wrote"
        await forever(next_round, None, failure, error_seconds=_ERROR_SECONDS)

    async def round(self, seconds: float) -> None:
        """Scans every key once, spread over about ``seconds``. Raises StoreUnavailable and
        redis.exceptions.RedisError."""
        if not self.wanted():
            return
        timer = asyncio.get_running_loop().time
        cursor, users, clients, names, unusable, scanned = START, 0, 0, 0, 0, 0
        end = timer() + seconds
        while True:
            began = timer()
            step = await adopt_some(self.main, cursor)
            cursor, scanned = step.cursor, scanned + KEYS_A_STEP
            users, clients = users + len(step.users), clients + len(step.clients)
            names, unusable = names + len(step.names), unusable + len(step.unusable)
            if cursor == START:
                break
            steps_left = max(1.0, (step.keys - scanned) / KEYS_A_STEP)
            await asyncio.sleep(max(PAUSES * (timer() - began), (end - timer()) / steps_left))
        if users or clients:
            log.info("indexed users and clients that the site wrote", users=users, clients=clients)
        if names:
            log.info("indexed names of users that the site wrote", names=names)
        if unusable:
            log.warning("invalid user ids: not positive numbers, or used twice", ids=unusable)


PAUSE_SECONDS = 2.0
WALK_PARTS = 400
"""About how many parts of users, one in each shard, a step of the walk through all users reads."""
_NOT_COPIED, _NOT_UPDATED = "users that a site wrote are not copied", "users of a shard are not updated"

log = Logger("tracker.users")


@dataclass(eq=False)
class UserCopiesWorker:
    """Keeps users of several shards alike. ``held`` returns the numbers of the shards that are this tracker's.

    Rows that a site wrote are compared with digests of those that were compared last, by one tracker: the one that has
    shard 0, or while that is unavailable, the first one that is not. The shards where a user has been get what differs;
    an unavailable one gets it when it is back. For a moment, two trackers may do this work, which copies nothing
    twice."""

    store: Store
    held: Callable[[], list[int]]
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._parts = (
            (self.store.user_copies.missing, self.store.user_copies.copy_to),
            (self.store.multipliers.outdated, self.store.multipliers.copy_to),
            (self.store.user_sums.changed, self._save_changed),
        )
        self._rows_cursor = self._sums_cursor = b"0"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            channel = self.store.keys.channel("users")
            tasks.create_task(follow(self.store.connection, channel, self._compare, self.sleep))
            tasks.create_task(forever(self._compare_page, PAUSE_SECONDS, sleep=self.sleep))
            tasks.create_task(forever(self.round, PAUSE_SECONDS, sleep=self.sleep))

    # Rows

    async def _compare(self, payload: bytes | None) -> None:
        """A message on ``t:{main}:users`` names a user by passkey or id. The walk makes up for a lost one."""
        if payload is not None and self._compares:
            await survive(self.store.user_copies.compare_one(payload), _NOT_COPIED)

    async def _compare_page(self) -> None:
        if self._compares:
            after = await survive(self.store.user_copies.compare_page(self._rows_cursor), _NOT_COPIED)
            self._rows_cursor = after or self._rows_cursor

    @property
    def _compares(self) -> bool:
        held = self.held()
        here = next((shard for shard in self.store.shards if not shard.connection.unavailable), None)
        return here is not None and (here.number in held or 0 in held)

    # Copies, multipliers and sums

    async def round(self) -> None:
        held = [self.store.shards[number] for number in self.held()]
        for find, update in self._parts:
            there = [shard for shard in held if not shard.connection.unavailable]
            found = await survive(find(there)) if there else there
            for shard in there if found is None else found:  # all, if one cannot be asked
                await survive(update(shard), _NOT_UPDATED)
        if self.store.shards[0] in held and not self.store.shards.unavailable:  # one tracker walks through all users
            page = self.store.user_sums.save_page(self._sums_cursor, max(1, WALK_PARTS // len(self.store.shards)))
            self._sums_cursor = await survive(page, _NOT_UPDATED) or self._sums_cursor

    async def _save_changed(self, shard: Shard) -> None:
        if not self.store.shards.unavailable:  # a sum needs all of them
            await self.store.user_sums.save_changed(shard)
