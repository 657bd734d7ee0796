"""``cleanup`` deletes stale keys and nothing else (row T24)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, info_hash, peer_id, timeout_key, update
from tests.store.maintenance.test_maintenance import cleanup, in_pages, lively, name_of, reindex
from tracker.store.maintenance.maintenance import UNKNOWN, WRONG_TYPE
from tracker.store.schema.table import KEYS, WORK, row_of
from tracker.store.schema.table.cleanup import CHECKS
from tracker.store.work.records import Project

GONE = info_hash(77)
GONE_HEX = GONE.hex()
PID = peer_id(77)


async def test_cleanup_keeps_everything_in_use(make_store: MakeStore) -> None:
    store = await lively(make_store)
    before = await store.dump()
    assert await cleanup(store, dry_run=False) == {}
    assert (await store.dump()).keys() == before.keys()


LEFT_OVER: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "t": lambda r, p: r.hset(f"{p}t:{GONE_HEX}", mapping={"tid": "77", "seeders": "3"}),
    "t without an id": lambda r, p: r.hset(f"{p}t:{GONE_HEX}", "seeders", "1"),
    "t whose id is another's": lambda r, p: r.hset(f"{p}t:{GONE_HEX}", "tid", "1"),
    "torrent_id": lambda r, p: r.set(f"{p}torrent_id:77", GONE_HEX),
    "torrent_id without a torrent": lambda r, p: r.set(f"{p}torrent_id:77", "no info hash"),
    "history": lambda r, p: r.rpush(f"{p}history:77", "1 2 3 4 1"),
    "completed": lambda r, p: r.zadd(f"{p}completed:77", {"1": 1}),
    "tpeers": lambda r, p: r.sadd(f"{p}tpeers:{GONE_HEX}", PID.hex()),
    "addresses": lambda r, p: r.hset(f"{p}addresses:{GONE_HEX}", b"\x0b\x00\x00\x01", b"x" * 22),
    "array": lambda r, p: r.set(f"{p}swarm:{GONE_HEX}:s4", b"x" * 6),
    "array of ids": lambda r, p: r.set(f"{p}swarm:{GONE_HEX}:l6i", b"x" * 20),
    "peer without a torrent": lambda r, p: r.hset(f"{p}p:77:{PID.hex()}", "active", "1"),
    "peer in no swarm": lambda r, p: r.hset(f"{p}p:1:{PID.hex()}", "active", "1"),
    "torrents of a peer": lambda r, p: r.sadd(f"{p}p:{PID.hex()}:torrents", "1"),
    "name": lambda r, p: r.zadd(f"{p}i:name", {f"another\t{info_hash(1).hex()}": 0, "short": 0}),
    "list of torrents": lambda r, p: r.zadd(f"{p}i:torrent_size", {"77": 1}),
    "name of a user": lambda r, p: r.zadd(f"{p}i:user_name", {"another 2\t77": 0}),
    "total of a user": lambda r, p: r.zadd(f"{p}i:user_ratio", {"77": 1}),
    "right of a user": lambda r, p: r.zadd(f"{p}i:user_disabled", {"77": 77}),
    "denied": lambda r, p: r.zadd(f"{p}denied", {GONE_HEX: 1}),
    "passkey": lambda r, p: r.zadd(f"{p}users", {"c" * 20: 77}),
    "account": lambda r, p: r.hset(f"{p}u:1:t:77", "peers", "0"),
    "set of a user": lambda r, p: r.sadd(f"{p}u:1:complete", "77"),
    "client": lambda r, p: r.sadd(f"{p}whitelist", b"-\xff"),
    "unique": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.users", "1"),
    "unique by place": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.countries.France.users", "1"),
    "estimate": lambda r, p: r.pfadd(f"{p}hll:torrents.{GONE_HEX}.users", "a"),
    "unique of a month": lambda r, p: r.set(f"{p}torrents.{GONE_HEX}.users.2026-11", "1"),
    "estimate of a month": lambda r, p: r.pfadd(f"{p}hll:torrents.{GONE_HEX}.users.2026-11", "a"),
    "places": lambda r, p: r.zadd(f"{p}i:unique:torrents.{GONE_HEX}", {"countries.France": 1}),
    "leaderboard": lambda r, p: r.zadd(f"{p}i:unique:torrents:all", {GONE_HEX: 1}),
}


WRITE: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "HASH": lambda r, key: r.hset(key, "seed", "1"),
    "LIST": lambda r, key: r.rpush(key, "1 2 3 4"),
    "SET": lambda r, key: r.sadd(key, "seed"),
    "STREAM": lambda r, key: r.xadd(key, {"item": "seed"}),
    "STRING": lambda r, key: r.set(key, "1"),
    "ZSET": lambda r, key: r.zadd(key, {"seed": 1}),
}
GONE_PROJECT = {"p": "gone", "c": "volunteer", "todo": "todo", "board": "downloader_count", "span": "2026-11"}


def leave_of_project(pattern: str, kind: str) -> Callable[[Any, str], Awaitable[Any]]:
    """Writes the key of one row of a project that does not exist."""
    name = pattern.removeprefix("t:")
    for word, value in GONE_PROJECT.items():
        name = name.replace(f"<{word}>", value)
    return lambda redis, prefix: WRITE[kind](redis, prefix + name)


LEFT_OVER |= {
    f"{row.pattern} of a project": leave_of_project(row.pattern, row.type) for row in WORK if "<p>" in row.pattern
}


@pytest.mark.slow
async def test_stale_keys_are_deleted_only_on_request_and_nothing_else_is(make_store: MakeStore) -> None:
    """A dry run, the default, reports the same keys and changes nothing."""
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("1", ALICE)
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.announce(update(1, "s", passkey=ALICE))
    await store.allow_list.add(b"-TR")
    await store.work.projects.create(Project("kept"))
    await store.work.blocks.block("192.0.2.1")
    await store.counters.flush()
    whole, checked = await store.dump(), set()
    for what, leave in LEFT_OVER.items():
        await leave(store.redis, store.keys.prefix)
        with_it = await store.dump()
        assert with_it != whole, what

        (found,) = (await cleanup(store)).values()
        assert found.count >= 1 and found.changed == 0 and found.examples, what
        assert await store.dump() == with_it, what
        checked |= {row.pattern for key in found.examples if (row := row_of(key.partition(" ")[0]))}

        (removed,) = (await cleanup(store, dry_run=False)).values()
        assert (removed.kind, removed.changed) == (found.kind, found.count), what
        assert await store.dump() == whole, what
    assert checked == set(CHECKS)
    assert await check_invariants(store.redis, store.keys) == 1


def sample_names() -> Iterator[str]:
    """A key, without its prefix, for each row of the key table except those of lists."""
    samples = {"ih": GONE_HEX, "pid": PID.hex(), "array": "s4", "passkey": ALICE, "metric": "countries.France.users"}
    samples |= {"set": "hnr", "seen": "192.0.2.1", "month": "2026-11", "period": "all", "scope": "cities"}
    samples["span"] = "2026-W47"
    samples |= {"kind": "torrents", "queue": "sweep", "status": "failed", "precision": "60", "prefix": "-TR"}
    samples |= {
        "counter": "seeders",
        "ranking": "seeders",
        "total": "ratio",
        "value": "size",
        "address": "192.0.2.1",
        "process": "0" * 16,
        "outcome": "joins",
        "url": "0" * 16,
        "endpoint": "7f00000100c8",
    }
    samples |= {"digest": "0" * 64, "token": "0" * 12, "name": "n", "node": "host", "family": "4"}
    samples |= {"p": "proj", "c": "volunteer", "todo": "todo", "board": "downloader_count"}
    for word in ("tid", "uid", "deadline", "minute", "window", "id"):
        samples[word] = "7"
    for row in KEYS:
        if row.type != "LIST":
            name = row.pattern.removeprefix("t:")
            for word, sample in samples.items():
                name = name.replace(f"<{word}>", sample)
            assert "<" not in name
            yield name


async def test_keys_of_a_wrong_type_are_deleted(store: Store) -> None:
    """Otherwise scripts would fail on them for ever."""
    names = set(sample_names())
    for name in names:
        await store.redis.rpush(store.keys.prefix + name, "another program's")
    (found,) = (await cleanup(store)).values()
    assert (found.kind, found.count) == (WRONG_TYPE, len(names))
    assert (await cleanup(store, dry_run=False))[WRONG_TYPE].changed == len(names)
    assert await store.dump() == {}


async def test_unknown_keys_are_reported_and_never_deleted(store: Store) -> None:
    prefix = store.keys.prefix
    await store.redis.set(f"{prefix}i:custom", "a site's")
    await store.redis.zadd(f"{prefix}i:mine", {"77": 1})
    await store.redis.set(f"{prefix}\xff".encode("latin-1"), "x")
    before = await store.dump()
    found = (await cleanup(store, dry_run=False))[UNKNOWN]
    assert (found.count, found.changed) == (3, 0)
    assert set(found.examples) == {"i:custom", "i:mine", "\\xff"}
    assert await store.dump() == before


async def test_keys_of_other_prefixes_are_ignored(store: Store) -> None:
    """Also keys of a prefix that a pattern of this one would match."""
    other = store.keys.prefix[:-1] + "x:torrent_id:77"
    await store.redis.set(other, GONE_HEX)
    try:
        assert await cleanup(store, dry_run=False) == {}
        assert await store.redis.exists(other)
    finally:
        await store.redis.delete(other)


async def test_what_a_deleted_torrent_leaves_is_deleted_with_the_sweep(store: Store) -> None:
    """One deletion causes the next: peers of a swarm without a torrent, then the keys that name those peers."""
    for number in range(5):
        await store.announce(update(number, "s"))
    await store.redis.delete(store.keys.torrent(info_hash(1)), store.keys.info_hash(info_hash(1)))
    await cleanup(store, dry_run=False)
    step = await store.reaping.sweep(["1"], "", 100)
    assert step.done == 1
    assert await cleanup(store) == {}
    left = {name_of(store, key) for key in await store.dump()}
    expiring = ("due:", "ptimeout:", "registered_by:")
    assert {name for name in left if not name.startswith(expiring)} <= {"torrent_id", "stats:leechers", "addresses"}


async def test_a_torrent_that_no_sweep_visits_is_deleted_with_its_id(store: Store) -> None:
    await store.redis.hset(store.keys.torrent(GONE), "tid", "77")
    await store.redis.set(store.keys.torrent_id("77"), GONE_HEX)
    await cleanup(store, dry_run=False)
    assert await store.dump() == {}


async def test_hit_and_runs_are_left_to_the_job_and_to_reindex(private: Store) -> None:
    """Both count what remains: the set and the index must agree."""
    redis, keys = private.redis, private.keys
    await redis.sadd(keys.user_set(7, "hnr"), "77", "78")
    await redis.zadd(keys.hit_and_runs(), {"7": 2, "8": 1})
    before = await private.dump()
    assert await cleanup(private, dry_run=False) == {}
    assert await private.dump() == before
    await reindex(private)
    assert await private.users.hit_and_runs() == [("7", 2)]
    assert await private.hit_and_runs.drop() == 2
    assert not await redis.exists(keys.hit_and_runs(), keys.user_set(7, "hnr"))


async def test_a_peer_outside_the_swarm_is_stale_once_nothing_else_would_remove_it(private: Store) -> None:
    """A site deleted a member. Remembered peers expire, and members and peers with a timeout are the reaper's."""
    redis, keys = private.redis, private.keys
    for number, event in ((1, "s"), (2, "s"), (2, "x"), (3, "s")):
        await private.announce(update(number, event, passkey=ALICE))
    await redis.srem(keys.swarm_peers(info_hash(1)), peer_id(1).hex())
    assert await cleanup(private, dry_run=False) == {}
    await redis.delete(timeout_key(keys, "1", peer_id(1)), timeout_key(keys, "1", peer_id(3)))
    found = await cleanup(private, dry_run=False)
    assert {finding.examples for finding in found.values()} == {
        (f"p:1:{peer_id(1).hex()}",),
        (f"p:{peer_id(1).hex()}:torrents 1",),
    }
    assert await redis.exists(keys.peer("1", peer_id(2)), keys.peer("1", peer_id(3))) == 2
    await private.reaping.sweep(["1"], "", 100)
    assert await check_invariants(redis, keys) == 0


