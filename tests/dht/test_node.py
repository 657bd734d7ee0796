"""D8, D14, D20: a whole node without its socket, alone and in a simulated network of such nodes."""

import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.lookup import Lookup
from tracker.dht.node import DhtNode
from tracker.dht.node_id import ExternalAddress, fits_address, to_id
from tracker.dht.rate_limits import InboundLimits, OutboundLimits
from tracker.dht.responder import AnnouncedPeers, Family, Responder, SampleSet, Swarm
from tracker.dht.table import RoutingTable
from tracker.wire.krpc import (
    AnnouncePeer,
    Answer,
    Failure,
    FindNode,
    GetPeers,
    Node,
    NodeId,
    Ping,
    Query,
    encode_answer,
    encode_failure,
    encode_query,
    parse_message,
)

HASH = InfoHash(b"h" * 20)
KNOWN = Swarm(takes_part=True)
ASKER = NodeId(b"a" * 20)
INBOUND = ("address_rate", "address_burst", "total_rate", "total_burst", "answer_bytes")
SOURCE = Endpoint(b"\x0a\x09\x09\x09\x1a\xe1")


def made(number: int, *, family: int = 4, limited: bool = True, read_only: bool = False) -> DhtNode:
    rng = random.Random(number)
    own = NodeId(rng.randbytes(20))
    parts = Family(RoutingTable(own, 0, private_addresses=True), AnnouncedPeers(own), SampleSet())
    responder = Responder({family: parts}, rng.randbytes(32), version=b"SK01", read_only=read_only)
    return DhtNode(
        parts,
        responder,
        inbound=InboundLimits(0) if limited else InboundLimits(0, **dict.fromkeys(INBOUND, 1e9)),
        outbound=OutboundLimits(0) if limited else OutboundLimits(0, 1e6, 1e6, 1e6),
        external=ExternalAddress(),
        rng=rng,
        now=0,
    )


def address(number: int) -> Endpoint:
    return Endpoint((0x0A000000 + number).to_bytes(4, "big") + b"\x1a\xe1")


