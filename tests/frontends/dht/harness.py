"""Shared by the tests of the DHT's sockets: served nodes with a clock that the test moves, and a socket that sends from
any address of loopback."""

import asyncio
import random
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import pytest

from tests.store.harness import Clock
from tests.waiting import SECONDS
from tracker.app.dht import build_nodes
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.node import DhtNode
from tracker.dht.responder import NO_PART, Swarm
from tracker.frontends.dht.server import DhtSocket, serve_dht
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import SavedNode
from tracker.system.datagrams import close_all, open_datagram_sockets
from tracker.wire.endpoint import pack_address, pack_endpoint
from tracker.wire.krpc import AnnouncePeer, Answer, Failure, GetPeers, NodeId, Query, encode_query, parse_message

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs many loopback addresses")
PUBLIC = Swarm(takes_part=True)
UNLIMITED: dict[str, Any] = {
    "address_queries_second": 10_000,
    "address_burst": 100_000,
    "queries_second": 100_000,
    "queries_burst": 1_000_000,
    "answer_bytes_second": 1_000_000_000,
}
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("@I4s4s")
_CHUNK = 50
"""Datagrams that every receive buffer holds."""
_RESEND_SECONDS = 1.0


def packed(host: str, port: int) -> Endpoint:
    address = pack_address(host)
    assert address
    return pack_endpoint(Address(address), port)


class Datagram(NamedTuple):
    host: str
    """The address of ours that it was sent to."""
    sender: tuple[str, int]
    data: bytes


