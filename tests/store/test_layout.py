"""The layout of a store, and the number of its shards, which is fixed when it is made."""

from collections.abc import AsyncGenerator

import pytest

from loadtest.invariants import check_invariants, read_arrays
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, running, text, update
from tests.waiting import in_background
from tracker import __version__
from tracker.errors import StartupError
from tracker.store.client.connection import Connection, connect
from tracker.store.layout import LAYOUT, Step, check_number, made_without_main, upgrade, write_layout
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shards
from tracker.store.swarms.rules import SwarmRules

NUMBERS_OF_SHARDS = (1, 4)


async def check(url: str, prefix: str, shards: int) -> None:
    connection = Connection(connect(url, connect_timeout=5, timeout=5))
    try:
        await check_number(connection, prefix, shards)
    finally:
        await connection.close()


async def test_a_start_with_another_number_is_refused(redis_url: str, prefix: str) -> None:
    await check(redis_url, prefix, 4)
    await check(redis_url, prefix, 4)
    for other in (1, 8):
        with pytest.raises(StartupError, match=r"made with 4 shards.*TRACKER_REDIS__SHARDS=4"):
            await check(redis_url, prefix, other)


async def test_a_store_of_one_shard_is_not_split(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        await store.reaping.heartbeat()
        await store.check_layout()
        with pytest.raises(StartupError, match=r"made with 1 shard: .*TRACKER_REDIS__SHARDS=1"):
            await check(redis_url, prefix, 4)
        assert await store.redis.keys(f"{prefix}*shards*") == []


async def test_the_shards_know_the_secret(store: Store) -> None:
    """Announces hash the key of a client with it."""
    secret = await store.load_secret()
    for shard in store.shards.all:
        await store.start_shard(shard)
        assert await store.redis.get(shard.keys.secret()) == secret


async def test_each_shard_has_a_copy_and_a_lost_one_is_written_again(store: Store) -> None:
    """Also that of the main prefix, if it has lost everything."""
    await start(store)
    secret = store.secret
    for lost in store.shards.all:
        await store.redis.delete(lost.keys.layout(), lost.keys.secret(), lost.keys.shards())
        if len(store.shards.all) > 1 or lost is not store.shards.main:
            await start(store)
            assert store.secret == secret
        for shard in store.shards.others:
            row = text(await store.redis.hgetall(shard.keys.layout()))
            assert (row["number"], row["shards"]) == (str(LAYOUT), str(len(store.shards)))
            assert await store.redis.get(shard.keys.secret()) == secret


async def test_a_command_gives_an_empty_main_prefix_the_secret_of_the_shards(redis_url: str, prefix: str) -> None:
    """So the tracker that starts next is not refused."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=4)) as store:
        await start(store)
        main, secret = store.shards.main.keys, store.secret
        await store.redis.delete(main.layout(), main.secret(), main.shards(), main.heartbeat())
        await store.check_layout()
        assert await store.redis.get(main.secret()) == secret
        await start(store)
        assert store.secret == secret


async def test_an_empty_main_prefix_gets_the_older_layout_of_the_shards_which_is_upgraded(
    redis_url: str, prefix: str
) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=4)) as store:
        await start(store)
        main, secret = store.shards.main.keys, store.secret
        await write_layout(store.shards, LAYOUT - 1)
        await store.redis.delete(main.layout(), main.secret(), main.shards(), main.heartbeat())
        store.clock.now += 100
        assert (await store.upgrade()).endswith(f"to {LAYOUT}")
        await start(store)
        assert store.secret == secret


@pytest.mark.parametrize("field", ["secret", "number", "shards", "upgrading"])
async def test_a_shard_of_another_store_is_refused(redis_url: str, prefix: str, field: str) -> None:
    """At a start, and while the tracker runs; without the main prefix too."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=4)) as store:
        await start(store)
        store.keep_checking_layout()
        await made_without_main(store.shards, prefix)
        shard = store.shards[2]
        if field == "secret":
            await store.redis.set(shard.keys.secret(), b"another")
        else:
            await store.redis.hset(shard.keys.layout(), field, "x" if field == "upgrading" else 8)
        with pytest.raises(StartupError, match=r"shard 2 has .* part of another store"):
            await start(store)
        with pytest.raises(StartupError, match="shard 2 has an"):
            await made_without_main(store.shards, prefix)
        store.connection.set_unavailable(ConnectionError())
        assert not await store.connection.reconnect()
        assert store.connection.cause.startswith("shard 2 has ") and ":" not in store.connection.cause
        assert store.connection.unavailable


async def test_a_copy_that_another_version_of_the_layout_has_written_is_the_same(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=4)) as store:
        await start(store)
        await store.redis.hset(store.shards[2].keys.layout(), "version", "1.99.0")
        assert (await made_without_main(store.shards, prefix)).secret == store.secret


