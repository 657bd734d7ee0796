"""D16: a node of ours among nodes of libtorrent, on loopback."""

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt

from tests.frontends.dht.harness import PUBLIC, Served, linux_only, packed, serving
from tests.frontends.dht.islands import SEED, island, loopback_host
from tests.waiting import eventually
from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht import bloom
from tracker.dht.lookup import LookupResult
from tracker.dht.responder import Swarm
from tracker.wire.krpc import Answer, GetPeers, NodeId, Query

pytestmark = linux_only
SESSIONS = 20
LOOKUPS = 100
ANNOUNCED_PORT = 20_000
STORED_AT = "127.9.9.9", 4444
STORED = packed(*STORED_AT)
COUNTS = 5, 20, 60, 200


def hosts(first: int, count: int) -> list[str]:
    return [loopback_host(number) for number in range(first, first + count)]


async def found(served: Served, info_hash: InfoHash, *, scrape: bool = False) -> LookupResult:
    running = served.node.find_peers(info_hash, time.monotonic(), scrape=scrape)
    assert running
    await eventually(lambda: running.outcome is not None)
    assert running.outcome
    return running.outcome


def knows(served: Served, addresses: Sequence[str]) -> bool:
    known = {each.endpoint[:-2] for each in served.node.table.closest(bytes(20), len(addresses))}
    return known == {packed(host, 0)[:-2] for host in addresses}


async def lookups_end(sessions: Sequence[Any]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Waits until no session looks a torrent up. Returns their answers: info hash and peers."""
    answers: list[tuple[str, list[tuple[str, int]]]] = []
    busy = set(range(len(sessions)))
    for each in sessions:
        each.post_dht_stats()

    def all_idle() -> bool:
        for number, each in enumerate(sessions):
            for alert in each.pop_alerts():
                if isinstance(alert, lt.dht_get_peers_reply_alert):
                    answers.append((str(alert.info_hash), alert.peers()))
                elif not isinstance(alert, lt.dht_stats_alert):
                    continue
                elif any(kind["type"] == "get_peers" for kind in alert.active_requests):
                    each.post_dht_stats()
                else:
                    busy.discard(number)
        return not busy

    await eventually(all_idle)
    return answers


async def announced_by_each_are_found(
    served: Served, sessions: Sequence[Any], addresses: Sequence[str], own: int
) -> None:
    """All announce one torrent, and so many of them one more each."""
    common, *torrents = (InfoHash(random.randbytes(20)) for _ in range(own + 1))
    peers = [packed(host, ANNOUNCED_PORT + number) for number, host in enumerate(addresses)]
    for number, each in enumerate(sessions):
        for announced in (common, *torrents[number : number + 1]):
            each.dht_announce(lt.sha1_hash(announced), ANNOUNCED_PORT + number, SEED if number % 2 else 0)
    await lookups_end(sessions)  # announces follow at once

    for info_hash, wanted in [
        (common, set(peers)),
        *((each, {peer}) for each, peer in zip(torrents, peers, strict=False)),
    ]:

        async def is_found(info_hash: InfoHash = info_hash, wanted: set[Endpoint] = wanted) -> bool:
            return (await found(served, info_hash)).peers.keys() == wanted

        await eventually(is_found)


async def lookups_that_find(sessions: Sequence[Any], torrents: Sequence[InfoHash]) -> int:
    """Lets the sessions in turn look the torrents up. Returns how many found STORED."""
    finding: set[str] = set()
    for first in range(0, len(torrents), len(sessions)):
        for each, torrent in zip(sessions, torrents[first:], strict=False):
            each.dht_get_peers(lt.sha1_hash(torrent))
        finding |= {name for name, peers in await lookups_end(sessions) if STORED_AT in peers}
    return len(finding)


async def test_a_small_island() -> None:
    """With eight nodes, each lookup asks all."""
    addresses = hosts(1, 7)
    async with serving(f"{loopback_host(0)}:0", timer=time.monotonic) as served:
        with island(addresses, served.address, neighbours=7) as sessions:
            await eventually(lambda: knows(served, addresses))
            await announced_by_each_are_found(served, sessions, addresses, 3)
            torrents = [InfoHash(random.randbytes(20)) for _ in range(2 * len(sessions))]
            served.swarms |= dict.fromkeys(torrents, Swarm(True, (), (STORED,)))
            assert await lookups_that_find(sessions, torrents) == len(torrents)
            counted = await found(served, torrents[0], scrape=True)
            assert (counted.answered, counted.seeds, counted.leechers) == (len(sessions), 0, 0)


@pytest.mark.long
async def test_an_island_of_twenty() -> None:
    addresses = hosts(10, SESSIONS)
    async with serving(f"{loopback_host(9)}:0", timer=time.monotonic) as served:
        with island(addresses, served.address) as sessions:
            await eventually(lambda: len(served.node.table) >= SESSIONS // 2)
            await announced_by_each_are_found(served, sessions, addresses, SESSIONS)
            torrents = [InfoHash(random.randbytes(20)) for _ in range(LOOKUPS)]
            served.swarms |= dict.fromkeys(torrents, Swarm(True, (), (STORED,)))
            assert await lookups_that_find(sessions, torrents) >= LOOKUPS / 3
            queries = served.node.counts.queries_in
            refused = [name for name, outcome in queries if outcome == "limited"]
            assert not refused, "libtorrent is never refused"
            for count in COUNTS:  # announces of the test's own, 200 at once: over the limit, and sent again
                await counts_are_right(served, count)


async def counts_are_right(served: Served, count: int) -> None:
    """BEP 33: of peers at the nodes nearest to a torrent, by a lookup, and at our node, by its answer."""
    torrent, addresses = InfoHash(random.randbytes(20)), hosts(100, count)
    seeds = addresses[: count // 2]
    served.swarms[torrent] = PUBLIC
    nearest = (await found(served, torrent)).nearest
    assert len(nearest) == 8
    await served.client.announce(served.address, torrent, addresses, seeds, own=NodeId(b"a" * 20))
    for node in nearest:
        await served.client.announce(address_of(node.endpoint), torrent, addresses, seeds, own=node.id)
    counted = await found(served, torrent, scrape=True)
    assert counted.seeds == pytest.approx(len(seeds), rel=0.1)
    assert counted.leechers == pytest.approx(count - len(seeds), rel=0.1)
    query = Query(b"sc", NodeId(bytes(20)), GetPeers(torrent, scrape=True), read_only=True)
    (answer,) = (await served.client.ask(served.address, {loopback_host(99): query})).values()
    assert isinstance(answer, Answer) and answer.seeds_filter and answer.peers_filter
    assert bloom.estimate(answer.seeds_filter) == pytest.approx(len(seeds), rel=0.1)
    assert bloom.estimate(answer.peers_filter) == pytest.approx(count - len(seeds), rel=0.1)


def address_of(endpoint: Endpoint) -> tuple[str, int]:
    return ".".join(map(str, endpoint[:4])), int.from_bytes(endpoint[4:], "big")