async def test_cleanup_keeps_what_a_site_is_about_to_register(store: Store) -> None:
    """Some field of it is written first, then its registration; or it is denied and never registered."""
    redis, keys = store.redis, store.keys
    await redis.hset(keys.torrent(info_hash(1)), "name", "soon")
    for number, field in enumerate(("private", "reason", "multi_up", "multi_dn", "size", "labels")):
        await redis.hset(keys.torrent(info_hash(10 + number)), field, "0")
    await redis.hset(keys.torrent(info_hash(2)), "enabled", "0")
    await redis.set(keys.info_hash(info_hash(3)), "3")
    # Unregistered: one still has a peer, the sweep visits the other.
    await redis.hset(keys.torrent(info_hash(5)), "tid", "5")
    await redis.sadd(keys.swarm_peers(info_hash(5)), PID.hex())
    await redis.hset(keys.torrent(info_hash(6)), "tid", "6")
    await redis.set(keys.torrent_id("6"), info_hash(6).hex())
    await redis.zadd(keys.index("seeders"), {"6": 0})
    # Registered: one is in no ranking, of the other the site deleted the hash.
    await redis.set(keys.info_hash(info_hash(7)), "7")
    await redis.hset(keys.torrent(info_hash(7)), "tid", "7")
    await redis.set(keys.info_hash(info_hash(8)), "8")
    await redis.set(keys.torrent_id("8"), info_hash(8).hex())
    await redis.hset(keys.user(9), mapping={"uploaded": "5"})
    await redis.hset(keys.passkey(BOB), mapping={"user_id": "9"})
    await redis.set(keys.deny(info_hash(4)), "no")
    before = await store.dump()
    assert await cleanup(store, dry_run=False) == {}
    assert await store.dump() == before


