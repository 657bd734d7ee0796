"""The allow-list and the deny list of clients, in the store and as one process has read them (row T21)."""

import asyncio

import pytest
from redis.exceptions import ResponseError

from loadtest.servers import Server
from tests.store.harness import Store
from tracker.bittorrent import PeerId
from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.access import client_lists
from tracker.store.access.client_lists import (
    MAX_PREFIXES,
    MAX_REASON_LENGTH,
    STALE_SECONDS,
    AllowListCache,
    DenyListCache,
)

TRANSMISSION = PeerId(b"-TR4050-abcdefghijkl")
LIBTORRENT = PeerId(b"-LT20B0-abcdefghijkl")
BINARY = PeerId(bytes(range(246, 256)) + bytes(range(10)))


@pytest.fixture
def any_server(valkey: Server) -> Server:
    """The lists need no script, so one kind of server is enough."""
    return valkey


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 19, 20])
@pytest.mark.parametrize("peer_id", [TRANSMISSION, BINARY])
async def test_a_prefix_allows_peer_ids_that_begin_with_it(store: Store, peer_id: PeerId, length: int) -> None:
    """T21: prefixes of any length; they are bytes and may not be text."""
    await store.allow_list.add(peer_id[:length], "some client")
    assert await store.allow_list.allowed_prefixes(peer_id)
    assert not await store.allow_list.allowed_prefixes(PeerId(b"\x01" + peer_id[:19]))
    if length < 20:
        other = peer_id[:length] + bytes(20 - length)
        assert await store.allow_list.allowed_prefixes(PeerId(other))
    assert not await store.allow_list.allowed_prefixes(PeerId(peer_id[: length - 1] + b"?" * (21 - length)))


@pytest.mark.parametrize("wrong", [b"", b"x" * 21])
async def test_a_prefix_has_1_to_20_bytes(store: Store, wrong: bytes) -> None:
    with pytest.raises(ClientError, match="1 to 20"):
        await store.allow_list.add(wrong)
    assert not await store.allow_list.remove(wrong)
    assert await store.dump() == {}


async def test_an_empty_list_allows_no_client(store: Store) -> None:
    assert not await store.allow_list.allowed_prefixes(TRANSMISSION)


async def test_allowed_clients_are_listed(store: Store) -> None:
    await store.allow_list.add(b"-TR", "Transmission")
    await store.allow_list.add(b"-LT", "")
    await store.allow_list.add(b"\xff:*[", "Größe")
    cursor, clients = await store.allow_list.page(0)
    assert cursor == 0
    assert sorted(clients) == [(b"-LT", ""), (b"-TR", "Transmission"), (b"\xff:*[", "Größe")]
    for prefix, _ in clients:
        assert await store.allow_list.remove(prefix)
    assert await store.allow_list.page(0) == (0, [])
    assert await store.dump() == {}


async def test_a_prefix_written_by_a_site_applies(store: Store) -> None:
    """T21: the hash alone allows, and its deletion alone forbids."""
    await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
    assert await store.allow_list.allowed_prefixes(TRANSMISSION)
    await store.allow_list.add(b"-LT")
    await store.redis.delete(store.keys.allowed_client(b"-LT"))
    assert not await store.allow_list.allowed_prefixes(LIBTORRENT)
    assert await store.allow_list.remove(b"-TR")
    assert not await store.allow_list.allowed_prefixes(TRANSMISSION)
    assert not await store.allow_list.remove(b"-TR")


async def test_all_prefixes_are_looked_up_in_one_command(store: Store) -> None:
    allow_list = AllowListCache(store.allow_list, Time())
    await store.allow_list.allowed_prefixes(LIBTORRENT)  # connects
    await store.redis.config_resetstat()
    for _ in range(10):
        assert not await allow_list.allows(TRANSMISSION)
    stats = await store.redis.info("commandstats")
    asked = {
        name: row["calls"] for name, row in stats.items() if name not in ("cmdstat_info", "cmdstat_config|resetstat")
    }
    assert asked == {"cmdstat_exists": 1}


async def test_a_change_applies_within_five_seconds(store: Store) -> None:
    """T21, T23: without a published message."""
    time = Time()
    allow_list = AllowListCache(store.allow_list, time)
    assert not await allow_list.allows(TRANSMISSION)
    await store.allow_list.add(b"-TR")
    assert not await allow_list.allows(TRANSMISSION)
    time.seconds += STALE_SECONDS
    assert STALE_SECONDS < 5 and await allow_list.allows(TRANSMISSION)
    await store.allow_list.remove(b"-TR")
    time.seconds += STALE_SECONDS - 0.01
    assert await allow_list.allows(TRANSMISSION)
    time.seconds += 0.01
    assert not await allow_list.allows(TRANSMISSION)


async def test_a_clear_applies_at_once_even_to_lookups_in_flight(store: Store) -> None:
    allow_list = AllowListCache(store.allow_list, Time())
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(allow_list.allows(TRANSMISSION))
        await asyncio.sleep(0)
        allow_list.clear()
    assert not asked.result()
    await store.allow_list.add(b"-TR")
    assert await allow_list.allows(TRANSMISSION)


