"""The deny list of clients, in the store and as one process read it (row T21)."""

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import Store
from tracker.bittorrent import PeerId
from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.access.deny_list import MAX_PREFIXES, MAX_REASON_LENGTH, DenyListCache

TRANSMISSION = PeerId(b"-TR2830-abcdefghijkl")
BINARY = PeerId(bytes(range(246, 256)) + bytes(range(10)))


async def test_denied_clients_are_listed_with_their_reasons(store: Store) -> None:
    await store.deny_list.deny(b"-TR", "Größe")
    await store.deny_list.deny(b"\xff:*[\0")
    await store.deny_list.deny(b"-TR", "x" * (MAX_REASON_LENGTH + 1))
    cursor, found = await store.deny_list.page(0)
    assert (cursor, sorted(found)) == (0, [(b"-TR", "x" * MAX_REASON_LENGTH), (b"\xff:*[\0", "")])
    for prefix in (b"-TR", b"\xff:*[\0"):
        assert await store.deny_list.undeny(prefix)
        assert not await store.deny_list.undeny(prefix)
    assert await store.dump() == {}


@pytest.mark.parametrize("prefix", [b"", b"x" * 21])
async def test_a_prefix_has_1_to_20_bytes(store: Store, prefix: bytes) -> None:
    with pytest.raises(ClientError, match="1 to 20"):
        await store.deny_list.deny(prefix)
    assert await store.dump() == {}


async def test_the_list_is_bounded(store: Store) -> None:
    entries = {b"%d" % number: b"" for number in range(MAX_PREFIXES)}
    await store.redis.hset(store.keys.denied_clients(), mapping=entries)
    with pytest.raises(Conflict, match="full"):
        await store.deny_list.deny(b"-TR")
    await store.deny_list.deny(b"7", "changed")
    await store.redis.hset(store.keys.denied_clients(), "-LT", "")
    assert len(await store.deny_list.all()) == MAX_PREFIXES


@pytest.mark.parametrize("length", [1, 2, 7, 8, 19, 20])
@pytest.mark.parametrize("peer_id", [TRANSMISSION, BINARY])
async def test_a_prefix_denies_peer_ids_that_begin_with_it(
    store: Store, peer_id: PeerId, length: int
) -> None:
    """T21: prefixes of any length; they are bytes and may not be text."""
    cache = DenyListCache(store.deny_list)
    assert not cache.denies(peer_id)
    await store.deny_list.deny(peer_id[:length])
    await cache.read()
    assert cache.denies(peer_id)
    assert cache.denies(PeerId(peer_id[:length] + bytes(20 - length)))
    assert not cache.denies(PeerId(peer_id[: length - 1] + b"?" * (21 - length)))


async def test_the_longest_prefix_gives_the_reason(store: Store) -> None:
    for prefix in (b"-", b"-TR283", b"-TR", b"-LT2"):
        await store.deny_list.deny(prefix, prefix.decode())
    await store.deny_list_cache.read()
    assert store.deny_list_cache.reason(TRANSMISSION) == "-TR283"
    assert store.deny_list_cache.reason(PeerId(b"-LT1000-abcdefghijkl")) == "-"
    assert store.deny_list_cache.reason(BINARY) == ""


async def test_an_invalid_prefix_of_a_site_denies_no_client(store: Store) -> None:
    await store.redis.hset(store.keys.denied_clients(), mapping={"": "all", "x" * 21: "", "-LT": b"\xff"})
    await store.deny_list_cache.read()
    assert not store.deny_list_cache.denies(TRANSMISSION)
    assert store.deny_list_cache.reason(PeerId(b"-LT1000-abcdefghijkl")) == "\N{REPLACEMENT CHARACTER}"


async def test_the_list_read_last_stays_when_the_store_fails(store: Store) -> None:
    await store.deny_list.deny(b"-TR")
    await store.deny_list_cache.read()
    await store.redis.delete(store.keys.denied_clients())
    await store.redis.set(store.keys.denied_clients(), "text")
    with pytest.raises(ResponseError):
        await store.deny_list_cache.read()
    store.connection._lost(OSError())
    with pytest.raises(StoreUnavailable):
        await store.deny_list_cache.read()
    assert store.deny_list_cache.denies(TRANSMISSION)
