"""renewing.lua does for regular announces exactly what changing.lua does for all of them, at a fraction of the price."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, running, update
from tests.store.invariants import check_invariants
from tracker.store.keys import Keys
from tracker.store.scripts import Script, source
from tracker.store.swarms import Admitted, Moved, PeerUpdate, SwarmRules

UPDATE = "local UPDATE = 117"


@pytest.fixture
async def long_way(any_server: Server, prefix: str) -> AsyncIterator[Store]:
    """A store for which no announce is a regular one."""
    keys = Keys(f"{prefix}long:")
    async with running(Store(any_server.url, keys, SwarmRules())) as store:
        text = source("announce")
        assert UPDATE in text
        store.scripts.announce = Script(
            store.connection.direct, keys.prefix, text.replace(UPDATE, "local UPDATE = 0")
        )
        yield store


async def contents(store: Store) -> dict[str, Any]:
    """All that is stored, as one reads it, without what passes by itself."""
    readers: dict[bytes, Any] = {
        b"hash": store.redis.hgetall,
        b"set": store.redis.smembers,
        b"string": store.redis.get,
        b"list": lambda key: store.redis.lrange(key, 0, -1),
        b"zset": lambda key: store.redis.zrange(key, 0, -1, withscores=True),
    }
    found = {}
    async for key in store.redis.scan_iter(f"{store.keys.prefix}*", 1000):
        found[key.decode().removeprefix(store.keys.prefix)] = await readers[await store.redis.type(key)](key)
    return found


def some_updates(seed: int) -> list[tuple[int, PeerUpdate]]:
    """(seconds that pass before, an announce): mostly regular, of a few peers of every kind."""
    source = random.Random(seed)
    moved: dict[int, int] = dict.fromkeys(range(1, 9), 0)
    announces = []
    for _ in range(150):
        peer = source.randint(1, 8)
        moved[peer] += source.choice([0, 0, 0, 1000, 123_456, 2**40, -1000])
        announces.append(
            (
                source.choice([0, 0, 1, 60, 1800, 7300, -5]),
                update(
                    peer,
                    source.choice("uuuuuuuuuscpx"),
                    torrent=source.randint(1, 2),
                    endpoint=endpoint(
                        peer, v6=source.random() < 0.3, port=source.choice([6881] * 9 + [7000])
                    ),
                    key_digest=b"8 bytes!",
                    uploaded=max(0, moved[peer]),
                    downloaded=max(0, moved[peer] // 2),
                    bytes_left=source.choice([0 if peer % 2 else 1000] * 9 + [None, 0]),
                    peers_wanted=source.choice([0, 1, 2, 50]),
                    random=source.getrandbits(31),
                    with_ids=source.random() < 0.2,
                ),
            )
        )
    return announces


@pytest.mark.parametrize("seed", range(4))
async def test_both_ways_end_alike(store: Store, long_way: Store, seed: int) -> None:
    told: dict[str, list[Any]] = {"short": [], "long": []}
    for name, one in (("short", store), ("long", long_way)):
        one.swarms._on_batch = lambda announces, moved, name=name: told[name].append(moved)  # type: ignore[misc]
    for seconds, announce in some_updates(seed):
        for one in (store, long_way):
            one.clock.now += seconds
        assert await store.swarms.announce(announce) == await long_way.swarms.announce(announce)
    assert told["short"] == told["long"] and any(moved != Moved(0, 0, 0, 0) for moved in told["short"])
    assert {k: v for k, v in (await contents(store)).items() if not k.startswith("long:")} == await contents(
        long_way
    )
    assert await check_invariants(long_way.redis, long_way.keys) > 0


async def test_regular_announces_take_the_short_way(store: Store) -> None:
    """Otherwise the test above would say nothing: with the long way broken, they still get their answers."""
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", bytes_left=0))
    text = source("announce")
    broken = text.replace("local function others()\n", "local function others()\n  error('long way')\n")
    assert broken != text
    store.scripts.announce = Script(store.connection.direct, store.keys.prefix, broken)
    for changes in ({}, {"uploaded": 5}, {"peers_wanted": 0}, {"with_ids": True}):
        store.clock.now += 60
        reply = await store.swarms.announce(update(1, **changes))
        assert isinstance(reply, Admitted) and (reply.seeders, reply.leechers) == (1, 1)


async def test_in_private_mode_nothing_is_regular(make_store: MakeStore) -> None:
    """A passkey has to be looked at each time."""
    store = await make_store(private=True)
    await store.users.add("7", "a" * 20)
    await store.announce(update(1, "s", passkey="a" * 20))
    assert await store.refused(update(1, passkey="b" * 20)) == "unknown passkey"
    await store.users.delete("7")
    assert await store.refused(update(1, passkey="a" * 20)) == "unknown passkey"


@pytest.mark.parametrize("text", ["", "many", "1.5", "nan", "inf", "-1", "1 2", "1e400", "9" * 400])
@pytest.mark.parametrize("field", ["seeders", "leechers", "snatches"])
async def test_figures_that_are_none_stop_nobody(store: Store, field: str, text: str) -> None:
    """What somebody wrote where a count belongs is no count, and costs the other announces of the batch nothing."""
    await store.announce(update(1, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), field, text)
    answers = await asyncio.gather(
        store.swarms.announce(update(1)),
        store.swarms.announce(update(2, "s", torrent=2)),
        store.swarms.announce(update(1, "p")),
    )
    assert (
        isinstance(answers[0], Admitted)
        and getattr(answers[0], field.replace("snatches", "completions")) == 0
    )
    assert isinstance(answers[1], Admitted) and answers[1].leechers == 1
    assert isinstance(answers[2], Admitted)


@pytest.mark.parametrize("event", ["s", "u", "p"])
async def test_an_array_that_is_none_is_told_to_nobody(store: Store, event: str) -> None:
    """An announce that was applied is answered as such, though there is nobody to tell of."""
    await store.announce(update(1, "s", bytes_left=0))
    if event != "s":
        await store.announce(update(2, "s"))
    array = f"{store.keys.prefix}swarm:{info_hash(1).hex()}:s4"
    await store.redis.delete(array)
    await store.redis.rpush(array, "somebody else's")
    reply = await store.announce(update(2, event, uploaded=5))
    assert (reply.seeders, reply.leechers, reply.peers) == (1, 1, b"")
    assert (await store.peer(update(2)))["uploaded"] == "5"