async def test_memory_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented peer IDs cannot fill the process."""
    monkeypatch.setattr(client_lists, "MAX_REMEMBERED", 100)
    allow_list = AllowListCache(store.allow_list, Time())
    for number in range(250):
        assert not await allow_list.allows(PeerId(number.to_bytes(20, "big")))
        assert 0 < len(allow_list._cache.denied) <= 100
    assert len(allow_list._cache.denied) == 50


async def test_an_unavailable_store_refuses_no_client(store: Store) -> None:
    """T21: a client is refused only when the list is known. What is known does not age meanwhile: other shards may be
    served."""
    time = Time()
    allow_list = AllowListCache(store.allow_list, time)
    await store.allow_list.add(b"-TR")
    assert await allow_list.allows(TRANSMISSION)
    store.connection._lost(OSError())
    assert await allow_list.allows(TRANSMISSION)
    with pytest.raises(StoreUnavailable):
        await allow_list.allows(LIBTORRENT)
    time.seconds += STALE_SECONDS
    assert await allow_list.allows(TRANSMISSION)
    with pytest.raises(StoreUnavailable):
        await allow_list.allows(LIBTORRENT)
    assert await store.connection.reconnect()
    assert allow_list.known(TRANSMISSION) is None


async def test_denied_clients_are_listed_with_their_reasons(store: Store) -> None:
    await store.deny_list.add(b"-TR", "Größe")
    await store.deny_list.add(b"\xff:*[\0")
    await store.deny_list.add(b"-TR", "x" * (MAX_REASON_LENGTH + 1))
    cursor, found = await store.deny_list.page(0)
    assert (cursor, sorted(found)) == (0, [(b"-TR", "x" * MAX_REASON_LENGTH), (b"\xff:*[\0", "")])
    for prefix in (b"-TR", b"\xff:*[\0"):
        assert await store.deny_list.remove(prefix)
        assert not await store.deny_list.remove(prefix)
    assert await store.dump() == {}


@pytest.mark.parametrize("wrong", [b"", b"x" * 21])
async def test_a_denied_prefix_has_1_to_20_bytes(store: Store, wrong: bytes) -> None:
    with pytest.raises(ClientError, match="1 to 20"):
        await store.deny_list.add(wrong)
    assert await store.dump() == {}


async def test_the_list_is_bounded(store: Store) -> None:
    entries = {b"%d" % number: b"" for number in range(MAX_PREFIXES)}
    await store.redis.hset(store.keys.denied_clients(), mapping=entries)
    with pytest.raises(Conflict, match="full"):
        await store.deny_list.add(b"-TR")
    await store.deny_list.add(b"7", "changed")
    await store.redis.hset(store.keys.denied_clients(), "-LT", "")
    assert len(await store.deny_list.all()) == MAX_PREFIXES


@pytest.mark.parametrize("length", [1, 2, 7, 8, 19, 20])
@pytest.mark.parametrize("peer_id", [TRANSMISSION, BINARY])
async def test_a_prefix_denies_peer_ids_that_begin_with_it(store: Store, peer_id: PeerId, length: int) -> None:
    """T21: prefixes of any length; they are bytes and may not be text."""
    cache = DenyListCache(store.deny_list)
    assert not cache.denies(peer_id)
    await store.deny_list.add(peer_id[:length])
    await cache.read()
    assert cache.denies(peer_id)
    assert cache.denies(PeerId(peer_id[:length] + bytes(20 - length)))
    assert not cache.denies(PeerId(peer_id[: length - 1] + b"?" * (21 - length)))


async def test_the_longest_prefix_gives_the_reason(store: Store) -> None:
    for prefix in (b"-", b"-TR405", b"-TR", b"-LT2"):
        await store.deny_list.add(prefix, prefix.decode())
    await store.deny_list_cache.read()
    assert store.deny_list_cache.reason(TRANSMISSION) == "-TR405"
    assert store.deny_list_cache.reason(PeerId(b"-LT1000-abcdefghijkl")) == "-"
    assert store.deny_list_cache.reason(BINARY) == ""


async def test_an_invalid_prefix_of_a_site_denies_no_client(store: Store) -> None:
    await store.redis.hset(store.keys.denied_clients(), mapping={"": "all", "x" * 21: "", "-LT": b"\xff"})
    await store.deny_list_cache.read()
    assert not store.deny_list_cache.denies(TRANSMISSION)
    assert store.deny_list_cache.reason(PeerId(b"-LT1000-abcdefghijkl")) == "\N{REPLACEMENT CHARACTER}"


async def test_the_list_read_last_stays_when_the_store_fails(store: Store) -> None:
    await store.deny_list.add(b"-TR")
    await store.deny_list_cache.read()
    await store.redis.delete(store.keys.denied_clients())
    await store.redis.set(store.keys.denied_clients(), "text")
    with pytest.raises(ResponseError):
        await store.deny_list_cache.read()
    store.connection._lost(OSError())
    with pytest.raises(StoreUnavailable):
        await store.deny_list_cache.read()
    assert store.deny_list_cache.denies(TRANSMISSION)
