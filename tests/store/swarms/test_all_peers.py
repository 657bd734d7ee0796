"""All active peers in pages."""

from collections.abc import AsyncIterator

import pytest

from tests.store.harness import ALICE, Store, endpoint, peer_id, running, update
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.swarms.all_peers import ActivePeer
from tracker.store.swarms.codec import with_agent
from tracker.store.swarms.rules import SwarmRules
from tracker.wire.endpoint import format_endpoint

RULES = SwarmRules(accounts="required", peer_memory=3600, keep_user_agents=True)


@pytest.fixture(params=[1, 4])
async def store(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """ALICE is user 7."""
    async with running(Store(redis_url, Keys(prefix), RULES, shards=request.param)) as store:
        await store.users.add("7", ALICE)
        yield store


async def everything(store: Store) -> list[ActivePeer]:
    cursor, found = await store.all_peers.page("")
    while cursor:
        cursor, more = await store.all_peers.page(cursor)
        found += more
    return found


async def test_each_active_peer_is_found(store: Store) -> None:
    for number in range(1, 301):
        await store.announce(update(number, "s", torrent=number % 40, passkey=ALICE))
    await store.announce(update(300, "x", torrent=300 % 40, passkey=ALICE))
    found = await everything(store)
    assert {each.peer_id for each in found} == {peer_id(number).hex() for number in range(1, 300)}


async def test_a_peer_has_what_it_announced(store: Store) -> None:
    joined = int(store.clock.now)
    await store.announce(with_agent(update(1, "s", passkey=ALICE), b"qBittorrent/5.0.2"))
    await store.connect_checks.note(endpoint(1), "7", True)
    await store.pass_time(100)
    await store.announce(update(1, "u", passkey=ALICE, uploaded=5, downloaded=400, bytes_left=600))
    (peer,) = await everything(store)
    assert (peer.user_id, peer.client, peer.user_agent) == ("7", "Xtorrent 0.0.0.1", "qBittorrent/5.0.2")
    assert peer.endpoints == (format_endpoint(endpoint(1)),)
    assert (peer.uploaded, peer.downloaded, peer.left, peer.seeding) == (5, 400, 600, False)
    assert (peer.first_announce, peer.last_announce) == (joined, joined + 100)
    assert peer.connectable is True


@pytest.mark.parametrize("cursor", ["9-0", "x", "0-x", "0", "0-99999999999999999999999"])
async def test_a_malformed_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ClientError):
        await store.all_peers.page(cursor)


@pytest.mark.long
async def test_announces_do_not_wait_for_a_hundred_thousand_peers(redis_url: str, prefix: str) -> None:
    """The longest command that it takes, by the server's log of slow ones."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        for first in range(0, 100_000, 50):
            torrent = first // 2000 if first < 50_000 else 1000  # a large swarm among small ones
            await store.announce_together(
                *(update(first + number, "s", torrent, peers_wanted=0) for number in range(50))
            )
        await store.redis.config_set("slowlog-log-slower-than", 5000)
        await store.redis.slowlog_reset()
        assert len({each.peer_id for each in await everything(store)}) == 100_000
        assert not await store.redis.slowlog_get(10)