async def start(store: Store) -> None:
    await store.upgrade()
    await store.load_secret()
    await store.shards.gather(store.start_shard, store.shards.all)


async def test_copies_of_another_number_of_shards_or_of_a_newer_version_are_refused(store: Store, prefix: str) -> None:
    if not store.shards.others:
        return
    await start(store)
    for field, value, reason in (("shards", 8, "made with 8 shards"), ("number", LAYOUT + 1, "or newer")):
        for shard in store.shards:
            await store.redis.hset(shard.keys.layout(), field, value)
        with pytest.raises(StartupError, match=reason):
            await made_without_main(store.shards, prefix)
        for shard in store.shards:
            await store.redis.hset(shard.keys.layout(), mapping={"shards": len(store.shards), "number": LAYOUT})


async def layout(store: Store) -> dict[str, str]:
    return text(await store.redis.hgetall(store.shards.main.keys.layout()))


async def test_a_new_store_has_the_layout_of_this_version(store: Store) -> None:
    assert await store.upgrade() == ""
    written = await layout(store)
    assert (written["number"], written["version"]) == (str(LAYOUT), __version__) and int(written["at"])
    await store.load_secret()
    await store.check_layout()
    assert await store.upgrade() == ""
    assert await layout(store) == written


async def test_a_newer_layout_is_refused_with_the_version_to_use(store: Store) -> None:
    await store.redis.hset(store.shards.main.keys.layout(), mapping={"number": LAYOUT + 1, "version": "7.1.0"})
    for refused in (store.check_layout, store.upgrade):
        with pytest.raises(StartupError, match=rf"has layout {LAYOUT + 1} of version 7\.1\.0.*use version 7\.1\.0"):
            await refused()


async def test_a_layout_that_is_becoming_a_newer_one_is_refused(store: Store) -> None:
    fields = {"number": LAYOUT, "version": "7.1.0", "upgrading": LAYOUT + 1}
    await store.redis.hset(store.shards.main.keys.layout(), mapping=fields)
    with pytest.raises(StartupError, match=r"use version 7\.1\.0 or newer"):
        await store.upgrade()


@pytest.mark.parametrize("number", ["0", "x", "-1"])
async def test_an_unknown_layout_is_refused(store: Store, number: str) -> None:
    await store.redis.hset(store.shards.main.keys.layout(), "number", number)
    with pytest.raises(StartupError, match="unknown layout"):
        await store.upgrade()


async def test_a_store_of_a_tracker_without_layouts_is_refused(store: Store) -> None:
    await store.load_secret()
    with pytest.raises(StartupError, match="made before version 1"):
        await store.upgrade()
    assert await layout(store) == {}


