"""update_regular() handles regular announces exactly as announce_other() does, at a fraction of the cost."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import Store, endpoint, info_hash, running, update
from tracker.store.client.scripts import Script, source
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import OWN_FAMILY, WITH_IDS, Admitted, PeerUpdate, TrafficTotals
from tracker.store.swarms.rules import SwarmRules

UPDATE = "local UPDATE = 117"


@pytest.fixture
async def long_way(any_server: Server, prefix: str) -> AsyncIterator[Store]:
    """A store that treats no announce as regular."""
    keys = Keys(f"{prefix}long:")
    async with running(Store(any_server.url, keys, SwarmRules())) as store:
        text = source("announce")
        assert UPDATE in text
        await replace_announce(store, text.replace(UPDATE, "local UPDATE = 0"))
        yield store


async def replace_announce(store: Store, text: str) -> None:
    """In place, as calls over an open pipe keep the object. The server has to know the text: a script that it does not
    have is loaded anew, and that is the product's."""
    script, other = store.scripts.announce, Script(store.connection.direct, store.keys.prefix, text)
    await store.redis.script_load(text)
    script.head = other.head


async def contents(store: Store) -> dict[str, Any]:
    """All stored values in readable form, except times that run down by themselves."""
    pipe = store.redis.pipeline(transaction=False)
    readers: dict[bytes, Callable[[bytes], object]] = {
        b"hash": pipe.hgetall,
        b"set": pipe.smembers,
        b"string": pipe.get,
        b"list": lambda key: pipe.lrange(key, 0, -1),
        b"zset": lambda key: pipe.zrange(key, 0, -1, withscores=True),
    }
    keys = [key async for key in store.redis.scan_iter(f"{store.keys.prefix}*", 1000)]
    for key in keys:
        pipe.type(key)
    for key, kind in zip(keys, await pipe.execute(), strict=True):
        readers[kind](key)
    names = (key.decode().removeprefix(store.keys.prefix) for key in keys)
    return dict(zip(names, await pipe.execute(), strict=True))