class Island:
    """Nodes that reach each other at once. Time passes in steps."""

    def __init__(self, count: int) -> None:
        self.nodes = {address(number): made(number) for number in range(count)}
        self.now = 0.0
        self.cut: set[Endpoint] = set()

    def first(self) -> DhtNode:
        return self.nodes[address(0)]

    def deliver(self) -> None:
        while sent := [(at, *each) for at, node in self.nodes.items() for each in node.take_datagrams()]:
            for source, target, data in sent:
                if not {source, target} & self.cut and target in self.nodes:
                    self.receive(target, source, data)

    def receive(self, target: Endpoint, source: Endpoint, data: bytes) -> None:
        query = self.nodes[target].receive(data, source, self.now)
        if query is not None:
            self.nodes[target].respond(query, source, KNOWN, self.now)

    def run(self, seconds: float, step: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for node in self.nodes.values():
                node.tick(self.now)
            self.deliver()

    def finish(self, lookup: Lookup | None) -> set[Endpoint]:
        assert lookup is not None
        while lookup.outcome is None:
            self.run(0.5)
        return set(lookup.outcome.peers)

    def announce(self, peer: Endpoint, start: Endpoint) -> Endpoint:
        """As a client: a lookup, then an announce to the nearest nodes, with the token of each."""
        lookup = self.nodes[start].find_peers(HASH, self.now)
        self.finish(lookup)
        assert lookup and lookup.outcome
        for number, (_, endpoint) in enumerate(lookup.outcome.nearest):
            query = Query(b"ga", NodeId(bytes((number,)) * 20), GetPeers(HASH))
            self.receive(endpoint, peer, encode_query(query))
            (token,) = [self.token(data) for at, data in self.nodes[endpoint].take_datagrams() if at == peer]
            self.receive(endpoint, peer, encode_query(query._replace(arguments=AnnouncePeer(HASH, 6881, token))))
        return peer

    @staticmethod
    def token(data: bytes) -> bytes:
        answer = parse_message(data)
        assert isinstance(answer, Answer) and answer.token
        return answer.token


def joined(count: int) -> Island:
    """All know the first node only."""
    island = Island(count)
    for at, node in island.nodes.items():
        if at != address(0):
            node.contact([address(0)], 0)
    island.run(60)
    return island


def delivered(node: DhtNode) -> list[Query]:
    queries = [parse_message(data) for _, data in node.take_datagrams()]
    return [each for each in queries if isinstance(each, Query)]


class TestIsland:
    def test_all_find_each_other_by_one_bootstrap_node(self) -> None:
        island = joined(20)
        assert len(island.first().table) == 19
        assert all(len(node.table) >= 8 for node in island.nodes.values())

    def test_a_peer_announced_anywhere_is_found_by_all(self) -> None:
        island = joined(20)
        found = {island.announce(address(100 + number), address(number)) for number in range(1, 6)}
        for node in island.nodes.values():
            assert island.finish(node.find_peers(HASH, island.now)) == found
            lookup = node.find_peers(HASH, island.now, scrape=True)
            island.finish(lookup)
            assert lookup and lookup.outcome and lookup.outcome.leechers == pytest.approx(5, rel=0.05)

    def test_ipv6_is_a_network_of_its_own(self) -> None:
        """BEP 32"""
        island = Island(0)
        addresses = [Endpoint(b"\xfd" + bytes(14) + bytes((number,)) + b"\x1a\xe1") for number in range(1, 13)]
        island.nodes = {at: made(at[15], family=6) for at in addresses}
        for at in addresses[1:]:
            island.nodes[at].contact([addresses[0]], 0)
        island.run(60)
        assert len(island.nodes[addresses[0]].table) >= 8
        peer = Endpoint(b"\xfd" + bytes(15) + b"\x1a\xe1")
        island.announce(peer, addresses[3])
        assert island.finish(island.nodes[addresses[7]].find_peers(HASH, island.now)) == {peer}

    def test_a_quiet_node_gets_an_answer_every_minute(self) -> None:
        """D22: else a node with nothing to look up would seem to be down."""
        island = joined(20)
        node = island.first()
        for _ in range(40):
            island.run(30)
            assert node.table.last_answer is not None
            assert island.now - node.table.last_answer < 60

    def test_the_table_survives_an_outage(self) -> None:
        island = joined(20)
        island.cut = {address(0)}
        island.run(600, step=1)
        first = island.first()
        assert len(first.table) == 19 and first.table.entries.dropped == 0
        island.cut = set()
        lookup = first.find_nodes(0, island.now)
        island.finish(lookup)
        assert lookup and lookup.outcome and len(lookup.outcome.nearest) == 8

    @pytest.mark.parametrize("same_id", [False, True])
    @pytest.mark.parametrize("family", [4, 6])
    def test_neighbours_that_return_at_other_ports_are_found_again(self, family: int, same_id: bool) -> None:
        """D20: after a power cut all nodes but ours have new ports; they know ours, and nobody knows them."""
        island = Island(0)
        hosts = [address(number)[:4] for number in range(12)]
        if family == 6:
            hosts = [b"\xfd" + bytes(6) + bytes((number,)) + bytes(8) for number in range(12)]
        first, *others = [Endpoint(host + b"\x1a\xe1") for host in hosts]
        island.nodes = {at: made(number, family=family) for number, at in enumerate((first, *others))}
        for at in others:
            island.nodes[at].contact([first], 0)
        island.run(60)
        node = island.nodes[first]
        assert len(node.table) == 11
        island.nodes = {first: node}
        island.run(10, step=1)
        moved = {
            Endpoint(at[:-2] + b"\x1a\xe2"): made(number + (1 if same_id else 101), family=family)
            for number, at in enumerate(others)
        }
        island.nodes |= moved
        end = island.now + 300
        while island.now < end:
            for each in moved.values():
                each.contact([first], island.now)
            island.run(5, step=1)
        assert {each.endpoint for each in node.table.good_nodes(island.now, 99)} == moved.keys()

    def test_a_node_that_left_is_dropped(self) -> None:
        island = joined(10)
        island.cut = {address(9)}
        island.run(40 * 60, step=5)
        assert {len(node.table) for at, node in island.nodes.items() if at != address(9)} == {8}
        assert island.first().table.entries.dropped == 1
        assert len(island.nodes[address(9)].table) == 9, "no node answers it, so it keeps all"

    def test_saved_nodes_are_back_within_ten_seconds(self) -> None:
        island = joined(20)
        saved = island.first().table.good_nodes(island.now, 2000)
        again = made(0)
        island.nodes[address(0)] = again
        again.ping(saved, island.now)
        island.run(10)
        assert len(saved) == len(again.table) == 19

    def test_no_address_gets_more_than_one_query_a_second(self) -> None:
        island = joined(6)
        node = island.first()
        for _ in range(8):
            node.find_peers(HASH, island.now)
        sent: dict[Endpoint, int] = {}
        for tick in range(100):
            node.tick(island.now + tick / 10)
            for target, _ in node.take_datagrams():
                sent[target] = sent.get(target, 0) + 1
        assert sent and max(sent.values()) <= 4 + 10


class TestQueries:
    def test_a_query_about_a_torrent_waits_for_the_store(self) -> None:
        node = made(1)
        query = Query(b"aa", ASKER, GetPeers(HASH))
        assert node.receive(encode_query(query), SOURCE, 0) == query
        assert node.take_datagrams() == []
        node.respond(query, SOURCE, KNOWN, 0)
        ((target, data),) = node.take_datagrams()
        answer = parse_message(data)
        assert target == SOURCE and isinstance(answer, Answer) and answer.token
        announce = Query(b"ab", ASKER, AnnouncePeer(HASH, 7, answer.token))
        assert node.receive(encode_query(announce), SOURCE, 0) == announce
        node.respond(announce, SOURCE, KNOWN, 0)
        assert node.announced.peer_count == 1
        assert node.counts.queries_in == {("get_peers", "answered"): 1, ("announce_peer", "answered"): 1}

    def test_other_queries_are_answered_at_once(self) -> None:
        node = made(1)
        for arguments in (Ping(), FindNode(HASH)):
            assert node.receive(encode_query(Query(b"aa", ASKER, arguments)), SOURCE, 0) is None
        assert len(node.take_datagrams()) == 2

    def test_an_invalid_query_gets_an_error(self) -> None:
        node = made(1)
        data = b"d1:ad2:id20:abcdefghij0123456789e1:q4:vote1:t2:aa1:y1:qe"
        assert node.receive(data, SOURCE, 0) is None
        ((_, sent),) = node.take_datagrams()
        assert parse_message(sent) == Failure(b"aa", 204, "unknown method", b"SK01")

    def test_nothing_is_sent_to_port_0(self) -> None:
        node = made(1)
        for data in (
            encode_query(Query(b"aa", ASKER, Ping())),
            b"d1:ad2:id20:abcdefghij0123456789e1:q4:vote1:t2:aa1:y1:qe",
        ):
            assert node.receive(data, Endpoint(SOURCE[:4] + b"\0\0"), 0) is None
        assert node.take_datagrams() == [] and node.counts.dropped == {"port 0": 2}

    def test_a_flood_is_dropped_silently(self) -> None:
        node = made(1)
        ping = encode_query(Query(b"aa", ASKER, Ping()))
        for number in range(10_000):
            node.receive(ping, address(number), number / 10_000)
        assert 400 <= len(node.take_datagrams()) <= 600
        for step in range(100):
            for data in (b"rubbish", ping[:-1]):
                node.receive(data, SOURCE, 100 + step / 100)
        assert node.take_datagrams() == [] and node.counts.dropped["not bencoded"] == 200
        node.receive(ping, SOURCE, 101)
        assert [target for target, _ in node.take_datagrams()] == [SOURCE], "garbage uses up no limit"
        for step in range(100):
            node.receive(b"d1:y1:qe", SOURCE, 200 + step / 100)
        assert node.take_datagrams() == []
        assert node.counts.dropped["no transaction id"] == 10 and node.counts.dropped["address"] == 90
        assert sum(node.table.entries.sizes()) == 0

    def test_a_read_only_node_asks_but_does_not_answer(self) -> None:
        """BEP 43"""
        node = made(1, read_only=True)
        for arguments in (Ping(), GetPeers(HASH)):
            assert node.receive(encode_query(Query(b"aa", ASKER, arguments)), SOURCE, 0) is None
        assert node.take_datagrams() == []
        assert node.counts.queries_in == {("ping", "ignored"): 1, ("get_peers", "ignored"): 1}
        node.contact([SOURCE], 0)
        assert [query.read_only for query in delivered(node)] == [True]

    @given(st.binary(max_size=200))
    def test_random_bytes_are_survived(self, data: bytes) -> None:
        node = made(1, limited=False)
        node.contact([SOURCE], 0)
        for packet in (data, b"d1:rd2:id20:abcdefghij0123456789" + data + b"e1:t4:aaaa1:y1:re"):
            assert node.receive(packet, SOURCE, 0) is None


class TestAnswers:
    def test_only_the_asked_address_is_believed(self) -> None:
        node = made(1)
        node.contact([SOURCE], 0)
        (query,) = delivered(node)
        answer = Answer(query.transaction, ASKER)
        node.receive(encode_answer(answer), address(7), 0)
        node.receive(encode_answer(answer._replace(transaction=b"abcd")), SOURCE, 0)
        assert len(node.table) == 0 and node.counts.dropped["not asked for"] == 2
        node.receive(encode_answer(answer), SOURCE, 0)
        assert node.table.entry(ASKER)
        node.receive(encode_answer(answer), SOURCE, 0)
        assert node.counts.dropped["not asked for"] == 3

    def test_who_was_asked_may_not_flood_us(self) -> None:
        """One datagram with the id of a query ends it. Other queries are limited like all, and garbage is dropped."""
        node = made(1)
        node.ping([Node(ASKER, SOURCE)] * 4, 0)
        transactions = [query.transaction for query in delivered(node)]
        assert len(transactions) == 4
        fakes = [encode_query(Query(each, ASKER, Ping())) for each in transactions]
        rubbish = b"rubbish 1:t4:" + transactions[3]
        for data in (*fakes[:3], rubbish) * 50:
            node.receive(data, SOURCE, 0)
        assert node.counts.queries_out["ping", "failed"] == 4
        assert node.counts.dropped["address"] + node.counts.dropped["ignored"] == 150 - 3 - 10
        assert len(node.take_datagrams()) <= 10 and node.counts.dropped["not bencoded"] == 50

    def test_who_was_asked_may_not_hide_a_flood_behind_one_query(self) -> None:
        """Each datagram has the transaction id of the query in its version, and another one in its place."""
        node = made(1)
        node.contact([SOURCE], 0)
        (query,) = delivered(node)
        data = encode_answer(Answer(b"nono", ASKER, version=b"")).replace(
            b"1:y1:re", b"1:v11:1:t4:" + query.transaction + b"!!1:y1:re"
        )
        assert node._transactions.awaited(SOURCE, data) == query.transaction
        for _ in range(50):
            node.receive(data, SOURCE, 0)
        assert node.counts.queries_out == {("find_node", "failed"): 1}
        assert node.counts.dropped == {"not asked for": 50}

    def test_a_node_that_refuses_pings_does_not_keep_others_from_being_pinged(self) -> None:
        """More of them than are pinged at once."""
        node = made(1, limited=False)
        refusing = [Node(to_id((1 << 159) + number), address(number)) for number in range(1, 31)]
        for each in refusing:
            node.table.on_answer(each, 0)
        other = Node(to_id(1 << 158), address(99))
        node.table.on_answer(other, 1)
        pinged = set()
        for second in range(900, 1000):
            node.tick(second)
            for target, data in node.take_datagrams():
                query = parse_message(data)
                assert isinstance(query, Query)
                if isinstance(query.arguments, Ping):
                    pinged.add(target)
                node.receive(encode_failure(Failure(query.transaction, 202, "no")), target, second)
        assert other.endpoint in pinged

    def test_a_late_answer_is_ignored(self) -> None:
        node = made(1)
        node.contact([SOURCE], 0)
        (query,) = delivered(node)
        node.tick(10)
        node.receive(encode_answer(Answer(query.transaction, ASKER)), SOURCE, 10)
        assert len(node.table) == 0
        assert node.counts.queries_out["find_node", "failed"] == 1

    def test_an_answer_under_another_id_is_a_failure_of_the_one_asked(self) -> None:
        node = made(1)
        for transaction_of in (ASKER, NodeId(b"b" * 20)):
            node.ping([Node(ASKER, SOURCE)], 0)
            (query,) = delivered(node)
            node.receive(encode_answer(Answer(query.transaction, transaction_of)), SOURCE, 0)
        entry = node.table.entry(ASKER)
        assert entry and entry.failures == 1 and len(node.table) == 1

    def test_an_unreachable_node_fails_at_once(self) -> None:
        node = made(1)
        node.ping([Node(ASKER, SOURCE)], 0)
        (query,) = delivered(node)
        node.receive(encode_answer(Answer(query.transaction, ASKER)), SOURCE, 0)
        lookup = node.find_peers(HASH, 1)
        node.unreachable(SOURCE, 1)
        entry = node.table.entry(ASKER)
        assert entry and entry.failures == 1
        assert lookup and lookup.outcome and lookup.outcome.answered == 0

    def test_an_error_ends_a_query_but_is_a_sign_of_life(self) -> None:
        node = made(1)
        node.ping([Node(ASKER, SOURCE)], 0)
        (query,) = delivered(node)
        node.receive(encode_answer(Answer(query.transaction, ASKER)), SOURCE, 0)
        lookup = node.find_peers(HASH, 1)
        (query,) = delivered(node)
        node.receive(encode_failure(Failure(query.transaction, 202, "no")), SOURCE, 1)
        entry = node.table.entry(ASKER)
        assert lookup and lookup.outcome and lookup.outcome.answered == 0 and entry and entry.failures == 0

    def test_lookups_are_limited(self) -> None:
        node = made(1)
        node.ping([Node(ASKER, SOURCE)], 0)
        (query,) = delivered(node)
        node.receive(encode_answer(Answer(query.transaction, ASKER)), SOURCE, 0)
        lookups = [node.find_peers(HASH, 1) for _ in range(9)]
        assert [each is None for each in lookups] == [False] * 8 + [True]


class TestExternalAddress:
    def test_our_id_follows_the_address_that_others_see(self) -> None:
        """BEP 42"""
        node, seen = made(1), Endpoint(b"\x58\1\2\3\1\1")
        node.table.on_answer(Node(to_id(5), address(5)), 0)
        before = node.id
        assert not fits_address(before, seen[:-2])  # type: ignore[arg-type]
        for voter in range(5):
            assert node.id == before
            source = Endpoint(bytes((10, voter, 1, 1)) + b"\x1a\xe1")
            node.contact([source], 0)
            query = delivered(node)[0]
            named = Answer(query.transaction, NodeId(bytes((voter,)) * 20), external=seen)
            node.receive(encode_answer(named), source, 0)
            node.take_datagrams()
        assert node.id != before and fits_address(node.id, seen[:-2])  # type: ignore[arg-type]
        assert len(node.table) == node.table.entries.added - node.table.entries.dropped == 6

    def test_a_private_address_is_none(self) -> None:
        node = made(1)
        before = node.id
        for voter in range(20):
            source = Endpoint(bytes((10, voter, 1, 1)) + b"\x1a\xe1")
            node.contact([source], 0)
            query = delivered(node)[0]
            answer = Answer(query.transaction, NodeId(bytes((voter,)) * 20), external=address(9))
            node.receive(encode_answer(answer), source, 0)
            node.take_datagrams()
        assert node.id == before


def test_answers_leave_nothing_to_the_garbage_collector() -> None:
    """The collector stops the process; after 1,000 answers a second with cycles it did so for 20 ms and more."""
    node = made(1, limited=False)
    swarm = Swarm(takes_part=True, seeds=tuple(address(number) for number in range(2, 60)))
    query = Query(b"aa", ASKER, GetPeers(HASH))
    gc.collect()
    for _ in range(100):
        node.respond(query, address(2), swarm, 0)
    assert len(node.take_datagrams()) == 100
    assert gc.collect() < 100
