"""Fills a new store from one with another number of shards. The old one is only read, and no tracker runs on either.

It can be interrupted at any time: `reshard` under the main prefix of the new store holds how far it is. While that key
exists, no tracker starts there.
"""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument, flattened
from tracker.store.layout import LAYOUT, heartbeats, write_layout
from tracker.store.resharding.copying import Copying, copy_feed
from tracker.store.resharding.parts import Command, Parts, Walk, check_idle
from tracker.store.schema.keys import MAX_SHARDS
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.table.places import COUNTED, USER, Place, place_of
from tracker.store.sharding.shards import Shard, in_parts
from tracker.store.stats.counters import FIGURES

_USED = ("heartbeat", "torrent_id", "users", "i:seeders", "admin:tokens")
"""Keys that a store in use has at least one of."""
_SINGLE = ("i:info_hash", "i:seeders", "i:leechers", "i:snatches", "i:name", "denied")
"""Sorted sets whose entries are counted, besides the keys."""
_SUMS = ("seeders", "leechers", "changes")
"""Peers of all torrents, and entries of the change feed."""
_ENTRY_BYTES = {4: 22, 8: 30}
"""Bytes of an endpoint in `addresses:<ih>`, by those of its network."""
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
        """Writes what is computed from all prefixes, after `copy`: each has a part of it, or a value of its own. What
        an earlier call has written is replaced."""
        source, target = self._source, self._target
        await _write_numbers(source, target)
        await _write_totals(source, target)
        forgotten = Counter[bytes]()
        for row in await _read(source, "unique:forgotten", "HGETALL"):
            forgotten.update(dict(zip(row[::2], map(whole, row[1::2]), strict=True)))
        if forgotten:
            await target.send([(target.main, ("HSET", target.main.keys.unique_forgotten(), *flattened(forgotten)))])
        await _join_outbox(source, target)
        # A deletion that was interrupted goes on in all shards.
        if users := {user for row in await _read(source, "deleting", "SMEMBERS") for user in row}:
            await target.send([(part, ("SADD", part.keys.deleting(), *users)) for part in target.all])
        await _rank_hit_and_runs(source, target)
        await copy_feed(source, target)
        for shard in target.store.shards:
            await target.store.reapings[shard].check_totals()
        for part in target.shards:
            await _count_addresses(target, part)
        for name in ("secret", "upload_multiplier", "download_multiplier", "groups"):
            (value,) = await target.send([(target.main, ("GET", f"{target.main.keys.prefix}{name}"))])
            if value is not None:
                await target.send([(part, ("SET", f"{part.keys.prefix}{name}", value)) for part in target.others])
        for shard in target.others:
            await target.store.user_copies.copy_to(shard)

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


# What is made of several keys


async def _read(parts: Parts, name: str, command: str = "GET", *how: Argument) -> list[Any]:
    """The replies of each prefix."""
    return await parts.send([(part, (command, f"{part.keys.prefix}{name}", *how)) for part in parts.all])