class LoopbackSocket:
    """A UDP socket that sends from any address in 127.0.0.0/8, and receives what is sent to them. Linux only."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        self.socket.bind(("0.0.0.0", 0))
        self.socket.setblocking(False)
        self.port: int = self.socket.getsockname()[1]

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes, target: tuple[str, int], source: str) -> None:
        control = _PKTINFO.pack(0, socket.inet_aton(source), bytes(4))
        self.socket.sendmsg([data], [(socket.IPPROTO_IP, _IP_PKTINFO, control)], 0, target)

    def received(self) -> list[Datagram]:
        """What has arrived since the last call."""
        found: list[Datagram] = []
        while True:
            try:
                data, ancillary, _, sender = self.socket.recvmsg(4096, 64)
            except BlockingIOError:
                return found
            (host,) = (_PKTINFO.unpack(each[2])[2] for each in ancillary)
            found.append(Datagram(socket.inet_ntoa(host), sender, data))

    async def ask(self, target: tuple[str, int], queries: Mapping[str, Query]) -> dict[str, Answer | Failure]:
        """Sends a query from each address until it is answered. Returns the answers by address."""
        answers: dict[str, Answer | Failure] = {}
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while missing := [host for host in queries if host not in answers]:
                for host in missing[:_CHUNK]:
                    self.send(encode_query(queries[host]), target, host)
                resend = loop.time() + _RESEND_SECONDS
                while loop.time() < resend and not all(host in answers for host in missing[:_CHUNK]):
                    await asyncio.sleep(0)
                    for each in self.received():
                        message, asked = parse_message(each.data), queries.get(each.host)
                        if isinstance(message, Query) or asked is None or each.sender != target:
                            continue
                        if message.transaction == asked.transaction:
                            answers[each.host] = message
        return answers

    async def announce(
        self,
        target: tuple[str, int],
        info_hash: InfoHash,
        hosts: Iterable[str],
        seeds: Iterable[str] = (),
        *,
        own: NodeId,
    ) -> None:
        """Announces from these addresses, with the token that each of them gets. ``own`` is the id of them all. With
        the id of the asked node itself, libtorrent does not keep them as nodes; it ignores that they are read-only."""
        first, second = random.randbytes(4), random.randbytes(4)  # late answers are to others
        query = Query(first, own, GetPeers(info_hash), read_only=True)
        tokens = {
            host: each.token
            for host, each in (await self.ask(target, dict.fromkeys(hosts, query))).items()
            if isinstance(each, Answer)
        }
        kinds = set(seeds)
        told = {
            host: query._replace(
                transaction=second, arguments=AnnouncePeer(info_hash, 6881, token or b"", seed=host in kinds)
            )
            for host, token in tokens.items()
        }
        answers = await self.ask(target, told)
        assert all(isinstance(each, Answer) for each in answers.values())


@dataclass
class Served:
    """``addresses`` and ``sockets`` by 4 and 6. ``swarms``: what the store says; a torrent without an entry takes no
    part. ``reads``: torrents that were read from it. ``on_read`` is called at the end of each reading."""

    addresses: dict[int, tuple[str, int]]
    client: LoopbackSocket
    clock: Clock
    swarms: dict[InfoHash, Swarm]
    reads: list[InfoHash] = field(default_factory=list)
    sockets: dict[int, DhtSocket] = field(default_factory=dict)
    on_read: Callable[[], object] = lambda: None

    @property
    def socket(self) -> DhtSocket:
        return self.sockets[4]

    @property
    def node(self) -> DhtNode:
        return self.socket.node

    @property
    def address(self) -> tuple[str, int]:
        return self.addresses[4]

    async def deliver(self, packets: Iterable[tuple[str, bytes]]) -> list[Datagram]:
        """Sends datagrams from these addresses. Returns what the node sent to the client meanwhile, when all is
        answered that will be."""
        rest, sent = iter(packets), list[Datagram]()
        while chunk := list(islice(rest, _CHUNK)):
            expected = self.node.counts.bytes_in + sum(len(data) for _, data in chunk)
            for source, data in chunk:
                self.client.send(data, self.address, source)
            async with asyncio.timeout(SECONDS):
                while self.node.counts.bytes_in < expected or self.socket.cache.waiting_count:
                    self.socket.read()
                    await asyncio.sleep(0)
            sent += self.client.received()
        return sent

    async def answers(self, packets: Iterable[tuple[str, bytes]]) -> list[Datagram]:
        """Without the queries of the node."""
        return [each for each in await self.deliver(packets) if not is_query(each.data)]

    async def answer(self, query: Query, source: str = "127.0.0.9") -> Answer | Failure | None:
        """``None`` for no answer."""
        found = await self.answers([(source, encode_query(query))])
        messages = [parse_message(each.data) for each in found]
        assert len(messages) <= 1
        return next((each for each in messages if not isinstance(each, Query)), None)

    async def answer_over_ipv6(self, data: bytes) -> bytes:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(self.addresses[6])
            client.send(data)
            async with asyncio.timeout(SECONDS):
                return await asyncio.get_running_loop().sock_recv(client, 4096)

    def asked(self) -> list[tuple[Datagram, Query]]:
        """The queries that the node has sent to the client since the last call."""
        self.socket.flush()
        found = [(each, parse_message(each.data)) for each in self.client.received()]
        return [(each, message) for each, message in found if isinstance(message, Query)]


def is_query(data: bytes) -> bool:
    return data.endswith(b"1:y1:qe")


@asynccontextmanager
async def serving(
    *listen: str, own: bytes | None = None, timer: Callable[[], float] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Nodes as a tracker builds them from its settings, but with private addresses. Unless ``timer`` is given, their
    time stands at 0 until the test moves the clock."""
    clock = Clock(0.0)
    (opened,) = await open_datagram_sockets(listen or ("127.0.0.1:0",), 4 * 2**20)
    families = [6 if each.ipv6 else 4 for each in opened]
    saved = SavedNode({} if own is None else {4: own})
    nodes = build_nodes(DhtSettings(**{"private_addresses": True, **settings}), families, saved, (timer or clock)())
    addresses = {6 if each.ipv6 else 4: each.socket.getsockname()[:2] for each in opened}
    served = Served(addresses, LoopbackSocket(), clock, {})

    async def read_swarm(info_hash: InfoHash, family: int) -> Swarm:
        served.reads.append(info_hash)
        found = served.swarms.get(info_hash, NO_PART)
        served.on_read()
        return found

    try:
        async with serve_dht(nodes, opened, read_swarm, timer or clock) as sockets:
            served.sockets.update((each.family, each) for each in sockets)
            yield served
    finally:
        served.client.close()
        close_all([opened])
