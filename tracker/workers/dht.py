"""Keeps a node of the DHT connected, and saves what it knows for its next start.

Saved nodes come first, then the configured bootstrap nodes. The node itself runs by its sockets
(tracker/frontends/dht/).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
from redis.exceptions import RedisError

from tracker.bittorrent import Address, Endpoint
from tracker.dht.node import DhtNode
from tracker.errors import StoreUnavailable
from tracker.store.dht.nodes import LENGTHS, MAX_NODES, DhtNodes, NodeFigures, SavedNode
from tracker.wire.endpoint import format_address
from tracker.wire.krpc import split_nodes

SAVE_SECONDS = 300
CONNECT_SECONDS = 60
FEW_NODES = 8
"""With fewer, the bootstrap nodes are asked again."""

log = structlog.get_logger("tracker.dht")


async def keep_saved(
    store: DhtNodes,
    name: str,
    nodes: Mapping[int, DhtNode],
    *,
    clock: Callable[[], float],
    timer: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Restores the nodes of the last run, then saves until cancelled, and once more. ``nodes`` by 4 and 6; ``clock``
    returns epoch seconds, ``timer`` the time of the nodes."""
    started = int(clock())
    try:
        saved = await store.load(name)
    except (StoreUnavailable, RedisError) as error:
        log.warning("the nodes of the DHT's last run are not known", error=str(error))
    else:
        for family, node in nodes.items():
            node.restore(split_nodes(saved.nodes.get(family), LENGTHS[family]), timer())
    try:
        while True:
            await sleep(SAVE_SECONDS)
            await _save(store, name, nodes, started, clock, timer)
    finally:
        await asyncio.shield(_save(store, name, nodes, started, clock, timer))


async def keep_connected(
    node: DhtNode,
    bootstrap: Callable[[], Awaitable[Sequence[Endpoint]]],
    *,
    timer: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Runs until cancelled. ``bootstrap`` returns the endpoints to ask while few nodes are known; it resolves names."""
    while True:
        if len(node.table) < FEW_NODES:
            node.contact(await bootstrap(), timer())
        await sleep(CONNECT_SECONDS)


async def _save(
    store: DhtNodes,
    name: str,
    nodes: Mapping[int, DhtNode],
    started: int,
    clock: Callable[[], float],
    timer: Callable[[], float],
) -> None:
    now, epoch = timer(), clock()
    answers = [node.table.last_answer for node in nodes.values() if node.table.last_answer is not None]
    saved = SavedNode(
        ids={family: node.id for family, node in nodes.items()},
        externals={
            family: format_address(Address(address))
            for family, node in nodes.items()
            if (address := node.external_address) is not None
        },
        nodes={
            family: b"".join(map(b"".join, node.table.good_nodes(now, MAX_NODES)))
            for family, node in nodes.items()
        },
    )
    figures = NodeFigures(
        hashes=sum(len(node.announced) for node in nodes.values()),
        peers=sum(node.announced.peer_count for node in nodes.values()),
        started=started,
        last_answer=int(epoch - (now - max(answers))) if answers else None,
    )
    try:
        await store.save(name, saved, figures, int(epoch))
    except (StoreUnavailable, RedisError) as error:
        log.warning("the nodes of the DHT are not saved", error=str(error))
