"""The counts of what was asked: kept in the process, written once a second, so that no announce pays for them."""

import asyncio
from collections import Counter

from tracker.errors import StoreAway
from tracker.store.connection import Connection
from tracker.store.keys import Keys

FLUSH_SECONDS = 1.0


class Stats:
    """Counts ``announces`` and ``scrapes`` answered, all ``requests``, ``reaped`` and so on, and refusals by reason."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._figures: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def count(self, figure: str, by: int = 1) -> None:
        self._figures[figure] += by

    def failed(self, reason: str) -> None:
        self._failures[reason] += 1

    async def run(self) -> None:
        """Writes every second until cancelled. While the store is away the counts are kept."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Writes what was counted; what could not be written is kept for the next time."""
        figures, self._figures = self._figures, Counter()
        failures, self._failures = self._failures, Counter()
        commands: list[tuple[str, ...]] = [("INCRBY", self._keys.stat(f), str(n)) for f, n in figures.items() if n]
        commands += [("HINCRBY", self._keys.failures(), reason, str(n)) for reason, n in failures.items()]
        if not commands:
            return
        try:
            await self._connection.pipeline(*commands)
        except StoreAway:
            self._figures.update(figures)
            self._failures.update(failures)

    async def read(self) -> dict[str, int]:
        """The global figures as stored."""
        names = ("seeders", "leechers", "announces", "scrapes", "requests", "reaped", "repairs", "credit_cut")
        values = await self._connection.command("MGET", *(self._keys.stat(name) for name in names))
        return {name: int(value or 0) for name, value in zip(names, values, strict=True)}
