"""Datagrams to a node of the DHT: no exception, answers of bounded size, and nothing kept of what was not asked for."""

import random
from collections.abc import Iterable

from fuzz.targets import krpc
from tracker.bittorrent import Endpoint
from tracker.dht.node import DhtNode
from tracker.dht.node_id import ExternalAddress, to_id
from tracker.dht.rate_limits import InboundLimits, OutboundLimits
from tracker.dht.responder import AnnouncedPeers, Family, Responder, SampleSet, Swarm
from tracker.dht.table import RoutingTable
from tracker.wire.krpc import MAX_SENT_BYTES, Query, parse_message

MAX_LENGTH = 2100
_PEERS = [Endpoint(number.to_bytes(4, "big") + b"\x1a\xe1") for number in range(1, 120)]
_SWARM = Swarm(True, _PEERS[:60], _PEERS[60:])


def check(data: bytes) -> None:
    """The first byte chooses between a node that was asked and a stranger. Where a node was asked, the transaction id
    of the query stands in place of ``aa``."""
    node, source = _node(), Endpoint(b"\x09\x09\x09\x09\x1a\xe1")
    packet = data[1:]
    if data[:1] == b"a":
        node.contact([source], 0)
        ((_, asked),) = node.take_datagrams()
        query = parse_message(asked)
        packet = packet.replace(b"1:t2:aa", b"1:t4:" + query.transaction)
    for _ in range(2):
        about = node.receive(packet, source, 0)
        if about is not None:
            assert isinstance(about, Query)
            node.respond(about, source, _SWARM, 0)
    node.tick(0.5)
    node.tick(11)
    sent = node.take_datagrams()
    assert len(sent) <= 60 and all(0 < len(each) <= MAX_SENT_BYTES for _, each in sent)
    for _, each in sent:
        parse_message(each)
    assert len(node.table) <= (data[:1] == b"a") and node.announced.peer_count == 0


def _node() -> DhtNode:
    own = to_id(1 << 155)
    family = Family(RoutingTable(own, 0), AnnouncedPeers(own), SampleSet())
    responder = Responder({4: family}, bytes(32), version=b"SK01")
    return DhtNode(
        family,
        responder,
        inbound=InboundLimits(0),
        outbound=OutboundLimits(0),
        external=ExternalAddress(),
        rng=random.Random(1),
        now=0,
    )


def seeds() -> Iterable[bytes]:
    return [start + seed for seed in krpc.seeds() for start in (b"a", b"b")]
