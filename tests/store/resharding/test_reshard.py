"""A store goes on with another number of shards: its swarms, users and feed, also after an interruption."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from loadtest.cluster import cluster
from loadtest.invariants import check_invariants, read_arrays
from loadtest.servers import Server
from tests.store.client.test_cluster import store_at
from tests.store.harness import ALICE, BOB, Store, update
from tests.store.resharding.conftest import LATER, Open, reshard, resharding
from tests.store.sharding.harness import SHARDS, hash_in
from tests.store.swarms.test_sockets import socket
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StartupError, StoreUnavailable
from tracker.store.changes.changes import FIRST
from tracker.store.layout import check_number
from tracker.store.resharding.copying import Copying
from tracker.store.resharding.parts import Found, Parts
from tracker.store.resharding.reshard import count
from tracker.store.schema.table import row_of
from tracker.store.swarms.codec import OVER_SOCKET, Admitted

HASHES = [hash_in(number % SHARDS, number) for number in range(12)]
RULES: dict[str, Any] = {
    "accounts": "required",
    "open": False,
    "peer_memory": 3600,
    "hnr_min_bytes": 100,
    "hnr_threshold": 1000,
    "max_credit": 10_000,
}
PASSKEYS = {"7": ALICE, "8": BOB}


async def fill(store: Store) -> None:
    """Two users with downloads, hit-and-runs, a completion, and torrents of several names. Some peers have a WebSocket,
    some of them nothing else."""
    await store.load_secret()
    for user_id, passkey in PASSKEYS.items():
        await store.users.add(user_id, passkey, name=f"user {user_id}")
    for number, info_hash in enumerate(HASHES):
        await store.torrents.add(info_hash, {"name": f"torrent {number}"})
    await store.torrents.deny(hash_in(2, 77), "no")
    for number in range(24):
        passkey = PASSKEYS["7" if number % 2 else "8"]
        if number % 8 < 7:
            await store.announce(join(number, passkey))
        if number % 4 == 3:
            await store.announce(join(number, passkey, endpoint=socket(number), form=OVER_SOCKET))
        await store.pass_time(5)
        event = ("u", "x", "c")[number % 3]
        left = 0 if event == "c" else 500
        over: dict[str, Any] = {"endpoint": socket(number), "form": OVER_SOCKET} if number % 8 == 7 else {}
        await store.announce(join(number, passkey, event, downloaded=500, uploaded=300, bytes_left=left, **over))
    await store.multipliers.set("2", "1")


def join(peer: int, passkey: str, event: str = "s", **changes: Any) -> Any:
    return update(peer, event, info_hash=HASHES[peer % len(HASHES)], passkey=passkey, **changes)


async def check(store: Store) -> int:
    """Asserts the invariants of each shard; returns the number of active peers."""
    parts = Parts(store)
    return sum([await check_invariants(store.redis, part.keys) for part in parts.shards])


async def figures(store: Store) -> dict[str, Any]:
    """What the store says, by any number of shards."""
    found: dict[str, Any] = {"torrents": await store.torrents.count(), "peers": await check(store)}
    counts = await store.swarms.scrape_all(ALICE)
    assert isinstance(counts, dict)
    found["swarms"] = {info_hash: counts[info_hash] for info_hash in HASHES}
    for user_id, passkey in PASSKEYS.items():
        user = await store.users.get(passkey)
        assert user is not None
        found[user_id] = user
        ids = await store.torrents_of(user_id, "active")
        found[f"{user_id} sets"] = await store.users.set_sizes(user_id)
        found[f"{user_id} accounts"] = await store.users.accounts([(user_id, each) for each in ids])
    rows = [await store.torrent(info_hash) for info_hash in HASHES]
    found["sockets"] = sum(read_arrays(row)[name] for row in rows for name in ("sw", "lw"))
    found["owing"] = await store.users.hit_and_runs()
    found["names"] = {each.info_hash for each in (await store.torrents.search("torrent 1"))[1]}
    found["denied"] = await store.torrents.denials()
    totals = await store.counters.totals()
    found["totals"] = {name: totals[name] for name in ("seeders", "leechers", "credit_cut")}
    found["top"] = {each.info_hash for each in await store.torrents.top("snatches", 4)}
    return found


@pytest.fixture
async def one(open_store: Open) -> AsyncIterator[Store]:
    store = await open_store("one", **RULES)
    await fill(store)
    return store  # type: ignore[no-any-return]


async def test_a_store_is_the_same_with_any_number_of_shards(open_store: Open, one: Store) -> None:
    """T19, T20: all that it says, over 4, then 8, then one again."""
    expected = await figures(one)
    source = one
    for shards in (4, 8, 1):
        target = await open_store(f"{shards}", shards, **RULES)
        before, after = await reshard(source, target)
        assert before.figures == after.figures
        assert expected["sockets"] and after.figures["peers"] and after.figures["accounts"] and after.figures["changes"]
        assert await figures(target) == expected
        source = target


async def test_announces_go_on(open_store: Open, one: Store) -> None:
    """T16, T17: each peer is known, totals grow from where they were, and new torrents get new ids."""
    target = await open_store("several", 4, **RULES)
    await reshard(one, target)
    before = await target.users.get(ALICE)
    await target.pass_time(60)
    reply = await target.announce(join(3, ALICE, "u", downloaded=600, uploaded=800, bytes_left=400))
    assert reply.outcome == "update"
    await target.announce_counts.flush()
    after = await target.users.get(ALICE)
    assert before is not None and after is not None
    assert (after.uploaded, after.downloaded) == (before.uploaded + 1000, before.downloaded + 100)
    assert after.announces == before.announces + 1
    known = {torrent.torrent_id for torrent in await target.torrents.get_all(HASHES)}
    new = [await target.torrents.add(hash_in(number % SHARDS, 100 + number)) for number in range(8)]
    ids = {torrent_id for torrent_id, _ in new}
    assert len(ids) == 8 and not ids & known
    assert await check(target) == await check(one)


async def test_a_user_who_is_deleted_afterwards_leaves_nothing_in_the_shards(open_store: Open) -> None:
    """Also one of whom a shard has nothing but a torrent that was left."""
    one = await open_store("one", **RULES)
    await one.load_secret()
    await one.users.add("7", ALICE)
    await one.torrents.add(HASHES[0])
    for event in ("s", "x"):
        await one.announce(join(0, ALICE, event, bytes_left=500))
    target = await open_store("several", 4, **RULES)
    await reshard(one, target)
    assert await target.users.set_sizes("7") == await one.users.set_sizes("7")
    await target.users.delete("7")
    assert await target.redis.keys(f"{target.keys.prefix.removesuffix('{main}:')}*u:7*") == []


async def test_it_may_be_interrupted_after_any_page(open_store: Open, one: Store) -> None:
    target = await open_store("several", 4, **RULES)
    one.clock.now += LATER
    expected, interrupted = await count(Parts(one)), 0
    while True:
        run, pages = resharding(one, target, page=40), 0
        await run.check()
        async with aclosing(run.copy()) as copied:
            async for _ in copied:
                pages += 1
                if pages == 2:
                    break
        if pages < 2:
            break
        interrupted += 1
        with pytest.raises(StartupError, match="run it again"):
            await target.check_layout()
    assert interrupted >= 3
    for _ in range(2):  # the rest is repeated
        await run.join()
    await run.finish(expected)
    await target.check_layout()
    assert await figures(target) == await figures(one)


async def test_it_begins_anew_when_the_old_store_was_used_meanwhile(open_store: Open, one: Store) -> None:
    target = await open_store("several", 4, **RULES)
    one.clock.now += LATER
    run = resharding(one, target)
    async for _ in run.copy():
        pass
    await one.torrents.remove(HASHES[0])
    await one.pass_time(1)
    before = await count(Parts(one))
    await run.join()
    with pytest.raises(ClientError, match=r"differs|has run on the old store"):
        await run.finish(before)
    await reshard(one, target)
    assert HASHES[0] not in await target.torrents.registered(HASHES)
    assert (await figures(target))["peers"] == await check(one)


async def test_a_store_in_use_is_not_touched(open_store: Open, one: Store) -> None:
    """Neither while a tracker runs on one of the two, nor where the new store has keys of its own."""
    target = await open_store("several", 4, **RULES)
    with pytest.raises(ClientError, match="a tracker runs on the old store"):
        await resharding(one, target).check()
    one.clock.now += LATER
    await target.redis.set(target.shards[2].keys.heartbeat(), int(one.clock.now))
    with pytest.raises(ClientError, match="a tracker runs on the new store"):
        await resharding(one, target).check()
    one.clock.now += LATER
    with pytest.raises(ClientError, match="in use already"):
        await resharding(one, target).check()
    fresh = await open_store("fresh", 4, **RULES)
    await fresh.check_layout()
    await resharding(one, fresh).check()
    other = await open_store("fresh", 8, **RULES)
    with pytest.raises(ClientError, match="in use already"):
        await resharding(one, other).check()


async def test_a_store_is_split_beside_itself(redis_url: str, open_store: Open, one: Store) -> None:
    """On one server, under one prefix: no tracker with one shard starts there afterwards."""
    target = await open_store("one", 4, **RULES)
    expected = await figures(one)
    await reshard(one, target)
    found = await figures(target)
    assert {name: found[name] for name in found if name != "peers"} == {
        name: expected[name] for name in expected if name != "peers"
    }
    with pytest.raises(StartupError, match="made with 4 shards"):
        await check_number(one.connection, one.keys.prefix, 1)


async def test_a_difference_is_named_and_the_next_run_begins_anew(open_store: Open, one: Store) -> None:
    target = await open_store("several", 4, **RULES)
    one.clock.now += LATER
    run = resharding(one, target)
    before = await count(Parts(one))
    async for _ in run.copy():
        pass
    await run.join()
    await target.redis.delete(target.shard(HASHES[5]).keys.info_hash(HASHES[5]))
    with pytest.raises(ClientError, match=r"t:info_hash:<ih>: 12 before, 11 after"):
        await run.finish(before)
    with pytest.raises(StartupError):
        await target.check_layout()
    await reshard(one, target)  # begins anew
    await target.check_layout()


async def test_a_key_of_a_wrong_type_is_an_error_with_its_remedy(open_store: Open, one: Store) -> None:
    target = await open_store("several", 4, **RULES)
    await one.redis.set(one.keys.index("empty"), "x")
    with pytest.raises(ClientError, match="tracker cleanup --delete"):
        await reshard(one, target)


async def test_followers_of_the_feed_miss_nothing(open_store: Open, one: Store) -> None:
    """A webhook goes on after the change that it had. Where there is one stream afterwards, every position holds."""
    changes = (await one.changes.after(FIRST, 1000)).changes
    for number, url in ((0, "0" * 16), (10, "1" * 16)):
        await one.redis.hset(one.keys.webhook(url), mapping={"position": changes[number].id})
    several, back = await open_store("several", 4, **RULES), await open_store("back", **RULES)
    await reshard(one, several)
    for number, url in ((0, "0" * 16), (10, "1" * 16)):
        position = (await several.redis.hget(several.keys.webhook(url), "position")).decode()
        page = await several.changes.after(position, 1000)
        assert [told(each) for each in page.changes] == [told(each) for each in changes[number + 1 :]]
        assert not page.gap
    whole = await several.changes.after(FIRST, 1000)
    assert [told(each) for each in whole.changes] == [told(each) for each in changes] and not whole.gap
    await reshard(several, back)
    for number in (0, 5, len(changes) - 1):
        page = await back.changes.after(whole.changes[number].id, 1000)
        assert page.changes == whole.changes[number + 1 :] and not page.gap


def told(change: Any) -> Any:
    return (change.at, change.change, change.info_hash, change.peer_id, change.uploaded)


async def test_a_feed_that_lost_its_oldest_changes_still_says_so(open_store: Open, one: Store) -> None:
    await one.redis.xtrim(one.keys.changes(), maxlen=5, approximate=False)
    target = await open_store("several", 4, **RULES)
    await reshard(one, target)
    page = await target.changes.after(FIRST, 1000)
    assert page.gap and len(page.changes) == 5


async def test_an_older_server_gets_the_values(debian_redis: Server, open_store: Open, one: Store) -> None:
    """Redis 7.0 refuses what Valkey 9 dumps. A consumer group gets again what was not acknowledged."""
    log = f"{one.keys.prefix}w:p:log"
    first, second = [await one.redis.xadd(log, {"item": "a"}) for _ in range(2)]
    await one.redis.xgroup_create(log, "drain", id="0")
    await one.redis.xreadgroup("drain", "me", {log: ">"}, count=2)
    await one.redis.xack(log, "drain", first)
    target = await open_store("several", 4, url=debian_redis.url, **RULES)
    await reshard(one, target)
    assert await figures(target) == await figures(one)
    copied = f"{target.keys.prefix}w:p:log"
    ((_, rows),) = await target.redis.xreadgroup("drain", "me", {copied: ">"})
    assert [id for id, _ in rows] == [second]


async def test_a_torrent_that_the_other_store_refuses_stays_refused(open_store: Open, one: Store) -> None:
    """T2: unregistered, denied, and a passkey that nobody has."""
    target = await open_store("several", 4, **RULES)
    await reshard(one, target)
    assert await target.refused(update(1, "s", info_hash=hash_in(2, 77), passkey=ALICE)) == "denied"
    assert await target.refused(update(1, "s", info_hash=hash_in(3, 99), passkey=ALICE)) == "unknown torrent at first"
    assert await target.refused(update(1, "s", info_hash=HASHES[0], passkey="z" * 20)) == "unknown passkey"
    assert isinstance(await target.swarms.announce(join(50, BOB)), Admitted)


@pytest.mark.slow
async def test_totals_are_not_copied_while_a_shard_is_unavailable(open_store: Open) -> None:
    """Those under the main prefix are some seconds old."""
    with cluster() as nodes:
        async with store_at(nodes.url, "t:", shards=SHARDS) as source:
            await source.users.add("7", ALICE)
            parts, target = Parts(source), Parts(await open_store("one"))
            row = row_of("u:7")
            assert row is not None
            user = Found(parts.main, row, b"u:7")
            await Copying(parts, target).copy([user])
            main = nodes.primary("t:{main}:")
            serving = (nodes.primary(shard.keys.prefix) for shard in source.shards)
            next(node for node in serving if node is not main).stop()
            with pytest.raises(StoreUnavailable):
                await Copying(parts, target).copy([user])


def test_info_hashes_are_in_all_shards() -> None:
    """Else these tests would show little."""
    assert {InfoHash(each)[0] % SHARDS for each in HASHES} == set(range(SHARDS))
