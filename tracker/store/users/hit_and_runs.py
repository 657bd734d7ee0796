"""Drops hit-and-runs on removed torrents, which cannot be seeded any more."""

import structlog
from redis.exceptions import ResponseError

from tracker.store.client.connection import Connection
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import ranked

USERS_PER_CALL = 200
_TORRENTS_PER_CALL = 100

log = structlog.get_logger("tracker.store")


class HitAndRuns:
    """Walks through all users with hit-and-runs, a page per call. Each process keeps its own position."""

    def __init__(
        self, connection: Connection, scripts: Scripts, keys: Keys, users_per_call: int = USERS_PER_CALL
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._users_per_call = users_per_call
        self._cursor = 0

    async def drop_removed(self) -> int:
        """Checks the next users, about ``users_per_call`` of them. Returns how many hit-and-runs it dropped."""
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
            log.info("dropped hit-and-runs on removed torrents", hit_and_runs=dropped)
        return dropped

    async def _drop_of(self, user_id: str) -> int:
        cursor, dropped = b"0", 0
        while True:
            cursor, removed = await self._scripts.drop_hit_and_runs([user_id, cursor, _TORRENTS_PER_CALL])
            dropped += int(removed)
            if cursor == b"0":
                return dropped