class Steps:
    """Two steps. ``fails_at``: where the first one is interrupted."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails_at = ""
        self.all = (Step(LAYOUT + 1, self._first), Step(LAYOUT + 2, self._second))

    async def _first(self, shards: Shards, position: str) -> AsyncGenerator[str]:
        for each in ("a", "b", "c"):
            if each == self.fails_at:
                raise StartupError("interrupted")
            if each > position:
                self.done.append(each)
                yield each

    async def _second(self, shards: Shards, position: str) -> AsyncGenerator[str]:
        self.done.append(f"second{position}")
        yield "end"


async def test_an_upgrade_goes_on_where_it_was_interrupted(store: Store) -> None:
    await store.upgrade()
    steps, known = Steps(), LAYOUT + 2
    steps.fails_at = "c"
    with pytest.raises(StartupError, match="interrupted"):
        await upgrade(store.shards, store.clock, steps.all, known)
    assert (await layout(store))["upgrading"] == str(LAYOUT + 1)
    with pytest.raises(StartupError, match="or newer"):  # this version, which does not know the new layouts
        await store.check_layout()
    steps.fails_at = ""
    done = await upgrade(store.shards, store.clock, steps.all, known)
    assert done == f"upgraded from layout {LAYOUT} (version {__version__}) to {known}"
    assert steps.done == ["a", "b", "c", "second"]
    written = await layout(store)
    assert (written["number"], written["upgrading"], written["position"]) == (str(known), "0", "")
    assert await upgrade(store.shards, store.clock, steps.all, known) == ""


async def test_each_earlier_layout_is_upgraded_to_that_of_this_version(store: Store) -> None:
    await store.upgrade()
    for number in range(1, LAYOUT):
        await write_layout(store.shards, number)
        assert (await store.upgrade()).endswith(f"to {LAYOUT}")
        for shard in store.shards:
            assert int(await store.redis.hget(shard.keys.layout(), "number") or 0) == LAYOUT


async def test_no_store_is_upgraded_while_a_tracker_runs(store: Store) -> None:
    await store.upgrade()
    beat = store.shards.main.keys.heartbeat()

    async def run_tracker() -> None:
        while True:
            await store.redis.incr(beat)

    await store.redis.set(beat, int(store.clock.now) - 3)
    steps = Steps()
    async with in_background(run_tracker()):
        with pytest.raises(StartupError, match="stop all trackers first"):
            await upgrade(store.shards, store.clock, steps.all, LAYOUT + 2)
    assert steps.done == []


async def test_a_tracker_does_not_return_to_a_store_that_a_newer_one_upgraded(store: Store) -> None:
    await store.upgrade()
    store.keep_checking_layout()
    assert await store.connection.reconnect()
    await store.redis.hset(store.shards.main.keys.layout(), "number", LAYOUT + 1)
    store.connection.set_unavailable(ConnectionError())
    assert not await store.connection.reconnect()
    await store.redis.delete(store.shards.main.keys.layout())  # it is empty: a server without persistence restarted
    assert await store.connection.reconnect()
    assert (await layout(store))["number"] == str(LAYOUT)


async def as_layout_1(store: Store) -> None:
    """Each torrent has a field for each length, and no peer of a user is known as an overlapping one."""
    for shard in store.shards.all:
        async for key in store.redis.scan_iter(f"{shard.keys.prefix}t:*", _type="hash"):
            row = text(await store.redis.hgetall(key))
            lengths = {name: number for name, number in read_arrays(row).items() if name not in ("sw", "lw")}
            await store.redis.hdel(key, "arrays")
            await store.redis.hset(key, mapping=lengths)
        async for key in store.redis.scan_iter(f"{shard.keys.prefix}u:*:t:*", _type="hash"):
            await store.redis.hdel(key, "peer_ids")
        async for key in store.redis.scan_iter(f"{shard.keys.prefix}p:*:*", _type="hash"):
            await store.redis.hdel(key, "marks")


async def test_swarms_of_layout_1_are_upgraded(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    for torrent in range(1, 9):
        for peer in range(1, torrent + 1):
            await store.announce(update(peer, "s", torrent=torrent, passkey=ALICE if peer % 3 else BOB))
    await store.announce(update(40, "s", torrent=3, passkey=BOB, endpoint=endpoint(40, v6=True)))
    before = {torrent: await store.torrent(info_hash(torrent)) for torrent in range(1, 9)}
    await as_layout_1(store)
    await store.upgrade()
    await write_layout(store.shards, 1)
    await store.upgrade()
    for torrent, row in before.items():
        assert await store.torrent(info_hash(torrent)) == row
    assert sum([await check_invariants(store.redis, shard.keys) for shard in store.shards.all]) == 37
    await store.announce(update(50, "s", torrent=1, passkey=ALICE))
    assert sum([await check_invariants(store.redis, shard.keys) for shard in store.shards.all]) == 38
