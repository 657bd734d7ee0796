"""Lookups in a simulated network: what they find, whom they ask, and when they end."""

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontends.dht.harness import packed
from tracker.bittorrent import Address, Endpoint
from tracker.dht import bloom
from tracker.dht.buckets import Buckets
from tracker.dht.lookup import MAX_CANDIDATES, MAX_NAMED_PEERS, MAX_PEERS, MAX_QUERIES, Lookup
from tracker.dht.node_id import fits_address, id_for_address, to_id, to_number
from tracker.wire.krpc import Answer, FindNode, Node, NodeId

TARGET = bytes(20)
NO_ID = 2**160 - 1


def node(number: int, host: int) -> Node:
    """Each with an address in a network of its own."""
    return Node(to_id(number), Endpoint((0x0A000000 + (host << 8)).to_bytes(4, "big") + b"\x1a\xe1"))


def answer(node: Node, *named: Node, values: tuple[Endpoint, ...] = ()) -> Answer:
    return Answer(b"aa", node.id, nodes=b"".join(map(b"".join, named)), values=values)


def lookup_from(*start: Node, private_addresses: bool = True) -> Lookup:
    return Lookup(FindNode(TARGET), start, 0, own=NO_ID, private_addresses=private_addresses)


class Network:
    """Nodes that know each other as Kademlia has it: some of each distance."""

    def __init__(self, rng: random.Random, count: int, dead: float = 0) -> None:
        self.nodes = [node(rng.getrandbits(160), host) for host in range(count)]
        self.alive = {each for each in self.nodes if rng.random() >= dead}
        self.known: dict[Node, Buckets[Node]] = {}
        for each in self.nodes:
            table: Buckets[Node] = Buckets(to_number(each.id), 8)
            for other in rng.sample(self.nodes, len(self.nodes)):
                table.put(to_number(other.id), other)
            self.known[each] = table

    def answer(self, asked: Node, target: bytes) -> Answer:
        return answer(asked, *islice(self.known[asked].nearest(to_number(target)), 8))

    def run(self, lookup: Lookup) -> int:
        """Returns the number of queries. A dead node fails after those asked with it have answered."""
        queries, now = 0, 0.0
        while not lookup.is_done(now):
            asked = lookup.next_queries(now)
            assert len(asked) <= 4
            queries += len(asked)
            for each in sorted(asked, key=self.alive.__contains__, reverse=True):
                if each in self.alive:
                    lookup.on_answer(each, self.answer(each, TARGET))
                else:
                    lookup.on_failure(each)
            now += 0.1
        return queries


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.2)))
def test_the_nearest_nodes_alive_are_found(seed: int, dead: float) -> None:
    rng = random.Random(seed)
    network = Network(rng, 80, dead)
    start = rng.sample(sorted(network.alive), 8)
    lookup = Lookup(FindNode(TARGET), start, 0, own=NO_ID, private_addresses=True)
    queries = network.run(lookup)
    nearest = sorted(network.alive, key=lambda each: to_number(each.id))[:8]
    found = lookup.result().nearest
    assert queries <= 60
    assert len(set(found) & set(nearest)) >= (8 if dead == 0 else 4)
    assert list(found) == sorted(found, key=lambda each: to_number(each.id))


class TestSteps:
    def test_four_queries_are_under_way_nearest_first(self) -> None:
        nodes = [node(number + 1, number) for number in range(9)]
        lookup = lookup_from(*reversed(nodes))
        assert lookup.next_queries(0) == nodes[:4]
        assert lookup.next_queries(0.5) == []
        lookup.on_answer(nodes[2], answer(nodes[2]))
        assert lookup.next_queries(0.5) == [nodes[4]]
        lookup.on_failure(nodes[0])
        assert lookup.next_queries(0.6) == [nodes[5]]

    def test_a_slow_node_frees_its_place_and_may_still_answer(self) -> None:
        nodes = [node(number + 1, number) for number in range(6)]
        lookup = lookup_from(*nodes)
        lookup.next_queries(0)
        assert lookup.next_queries(1) == nodes[4:]
        lookup.on_answer(nodes[0], answer(nodes[0]))
        assert lookup.result().answered == 1

    def test_it_ends_when_the_eight_nearest_have_answered(self) -> None:
        nodes = [node(number + 1, number) for number in range(12)]
        lookup = lookup_from(*nodes)
        for _ in range(2):
            for each in lookup.next_queries(0):
                assert not lookup.is_done(0)
                lookup.on_answer(each, answer(each))
        assert lookup.is_done(0) and lookup.next_queries(0) == []
        assert lookup.result().nearest == tuple(nodes[:8])

    def test_it_goes_on_while_a_nearer_one_is_under_way(self) -> None:
        nodes = [node(number + 1, number) for number in range(12)]
        lookup = lookup_from(*nodes)
        asked = lookup.next_queries(0)
        while asked:
            for each in asked:
                if each != nodes[0]:
                    lookup.on_answer(each, answer(each))
            asked = lookup.next_queries(1)
        assert not lookup.is_done(5)
        lookup.on_failure(nodes[0])
        assert lookup.is_done(5)

    def test_without_nodes_it_is_done_at_once(self) -> None:
        assert lookup_from().is_done(0)

    def test_no_node_left_to_ask_ends_it(self) -> None:
        lookup = lookup_from(node(1, 1))
        lookup.next_queries(0)
        lookup.on_failure(node(1, 1))
        assert lookup.is_done(0) and lookup.result().answered == 0

    def test_it_ends_after_thirty_seconds(self) -> None:
        lookup = lookup_from(node(1, 1))
        lookup.next_queries(0)
        assert not lookup.is_done(29) and lookup.is_done(30)
        assert lookup.next_queries(30) == []