def some_updates(seed: int) -> list[tuple[int, list[PeerUpdate]]]:
    """(seconds to wait first, announces of one call): mostly regular ones, of a few peers of every kind."""
    source = random.Random(seed)
    moved: dict[int, int] = dict.fromkeys(range(1, 9), 0)
    calls: list[tuple[int, list[PeerUpdate]]] = []
    for _ in range(400):
        peer = source.randint(1, 8)
        moved[peer] += source.choice([0, 0, 0, 1000, 123_456, 2**40, -1000])
        if not calls or source.random() < 0.15:
            calls.append((source.choice([0, 0, 1, 60, 1800, 7300, -5]), []))
        calls[-1][1].append(
            update(
                peer,
                source.choice("uuuuuuuuuscpx"),
                torrent=source.randint(1, 2),
                endpoint=endpoint(peer, v6=source.random() < 0.1, port=source.choice([6881] * 9 + [7000])),
                key=b"8 bytes!",
                uploaded=max(0, moved[peer]),
                downloaded=max(0, moved[peer] // 2),
                bytes_left=source.choice([0 if peer % 2 else 1000] * 9 + [None, 0]),
                peers_wanted=source.choice([0, 1, 2, 50]),
                random=source.getrandbits(31),
                form=source.choice([0, 0, 0, 1, 2]),
            )
        )
    return calls


@pytest.mark.parametrize("give_below", [0, 3])
@pytest.mark.parametrize("seed", range(4))
async def test_both_scripts_leave_the_same_contents(store: Store, long_way: Store, seed: int, give_below: int) -> None:
    """Also where they hand out peers of the DHT."""
    totals = []
    for one in (store, long_way):
        one.rules.current = SwarmRules(give_below=give_below)
        await one.torrents.add(info_hash(1), {"private": "0"})
        peers = [endpoint(number) for number in (1, 50, 51)]
        now = int(one.clock())
        await one.dht_torrents.give(info_hash(1), peers, now, now + 1_000_000, all_torrents=False)
    for seconds, announces in some_updates(seed):
        for one in (store, long_way):
            one.clock.now += seconds
        short, long = [await one.announce_together(*announces) for one in (store, long_way)]
        assert short == long
        totals.append(short[1])
    for one in (store, long_way):
        await one.announce_counts.flush()
    assert any(moved != TrafficTotals(0, 0, 0, 0) for moved in totals)
    assert any(moved.given for moved in totals) == bool(give_below)
    assert {k: v for k, v in (await contents(store)).items() if not k.startswith("long:")} == await contents(long_way)
    assert await check_invariants(long_way.redis, long_way.keys) > 0


async def test_regular_announces_take_the_short_script(store: Store) -> None:
    """Without this check the comparison above would prove nothing: a failed regular announce is still answered by the
    other script."""
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s", bytes_left=0))
    text = source("announce")
    broken = text.replace(
        "function announce_other(packed, registered, denied)\n",
        "function announce_other(packed, registered, denied)\n  error('long way')\n",
    )
    assert broken != text
    await replace_announce(store, broken)
    every: list[dict[str, Any]] = [{}, {"peers_wanted": 0}, {"form": WITH_IDS}, {"form": OWN_FAMILY}, {"uploaded": 5}]
    for changes in every:
        store.clock.now += 60
        reply = await store.swarms.announce(update(1, **changes))
        assert isinstance(reply, Admitted) and (reply.seeders, reply.leechers) == (1, 1)


async def test_a_regular_announce_sees_what_others_of_its_call_have_changed(store: Store) -> None:
    """Their torrent is read once in a call, and again after any other announce to it."""
    await store.announce_together(*(update(number, "s") for number in (1, 2, 3)))
    regular = update(1)
    for event, leechers in (("x", 2), ("s", 3)):
        outcomes, _ = await store.announce_together(regular, update(2, event), regular)
        assert [outcome.leechers for outcome in outcomes] == [5 - leechers, leechers, leechers]
        assert len(outcomes[2].peers) == 6 * (leechers - 1)


async def test_private_mode_has_no_regular_announces(make_store: MakeStore) -> None:
    """Each announce has to look up its passkey."""
    store = await make_store(accounts="required")
    await store.users.add("7", "a" * 20)
    await store.announce(update(1, "s", passkey="a" * 20))
    assert await store.refused(update(1, passkey="b" * 20)) == "unknown passkey"
    await store.users.delete("7")
    assert await store.refused(update(1, passkey="a" * 20)) == "unknown passkey"


@pytest.mark.parametrize("text", ["", "many", "1.5", "nan", "inf", "-1", "1 2", "1e400", "9" * 400])
@pytest.mark.parametrize("field", ["seeders", "leechers", "snatches"])
async def test_an_invalid_count_fails_no_announce(store: Store, field: str, text: str) -> None:
    """A count that is no number reads as zero, and the other announces of the batch are unaffected."""
    await store.announce(update(1, "s"))
    await store.redis.hset(store.keys.torrent(info_hash(1)), field, text)
    answers = await asyncio.gather(
        store.swarms.announce(update(1)),
        store.swarms.announce(update(2, "s", torrent=2)),
        store.swarms.announce(update(1, "p")),
    )
    assert isinstance(answers[0], Admitted) and getattr(answers[0], field.replace("snatches", "completions")) == 0
    assert isinstance(answers[1], Admitted) and answers[1].leechers == 1
    assert isinstance(answers[2], Admitted)


@pytest.mark.parametrize("event", ["s", "u", "p"])
async def test_an_invalid_array_returns_no_peers(store: Store, event: str) -> None:
    """The announce is applied and its reply lists no peers."""
    await store.announce(update(1, "s", bytes_left=0))
    if event != "s":
        await store.announce(update(2, "s"))
    array = f"{store.keys.prefix}swarm:{info_hash(1).hex()}:s4"
    await store.redis.delete(array)
    await store.redis.rpush(array, "another program's")
    reply = await store.announce(update(2, event, uploaded=5))
    assert (reply.seeders, reply.leechers, reply.peers) == (1, 1, b"")
    assert (await store.peer(update(2)))["uploaded"] == "5"
