"""Fills a new store from one with another number of shards. The old one is only read, and no tracker runs on either.

It can be interrupted at any time: `reshard` under the main prefix of the new store holds how far it is. While that key
exists, no tracker starts there.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from tracker.errors import ClientError
from tracker.store.client.pipe import flattened
from tracker.store.layout import LAYOUT, heartbeats, write_layout
from tracker.store.resharding.copying import Copying
from tracker.store.resharding.joined import write_joined
from tracker.store.resharding.parts import Parts, Walk, check_idle
from tracker.store.schema.table.places import COUNTED, USER, Place, place_of

_USED = ("heartbeat", "torrent_id", "users", "i:seeders", "admin:tokens")
"""Keys that a store in use has at least one of."""
_SINGLE = ("i:info_hash", "i:seeders", "i:leechers", "i:snatches", "i:name", "denied")
"""Sorted sets whose entries are counted, besides the keys."""
_SUMS = ("seeders", "leechers", "changes")
"""Peers of all torrents, and entries of the change feed."""
_WHOLE = (Place.MAIN, Place.COPIED, Place.TORRENT)

Progress = Callable[[int], None]
"""Gets how many keys were read."""


@dataclass(slots=True)
class Counts:
    rows: Counter[str] = field(default_factory=Counter)
    """Keys by row of the key table, of those that are copied as they are, and users; entries of some sorted sets; and
    _SUMS."""
    unknown: int = 0
    """Keys that are not in the key table."""

    @property
    def figures(self) -> dict[str, int]:
        """For operators."""
        return {
            "torrents": self.rows["i:info_hash"],
            **{name: self.rows[pattern] for name, pattern in COUNTED.items()},
            **{name: self.rows[name] for name in _SUMS},
            "keys": sum(number for name, number in self.rows.items() if name not in (*_SINGLE, *_SUMS)),
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
            if (place in _WHOLE and (is_main or place is Place.TORRENT)) or (row.pattern == USER and is_main):
                counts.rows[row.pattern] += 1
    for index in _SINGLE:
        sizes = await parts.send([(part, ("ZCARD", f"{part.keys.prefix}{index}")) for part in parts.shards])
        counts.rows[index] = sum(sizes)
    for ranking in ("seeders", "leechers"):
        counts.rows[ranking] = await _sum_of_scores(parts, ranking)
    counts.rows["changes"] = sum(await parts.send([(part, ("XLEN", part.keys.changes())) for part in parts.shards]))
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
    return [
        f"{name}: {before.rows[name]} before, {after.rows[name]} after"
        for name in names
        if after.rows[name] > before.rows[name] or (name not in expiring and after.rows[name] < before.rows[name])
    ]


@dataclass(eq=False)
class Reshard:
    """``source`` and ``target`` are two stores, which may be on one server. Methods raise ClientError with a reason for
    the operator, StoreUnavailable, and redis.exceptions.RedisError."""

    _source: Parts
    _target: Parts

    def __post_init__(self) -> None:
        self._state = self._target.main.keys.reshard()
        self._name_of_source = f"{self._source.main.keys.prefix} {len(self._source.shards)}"

    async def check(self) -> None:
        """Raises ClientError unless no tracker runs, and the target is empty or was begun from this source."""
        for parts, shown in ((self._source, "old"), (self._target, "new")):
            await check_idle(parts, shown)
        state = await self._read_state()
        if not state:
            target = self._target
            used = [(part, ("EXISTS", *(f"{part.keys.prefix}{name}" for name in _USED))) for part in target.all]
            if await target.number_written() not in (None, len(target.shards)) or any(await target.send(used)):
                raise ClientError("the new store is in use already: choose another server or prefix")
        if state and state.get("source") != self._name_of_source:
            raise ClientError(
                "the new store was begun from another one: delete its keys, or choose another server or prefix"
            )

    async def _read_state(self) -> dict[str, str]:
        (row,) = await self._target.send([(self._target.main, ("HGETALL", self._state))])
        texts = [text.decode() for text in row]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    async def _save(self, fields: Mapping[str, str | int]) -> None:
        await self._target.send([(self._target.main, ("HSET", self._state, *flattened(fields)))])

    async def copy(self) -> AsyncGenerator[int]:
        """Copies all keys, after `check`. Goes on where an earlier call was interrupted, if the servers of the source
        have not been restarted since; otherwise starts again. Yields how many keys of the source were read since the
        first call."""
        state, runs = await self._read_state(), await self._source.runs()
        beats = str(await heartbeats(self._source.shards))
        if state and (state["runs"] != runs or state["beats"] != beats):
            await self._target.delete()
            state = {}
        if not state:
            state = {"source": self._name_of_source, "runs": runs, "beats": beats}
            await self._save(state)
        read = int(state.get("read", 0))
        if state.get("copied") != "1":
            start = Walk(int(state.get("server", 0)), int(state.get("cursor", 0)))
            copying = Copying(self._source, self._target)
            copying.expiring.update(state.get("expiring", "").split())
            async with aclosing(self._source.pages(start)) as pages:
                async for page in pages:
                    await copying.copy(page.found)
                    read += page.keys
                    at = {"copied": 1} if (to := page.after) is None else {"server": to.server, "cursor": to.cursor}
                    await self._save({**at, "read": read, "expiring": " ".join(sorted(copying.expiring))})
                    yield read

    async def join(self) -> None:
        """Writes what is made of several keys, after `copy`."""
        await write_joined(self._source, self._target)

    async def finish(self, before: Counts, progress: Progress = lambda _: None) -> Counts:
        """Compares the counts, after `join`, and opens the new store to trackers. Returns its counts."""
        after = await count(self._target, progress)
        state = await self._read_state()
        expiring = set(state.get("expiring", "").split())
        if differences(before, after, expiring):  # a server that resizes its tables may have named a key twice
            before, after = await count(self._source), await count(self._target)
        if found := differences(before, after, expiring):
            await self._save({"runs": ""})
            raise ClientError(f"the new store differs: {'; '.join(found)}. The next run starts again")
        if str(await heartbeats(self._source.shards)) != state["beats"]:
            raise ClientError("a tracker has run on the old store meanwhile: stop it, and begin again")
        main = self._target.main
        if self._target.others:
            await self._target.send([(main, ("SET", main.keys.shards(), len(self._target.shards)))])
        await write_layout(self._target.shards, LAYOUT)
        await self._target.send([(main, ("UNLINK", self._state))])
        return after
