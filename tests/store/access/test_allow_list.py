"""The allow-list of clients, in the store and as a process remembers it (row T21)."""

import asyncio

import pytest

from tests.store.harness import Store
from tracker.bittorrent import PeerId
from tracker.errors import ClientError, StoreAway
from tracker.store.clients import STALE_SECONDS, AllowList

TRANSMISSION = PeerId(b"-TR4050-abcdefghijkl")
LIBTORRENT = PeerId(b"-LT20B0-abcdefghijkl")
BINARY = PeerId(bytes(range(246, 256)) + bytes(range(10)))


class Time:
    """A clock that only goes on when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 19, 20])
@pytest.mark.parametrize("peer_id", [TRANSMISSION, BINARY])
async def test_a_prefix_of_any_length_allows_what_begins_with_it(
    store: Store, peer_id: PeerId, length: int
) -> None:
    """T21: prefixes are bytes, and need not be text."""
    await store.clients.allow(peer_id[:length], "some client")
    assert await store.clients.allowed_prefixes(peer_id)
    assert not await store.clients.allowed_prefixes(PeerId(b"\x01" + peer_id[:19]))
    if length < 20:
        other = peer_id[:length] + bytes(20 - length)
        assert await store.clients.allowed_prefixes(PeerId(other))
    assert not await store.clients.allowed_prefixes(PeerId(peer_id[: length - 1] + b"?" * (21 - length)))


@pytest.mark.parametrize("prefix", [b"", b"x" * 21])
async def test_a_prefix_has_1_to_20_bytes(store: Store, prefix: bytes) -> None:
    with pytest.raises(ClientError, match="1 to 20"):
        await store.clients.allow(prefix)
    assert not await store.clients.disallow(prefix)
    assert await store.dump() == {}


async def test_an_empty_list_allows_nobody(store: Store) -> None:
    assert not await store.clients.allowed_prefixes(TRANSMISSION)


async def test_allowed_clients_are_listed(store: Store) -> None:
    await store.clients.allow(b"-TR", "Transmission")
    await store.clients.allow(b"-LT", "")
    await store.clients.allow(b"\xff:*[", "Größe")
    cursor, clients = await store.clients.page(0)
    assert cursor == 0
    assert sorted(clients) == [(b"-LT", ""), (b"-TR", "Transmission"), (b"\xff:*[", "Größe")]
    for prefix, _ in clients:
        assert await store.clients.disallow(prefix)
    assert await store.clients.page(0) == (0, [])
    assert await store.dump() == {}


async def test_what_a_site_wrote_by_itself_is_honoured(store: Store) -> None:
    """T21: the hash alone allows, and its deletion alone forbids."""
    await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
    assert await store.clients.allowed_prefixes(TRANSMISSION)
    await store.clients.allow(b"-LT")
    await store.redis.delete(store.keys.allowed_client(b"-LT"))
    assert not await store.clients.allowed_prefixes(LIBTORRENT)
    assert await store.clients.disallow(b"-TR")
    assert not await store.clients.allowed_prefixes(TRANSMISSION)
    assert not await store.clients.disallow(b"-TR")


async def test_all_prefixes_are_asked_for_in_one_command(store: Store) -> None:
    allow_list = AllowList(store.clients, Time())
    await store.clients.allowed_prefixes(LIBTORRENT)  # connects
    await store.redis.config_resetstat()
    for _ in range(10):
        assert not await allow_list.allows(TRANSMISSION)
    stats = await store.redis.info("commandstats")
    asked = {
        name: row["calls"]
        for name, row in stats.items()
        if name not in ("cmdstat_info", "cmdstat_config|resetstat")
    }
    assert asked == {"cmdstat_exists": 1}


async def test_a_change_holds_within_five_seconds(store: Store) -> None:
    """T21, T23: without anybody publishing it."""
    time = Time()
    allow_list = AllowList(store.clients, time)
    assert not await allow_list.allows(TRANSMISSION)
    await store.clients.allow(b"-TR")
    assert not await allow_list.allows(TRANSMISSION)
    time.seconds += STALE_SECONDS
    assert STALE_SECONDS < 5 and await allow_list.allows(TRANSMISSION)
    await store.clients.disallow(b"-TR")
    time.seconds += STALE_SECONDS - 0.01
    assert await allow_list.allows(TRANSMISSION)
    time.seconds += 0.01
    assert not await allow_list.allows(TRANSMISSION)


async def test_a_clear_holds_at_once_also_for_answers_under_way(store: Store) -> None:
    allow_list = AllowList(store.clients, Time())
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(allow_list.allows(TRANSMISSION))
        await asyncio.sleep(0)
        allow_list.clear()
    assert not asked.result()
    await store.clients.allow(b"-TR")
    assert await allow_list.allows(TRANSMISSION)


async def test_memory_is_bounded(store: Store) -> None:
    """Whoever invents peer ids cannot fill the process."""
    allow_list = AllowList(store.clients, Time(), most_remembered=100)
    for number in range(250):
        assert not await allow_list.allows(PeerId(number.to_bytes(20, "big")))
        assert 0 < allow_list.remembered <= 100
    assert allow_list.remembered == 50


async def test_a_store_that_is_away_is_no_refusal(store: Store) -> None:
    """T21: what is not known cannot be refused."""
    time = Time()
    allow_list = AllowList(store.clients, time)
    await store.clients.allow(b"-TR")
    assert await allow_list.allows(TRANSMISSION)
    store.connection._lost(OSError())
    assert await allow_list.allows(TRANSMISSION)
    with pytest.raises(StoreAway):
        await allow_list.allows(LIBTORRENT)
    time.seconds += STALE_SECONDS
    with pytest.raises(StoreAway):
        await allow_list.allows(TRANSMISSION)
