"""What the change feed tells of peers: endpoints, programs, counters and credit; and peers that announced."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.store.changes.test_changes import RULES, read
from tests.store.harness import ALICE, Store, endpoint, peer_id, running, update
from tests.store.sharding.test_changes import settled
from tracker.bittorrent import PeerId
from tracker.store.changes.changes import Change
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import PeerUpdate, with_agent
from tracker.wire.endpoint import format_endpoint

AGENT = b"qBittorrent/5.0.2"


def leecher(event: str, **changes: Any) -> PeerUpdate:
    return with_agent(update(1, event, passkey=ALICE, **changes), AGENT)


async def changes(store: Store, *kinds: str) -> list[Change]:
    """Those of these kinds."""
    await settled(store)
    return [each for each in await read(store) if each.change in kinds]


@pytest.fixture(params=[1, 4])
async def store(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """ALICE is user 7. Upload counts twice, download half."""
    rules = replace(RULES, note_updates=True, keep_user_agents=True)
    async with running(Store(redis_url, Keys(prefix), rules, shards=request.param)) as store:
        await store.users.add("7", ALICE, upload_multiplier="2", download_multiplier="0.5")
        yield store


async def test_joins_completions_and_stops_have_the_peer_and_its_credit(store: Store) -> None:
    await store.announce(leecher("s"))
    await store.pass_time(100)
    await store.announce(leecher("u", endpoint=endpoint(1, v6=True), key=b"12345678"))
    await store.pass_time(100)
    await store.announce(leecher("c", uploaded=20, downloaded=1000, bytes_left=0))
    await store.pass_time(100)
    await store.announce(leecher("x", uploaded=30, downloaded=1000, bytes_left=0))
    joined, completed, stopped = await changes(store, "joined", "completed", "stopped")
    for each in (joined, completed, stopped):
        assert (each.announced_id, each.client) == (peer_id(1).hex(), "Xtorrent 0.0.0.1")
        assert each.user_agent == AGENT.decode()
        assert each.endpoints[0] == format_endpoint(endpoint(1))
    assert (joined.credited_uploaded, joined.credited_downloaded) == (0, 0)
    assert (joined.peer_uploaded, joined.peer_downloaded, len(joined.endpoints)) == (0, 0, 1)
    assert (completed.uploaded, completed.downloaded) == (20, 1000)
    assert (completed.credited_uploaded, completed.credited_downloaded) == (40, 500)
    assert completed.endpoints == (format_endpoint(endpoint(1)), format_endpoint(endpoint(1, v6=True)))
    assert (stopped.uploaded, stopped.credited_uploaded, stopped.peer_uploaded) == (30, 60, 30)
    assert (stopped.credited_downloaded, stopped.peer_downloaded) == (500, 1000)


async def test_a_peer_that_timed_out_has_the_same(store: Store) -> None:
    await store.announce(leecher("s"))
    await store.pass_time(100)
    # Regular announces are credited by another part of the script.
    await store.announce(leecher("u", uploaded=20, downloaded=600, bytes_left=400))
    torrent_id = (await changes(store, "joined"))[0].torrent_id or ""
    assert await store.silence(update(1), torrent_id) == 1
    (reaped,) = await changes(store, "reaped")
    assert (reaped.change, reaped.user_agent, reaped.client) == ("reaped", AGENT.decode(), "Xtorrent 0.0.0.1")
    assert reaped.endpoints == (format_endpoint(endpoint(1)),)
    assert (reaped.credited_uploaded, reaped.credited_downloaded) == (40, 300)
    assert (reaped.peer_uploaded, reaped.peer_downloaded) == (20, 600)


async def test_a_peer_under_a_derived_id_is_known_by_the_announced_one(store: Store) -> None:
    await store.users.add("8", "bbbbbbbbbbbbbbbbbbbb")
    await store.announce(update(1, "s", passkey=ALICE))
    await store.announce(update(1, "s", passkey="bbbbbbbbbbbbbbbbbbbb", endpoint=endpoint(2)))
    first, second = await changes(store, "joined")
    assert first.peer_id != second.peer_id
    assert first.announced_id == second.announced_id == peer_id(1).hex()
    assert second.client == first.client
    torrent_id = second.torrent_id or ""
    pid = PeerId(bytes.fromhex(second.peer_id or ""))
    assert await store.silence(update(1)._replace(peer_id=pid), torrent_id) == 1
    assert (await changes(store, "reaped"))[0].announced_id == peer_id(1).hex()


async def test_announces_are_recorded_once_with_the_last_values(store: Store) -> None:
    await store.announce(leecher("s"))
    await store.announce(update(2, "s", torrent=2, passkey=ALICE))
    for sent in (10, 20):
        await store.pass_time(100)
        await store.announce(leecher("u", uploaded=sent))
        await store.announce(update(2, "u", torrent=2, passkey=ALICE, bytes_left=0))
    await store.announce(update(2, "x", torrent=2, passkey=ALICE, bytes_left=0))
    assert await store.changes.record_updates() == 2
    (updated,) = await changes(store, "updated")
    assert (updated.change, updated.user_id, updated.peer_id) == ("updated", "7", peer_id(1).hex())
    assert (updated.uploaded, updated.credited_uploaded, updated.peer_uploaded) == (20, 40, 20)
    assert (updated.left, updated.leechers, updated.user_agent) == (1000, 1, AGENT.decode())
    assert await store.changes.record_updates() == 0


async def test_no_announce_is_noted_without_the_setting(store: Store) -> None:
    store.rules.current = replace(store.rules.current, note_updates=False)
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(100)
    await store.announce(update(1, "u", passkey=ALICE, uploaded=10))
    assert await store.changes.record_updates() == 0
