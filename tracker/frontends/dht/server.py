"""The sockets of the DHT: one per address family.

Datagrams go to the node, which decides (tracker/dht/node.py). Queries about a torrent wait until the store was read.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import cast

import structlog

from tracker.bittorrent import Endpoint, InfoHash, unmap
from tracker.dht.node import DhtNode
from tracker.dht.responder import Swarm
from tracker.dht.swarm_cache import Key, SwarmCache, WaitingQuery
from tracker.errors import StoreUnavailable
from tracker.wire.endpoint import pack_endpoint
from tracker.wire.krpc import AnnouncePeer, GetPeers

READERS = 4
"""Readings of the store at once."""
TICK_SECONDS = 0.25

ReadSwarm = Callable[[InfoHash, int], Awaitable[Swarm]]
"""(torrent, address family). Raises StoreUnavailable."""

log = structlog.get_logger("tracker.dht")


class DhtProtocol(asyncio.DatagramProtocol):
    def __init__(self, node: DhtNode, family: int, timer: Callable[[], float]) -> None:
        self.node = node
        self.family = family
        self._timer = timer
        self._transport: asyncio.DatagramTransport | None = None
        self._cache = SwarmCache()
        self.to_read: asyncio.Queue[Key] = asyncio.Queue()  # bounded by the cache

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, sender: tuple[str, int] | tuple[str, int, int, int]) -> None:
        now = self._timer()
        source = self._endpoint(sender[0], sender[1])
        query = self.node.receive(data, source, now)
        if query is not None:
            assert isinstance(query.arguments, GetPeers | AnnouncePeer)
            key = query.arguments.info_hash, self.family
            swarm = self._cache.get(key, now)
            if swarm is not None:
                self.node.respond(query, source, swarm, now)
            elif self._cache.wait(key, WaitingQuery(query, source)):
                self.to_read.put_nowait(key)
        self.flush()

    def flush(self) -> None:
        """Sends what the node has to send. A datagram that cannot be sent is a lost one."""
        if self._transport is None:
            return
        family = AF_INET if self.family == 4 else AF_INET6
        for endpoint, data in self.node.take_datagrams():
            self._transport.sendto(
                data, (inet_ntop(family, endpoint[:-2]), int.from_bytes(endpoint[-2:], "big"))
            )

    def tick(self) -> None:
        self.node.tick(self._timer())
        self.flush()

    def finish(self, key: Key, swarm: Swarm | None) -> None:
        now = self._timer()
        for waiting in self._cache.finish(key, swarm, now):
            assert swarm is not None
            self.node.respond(waiting.query, waiting.source, swarm, now)
        self.flush()

    def _endpoint(self, host: str, port: int) -> Endpoint:
        family = AF_INET if self.family == 4 else AF_INET6
        return pack_endpoint(unmap(inet_pton(family, host.partition("%")[0])), port)


@contextlib.asynccontextmanager
async def serve_dht(
    node: DhtNode, address: tuple[str, int], read_swarm: ReadSwarm, timer: Callable[[], float]
) -> AsyncIterator[DhtProtocol]:
    """Serves until the block is left; yields the protocol, whose node can be asked."""
    family = 6 if ":" in address[0] else 4
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(
        lambda: DhtProtocol(node, family, timer), local_addr=address
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_read(protocol, read_swarm)) for _ in range(READERS)]
            running.append(tasks.create_task(_tick(protocol)))
            try:
                yield protocol
            finally:
                for task in running:
                    task.cancel()
    finally:
        transport.close()


async def _tick(protocol: DhtProtocol) -> None:
    while True:
        protocol.tick()
        await asyncio.sleep(TICK_SECONDS)


async def _read(protocol: DhtProtocol, read_swarm: ReadSwarm) -> None:
    while True:
        key = await protocol.to_read.get()
        swarm = None
        try:
            swarm = await read_swarm(*key)
        except StoreUnavailable:
            log.debug("query of the DHT not answered: the store is unavailable")
        finally:
            protocol.finish(key, swarm)
