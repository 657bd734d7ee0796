"""A node of the DHT for one command: read-only, on ports that the system chooses."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from tracker.app.dht import build_nodes, resolve
from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.node import DhtNode
from tracker.dht.responder import NO_PART, Swarm
from tracker.errors import ClientError
from tracker.frontends.dht.server import DhtSocket, serve_dht
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import LENGTHS, SavedNode
from tracker.system.datagrams import close_all, open_datagram_sockets
from tracker.wire.endpoint import format_endpoint, split_address
from tracker.wire.krpc import Node, split_nodes
from tracker.workers.dht_lookups import counts, find_peers

CONNECT_SECONDS = 10.0
FEW_SECONDS = 3.0
"""At least one node is known, but fewer than a lookup begins with."""
_ENOUGH_NODES = 8
_MAX_SAVED = 64
"""Saved nodes that are pinged, of each family: a command must not make thousands of connections in a small router."""
_POLL_SECONDS = 0.1


class Found(NamedTuple):
    """The result of a lookup in all families."""

    seeders: int
    peers: int
    endpoints: tuple[str, ...]
    answered: int
    """Nodes that answered."""


@asynccontextmanager
async def open_client(settings: DhtSettings) -> AsyncIterator[dict[int, DhtSocket]]:
    """Yields a node with its socket for each family, by 4 and 6."""
    (sockets,) = await open_datagram_sockets(["0.0.0.0:0", "[::]:0"], 65_536)
    settings = settings.model_copy(update={"read_only": True})
    nodes = build_nodes(settings, [6 if each.ipv6 else 4 for each in sockets], SavedNode(), time.monotonic())

    async def read_swarm(info_hash: InfoHash, family: int) -> Swarm:
        del info_hash, family
        return NO_PART

    try:
        async with serve_dht(nodes, sockets, read_swarm, time.monotonic) as served:
            yield {each.family: each for each in served}
    finally:
        close_all([sockets])


async def ping(settings: DhtSettings, target: str) -> float | None:
    """Seconds until the node at ``host:port`` answered, in the first family in which it did. ``None``: no answer.
    Raises ClientError for an unknown host."""
    async with open_client(settings) as sockets:
        known = {family: await resolve(target, family) for family in sockets}
        if not any(known.values()):
            raise ClientError("the host is not known, or has no address of a family that this host has")
        began = time.monotonic()
        for family, endpoints in known.items():
            sockets[family].node.contact(endpoints, began)
            sockets[family].flush()
        while time.monotonic() < began + CONNECT_SECONDS:
            for each in sockets.values():
                if each.node.counts.queries_out["find_node", "answered"]:
                    return time.monotonic() - began
            await asyncio.sleep(_POLL_SECONDS / 10)
    return None


def some_nodes(saved: Sequence[SavedNode], family: int) -> list[Node]:
    """At most _MAX_SAVED of those that the tracker's nodes know, at random, each once."""
    known = {each for one in saved for each in split_nodes(one.nodes.get(family), LENGTHS[family])}
    return random.sample(sorted(known), min(len(known), _MAX_SAVED))


async def find(settings: DhtSettings, saved: Sequence[SavedNode], info_hash: InfoHash) -> Found | None:
    """Looks up a torrent now. ``None`` where no node answered. ``saved``: what the tracker's nodes know."""
    async with open_client(settings) as sockets:
        nodes = {family: each.node for family, each in sockets.items()}
        for family, node in nodes.items():
            node.ping(some_nodes(saved, family), time.monotonic())
            node.contact(await _first_nodes(settings, family), time.monotonic())
        await _connected(nodes.values())
        asked = [node for node in nodes.values() if len(node.table)]
        results = await asyncio.gather(
            *(find_peers(node, info_hash, time.monotonic, scrape=scrape) for node in asked for scrape in (False, True))
        )
    found = [each for each in results if each is not None and each.answered]
    sums = counts(found)
    if sums is None:
        return None
    endpoints = {format_endpoint(endpoint) for each in found for endpoint in each.peers}
    return Found(*sums, tuple(sorted(endpoints)), max(each.answered for each in found))


async def _first_nodes(settings: DhtSettings, family: int) -> list[Endpoint]:
    """The tracker's own node, if it runs, and the configured ones."""
    own = []
    for text in settings.listen:
        host, port = split_address(text)
        if port:
            loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            own.append(f"[{loopback}]:{port}" if ":" in loopback else f"{loopback}:{port}")
    return [endpoint for text in (*own, *settings.bootstrap) for endpoint in await resolve(text, family)]


async def _connected(nodes: Collection[DhtNode]) -> None:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < CONNECT_SECONDS:
        known = sum(len(node.table) for node in nodes)
        if known >= _ENOUGH_NODES or (known and waited > FEW_SECONDS):
            return
        await asyncio.sleep(_POLL_SECONDS)