class TestHostileAnswers:
    def test_endless_nearer_nodes_end_after_a_hundred_queries(self) -> None:
        first = node(1 << 159, 0)
        lookup, queries, number = lookup_from(first), 0, 0
        while not lookup.is_done(0):
            for asked in lookup.next_queries(0):
                queries += 1
                names = [node((1 << 158) - 100 * number - each, 20 * number + each + 1) for each in range(16)]
                number += 1
                lookup.on_answer(asked, answer(asked, *names))
            assert len(lookup._candidates) <= MAX_CANDIDATES
        assert queries == MAX_QUERIES
        assert len(lookup._by_node) == len(lookup._networks) == len(lookup._candidates)

    def test_a_node_that_names_only_dead_ones_counts_as_failed(self) -> None:
        liar, honest = node(1, 1), node(100, 2)
        dead = [node(number + 2, number + 3) for number in range(8)]
        lookup = lookup_from(liar, honest)
        lookup.next_queries(0)
        lookup.on_answer(liar, answer(liar, *dead))
        lookup.on_answer(honest, answer(honest))
        while asked := lookup.next_queries(0):
            for each in asked:
                lookup.on_failure(each)
        assert lookup.is_done(0) and lookup.result().nearest == (honest,)

    def test_one_node_per_network_is_asked(self) -> None:
        start = Node(to_id(1), Endpoint(b"\x09\x09\x09\x09\x1a\xe1"))
        twin = Node(to_id(2), Endpoint(b"\x09\x09\x09\x08\x1a\xe1"))
        other = Node(to_id(3), Endpoint(b"\x09\x09\x08\x09\x1a\xe1"))
        lookup = lookup_from(start, twin, other, private_addresses=False)
        assert lookup.next_queries(0) == [start, other]
        network = b"\x2a\x00" + bytes(6)
        first, second = (Node(to_id(n), Endpoint(network + bytes((n,)) * 8 + b"\x1a\xe1")) for n in (1, 2))
        assert lookup_from(first, second, private_addresses=False).next_queries(0) == [first]

    @pytest.mark.parametrize("address", [b"\x0a\0\0\1", b"\x7f\0\0\1", b"\xe0\0\0\1"])
    def test_unusable_nodes_are_not_asked(self, address: bytes) -> None:
        unusable = Node(to_id(1), Endpoint(address + b"\x1a\xe1"))
        assert lookup_from(unusable, private_addresses=False).next_queries(0) == []
        for port in (b"\0\0", b"\0\x35", b"\3\xff"):
            for host in (b"\x09\x09\x09\x09", b"\x2a\x00" + bytes(13) + b"\1"):
                assert lookup_from(Node(to_id(1), Endpoint(host + port))).next_queries(0) == []
        assert Lookup(FindNode(TARGET), [node(5, 5)], 0, own=5, private_addresses=True).next_queries(0) == []

    def test_answers_of_nodes_with_a_wrong_id_do_not_end_it(self) -> None:
        """BEP 42"""
        rng = random.Random(1)
        wrong = [Node(to_id(number), Endpoint(bytes((80, number, 1, 1)) + b"\x1a\xe1")) for number in range(1, 9)]
        assert not any(fits_address(each.id, each.endpoint[:-2]) for each in wrong)  # type: ignore[arg-type]
        address = bytes((90, 1, 1, 1))
        right = Node(NodeId(id_for_address(address, rng.randbytes(20))), Endpoint(address + b"\x1a\xe1"))
        lookup = lookup_from(*wrong, right, private_addresses=False)
        asked: list[Node] = []
        while batch := lookup.next_queries(0):
            asked += batch
            for each in batch:
                lookup.on_answer(each, answer(each))
        assert asked == [*wrong, right]

    def test_answers_that_were_not_asked_for_are_ignored(self) -> None:
        lookup = lookup_from(node(1, 1))
        value = (Endpoint(b"abcdef"),)
        for who in (node(1, 1), node(2, 2)):
            lookup.on_answer(who, answer(who, values=value))
        lookup.next_queries(0)
        lookup.on_answer(node(1, 1), answer(node(1, 1), values=value))
        lookup.on_answer(node(1, 1), answer(node(1, 1), values=(Endpoint(b"ghijkl"),)))
        lookup.on_failure(node(1, 1))
        assert set(lookup.result().peers) == set(value) and lookup.result().answered == 1


