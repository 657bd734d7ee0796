"""A store that is killed at any moment comes back with a feed that equals its swarms."""

import asyncio
import random
from collections.abc import Callable

from loadtest.servers import Server
from tests.store.harness import Clock, Store, info_hash, running, update
from tests.waiting import eventually
from tracker.errors import StoreUnavailable
from tracker.store.changes.changes import FIRST
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

TORRENTS, PEERS, ROUNDS = 5, 40, 3
RULES = SwarmRules(max_changes=1_000_000)


async def announce_until_it_dies(store: Store, chance: random.Random, answered: list[int]) -> None:
    """Announces in batches; ``answered`` grows with each."""
    try:
        while True:
            events = [(chance.randrange(PEERS), chance.choice("sux"), chance.randrange(TORRENTS)) for _ in range(20)]
            await asyncio.gather(*(store.swarms.announce(update(p, e, 1 + t)) for p, e, t in events))
            answered.append(len(events))
    except StoreUnavailable:
        return


async def replayed(store: Store) -> dict[str, set[str]]:
    """The peers of each torrent, by the feed."""
    page = await store.changes.after(FIRST, 1_000_000)
    assert not page.gap
    peers: dict[str, set[str]] = {}
    for change in page.changes:
        assert change.info_hash and change.peer_id
        swarm = peers.setdefault(change.info_hash, set())
        if change.change == "joined":
            assert change.peer_id not in swarm
            swarm.add(change.peer_id)
        else:
            swarm.remove(change.peer_id)
        assert len(swarm) == (change.seeders or 0) + (change.leechers or 0)
    return peers


async def test_the_feed_equals_the_swarms_after_the_store_was_killed(start_server: Callable[..., Server]) -> None:
    server, chance, clock = start_server(), random.Random(5), Clock()
    for _ in range(ROUNDS):
        answered: list[int] = []
        enough = chance.randrange(3, 30)
        async with running(Store(server.url, Keys("t:"), RULES, clock)) as store, asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(announce_until_it_dies(store, chance, answered))
            await eventually(lambda answered=answered, enough=enough: len(answered) >= enough)  # type: ignore[misc]
            server.kill()
        server.start()
        async with running(Store(server.url, Keys("t:"), RULES, clock)) as store:
            by_feed = await replayed(store)
            for number in range(1, TORRENTS + 1):
                members = await store.redis.smembers(store.keys.swarm_peers(info_hash(number)))
                assert by_feed.get(info_hash(number).hex(), set()) == {member.decode() for member in members}
