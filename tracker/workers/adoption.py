"""Adds users, their names and allowed clients that a site wrote directly into the store to the lists of them.

It scans the store's keys at the start and once per reap interval.
"""

import asyncio
from collections.abc import Callable

from tracker.store.users.adoption import KEYS_A_STEP, START, Adoption
from tracker.system.logger import Logger
from tracker.workers.loop import forever

PAUSES = 4
"""The pause after a step is at least four times as long as the step: the scan takes a fifth of the store's time."""
_ERROR_SECONDS = 60.0

log = Logger("tracker.store")


class AdoptionWorker:
    """``interval`` returns the seconds per round. ``wanted`` returns whether the tracker has users or an allow-list.

    Without both there is nothing to list.
    """

    def __init__(self, adoption: Adoption, interval: Callable[[], float], wanted: Callable[[], bool]) -> None:
        self._adoption = adoption
        self._interval = interval
        self._wanted = wanted

    async def run(self) -> None:
        """After an error of the store it waits a minute."""
        seconds = 0.0

        async def next_round() -> None:
            nonlocal seconds
            await self.round(seconds)
            await asyncio.sleep(self._interval() / 10)
            seconds = 0.9 * self._interval()

        failure = "cannot index users and clients that the site wrote"
        await forever(next_round, 0.0, failure, error_seconds=_ERROR_SECONDS)

    async def round(self, seconds: float) -> None:
        """Scans every key once, spread over about ``seconds``.

        Raises StoreUnavailable and redis.exceptions.RedisError.
        """
        if not self._wanted():
            return
        timer = asyncio.get_running_loop().time
        cursor, users, clients, names, unusable, scanned = START, 0, 0, 0, 0, 0
        end = timer() + seconds
        while True:
            began = timer()
            step = await self._adoption.step(cursor)
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