class TestFindings:
    def test_peers_are_kept_with_those_who_named_them(self) -> None:
        first, second = (Node(to_id(n), Endpoint(bytes((n, n, n, n, 26, 225)))) for n in (20, 30))
        lookup = lookup_from(first, second)
        lookup.next_queries(0)
        both, one = Endpoint(b"abcdef"), Endpoint(b"ghijkl")
        lookup.on_answer(first, answer(first, values=(both, one, Endpoint(b"abcd\0\0"))))
        lookup.on_answer(second, answer(second, values=(both, Endpoint(bytes(17) + b"\1"))))
        assert lookup.result().peers == {both: frozenset((b"\x14\x14", b"\x1e\x1e")), one: frozenset((b"\x14\x14",))}

    @pytest.mark.parametrize("private_addresses", [False, True])
    @pytest.mark.parametrize("family", [4, 6])
    def test_addresses_that_cannot_be_peers_are_not_counted(self, family: int, private_addresses: bool) -> None:
        own, peer, network, teller, *never = (
            ("9.0.0.1", "9.0.0.2", "10.0.0.3", "9.1.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1")
            if family == 4
            else ("2a00::1", "2a00::2", "fd00::3", "2a01::1", "::", "ff02::1")
        )
        asked = Node(to_id(1), packed(teller, 6881))
        values = [packed(each, 6881) for each in (own, peer, network, *never)]
        values += [packed(peer, port) for port in (1, 53, 1023)]
        external = Address(packed(own, 1)[:-2])
        lookup = Lookup(FindNode(TARGET), [asked], 0, own=NO_ID, private_addresses=private_addresses, external=external)
        lookup.next_queries(0)
        lookup.on_answer(asked, answer(asked, values=tuple(values)))
        wanted = {packed(peer, 6881)} | ({packed(network, 6881)} if private_addresses else set())
        result = lookup.result()
        assert set(result.peers) == wanted
        assert result.leechers == pytest.approx(len(wanted), abs=0.01)

    def test_peers_are_bounded(self) -> None:
        """Those of one answer too, so that a liar leaves room for others."""
        lookup, named = lookup_from(node(99, 99)), 0
        for number in range(99, 0, -1):
            (asked,) = lookup.next_queries(0)
            values = tuple(
                Endpoint((0x0A000000 + number * 1000 + n).to_bytes(4, "big") + b"\x1a\xe1") for n in range(240)
            )
            lookup.on_answer(asked, answer(asked, node(number - 1, number - 1), values=values))
            named = min(named + MAX_NAMED_PEERS, MAX_PEERS)
            assert len(lookup.result().peers) == named
        assert named == MAX_PEERS

    def test_filters_and_named_peers_are_counted_together(self) -> None:
        """BEP 33: a peer that a node without filters names is a leecher, unless it is among the seeds."""
        seeds = [bytes((1, 1, 1, number)) for number in range(20)]
        leechers = [bytes((2, 2, 2, number)) for number in range(30)]
        with_filters, other, without = (node(number, number) for number in (1, 2, 3))
        lookup = lookup_from(with_filters, other, without)
        lookup.next_queries(0)
        for who, some in ((with_filters, slice(0, 15)), (other, slice(5, 20))):
            filters = bloom.filter_of(seeds[some]), bloom.filter_of(leechers[some])
            lookup.on_answer(who, answer(who)._replace(seeds_filter=filters[0], peers_filter=filters[1]))
        named = [*seeds[:10], *leechers[10:]]
        lookup.on_answer(without, answer(without, values=tuple(Endpoint(each + b"\x1a\xe1") for each in named)))
        result = lookup.result()
        assert result.seeds == pytest.approx(20, rel=0.05)
        assert result.leechers == pytest.approx(30, rel=0.05)
        assert lookup_from().result().seeds == lookup_from().result().leechers == 0

    def test_peers_of_ipv6_come_from_nodes_of_ipv6(self) -> None:
        first = Node(to_id(1), Endpoint(b"\xfd" + bytes(14) + b"\1\x1a\xe1"))
        second = Node(to_id(2), Endpoint(b"\xfd" + bytes(14) + b"\2\x1a\xe1"))
        value = Endpoint(b"\xfd" + bytes(14) + b"\3\x1a\xe1")
        lookup = lookup_from(first)
        lookup.next_queries(0)
        packed = b"".join(second)
        lookup.on_answer(
            first, Answer(b"aa", first.id, nodes=bytes(26), nodes6=packed, values=(value, Endpoint(b"abcdef")))
        )
        assert set(lookup.result().peers) == {value}
        assert lookup.next_queries(0) == [second]
