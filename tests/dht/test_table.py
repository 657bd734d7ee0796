"""D3, D4: the routing table: who enters, who stays, who is pinged, and when a node is dropped."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tracker.bittorrent import Address, Endpoint
from tracker.dht.node_id import fits_address, id_for_address, shared_bits, to_id, to_number
from tracker.dht.table import MAX_CANDIDATES, QUIET_PINGS, QUIET_SECONDS, RoutingTable
from tracker.wire.krpc import Node, NodeId

OWN = to_id(0)
FAR, NEAR = 1 << 159, 1 << 100
"""Numbers in bucket 0, and in bucket 59."""
SMALL: dict[str, Any] = {"bucket_nodes": 4, "private_addresses": True}
MINUTE = 60.0


def node(number: int, *, host: int | None = None, port: int = 6881) -> Node:
    """A node with a private address, for which any id will do."""
    address = (0x0A000000 + (number % 1000 + 1000 * number.bit_length() if host is None else host)).to_bytes(4, "big")
    return Node(to_id(number), Endpoint(address + port.to_bytes(2, "big")))


def public(number: int, address: str, port: int = 6881) -> Node:
    packed = bytes(map(int, address.split(".")))
    return Node(to_id(number), Endpoint(packed + port.to_bytes(2, "big")))


def table_with(*nodes: Node, rules: dict[str, Any] = SMALL, at: float = 0) -> RoutingTable:
    table = RoutingTable(OWN, at, **rules)
    for each in nodes:
        table.on_answer(each, at)
        assert table.entry(each.id)
    return table


def held(table: RoutingTable) -> set[int]:
    return {entry.number for entry in table.entries}


FULL = [node(FAR + number) for number in range(4)]
NEAREST = [node(NEAR + number) for number in range(4)]


class TestWhoEnters:
    def test_who_answers_enters(self) -> None:
        table = table_with(*FULL)
        assert (len(table), table.entries.added, table.entries.dropped) == (4, 4, 0)
        assert table.entries.sizes()[0] == 4

    def test_a_query_or_a_name_alone_changes_nothing(self) -> None:
        table = table_with(*FULL[:2])
        for number in range(2, 50):
            table.on_query(node(FAR + number), 1)
            table.on_named([node(NEAR + number)])
        assert held(table) == {FAR, FAR + 1}

    def test_a_candidate_is_pinged_once_and_enters_when_it_answers(self) -> None:
        table = table_with()
        table.on_query(FULL[0], 0)
        table.on_named([FULL[1]])
        due = table.due_candidates(1)
        assert sorted(due) == sorted(FULL[:2])
        assert table.due_candidates(2) == table.due_pings(2) == [] and len(table) == 0
        table.on_answer(FULL[1], 3)
        assert held(table) == {FAR + 1}

    def test_read_only_nodes_are_not_kept(self) -> None:
        """BEP 43"""
        table = table_with()
        table.on_query(FULL[0], 0, read_only=True)
        assert table.due_candidates(1) == []

    def test_candidates_are_bounded(self) -> None:
        table = table_with(*NEAREST)
        table.on_named(node(FAR + number) for number in range(500))
        assert len(table.due_candidates(0, count=1000)) == MAX_CANDIDATES

    @pytest.mark.parametrize(
        "bad",
        [
            public(0, "9.9.9.9"),
            *(public(FAR, "9.9.9.9", port=port) for port in (0, 53, 1023)),
            *(public(FAR, address) for address in ("10.0.0.1", "127.0.0.1", "224.0.0.1", "0.0.0.0")),
            Node(to_id(FAR), Endpoint(b"\xff\x02" + bytes(13) + b"\1" + b"\x1a\xe1")),
            Node(to_id(FAR), Endpoint(bytes(15) + b"\1" + b"\x1a\xe1")),
            Node(to_id(FAR), Endpoint(b"\xfe\x80" + bytes(13) + b"\1" + b"\x1a\xe1")),
        ],
    )
    def test_unusable_nodes_are_refused(self, bad: Node) -> None:
        table = RoutingTable(OWN, 0)
        table.on_answer(bad, 0)
        table.on_named([bad])
        assert len(table) == 0 and table.due_candidates(0) == []

    @pytest.mark.parametrize("address", ["224.0.0.1", "0.0.0.1", "255.255.255.255"])
    def test_private_addresses_are_no_excuse_for_these(self, address: str) -> None:
        table = table_with()
        table.on_answer(public(FAR, address), 0)
        assert len(table) == 0

    def test_one_node_per_address(self) -> None:
        table = table_with(public(FAR, "9.9.9.9"), rules={})
        table.on_answer(public(NEAR, "9.9.9.9", port=9999), 1)
        assert held(table) == {FAR}
        assert table.due_pings(1) == [public(FAR, "9.9.9.9")], "the one that is there is suspect"

    def test_one_node_per_network_of_ipv6(self) -> None:
        start = b"\x2a\x00\x14\x50\0\1\0\2"
        first = Node(to_id(FAR), Endpoint(start + bytes(8) + b"\x1a\xe1"))
        second = Node(to_id(NEAR), Endpoint(start + b"\1" * 8 + b"\x1a\xe1"))
        table = table_with(first, rules={})
        table.on_answer(second, 0)
        assert held(table) == {FAR}

    def test_one_node_per_network_of_ipv4_and_bucket(self) -> None:
        table = table_with(public(FAR, "9.9.9.9"), rules={})
        table.on_answer(public(FAR + 1, "9.9.9.10"), 0)
        assert held(table) == {FAR}
        table.on_answer(public(NEAR, "9.9.9.10"), 0)
        table.on_answer(public(FAR + 1, "9.9.8.10"), 0)
        assert held(table) == {FAR, NEAR, FAR + 1}

    def test_an_id_under_another_address_is_refused_and_both_are_suspect(self) -> None:
        table = table_with(FULL[0], FULL[1])
        thief = Node(FULL[0].id, FULL[1].endpoint)
        table.on_answer(thief, 1)
        entry = table.entry(FULL[0].id)
        assert entry and entry.node == FULL[0]
        assert sorted(table.due_pings(1)) == sorted(FULL[:2])

    def test_a_node_with_a_new_id_replaces_its_old_self_when_that_is_bad(self) -> None:
        table = table_with(FULL[0])
        again = Node(FULL[1].id, FULL[0].endpoint)
        table.on_answer(again, 1)
        for _ in range(2):
            table.on_failure(FULL[0], 2)
        table.on_answer(again, 3)
        assert held(table) == {FAR + 1}

    @pytest.mark.parametrize("second", ["9.9.9.9", "9.9.9.10"])
    def test_a_candidate_in_the_place_of_a_bad_node_is_pinged_and_takes_it(self, second: str) -> None:
        """D20: the same address with another port, or another one of the network."""
        old, new = public(FAR, "9.9.9.9"), public(FAR + 1, second, port=9999)
        table = table_with(old, public(NEAR, "8.8.8.8"), rules={})
        takes_the_place_of_a_bad_one(table, old, new)

    @pytest.mark.parametrize("last", [1, 2])
    def test_the_same_in_a_network_of_ipv6(self, last: int) -> None:
        start = b"\x2a\x00\x14\x50\0\1\0\2" + bytes(7)
        old = Node(to_id(FAR), Endpoint(start + b"\1\x1a\xe1"))
        new = Node(to_id(FAR + 1), Endpoint(start + bytes((last,)) + b"\x1a\xe2"))
        table = table_with(old, rules={})
        takes_the_place_of_a_bad_one(table, old, new)

    def test_a_node_that_moved_with_its_id_takes_its_own_place(self) -> None:
        table = table_with(FULL[0], FULL[1])
        takes_the_place_of_a_bad_one(table, FULL[0], node(FAR, host=77, port=9999))


def takes_the_place_of_a_bad_one(table: RoutingTable, old: Node, new: Node) -> None:
    """Also where no node has answered for long. A query alone has the old one pinged once a minute."""
    count, now = len(table), 2 * MINUTE
    table.on_query(new, MINUTE - 1)
    assert table.due_pings(MINUTE - 1) == []
    table.on_query(new, now)
    assert table.due_pings(now) == [old]
    assert table.due_candidates(now) == [], "the old one may still be there"
    for _ in range(2):
        table.on_failure(old, now)
    table.on_named([new])
    assert table.due_candidates(now) == [new]
    table.on_answer(new, now + 1)
    entry = table.entry(new.id)
    assert entry and entry.node == new and len(table) == count
    assert table.entries.added - table.entries.dropped == count and old not in table.closest(old.id, 99)


class TestFullBucket:
    def test_good_nodes_stay(self) -> None:
        table = table_with(*NEAREST, *FULL)
        table.on_answer(node(FAR + 9), 14 * MINUTE)
        assert FAR + 9 not in held(table) and len(table) == 8
        assert table.due_pings(14 * MINUTE) == table.due_candidates(14 * MINUTE) == [], (
            "there is no room for the candidate"
        )

    def test_a_bad_node_is_replaced(self) -> None:
        table = table_with(*NEAREST, *FULL)
        for _ in range(2):
            table.on_failure(FULL[1], 1)
        table.on_answer(node(FAR + 9), 2)
        assert FAR + 9 in held(table) and FAR + 1 not in held(table)
        assert (len(table), table.entries.added, table.entries.dropped) == (8, 9, 1)

    def test_a_questionable_node_is_pinged_twice_before_it_goes(self) -> None:
        table, now = table_with(*NEAREST, *FULL), 16 * MINUTE
        for each in (*NEAREST, *FULL[1:]):
            table.on_answer(each, now)
        newcomer = node(FAR + 9)
        table.on_answer(newcomer, now)
        assert newcomer.id not in {each.id for each in table.closest(OWN, 99)}
        assert table.due_pings(now) == [FULL[0]]
        assert table.due_pings(now + 9) == table.due_candidates(now + 9) == []
        table.on_failure(FULL[0], now + 9)
        table.on_answer(newcomer, now + 9)
        assert FAR in held(table) and FAR + 9 not in held(table)
        assert table.due_pings(now + 10) == [FULL[0]]
        table.on_failure(FULL[0], now + 20)
        assert FAR in held(table), "it stays until the newcomer answers"
        assert table.due_candidates(now + 20) == [newcomer] and table.due_pings(now + 20) == []
        table.on_answer(newcomer, now + 21)
        assert FAR not in held(table) and FAR + 9 in held(table)

    def test_a_questionable_node_that_answers_stays(self) -> None:
        table, now = table_with(*NEAREST, *FULL), 16 * MINUTE
        for each in (*NEAREST, *FULL[1:]):
            table.on_answer(each, now)
        table.on_answer(node(FAR + 9), now)
        assert table.due_pings(now) == [FULL[0]]
        table.on_answer(FULL[0], now + 1)
        table.on_answer(node(FAR + 9), now + 2)
        assert held(table) == {*(NEAR + n for n in range(4)), *(FAR + n for n in range(4))}

    def test_queries_keep_a_node_good_that_once_answered(self) -> None:
        table = table_with(FULL[0])
        table.on_query(FULL[0], 14 * MINUTE)
        assert table.due_pings(28 * MINUTE) == []
        assert table.due_pings(30 * MINUTE) == [FULL[0]]

    def test_the_nearest_enter_besides_good_nodes(self) -> None:
        table = table_with(*[node(FAR + 100 - number) for number in range(60)])
        assert table.entries.sizes()[0] == 8
        assert {FAR + 41 + number for number in range(4)} <= held(table)
        assert (table.entries.added, table.entries.dropped) == (60, 52)

    def test_who_fits_its_address_ranks_first(self) -> None:
        """BEP 42"""
        rng = random.Random(1)
        table = RoutingTable(OWN, 0)
        fitting: list[NodeId] = []
        others: list[NodeId] = []
        for number in range(1, 13):
            address = Address(bytes((80, number, 1, 1)))
            fits = number % 2 == 0
            id = id_for_address(address, rng.randbytes(20)) if fits else NodeId(rng.randbytes(20))
            assert fits_address(id, address) == fits
            table.on_answer(Node(id, Endpoint(address + b"\x1a\xe1")), 0)
            (fitting if fits else others).append(id)
        target = rng.randbytes(20)
        order = [each.id for each in table.closest(target, 8)]
        by_distance = [sorted(ids, key=lambda id: to_number(id) ^ to_number(target)) for ids in (fitting, others)]
        assert order == by_distance[0] + by_distance[1][:2]

    def test_a_distant_fitting_id_does_not_hide_nearer_nodes(self) -> None:
        """An attacker may know which ids fit, and a lookup needs near nodes."""
        rng = random.Random(1)
        table = RoutingTable(OWN, 0)
        numbers = []
        for number in range(200):
            address = Address(bytes((80, number, 1, 1)))
            far = number < 8
            id = id_for_address(address, rng.randbytes(20)) if far else to_id(rng.getrandbits(150))
            table.on_answer(Node(id, Endpoint(address + b"\x1a\xe1")), 0)
            assert fits_address(id, address) == far
            numbers.append(to_number(id))
        found = [to_number(each.id) for each in table.closest(OWN)]
        assert found == sorted(numbers)[:8]


class TestTimeouts:
    def test_silent_beyond_the_timeout_and_a_failed_ping_is_dropped(self) -> None:
        table, now = table_with(*FULL), 30 * MINUTE
        table.on_answer(FULL[1], now)
        assert FULL[0] in table.due_pings(now)
        assert len(table) == 4 and table.entries.dropped == 0
        table.on_failure(FULL[0], now + 10)
        assert (len(table), table.entries.added, table.entries.dropped) == (3, 4, 1)

    def test_silent_for_less_is_bad_but_kept(self) -> None:
        table, now = table_with(*FULL), 20 * MINUTE
        table.on_answer(FULL[1], now)
        for _ in range(5):
            table.on_failure(FULL[0], now)
        assert len(table) == 4
        assert FULL[0] not in table.closest(FULL[0].id, 8)
        assert FULL[0] not in table.due_pings(now), "not again before the timeout"
        table.on_answer(FULL[1], 30 * MINUTE)
        assert FULL[0] in table.due_pings(30 * MINUTE)

    def test_nothing_is_dropped_while_no_node_answers(self) -> None:
        table = table_with(*FULL)
        for second in range(60, 3600, 10):
            for each in table.due_pings(second):
                table.on_failure(each, second + 5)
        assert held(table) == {FAR + number for number in range(4)} and table.entries.dropped == 0
        assert table.closest(OWN) == [] and len(table.lookup_start(OWN)) == 4

    def test_the_first_answer_after_an_outage_forgives_all(self) -> None:
        table = table_with(*FULL)
        for second in range(60, 3600, 10):
            for each in table.due_pings(second):
                table.on_failure(each, second + 5)
        table.on_answer(FULL[0], 3600)
        assert len(table.closest(OWN)) == 4
        assert sorted(table.due_pings(3620)) == FULL[1:], "a ping shows whether they are there"
        table.on_answer(node(FAR + 9), 3601)
        assert len(table) == 4 and table.entries.dropped == 0

    def test_pings_go_to_the_longest_silent_and_are_limited(self) -> None:
        table = RoutingTable(OWN, 0, private_addresses=True)
        for number in range(30):
            table.on_answer(node(FAR + number), number)
        due = table.due_pings(16 * MINUTE)
        assert due == [node(FAR + number) for number in range(10)]
        assert table.due_pings(16 * MINUTE) == [node(FAR + number) for number in range(10, 20)]


class TestQuiet:
    """D22: an outage and its end show within a minute, also where nothing is asked."""

    def test_no_node_is_pinged_while_one_answers(self) -> None:
        assert table_with(*FULL).quiet_pings(QUIET_SECONDS - 1) == []
        assert RoutingTable(OWN, 0, **SMALL).quiet_pings(1000) == []

    def test_those_seen_last_are_pinged(self) -> None:
        table = table_with(*FULL[:2])
        table.on_answer(FULL[2], 5)
        table.on_query(FULL[1], 9)
        assert table.quiet_pings(5 + QUIET_SECONDS) == [FULL[1], FULL[2]]

    def test_others_follow_when_those_are_bad(self) -> None:
        table = table_with(*FULL)
        first = table.quiet_pings(100)
        for _ in range(2):
            for each in first:
                table.on_failure(each, 100)
        others = table.quiet_pings(130)
        assert len(others) == QUIET_PINGS and not set(others) & set(first)


class TestLookups:
    def test_our_own_id_is_looked_up_soon_and_every_ten_minutes(self) -> None:
        table, rng = table_with(*FULL, *NEAREST), random.Random(1)
        due = [second for second in range(1300) if table.due_lookup(second, rng) == 0]
        assert due == [5, 605, 1205]

    def test_while_few_nodes_are_known_it_is_looked_up_more_often(self) -> None:
        table, rng = table_with(*FULL), random.Random(1)
        assert [second for second in range(100) if table.due_lookup(second, rng) == 0] == [5, 35, 65, 95]

    def test_a_bucket_without_change_is_looked_up(self) -> None:
        table, rng = table_with(*FULL, *NEAREST), random.Random(1)
        assert table.due_lookup(600, rng) == 0
        table.on_answer(FULL[0], 600)
        target = table.due_lookup(900, rng)
        assert target is not None and shared_bits(target) == 59
        assert table.due_lookup(901, rng) is None
        assert table.due_lookup(1200, rng) == 0
        target = table.due_lookup(1500, rng)
        assert target is not None and shared_bits(target) == 0


class TestOwnId:
    def test_another_id_files_all_nodes_anew(self) -> None:
        table = table_with(*FULL, *NEAREST)
        own = to_id(FAR + 3)
        table.change_id(own)
        assert table.entries.added - table.entries.dropped == len(table) == 7, "our own id is no node"
        assert table.entries.sizes()[0] == 4 and sum(table.entries.sizes()[1:]) == 3
        assert table.closest(own, 3) == [FULL[2], FULL[1], FULL[0]]
        table.on_answer(node(NEAR + 9), 1)
        table.on_answer(Node(to_id(77), FULL[0].endpoint), 1)
        assert table.entries.added - table.entries.dropped == len(table) == 7

    def test_good_nodes_are_saved_nearest_first(self) -> None:
        table = table_with(*FULL, *NEAREST)
        for each in (*FULL[:2], NEAREST[3]):
            table.on_answer(each, 20 * MINUTE)
        assert table.good_nodes(20 * MINUTE, 2000) == [NEAREST[3], *FULL[:2]]
        assert table.good_nodes(20 * MINUTE, 1) == [NEAREST[3]]


numbers = st.integers(0, 3).flatmap(lambda bucket: st.integers(1, 12).map(lambda at: (1 << 159 >> bucket) + at))
nodes = st.builds(lambda number, host: node(number, host=host), numbers, st.integers(1, 14))


class TableMachine(RuleBasedStateMachine):
    """Any sequence of answers, queries, names, failures and time."""

    @initialize()
    def start(self) -> None:
        self.table = RoutingTable(OWN, 0, bucket_nodes=3, private_addresses=True)
        self.now = 0.0
        self.answered: set[Node] = set()

    @rule(seconds=st.sampled_from((0.1, 5, 11, 61, 900, 1800)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(which=nodes)
    def answer(self, which: Node) -> None:
        self.answered.add(which)
        self.table.on_answer(which, self.now)

    @rule(which=nodes, read_only=st.booleans())
    def query(self, which: Node, read_only: bool) -> None:
        before = (len(self.table), self.table.entries.added, self.table.entries.dropped)
        self.table.on_query(which, self.now, read_only=read_only)
        self.table.on_named([which])
        assert before == (len(self.table), self.table.entries.added, self.table.entries.dropped)

    @rule(which=nodes)
    def fail(self, which: Node) -> None:
        before, entry = len(self.table), self.table.entry(which.id)
        silent = entry is not None and self.now - entry.last_seen >= self.table.node_timeout_seconds
        self.table.on_failure(which, self.now)
        assert len(self.table) == before or (silent and len(self.table) == before - 1)

    @rule(count=st.integers(0, 5))
    def ping(self, count: int) -> None:
        for due in (self.table.due_pings(self.now, count), self.table.due_candidates(self.now, count)):
            assert len(due) <= count and len(set(due)) == len(due)

    @rule(number=numbers)
    def change_id(self, number: int) -> None:
        self.table.change_id(to_id(number))
        self.table.change_id(OWN)

    @invariant()
    def is_consistent(self) -> None:
        table = self.table
        entries = list(table.entries)
        assert len(entries) == len(table) == table.entries.added - table.entries.dropped == sum(table.entries.sizes())
        assert {entry.node for entry in entries} <= self.answered
        hosts = [entry.node.endpoint[:-2] for entry in entries]
        assert len(set(hosts)) == len(hosts) and set(table._hosts) == set(hosts)
        assert max(table.entries.sizes()) <= 6 and all(len(waiting) <= 8 for waiting in table._candidates.values())


def test_any_sequence_leaves_a_consistent_table() -> None:
    run_state_machine_as_test(TableMachine, settings=settings(max_examples=60, deadline=None))


@given(st.lists(st.integers(1, 2**160 - 1), max_size=40, unique=True), st.integers(0, 2**160 - 1))
def test_the_closest_are_those_of_a_sorted_list(numbers: list[int], target: int) -> None:
    table = RoutingTable(OWN, 0, private_addresses=True)
    for host, number in enumerate(numbers):
        table.on_answer(node(number, host=host + 1), 0)
    found = [to_number(each.id) for each in table.closest(to_id(target))]
    assert found == sorted(numbers, key=target.__xor__)[:8]
