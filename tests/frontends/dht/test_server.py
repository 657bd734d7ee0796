"""D16: a node of ours in an island of 20 nodes of libtorrent, on loopback."""

import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.waiting import eventually
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.announced_peers import AnnouncedPeers, AnnounceRules
from tracker.dht.external_address import ExternalAddress
from tracker.dht.lookup import LookupResult
from tracker.dht.node import DhtNode
from tracker.dht.rate_limits import LimitRules
from tracker.dht.responder import Family, Responder, Swarm
from tracker.dht.samples import SampleSet
from tracker.dht.table import RoutingTable, TableRules
from tracker.dht.tokens import AnnounceTokens
from tracker.frontends.dht.server import DhtSocket, serve_dht
from tracker.system.datagrams import close_all, open_datagram_sockets
from tracker.wire.endpoint import pack_address, pack_endpoint
from tracker.wire.krpc import NodeId

lt = pytest.importorskip("libtorrent")
pytestmark = pytest.mark.slow

SESSIONS = 20
OURS = "127.0.0.77", 17601
SEED, IMPLIED = 1, 2


def packed(host: str, port: int) -> Endpoint:
    address = pack_address(host)
    assert address
    return pack_endpoint(Address(address), port)


def session(number: int) -> Any:
    """Each has an address of its own. Without these settings libtorrent keeps one node per network, asks the internet,
    and bans who asks often."""
    return lt.session(
        {
            "listen_interfaces": f"127.0.1.{number + 1}:17600",
            "enable_dht": True,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "dht_bootstrap_nodes": "",
            "dht_restrict_routing_ips": False,
            "dht_restrict_search_ips": False,
            "dht_prefer_verified_node_ids": False,
            "dht_enforce_node_id": False,
            "dht_ignore_dark_internet": False,
            "dht_block_ratelimit": 1000,
            "dht_upload_rate_limit": 1_000_000,
            "alert_mask": lt.alert.category_t.dht_notification
            | lt.alert.category_t.dht_operation_notification,
        }
    )


@contextmanager
def island() -> Iterator[list[Any]]:
    """All know us and one neighbour."""
    sessions = [session(number) for number in range(SESSIONS)]
    for number, each in enumerate(sessions):
        each.add_dht_node(OURS)
        if number:
            each.add_dht_node((f"127.0.1.{number}", 17600))
    yield sessions
    sessions.clear()


STORED: dict[InfoHash, tuple[Endpoint, ...]] = {}


async def read_swarm(info_hash: InfoHash, family: int) -> Swarm:
    return Swarm(True, (), STORED.get(info_hash, ()))


@pytest.fixture
async def ours() -> AsyncIterator[DhtSocket]:
    rng, now = random.SystemRandom(), time.monotonic()
    own = NodeId(rng.randbytes(20))
    family = Family(
        RoutingTable(own, TableRules(private_addresses=True), now), AnnouncedPeers(own, AnnounceRules())
    )
    responder = Responder({4: family}, AnnounceTokens(rng.randbytes(32)), {4: SampleSet()}, version=b"SK01")
    node = DhtNode(
        family,
        responder,
        limits=LimitRules(),
        external=ExternalAddress(),
        version=b"SK01",
        rng=rng,
        now=now,
    )
    (sockets,) = await open_datagram_sockets([f"{OURS[0]}:{OURS[1]}"], 4096)
    async with serve_dht({4: node}, sockets, read_swarm, time.monotonic) as (served,):
        yield served
    close_all([sockets])


async def found(protocol: DhtSocket, info_hash: InfoHash, *, scrape: bool = False) -> LookupResult:
    running = protocol.node.find_peers(info_hash, time.monotonic(), scrape=scrape)
    assert running
    await eventually(lambda: running.result is not None)
    assert running.result
    return running.result


async def test_a_node_among_those_of_libtorrent(ours: DhtSocket) -> None:
    with island() as sessions:
        await eventually(lambda: len(ours.node.table) >= 12)
        await announced_peers_are_found(ours, sessions)
        await peers_of_the_store_are_found(sessions)


async def announced_peers_are_found(ours: DhtSocket, sessions: list[Any]) -> None:
    hashes = [InfoHash(random.randbytes(20)) for _ in range(8)]
    for count, info_hash in enumerate(hashes, 1):
        for number, each in enumerate(sessions[:count]):
            each.dht_announce(lt.sha1_hash(info_hash), 20000 + number, SEED if number % 2 else 0)

    async def all_found() -> bool:
        results = [await found(ours, info_hash) for info_hash in hashes]
        return [len(result.peers) for result in results] == list(range(1, 9))

    await eventually(all_found)
    for count, info_hash in enumerate(hashes, 1):
        counted = await found(ours, info_hash, scrape=True)
        assert counted.seeds == pytest.approx(count // 2, rel=0.1)
        assert counted.leechers == pytest.approx(count - count // 2, rel=0.1)
        assert (await found(ours, info_hash)).peers.keys() == {
            packed(f"127.0.1.{number + 1}", 20000 + number) for number in range(count)
        }


async def peers_of_the_store_are_found(sessions: list[Any]) -> None:
    """By at least a third of the lookups: others end before they reach us."""
    hashes = [InfoHash(random.randbytes(20)) for _ in sessions]
    for info_hash in hashes:
        STORED[info_hash] = (packed("127.9.9.9", 4444),)
    for each, info_hash in zip(sessions, hashes, strict=True):
        each.pop_alerts()
        each.dht_get_peers(lt.sha1_hash(info_hash))
    finding: set[str] = set()

    def enough() -> bool:
        for each in sessions:
            for alert in each.pop_alerts():
                if isinstance(alert, lt.dht_get_peers_reply_alert) and ("127.9.9.9", 4444) in alert.peers():
                    finding.add(str(alert.info_hash))
        return len(finding) >= len(sessions) / 3

    await eventually(enough)
