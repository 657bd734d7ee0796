"""Figures on their way to StatHat or StatsD: they wait in the store, by the minute they were counted in.

count.lua and its like put them there (lua/outbox.lua). Whoever sends takes them under a lease, so that several trackers
send each figure once; who dies with a lease loses nothing, for it ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

MINUTE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Parcel:
    """Figures of one minute (epoch s of its start) to be sent; ``token`` says whose they are just now.

    Statistics are bytes as stored: an odd one must still be found when it is taken out.
    """

    minute: int
    token: bytes
    counts: Mapping[bytes, int]


class Outbox:
    """Every method raises StoreAway when nobody answers, else redis.exceptions.RedisError."""

    def __init__(self, connection: Connection, scripts: Scripts, keys: Keys) -> None:
        self._connection = connection
        self._collect = scripts.collect
        self._sent = scripts.sent
        self._keys = keys

    async def take(self, now: float, most: int, seconds: float) -> list[Parcel]:
        """At most ``most`` figures of minutes that are over and nobody else sends, oldest first.

        They are the caller's for ``seconds``, and have to come back by ``sent``, ``drop`` or ``release``.
        """
        minute = int(now) - int(now) % MINUTE_SECONDS
        answer = await self._collect([f"{now:.3f}", minute, f"{now + seconds:.3f}", most])
        return [
            Parcel(int(start), token, {s: int(n) for s, n in zip(found[::2], found[1::2], strict=True)})
            for start, token, found in answer
        ]

    async def sent(self, parcels: Sequence[Parcel]) -> None:
        """Takes them out of the store; what was counted meanwhile stays. Doing it again does nothing."""
        await self._settle(0, [(p, p.counts) for p in parcels])

    async def drop(self, parcels: Sequence[Parcel]) -> None:
        """The same for what nobody will ever take: it is counted as dropped."""
        await self._settle(1, [(p, p.counts) for p in parcels])

    async def release(self, parcels: Sequence[Parcel]) -> None:
        """They were not sent, and anybody may take them now."""
        await self._settle(0, [(p, {}) for p in parcels])

    async def _settle(self, dropped: int, parcels: Sequence[tuple[Parcel, Mapping[bytes, int]]]) -> None:
        argv: list[str | bytes | int] = [dropped]
        for parcel, counts in parcels:
            argv += [parcel.minute, parcel.token, len(counts)]
            argv += [part for pair in counts.items() for part in pair]
        if parcels:
            await self._sent(argv)

    async def waiting(self) -> int:
        """How many figures wait."""
        return int(await self._connection.command("GET", self._keys.outbox_waiting()) or 0)
