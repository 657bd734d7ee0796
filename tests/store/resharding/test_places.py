"""Every key has a place in a store with several shards, and comes back from there as it was."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.store.harness import ALICE, Store
from tests.store.resharding.conftest import Open, reshard
from tests.store.sharding.harness import hash_in
from tracker.store.resharding.copying import Copying
from tracker.store.resharding.parts import Parts
from tracker.store.schema.keys import KeySpec
from tracker.store.schema.table import KEYS, row_of
from tracker.store.schema.table.places import NAMED_BY, PLACES, Place, place_of

TORRENTS = {"7": hash_in(1), "8": hash_in(2), "1030": hash_in(3, 5)}
PID = "ab" * 20
FAR = 2_000_000_000_000
MINUTE = 1_900_000_000
WORDS = {
    "pid": PID,
    "uid": "7",
    "array": "s4",
    "passkey": ALICE,
    "set": "hnr",
    "seen": "192.0.2.1",
    "month": "2026-11",
    "period": "all",
    "span": "2026-W47",
    "kind": "torrents",
    "queue": "sweep",
    "status": "failed",
    "precision": "60",
    "prefix": "-TR",
    "counter": "announces",
    "ranking": "snatches",
    "total": "ratio",
    "value": "size",
    "address": "192.0.2.1",
    "process": "0" * 16,
    "outcome": "joins",
    "url": "0" * 16,
    "endpoint": "7f00000100c8",
    "digest": "0" * 64,
    "token": "0" * 12,
    "name": "n",
    "reason": "unknown torrent",
    "node": "host",
    "family": "4",
    "p": "proj",
    "c": "volunteer",
    "todo": "todo",
    "board": "downloader_count",
    **dict.fromkeys(("deadline", "minute", "window", "id"), "1900000000"),
}
CHOICES = {"metric": ("countries.France.users", "torrents.<ih>.users"), "scope": ("cities", "torrents")}
"""Words that decide where a key goes."""


def names_of(row: KeySpec) -> Iterator[str]:
    """Keys of a row without the prefix: one for each torrent, where the row has such."""
    name = row.pattern.removeprefix("t:")
    choices = [word for word in CHOICES if f"<{word}>" in name]
    variants = [name.replace(f"<{word}>", each) for word in choices for each in CHOICES[word]] or [name]
    for variant in variants:
        for torrent_id, info_hash in TORRENTS.items():
            filled = variant.replace("<tid>", torrent_id).replace("<ih>", info_hash.hex())
            for word, sample in WORDS.items():
                filled = filled.replace(f"<{word}>", sample)
            assert "<" not in filled, filled
            yield filled
            if filled == variant or ("<tid>" not in variant and "<ih>" not in variant):
                break


def entries_of(row: KeySpec) -> list[bytes]:
    """One for each torrent."""
    hashes = [info_hash.hex().encode() for info_hash in TORRENTS.values()]
    ids = [torrent_id.encode() for torrent_id in TORRENTS]
    match NAMED_BY[row.pattern]:
        case "ih":
            return [b"name\t" + each for each in hashes] if row.pattern == "t:i:name" else hashes
        case "uid:tid":
            return [b"7:" + each for each in ids]
        case "due":
            return [b"\xff" * 20 + each for each in ids]
    return ids


async def write_sample(redis: Any, key: str, row: KeySpec, place: Place) -> None:
    entries = entries_of(row) if place is Place.SPLIT else [b"seed"]
    match row.type:
        case "HASH":
            await redis.hset(key, "seed", "1")
        case "LIST":
            await redis.rpush(key, *entries)
        case "SET":
            await redis.sadd(key, *entries)
        case "ZSET":
            await redis.zadd(key, {entry: number + 0.5 for number, entry in enumerate(entries)})
        case "STREAM":
            await redis.xadd(key, {"item": "seed"}, id="5-1")
        case _:
            await redis.set(key, "1")
    if place is not Place.JOINED and (place is not Place.SPLIT or row.type == "LIST"):
        await redis.pexpireat(key, FAR)


async def fill(store: Store) -> None:
    """Writes a sample of every key, and what hangs together."""
    prefix, redis, keys = store.keys.prefix, store.redis, store.keys
    for row in KEYS:
        if row.pattern in ("t:reshard", "t:shards"):
            continue
        for name in names_of(row):
            assert row_of(name) is row, name
            await write_sample(redis, prefix + name, row, place_of(row, name.encode()))
    for torrent_id, info_hash in TORRENTS.items():
        await redis.set(keys.torrent_id(torrent_id), info_hash.hex())
        entry = bytes(2 + 20)
        await redis.delete(f"{prefix}addresses:{info_hash.hex()}")
        await redis.hset(f"{prefix}addresses:{info_hash.hex()}", b"\x0b\x00\x00\x01", entry * 2)
    await redis.delete(keys.addresses(), keys.passkey(ALICE), keys.changes(), keys.edits(), keys.user(7))
    await redis.hset(keys.addresses(), mapping={b"\x0b\x00\x00\x01": 6, b"\x0b\x00\x00": 6})
    await redis.hset(keys.passkey(ALICE), mapping={"user_id": "7", "max_downloads": "9"})
    totals = {"uploaded": "5", "downloaded": "6", "snatches": "1", "announces": "2"}
    user = {**totals, "passkey": ALICE, "name": "Alice", "credited_up": "1", "freeleech:8": "99"}
    await redis.hset(keys.user(7), mapping=user)
    await redis.delete(keys.hit_and_runs(), f"{prefix}unique:forgotten")
    await redis.zadd(keys.hit_and_runs(), {"7": 3})
    await redis.hset(keys.unique_forgotten(), "all", "4")
    await redis.delete(keys.users())
    await redis.zadd(keys.users(), {ALICE: 7})
    for kind in ("seeders", "leechers"):
        await redis.zadd(keys.index(kind), dict.fromkeys(TORRENTS, 1))
        await redis.set(keys.stat(kind), len(TORRENTS))
    for number, info_hash in enumerate(TORRENTS.values()):
        for key in (keys.changes(), keys.edits()):
            await redis.xadd(key, {"change": "joined", "info_hash": info_hash.hex()}, id=f"9-{number}1")
    await redis.xadd(keys.edits(), {"user_id": "7", "info_hash": ""}, id="10-1")
    await redis.delete(f"{prefix}outbox")
    await redis.zadd(f"{prefix}outbox", {MINUTE: MINUTE})
    await redis.set(keys.heartbeat(), "1000")
    await redis.set(f"{prefix}gap", "900 950 30 20")


async def test_values_for_stathat_of_all_shards_wait_under_the_main_prefix(open_store: Open) -> None:
    several, back = await open_store("several", 4), await open_store("back")
    for part in (several, *several.shards):
        prefix = part.keys.prefix
        await several.redis.hset(f"{prefix}outbox:{MINUTE}", mapping={"all": 1, prefix[-4:]: 2})
        await several.redis.zadd(f"{prefix}outbox", {MINUTE: MINUTE})
    await reshard(several, back)
    assert await back.outbox.waiting() == 6
    (batch,) = await back.outbox.take(MINUTE + 60, 10, 30)
    assert batch.counts[b"all"] == 5 and sorted(batch.counts.values()) == [2, 2, 2, 2, 2, 5]


async def contents(store: Store) -> dict[bytes, Any]:
    """All keys without the prefix, with their values and expiries. Without what reshard does not copy."""
    redis, found = store.redis, {}
    async for key in redis.scan_iter(f"{store.keys.prefix}*", 1000):
        name = key.removeprefix(store.keys.prefix.encode())
        row = row_of(name.decode("latin-1"))
        assert row is not None, name
        if PLACES[row.pattern] is not Place.DROPPED and row.pattern != "t:torrent_id":
            found[name] = (await value_of(redis, row, key), await redis.pexpiretime(key))
    return found


async def value_of(redis: Any, row: KeySpec, key: bytes) -> Any:
    match row.type:
        case "HASH":
            return await redis.hgetall(key)
        case "LIST":
            return sorted(await redis.lrange(key, 0, -1))
        case "SET":
            return await redis.smembers(key)
        case "ZSET":
            return await redis.zrange(key, 0, -1, withscores=True)
        case "STREAM":  # the ids are new
            return [fields for _, fields in await redis.xrange(key)]
    return await redis.get(key)


@pytest.mark.parametrize("shards", [4, 128])
@pytest.mark.parametrize("by_value", [False, True])
async def test_every_key_is_in_its_place_and_comes_back(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, shards: int, by_value: bool
) -> None:
    """The second way is for servers that do not read each other's DUMP."""
    if by_value:
        made = Copying.__init__

        def make(self: Copying, *args: Any) -> None:
            made(self, *args)
            self._by_value = True

        monkeypatch.setattr(Copying, "__init__", make)
    one, several, back = (await open_store("one"), await open_store("several", shards), await open_store("back"))
    await fill(one)
    expected = await contents(one)
    await reshard(one, several)
    for key in await several.redis.keys(f"{several.keys.prefix.removesuffix('{main}:')}*"):
        part = key.removeprefix(several.keys.prefix.removesuffix("{main}:").encode())
        name = part.partition(b":")[2]
        row = row_of(name.decode("latin-1"))
        assert row is not None, key
        place = place_of(row, name)
        if place is Place.MAIN:
            assert part.startswith(b"{main}:"), key
        elif place in (Place.SPLIT, Place.TORRENT):
            assert not part.startswith(b"{main}:") or b"countries" in name or b"hll:c" in name, key
    await reshard(several, back)
    assert await contents(back) == expected
    assert not Parts(back).others
