"""Clearing out what no longer belongs, and nothing else (row T24)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, info_hash, peer_id, update
from tests.store.invariants import check_invariants
from tests.store.test_maintenance import cleanup, lively, name_of, reindex
from tracker.store import maintenance
from tracker.store.key_table import KEYS
from tracker.store.maintenance import STRANGE, WRONG_TYPE

GONE = info_hash(77)
GONE_HEX = GONE.hex()
PID = peer_id(77)


@pytest.mark.parametrize("private", [False, True])
async def test_what_belongs_stays(make_store: MakeStore, private: bool) -> None:
    store = await lively(make_store, private=private)
    before = await store.dump()
    assert await cleanup(store, dry_run=False) == {}
    assert (await store.dump()).keys() == before.keys()


LEFT_OVER: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "t": lambda r, p: r.hset(f"{p}t:{GONE_HEX}", mapping={"tid": "77", "seeders": "3"}),
    "torrent_id": lambda r, p: r.set(f"{p}torrent_id:77", GONE_HEX),
    "torrent_id of nobody": lambda r, p: r.set(f"{p}torrent_id:77", "no info hash"),
    "history": lambda r, p: r.rpush(f"{p}history:77", "1 2 3 4 1"),
    "tpeers": lambda r, p: r.sadd(f"{p}tpeers:{GONE_HEX}", PID.hex()),
    "array": lambda r, p: r.set(f"{p}swarm:{GONE_HEX}:s4", b"x" * 6),
    "array of ids": lambda r, p: r.set(f"{p}swarm:{GONE_HEX}:l6i", b"x" * 20),
    "peer without a torrent": lambda r, p: r.hset(f"{p}p:77:{PID.hex()}", "active", "1"),
    "peer in no swarm": lambda r, p: r.hset(f"{p}p:1:{PID.hex()}", "active", "1"),
    "peer for ever": lambda r, p: r.hset(f"{p}p:1:{PID.hex()}", "active", "0"),
    "peer of another kind": lambda r, p: r.hset(f"{p}p:1:{PID.hex()}", "left", "0"),
    "timeout": lambda r, p: r.set(f"{p}ptimeout:1:{PID.hex()}", "1", ex=100),
    "torrents of a peer": lambda r, p: r.sadd(f"{p}p:{PID.hex()}:torrents", "1"),
    "due": lambda r, p: r.rpush(f"{p}due:1700000000", b"x" * 21),
    "seeders": lambda r, p: r.zadd(f"{p}i:seeders", {"77": 1}),
    "score": lambda r, p: r.zadd(f"{p}i:score", {"nonsense": 1}),
    "processed": lambda r, p: r.zadd(f"{p}i:processed", {"77": 1}),
    "info_hash": lambda r, p: r.zadd(f"{p}i:info_hash", {"77": 1}),
    "name": lambda r, p: r.zadd(f"{p}i:name", {f"another\t{info_hash(1).hex()}": 0, "short": 0}),
    "denied": lambda r, p: r.zadd(f"{p}denied", {GONE_HEX: 1}),
    "registered_by": lambda r, p: r.set(f"{p}registered_by:192.0.2.9", "1"),
    "counted": lambda r, p: r.set(f"{p}counted:{'a' * 16}", "1"),
    "passkey": lambda r, p: r.zadd(f"{p}users", {"c" * 20: 77}),
    "account": lambda r, p: r.hset(f"{p}u:1:t:77", "peers", "0"),
    "set of a user": lambda r, p: r.sadd(f"{p}u:1:complete", "77"),
    "debtor": lambda r, p: r.zadd(f"{p}i:hnr", {"77": 1}),
    "client": lambda r, p: r.sadd(f"{p}whitelist", b"-\xff"),
    "unique": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.users", "1"),
    "unique by place": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.countries.GB.users", "1"),
    "marker": lambda r, p: r.set(f"{p}countries.GB.users.192.0.2.99", "1"),
    "marker of a torrent": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.users.192.0.2.99", "1", ex=99),
    "month": lambda r, p: r.set(f"{p}countries.GB.users.2020-01", "1"),
    "estimate": lambda r, p: r.pfadd(f"{p}hll:torrents.{GONE_HEX}.users", "a"),
    "places": lambda r, p: r.zadd(f"{p}i:unique:torrents.{GONE_HEX}", {"countries.GB": 1}),
    "leaderboard": lambda r, p: r.zadd(f"{p}i:unique:torrents:all", {GONE_HEX: 1}),
    "count": lambda r, p: r.hset(f"{p}count:60:nobody", "0", "1"),
    "dist": lambda r, p: r.hset(f"{p}dist:60:nobody", "0", "1 1 0 1 1"),
    "known": lambda r, p: r.zadd(f"{p}known:", {"60:nothing": 0}),
    "known dist": lambda r, p: r.zadd(f"{p}known:dist", {"60:nothing": 0}),
    "outbox minute": lambda r, p: r.hset(f"{p}outbox:1700000040", "a", "1"),
    "outbox": lambda r, p: r.zadd(f"{p}outbox", {"1700000040": 1}),
    "token": lambda r, p: r.hset(f"{p}leases:torrents:tokens", "77", "1-2"),
    "job": lambda r, p: r.hset(f"{p}job:99999", mapping={"queue": "sweep", "status": "pending"}),
    "job without a queue": lambda r, p: r.hset(f"{p}job:99999", "id", "99999"),
    "queue": lambda r, p: r.zadd(f"{p}q:sweep:failed", {"99999": 1}),
    "ready": lambda r, p: r.zadd(f"{p}q:sweep:ready", {"99999": 1}),
    "fingerprint": lambda r, p: r.hset(f"{p}q:sweep:fingerprints", "f", "99999"),
    "job token": lambda r, p: r.hset(f"{p}q:sweep:running:tokens", "99999", "t"),
}


async def test_what_is_left_over_goes_when_it_is_to_and_nothing_else(make_store: MakeStore) -> None:
    """A dry run, which is the default, says the same and changes nothing."""
    store = await make_store(private=True, peer_memory=3600)
    await store.users.add("1", ALICE)
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.announce(update(1, "s", passkey=ALICE))
    await store.clients.allow(b"-TR")
    await store.counters.flush()
    whole = await store.dump()
    for what, leave in LEFT_OVER.items():
        await leave(store.redis, store.keys.prefix)
        with_it = await store.dump()
        assert with_it != whole, what

        (found,) = (await cleanup(store)).values()
        assert found.count >= 1 and found.changed == 0 and found.examples, what
        assert await store.dump() == with_it, what

        (removed,) = (await cleanup(store, dry_run=False)).values()
        assert (removed.kind, removed.changed) == (found.kind, found.count), what
        assert await store.dump() == whole, what
    assert await check_invariants(store.redis, store.keys) == 1


def sample_names() -> Iterator[str]:
    """One key, without its prefix, for each row of the key table but those of lists."""
    samples = {
        "ih": GONE_HEX,
        "pid": PID.hex(),
        "array": "s4",
        "passkey": ALICE,
        "metric": "countries.GB.users",
    }
    samples |= {"set": "hnr", "seen": "192.0.2.1", "month": "2026-11", "period": "all", "scope": "cities"}
    samples |= {"kind": "torrents", "queue": "sweep", "status": "failed", "precision": "60", "prefix": "-TR"}
    samples |= {"figure": "seeders", "address": "192.0.2.1", "process": "0" * 16, "outcome": "joins"}
    samples |= {"digest": "0" * 64, "token": "0" * 12, "name": "n"}
    for word in ("tid", "uid", "deadline", "minute", "window", "id"):
        samples[word] = "7"
    for row in KEYS:
        if row.type != "LIST":
            name = row.pattern.removeprefix("t:")
            for word, sample in samples.items():
                name = name.replace(f"<{word}>", sample)
            assert "<" not in name
            yield name


async def test_keys_of_another_type_go(store: Store) -> None:
    """They would be in the way of the scripts for ever."""
    names = set(sample_names())
    for name in names:
        await store.redis.rpush(store.keys.prefix + name, "somebody else's")
    (found,) = (await cleanup(store)).values()
    assert (found.kind, found.count) == (WRONG_TYPE, len(names))
    assert (await cleanup(store, dry_run=False))[WRONG_TYPE].changed == len(names)
    assert await store.dump() == {}


async def test_keys_that_are_not_ours_are_shown_and_never_deleted(store: Store) -> None:
    prefix = store.keys.prefix
    await store.redis.set(f"{prefix}i:custom", "a site's")
    await store.redis.zadd(f"{prefix}i:mine", {"77": 1})
    await store.redis.set(f"{prefix}\xff".encode("latin-1"), "x")
    before = await store.dump()
    found = (await cleanup(store, dry_run=False))[STRANGE]
    assert (found.count, found.changed) == (3, 0)
    assert set(found.examples) == {"i:custom", "i:mine", "\xff"}
    assert await store.dump() == before


async def test_other_prefixes_are_left_alone(store: Store) -> None:
    """Also those that a prefix would match as a pattern."""
    other = store.keys.prefix[:-1] + "x:torrent_id:77"
    await store.redis.set(other, GONE_HEX)
    try:
        assert await cleanup(store, dry_run=False) == {}
        assert await store.redis.exists(other)
    finally:
        await store.redis.delete(other)


async def test_one_removal_leads_to_the_next(store: Store) -> None:
    """A swarm whose torrent is gone: its peers are in a list that itself belongs nowhere."""
    for number in range(5):
        await store.announce(update(number, "s"))
    await store.redis.delete(store.keys.torrent(info_hash(1)), store.keys.info_hash(info_hash(1)))
    await cleanup(store, dry_run=False)
    await cleanup(store, dry_run=False)
    left = {name_of(store, key) for key in await store.dump()}
    assert left <= {"torrent_id", "stats:leechers", "registered_by:11.0.0.0"} | {
        f"registered_by:11.0.0.{n}" for n in range(5)
    } | {name for name in left if name.startswith("due:")}


async def test_hit_and_runs_on_gone_torrents_leave_the_index_too(private: Store) -> None:
    redis, keys = private.redis, private.keys
    await redis.sadd(keys.user_set(7, "hnr"), "77", "78")
    await redis.zadd(keys.hit_and_runs(), {"7": 2})
    await cleanup(private, dry_run=False)
    assert await private.users.hit_and_runs() == []
    assert not await redis.exists(keys.hit_and_runs(), keys.user_set(7, "hnr"))


async def test_what_a_site_is_about_to_register_stays(store: Store) -> None:
    """Its name or something else of it first, then its registration; and a torrent that it never wants registered."""
    redis, keys = store.redis, store.keys
    await redis.hset(keys.torrent(info_hash(1)), "name", "soon")
    for number, field in enumerate(("private", "reason", "multi_up", "multi_dn")):
        await redis.hset(keys.torrent(info_hash(10 + number)), field, "0")
    await redis.hset(keys.torrent(info_hash(2)), "enabled", "0")
    await redis.set(keys.info_hash(info_hash(3)), "3")
    await redis.hset(keys.user(9), mapping={"uploaded": "5"})
    await redis.hset(keys.passkey(BOB), mapping={"user_id": "9"})
    await redis.set(keys.deny(info_hash(4)), "no")
    before = await store.dump()
    assert await cleanup(store, dry_run=False) == {}
    assert await store.dump() == before


async def test_large_sets_are_looked_through_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.torrents.add(info_hash(1))
    await store.redis.zadd(store.keys.index("seeders"), {str(n): 0 for n in range(1000, 4000)})
    await store.redis.sadd(store.keys.user_set(1, "active"), "1", *range(1000, 3000))
    found = await cleanup(store, dry_run=False)
    assert {finding.changed for finding in found.values()} == {3000, 2000}
    assert await store.redis.zrange(store.keys.index("seeders"), 0, -1) == [b"1"]
    assert await store.redis.smembers(store.keys.user_set(1, "active")) == {b"1"}


async def test_an_entry_that_went_meanwhile_is_no_finding(store: Store) -> None:
    """It had been read before it went by itself."""
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.redis.hset(store.keys.queue_fingerprints("q"), "another", "1")
    await store.redis.sadd(store.keys.allowed_clients(), b"-TR")
    for check, kind, key in (
        ("ranked", "zset", "i:seeders"),
        ("fingerprint", "hash", "q:q:fingerprints"),
        ("client", "set", "whitelist"),
    ):
        assert await store.scripts.tidy([check, 1, kind, key, "77"]) == [[], []]


async def test_an_entry_that_is_empty_is_no_key(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.redis.zadd(store.keys.names(), {"": 0})
    await store.redis.zadd(store.keys.index("score"), {"": 0})
    await cleanup(store, dry_run=False)
    assert await store.redis.zscore(store.keys.index("score"), "1") == 1
    assert (await store.torrents.search("one"))[1]


@pytest.mark.parametrize("seed", range(3))
async def test_it_may_run_beside_a_tracker_at_work(store: Store, seed: int) -> None:
    """Whoever joins and leaves meanwhile is counted as always."""
    busy = True

    async def announce(first: int) -> None:
        number = first
        while busy:
            peer, torrent = number % 40, 1 + number % 7
            event = "x" if number % 5 == 4 else "s"
            await store.swarms.announce(update(peer, event, torrent, bytes_left=number % 2))
            number += 3 + seed

    async with asyncio.TaskGroup() as group:
        for first in range(4):
            group.create_task(announce(first))
        try:
            for _ in range(4):
                assert await cleanup(store, dry_run=False) == {}
                assert "torrents that were in no ranking" not in await reindex(store)
        finally:
            busy = False
    await check_invariants(store.redis, store.keys)


async def test_progress_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PAGE", 10)
    for number in range(30):
        await store.torrents.add(info_hash(number))
    heard: list[tuple[int, int]] = []
    async for _ in store.maintenance.cleanup(True, lambda done, about: heard.append((done, about))):
        pass
    done = [each for each, _ in heard]
    assert done == sorted(done) and done[-1] >= len(await store.dump())  # SCAN may show a key twice
    assert all(each <= about for each, about in heard)