async def _write_numbers(source: Parts, target: Parts) -> None:
    """Torrent ids and tokens go on above all that were given out. The outage that the trackers find when they start is
    the longest that a shard had."""
    numbers = [whole(each) for each in await _read(source, "torrent_id")]
    given_out = [MAX_SHARDS * number + shard for shard, number in enumerate(numbers[1:]) if number]
    highest = max(given_out, default=0) if source.others else numbers[0]
    if highest:
        last = -(-highest // MAX_SHARDS) if target.others else highest
        await target.send([(part, ("SET", f"{part.keys.prefix}torrent_id", last)) for part in target.shards])
    choices: tuple[tuple[str, Callable[[Iterable[bytes]], bytes]], ...] = (
        ("lease", lambda values: max(values, key=whole)),
        ("heartbeat", lambda values: min(values, key=whole)),
        ("due", lambda values: min(values, key=whole)),
        ("gap", _join_gaps),
    )
    for name, choose in choices:
        if values := [value for value in await _read(source, name) if value is not None]:
            chosen = choose(values)
            await target.send([(part, ("SET", f"{part.keys.prefix}{name}", chosen)) for part in target.all])


def _join_gaps(gaps: Iterable[bytes]) -> bytes:
    """The latest interruption, and the largest sums: they make leases and grace periods longer, never shorter."""
    rows = [list(map(int, gap.split())) for gap in gaps if re.fullmatch(rb"\d+ \d+ -?\d+ \d+", gap)]
    if not rows:
        return b"0 0 0 0"
    latest = max(rows, key=lambda row: row[1])
    return b"%d %d %d %d" % (*latest[:2], max(row[2] for row in rows), max(row[3] for row in rows))


async def _write_totals(source: Parts, target: Parts) -> None:
    """Global counters of all time are sums, whole under the main prefix. Those of peers follow from the rankings."""
    names = [f"stats:{figure}" for figure in FIGURES]
    rows = await source.send(
        [(part, ("MGET", *(f"{part.keys.prefix}{name}" for name in names))) for part in source.all]
    )
    for figure, name, values in zip(FIGURES, names, zip(*rows, strict=True), strict=True):
        if any(value is not None for value in values) and figure not in ("seeders", "leechers"):
            total = sum(map(whole, values))
            await target.send([(target.main, ("SET", f"{target.main.keys.prefix}{name}", total))])


async def _join_outbox(source: Parts, target: Parts) -> None:
    """Values of torrents that wait for StatHat are in shards; under the main prefix they are sent as well."""
    main, waiting = target.main, 0
    minutes = {minute for row in await _read(source, "outbox", "ZRANGE", 0, -1) for minute in row}
    for minute in sorted(minutes):
        name, counts = f"outbox:{minute.decode()}", Counter[bytes]()
        for row in await _read(source, name, "HGETALL"):
            counts.update(dict(zip(row[::2], map(whole, row[1::2]), strict=True)))
        if counts:
            key, waiting = f"{main.keys.prefix}{name}", waiting + len(counts)
            await target.send(
                [
                    (main, ("UNLINK", key)),
                    (main, ("HSET", key, *flattened(counts))),
                    (main, ("ZADD", f"{main.keys.prefix}outbox", minute, minute)),
                    (main, ("SET", main.keys.outbox_waiting(), waiting)),
                ]
            )


async def _rank_hit_and_runs(source: Parts, target: Parts) -> None:
    """Lists users by the sizes of their sets: under the main prefix all together, and in each shard."""
    for part in source.shards:
        async for users in source.ranked(part, part.keys.hit_and_runs()):
            sizes = await target.send(
                [(each, ("SCARD", each.keys.user_set(user, "hnr"))) for user in users for each in target.shards]
            )
            commands: list[Command] = []
            for user, own in zip(users, in_parts(sizes, len(target.shards)), strict=True):
                ranked = dict(zip(target.shards, own, strict=True)) | {target.main: sum(own)}
                commands += [(part, ("ZADD", part.keys.hit_and_runs(), n, user)) for part, n in ranked.items() if n]
            await target.send(commands)


async def _count_addresses(target: Parts, part: Shard) -> None:
    """Counts the endpoints of all swarms of a shard by network, as lib/addresses.lua does."""
    prefix = part.keys.prefix
    await target.send([(part, ("UNLINK", part.keys.addresses()))])
    async for ids in target.ranked(part, part.keys.index("seeders")):
        hashes = await target.send([(part, ("GET", part.keys.torrent_id(each))) for each in ids])
        rows = await target.send([(part, ("HGETALL", f"{prefix}addresses:{each.decode()}")) for each in hashes if each])
        counts = Counter[bytes]()
        for row in rows:
            for network, entries in zip(row[::2], row[1::2], strict=True):
                number = len(entries) // _ENTRY_BYTES.get(len(network), len(entries) + 1)
                counts[network] += number
                counts[network[: 3 if len(network) == 4 else 6]] += number
        await target.send(
            [(part, ("HINCRBY", part.keys.addresses(), network, by)) for network, by in counts.items() if by]
        )
