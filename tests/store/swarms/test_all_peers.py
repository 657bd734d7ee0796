"""All active peers in pages."""

from collections.abc import AsyncIterator

import pytest

from tests.store.harness import ALICE, Store, endpoint, peer_id, running, update
from tests.test_cost import CALLED, commands_so_far
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.swarms.all_peers import FIRST, PEERS_A_CALL, ActivePeer
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
    return [each async for _, part in store.all_peers.parts(FIRST) for each in part]


async def test_each_active_peer_is_found(store: Store) -> None:
    for number in range(1, 301):
        await store.announce(update(number, "s", torrent=number % 40, passkey=ALICE))
    await store.announce(update(300, "x", torrent=300 % 40, passkey=ALICE))
    found = await everything(store)
    assert {each.peer_id for each in found} == {peer_id(number).hex() for number in range(1, 300)}


async def test_any_part_continues_from_its_cursor(store: Store) -> None:
    for number in range(1, 301):
        await store.announce(update(number, "s", torrent=number % 150, passkey=ALICE))
    seen: set[str] = set()
    async for cursor, part in store.all_peers.parts(FIRST):
        seen |= {each.peer_id for each in part}
        rest = [each async for _, more in store.all_peers.parts(cursor) for each in more] if cursor else []
        assert seen | {each.peer_id for each in rest} == {peer_id(number).hex() for number in range(1, 301)}


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


@pytest.mark.parametrize("cursor", ["9-0", "x", "0-x", "0", "0-99999999999999999999999", ""])
async def test_a_malformed_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ClientError):
        await anext(store.all_peers.parts(cursor))


async def test_no_command_reads_a_large_swarm_at_once(redis_url: str, prefix: str) -> None:
    """Announces wait for one command only. A time would say more of the machine's load."""
    peers = 3000
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        for first in range(0, peers, 50):
            await store.announce_together(*(update(first + number, "s", peers_wanted=0) for number in range(50)))
        before = await commands_so_far(store)
        assert len({each.peer_id for each in await everything(store)}) == peers
        after = await commands_so_far(store)
    grown = {name for name, calls in after.items() if calls > before.get(name, 0)}
    assert grown.isdisjoint({"smembers", "hgetall", "keys", "scan", *CALLED})
    assert after["sscan"] - before.get("sscan", 0) >= peers / (2 * PEERS_A_CALL)
