"""The counts of what was asked: kept in the process, written once a second, so that no announce pays for them.

Each batch has a number, and is sent until the store has said that it has it; a batch that arrives twice,
because an answer was lost, counts once.
"""

import asyncio
import secrets
from collections import Counter
from dataclasses import dataclass, field

import structlog
from redis.exceptions import RedisError

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

FLUSH_SECONDS = 1.0
FIGURES = (
    "seeders",
    "leechers",
    "announces",
    "scrapes",
    "requests",
    "reaped",
    "repairs",
    "forgotten",
    "credit_cut",
)

log = structlog.get_logger("tracker.store")


@dataclass
class _Batch:
    number: int
    figures: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)


class Stats:
    """Counts ``announces`` and ``scrapes`` answered, all ``requests``, ``reaped`` and so on, and refusals by reason."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._script = Scripts(connection, keys.prefix).count
        self._process = secrets.token_hex(8)
        self._counting = _Batch(1)
        self._unwritten: _Batch | None = None
        self._writing = asyncio.Lock()

    def count(self, figure: str, by: int = 1) -> None:
        self._counting.figures[figure] += by

    def failed(self, reason: str) -> None:
        self._counting.failures[reason] += 1

    async def run(self) -> None:
        """Writes every second until cancelled. While the store is away the counts are kept."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Writes what was counted; what could not be written is kept for the next time."""
        async with self._writing:
            try:
                if self._unwritten is not None:  # whether the store has this one nobody knows: it goes first
                    await self._write(self._unwritten)
                if self._counting.figures or self._counting.failures:
                    self._unwritten, self._counting = self._counting, _Batch(self._counting.number + 1)
                    await self._write(self._unwritten)
            except StoreAway:
                pass
            except RedisError as error:
                log.error("counts were not written", error=str(error))

    async def _write(self, batch: _Batch) -> None:
        pairs = [*batch.figures.items(), *batch.failures.items()]
        argv = [part for pair in pairs for part in pair]
        wrong = await self._script([self._process, batch.number, len(batch.figures), *argv])
        self._unwritten = None
        if wrong:
            log.error("the store has keys of a wrong type where counts belong", keys=int(wrong))

    async def read(self) -> dict[str, int]:
        """The global figures as stored."""
        values = await self._connection.command("MGET", *(self._keys.stat(name) for name in FIGURES))
        return {name: int(value or 0) for name, value in zip(FIGURES, values, strict=True)}