async def test_large_sets_are_checked_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.redis.zadd(f"{store.keys.prefix}i:name", {f"{n}\t{GONE_HEX}": 0 for n in range(1000, 4000)})
    await store.redis.sadd(store.keys.user_set(1, "active"), "1", *range(1000, 3000))
    found = await cleanup(store, dry_run=False)
    assert {finding.changed for finding in found.values()} == {3000, 2000}
    assert await store.redis.zcard(f"{store.keys.prefix}i:name") == 1
    assert await store.redis.smembers(store.keys.user_set(1, "active")) == {b"1"}


async def test_an_empty_entry_is_deleted_and_the_key_stays(store: Store) -> None:
    await store.torrents.add(info_hash(1), {"name": "one"})
    await store.redis.zadd(f"{store.keys.prefix}i:name", {"": 0})
    await cleanup(store, dry_run=False)
    assert await store.redis.zcard(f"{store.keys.prefix}i:name") == 1
    assert (await store.torrents.search("one"))[1]


async def test_an_entry_may_hold_any_byte(store: Store) -> None:
    """For example a prefix of peer IDs."""
    allowed, gone = b"-\x00%*", b"-\x00%1"
    await store.allow_list.add(allowed)
    await store.redis.sadd(store.keys.allowed_clients(), gone)
    await cleanup(store, dry_run=False)
    assert await store.redis.smembers(store.keys.allowed_clients()) == {allowed}


async def test_places_and_countries_stay_on_their_leaderboards(store: Store) -> None:
    """Only the leaderboards of torrents hold info hashes."""
    board = f"{store.keys.prefix}i:unique:countries:all"
    await store.redis.zadd(board, {"France": 3, "Chad": 2})
    assert await cleanup(store, dry_run=False) == {}
    assert await store.redis.zcard(board) == 2


@pytest.mark.parametrize("seed", range(3))
async def test_cleanup_may_run_beside_a_running_tracker(store: Store, seed: int) -> None:
    """Peers that join and leave meanwhile are counted as usual."""
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


async def test_cleanup_reports_its_progress(store: Store) -> None:
    for number in range(30):
        await store.torrents.add(info_hash(number))
    reports: list[int] = []
    await in_pages(store, 10).cleanup(True, reports.append)
    assert reports == sorted(reports) and len(reports) > 1
    assert reports[-1] >= len(await store.dump())  # SCAN may show a key twice
