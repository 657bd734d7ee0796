"""Counts what a store holds, so that two stores can be compared."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tracker.store.resharding.parts import Parts
from tracker.store.schema.table.places import COUNTED, USER, Place, place_of

_SINGLE = ("i:info_hash", "i:seeders", "i:leechers", "i:snatches", "i:name", "denied")
"""Sorted sets whose entries are counted, besides the keys."""
_WHOLE = (Place.MAIN, Place.COPIED, Place.TORRENT)

Progress = Callable[[int], None]
"""Gets how many keys were read."""


@dataclass(slots=True)
class Counts:
    rows: Counter[str] = field(default_factory=Counter)
    """Keys by row of the key table, of those that are copied as they are, and users; entries of some sorted sets."""
    seeders: int = 0
    leechers: int = 0
    changes: int = 0
    unknown: int = 0
    """Keys that are not in the key table."""
    dropped: int = 0
    """Keys that are not copied."""

    @property
    def figures(self) -> dict[str, int]:
        """For operators."""
        return {
            "torrents": self.rows["i:info_hash"],
            **{name: self.rows[pattern] for name, pattern in COUNTED.items()},
            "seeders": self.seeders,
            "leechers": self.leechers,
            "changes": self.changes,
            "keys": sum(number for name, number in self.rows.items() if name not in _SINGLE),
        }


async def count(parts: Parts, progress: Progress = lambda _: None) -> Counts:
    """Reads the names of all keys."""
    counts, read = Counts(), 0
    async for page in parts.pages():
        read += page.keys
        progress(read)
        counts.unknown += page.unknown
        for part, row, name in page.found:
            place = place_of(row, name)
            is_main = part == parts.main
            if place is Place.DROPPED:
                counts.dropped += 1
            elif (place in _WHOLE and (is_main or place is Place.TORRENT)) or (row.pattern == USER and is_main):
                counts.rows[row.pattern] += 1
    for index in _SINGLE:
        sizes = await parts.send([(part, ("ZCARD", f"{part.keys.prefix}{index}")) for part in parts.shards])
        counts.rows[index] = sum(sizes)
    counts.seeders, counts.leechers = [await _sum_of_scores(parts, name) for name in ("seeders", "leechers")]
    counts.changes = sum(await parts.send([(part, ("XLEN", part.keys.changes())) for part in parts.shards]))
    return counts


async def _sum_of_scores(parts: Parts, ranking: str) -> int:
    total, page = 0.0, 1000
    for part in parts.shards:
        offset, found = 0, [b""]
        while found:
            how = (part.keys.index(ranking), "+inf", "(0", "WITHSCORES", "LIMIT", offset, page)
            (found,) = await parts.send([(part, ("ZREVRANGEBYSCORE", *how))])
            total += sum(map(float, found[1::2]))
            offset += page
    return int(total)


def differences(before: Counts, after: Counts, expiring: set[str]) -> list[str]:
    """Which keys the second store misses, or has too many of. It may have fewer ``expiring`` rows."""
    names = sorted({*before.rows, *after.rows})
    found = [
        f"{name}: {before.rows[name]} before, {after.rows[name]} after"
        for name in names
        if after.rows[name] > before.rows[name] or (name not in expiring and after.rows[name] < before.rows[name])
    ]
    for name in ("seeders", "leechers", "changes"):
        if getattr(before, name) != getattr(after, name):
            found.append(f"{name}: {getattr(before, name)} before, {getattr(after, name)} after")
    return found
