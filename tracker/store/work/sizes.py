"""The bytes of the registered torrents by their number of seeders, now and for each day. No index holds them: ``scan``
adds them up in slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import StorePart, next_cursor

CLASSES = ("0", "1-3", "4-10", "11+")
"""Numbers of seeders."""
_LEAST = (1, 4, 11)
"""The least number of seeders of each class but the first."""
SLICE = 50
"""Torrents per script call. More would delay announces by more than a millisecond."""
MAX_DAYS = 400
EVERY_SECONDS = 21_600
"""How often they are added up: in the first seconds of such a slot of epoch time."""
_DAY = "%Y-%m-%d"


@dataclass(frozen=True, slots=True)
class DaySizes:
    """The sums of the last walk of a UTC day: bytes by CLASSES. ``day`` is its start (epoch s)."""

    day: int
    sums: Sequence[int]


class Sizes(StorePart):
    """``clock`` returns epoch seconds."""

    async def scan(self, cursor: str) -> tuple[str, list[int]]:
        """Returns (next cursor, bytes by CLASSES) of about SLICE torrents. Cursor "0" begins and ends. Torrents of
        unknown size are left out. Raises StoreUnavailable while a shard is unavailable."""
        own, number = divmod(int(cursor), len(self._shards))
        after, sums = await self._shards[number].scripts.work_sizes([str(own), SLICE, *_LEAST])
        return str(next_cursor(int(after), number, len(self._shards))), [int(each) for each in sums]

    async def save(self, sums: Sequence[int]) -> None:
        """Stores the sums of a complete walk as those of today."""
        key, today = self._keys.work_bytes(), datetime.fromtimestamp(self._clock(), UTC).strftime(_DAY)
        await self._connection.command("HSET", key, today, " ".join(map(str, sums)))
        days = sorted(await self._connection.command("HKEYS", key))
        if len(days) > MAX_DAYS:
            await self._connection.command("HDEL", key, *days[:-MAX_DAYS])

    async def days(self) -> list[DaySizes]:
        """The oldest first; the last one is of the last complete walk."""
        flat = await self._connection.command("HGETALL", self._keys.work_bytes())
        found = map(_day_sizes, flat[::2], flat[1::2])
        return sorted((each for each in found if each is not None), key=lambda each: each.day)


def _day_sizes(day: bytes, text: bytes) -> DaySizes | None:
    """None for what the tracker did not write."""
    try:
        start = datetime.strptime(day.decode("ascii"), _DAY).replace(tzinfo=UTC)
    except ValueError:
        return None
    sums = [whole(each) for each in text.split()]
    return DaySizes(int(start.timestamp()), sums) if len(sums) == len(CLASSES) else None
