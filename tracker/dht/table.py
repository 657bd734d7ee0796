"""The routing table of one address family: which nodes are known, and which to ping and to look up (BEP 5, BEP 42).
Only a node that answered a query of ours enters. Other nodes that query us or that others name are candidates, which
are pinged when there is room. So the table cannot be filled with forged datagrams or with names alone."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from tracker.bittorrent import Address
from tracker.dht.buckets import Buckets
from tracker.dht.node_id import fits_address, is_usable, network_of, random_id_within, shared_bits, to_number
from tracker.wire.krpc import Node, NodeId

ANSWER_NODES = 8
"""Nodes in an answer, and the width of a lookup: Kademlia's k in BEP 5."""
RANKED = 4
"""Among so many times the wanted number of nodes, those whose id fits their address come first. Not among all: nodes
distant do not help, and an answer would take more than a millisecond."""
BAD_FAILURES = 2
"""Queries in a row without an answer."""
MAX_CANDIDATES = 8
"""Per bucket."""
PING_AGAIN_SECONDS = 10
BAD_PING_SECONDS = 60
OUTAGE_SECONDS = 60
"""No node answered for so long: our own connection is taken to be down, and no node is dropped."""
QUIET_SECONDS = 30
"""No node answered for so long: two nodes are pinged, so that an outage and its end show within a minute."""
QUIET_PINGS = 2
GOOD_SECONDS = 900
REFRESH_SECONDS = 900
OWN_LOOKUP_SECONDS = 600
FIRST_LOOKUP_SECONDS = 5
FEW_NODES_LOOKUP_SECONDS = 30
"""Instead of OWN_LOOKUP_SECONDS, while an answer cannot even be filled with nodes."""


@dataclass(slots=True)
class Entry:
    node: Node
    number: int
    verified: bool
    """The id fits the address (BEP 42)."""
    last_answer: float
    last_query: float | None = None
    last_ping: float | None = None
    failures: int = 0
    """Queries in a row that it did not answer."""
    suspect: bool = False
    """Another node answered under its id or from its address, or queried us in its place. It is pinged."""

    @property
    def last_seen(self) -> float:
        return self.last_answer if self.last_query is None else max(self.last_answer, self.last_query)

    @property
    def bad(self) -> bool:
        return self.failures >= BAD_FAILURES


class RoutingTable:
    """``private_addresses``: nodes with private and loopback addresses are kept, any number of them in one network."""

    def __init__(
        self,
        own: NodeId,
        now: float,
        *,
        bucket_nodes: int = 80,
        node_timeout_seconds: int = 1800,
        private_addresses: bool = False,
    ) -> None:
        self.bucket_nodes = bucket_nodes
        self.node_timeout_seconds = node_timeout_seconds
        self.private_addresses = private_addresses
        self.entries: Buckets[Entry] = Buckets(to_number(own), bucket_nodes, on_drop=self._on_drop)
        self._hosts: dict[bytes, int] = {}  # address, or /64 of IPv6 -> number of its entry
        self._networks: dict[tuple[int, bytes], int] = {}  # bucket and /24 of IPv4 -> number of its entry
        self._candidates: dict[int, dict[int, Node]] = {}  # bucket -> number -> node
        self._changed: dict[int, float] = {}  # bucket -> when an entry of it answered last
        self.last_answer: float | None = None
        """When a node answered last, whether it is in the table or not."""
        self._next_own_lookup = now + FIRST_LOOKUP_SECONDS

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, id: NodeId) -> Entry | None:
        return self.entries.get(to_number(id))

    def closest(self, target: bytes, count: int = ANSWER_NODES) -> list[Node]:
        """The nodes nearest to ``target`` that are not bad. Among RANKED times ``count``, those whose id does not fit
        their address only fill up (BEP 42)."""
        fitting: list[Node] = []
        others: list[Node] = []
        for entry in self.entries.nearest(to_number(target)):
            if not entry.bad:
                (fitting if entry.verified else others).append(entry.node)
            if len(fitting) == count or len(fitting) + len(others) == RANKED * count:
                break
        return (fitting + others)[:count]

    def lookup_start(self, target: bytes) -> list[Node]:
        """Like ``closest``. Where all nodes are bad, they are tried all the same."""
        nearest = self.entries.nearest(to_number(target))
        return self.closest(target) or [entry.node for entry in islice(nearest, ANSWER_NODES)]

    def good_nodes(self, now: float, count: int) -> list[Node]:
        """Nearest first: what is worth saving."""
        good = (entry.node for entry in self.entries.nearest(self.entries.own) if self.is_good(entry, now))
        return list(islice(good, count))

    def is_good(self, entry: Entry, now: float) -> bool:
        return not entry.bad and now - entry.last_seen < GOOD_SECONDS

    def on_answer(self, node: Node, now: float) -> None:
        """A node answered a query of ours, from the address that was asked."""
        number = to_number(node.id)
        known = self.entries.get(number)
        is_known = known is not None and known.node == node
        room = is_known or self._replace_bad_rivals(node, number)
        if self._is_outage(now):
            for entry in self.entries:  # it was our connection, not theirs; a ping shows whether all are still there
                entry.failures = min(entry.failures, BAD_FAILURES - 1)
        self.last_answer = now
        if known is not None and is_known:
            known.last_answer, known.failures, known.suspect = now, 0, False
            self._changed[self._index(number)] = now
        elif room and self._make_room(number, now):
            entry = Entry(node, number, fits_address(node.id, Address(node.endpoint[:-2])), now)
            self.entries.put(number, entry)
            self._note_place(entry)
            self._changed[self._index(number)] = now
        elif room:
            self._add_candidate(node)

    def on_query(self, node: Node, now: float, *, read_only: bool = False) -> None:
        """A node queried us. Its address may be forged."""
        known = self.entries.get(to_number(node.id))
        if known is not None and known.node == node:
            if not read_only:
                known.last_query = now
        elif not read_only:
            self._add_candidate(node)
            for entry in self._rivals(node, to_number(node.id)):
                # Another one at its place: it may have left. Two living nodes of a network cost a ping a minute.
                entry.suspect = entry.suspect or now - entry.last_seen >= BAD_PING_SECONDS

    def on_named(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            known = self.entries.get(to_number(node.id))
            if known is None or known.node != node:
                self._add_candidate(node)

    def on_failure(self, node: Node, now: float) -> None:
        """A query of ours was not answered, or by another id."""
        entry = self.entries.get(to_number(node.id))
        if entry is None or entry.node != node:
            return
        entry.failures += 1
        if now - entry.last_seen >= self.node_timeout_seconds and not self._is_outage(now):
            self.entries.drop(entry.number)

    def due_pings(self, now: float, count: int = 10) -> list[Node]:
        """Nodes of the table to ping now: who is not good any more, silent longest first. For every 10 seconds."""
        due = [entry for entry in self.entries if self._is_due(entry, now)]
        due = sorted(due, key=lambda entry: entry.last_seen)[:count]
        for entry in due:
            entry.last_ping = now
        return [entry.node for entry in due]

    def quiet_pings(self, now: float) -> list[Node]:
        """Nodes to ping while no node answers: those seen last. None after an answer."""
        if self.last_answer is not None and now - self.last_answer < QUIET_SECONDS:
            return []
        quiet = sorted(self.entries, key=lambda entry: (entry.bad, -entry.last_seen))[:QUIET_PINGS]
        for entry in quiet:
            entry.last_ping = now
        return [entry.node for entry in quiet]

    def due_candidates(self, now: float, count: int = 4) -> list[Node]:
        """Candidates to ping now, as there is room for them: those whose id fits their address first, of deep buckets
        before shallow ones. They are forgotten thereby: a candidate enters when it answers. For every second."""
        ready = [
            node
            for _, waiting in sorted(self._candidates.items(), key=lambda item: -item[0])
            if waiting
            for node in self._with_prospect(waiting, now)
        ]
        ready.sort(key=lambda node: not fits_address(node.id, Address(node.endpoint[:-2])))
        for node in ready[:count]:
            number = to_number(node.id)
            del self._candidates[self._index(number)][number]
        return ready[:count]

    def due_lookup(self, now: float, rng: random.Random) -> int | None:
        """The id to look up now, if any: our own, or a random one of a bucket that has not changed for long."""
        own = self.entries.own
        if now >= self._next_own_lookup:
            few = len(self) < ANSWER_NODES
            self._next_own_lookup = now + (FEW_NODES_LOOKUP_SECONDS if few else OWN_LOOKUP_SECONDS)
            return own
        unchanged = [
            (self._changed.setdefault(index, now), index) for index, size in enumerate(self.entries.sizes()) if size
        ]
        changed, index = min(unchanged, default=(now, 0))
        if now - changed < REFRESH_SECONDS:
            return None
        self._changed[index] = now
        return random_id_within(own, index, rng.getrandbits(160))

    def change_id(self, own: NodeId) -> None:
        """Our id changed: all nodes are filed again."""
        self.entries.rebase(to_number(own))
        for index in (self._hosts, self._networks, self._candidates, self._changed):
            index.clear()
        for entry in self.entries:
            self._note_place(entry)

    def _rivals(self, node: Node, number: int) -> list[Entry]:
        """The entries whose place a node would take: with its id, at its address, or in its network."""
        network = self._network(node, number)
        numbers = {number, self._hosts.get(self._host(node)), None if network is None else self._networks.get(network)}
        return [entry for each in numbers if each is not None and (entry := self.entries.get(each))]

    def _replace_bad_rivals(self, node: Node, number: int) -> bool:
        """Drops the entries whose place a node takes that answered. Returns False where one of them is not bad."""
        if not self._is_acceptable(node, number):
            return False
        rivals = self._rivals(node, number)
        if all(entry.bad for entry in rivals):
            for entry in rivals:
                self.entries.drop(entry.number)
            return True
        for entry in rivals:
            if entry.number == number or self._host(entry.node) == self._host(node):
                entry.suspect = True
        return False

    def _make_room(self, number: int, now: float) -> bool:
        """Whether a newcomer enters. In a full bucket it replaces a bad node. It waits while a questionable one has
        not been pinged in vain, and enters besides good ones only where it is among the nearest to us."""
        bucket = self.entries.bucket(number)
        if len(bucket) < self.bucket_nodes:
            return True
        bad = min((entry for entry in bucket.values() if entry.bad), key=lambda entry: entry.last_seen, default=None)
        if bad is not None:
            self.entries.drop(bad.number)
            return True
        if not all(self.is_good(entry, now) for entry in bucket.values()):
            return False
        return self.entries.has_room(number)

    def _note_place(self, entry: Entry) -> None:
        self._hosts[self._host(entry.node)] = entry.number
        network = self._network(entry.node, entry.number)
        if network is not None:
            self._networks[network] = entry.number

    def _on_drop(self, entry: Entry) -> None:
        del self._hosts[self._host(entry.node)]
        network = self._network(entry.node, entry.number)
        if network is not None:
            self._networks.pop(network, None)

    def _is_due(self, entry: Entry, now: float) -> bool:
        pinged = entry.last_ping
        if pinged is not None and now - pinged < PING_AGAIN_SECONDS:
            return False
        if entry.bad:
            silent = now - entry.last_seen >= self.node_timeout_seconds
            return silent and (pinged is None or now - pinged >= BAD_PING_SECONDS)
        return entry.suspect or entry.failures > 0 or not self.is_good(entry, now)

    def _is_outage(self, now: float) -> bool:
        return self.last_answer is None or now - self.last_answer >= OUTAGE_SECONDS

    def _add_candidate(self, node: Node) -> None:
        number = to_number(node.id)
        if not self._is_acceptable(node, number):
            return
        candidates = self._candidates.setdefault(self._index(number), {})
        if number not in candidates and len(candidates) >= MAX_CANDIDATES:
            del candidates[next(iter(candidates))]  # the one that waits longest
        candidates[number] = node

    def _with_prospect(self, waiting: dict[int, Node], now: float) -> list[Node]:
        """The candidates of one bucket that would enter now if they answered."""
        entries = self.entries.bucket(next(iter(waiting))).values()
        replaces = any(entry.bad for entry in entries)
        settled = len(entries) < self.bucket_nodes or all(self.is_good(entry, now) for entry in entries)
        return [
            node
            for number, node in waiting.items()
            if all(entry.bad for entry in self._rivals(node, number))
            and (replaces or (settled and self.entries.has_room(number)))
        ]

    def _is_acceptable(self, node: Node, number: int) -> bool:
        return number != self.entries.own and is_usable(node.endpoint, private_addresses=self.private_addresses)

    def _network(self, node: Node, number: int) -> tuple[int, bytes] | None:
        """What one entry has for itself in a bucket; ``None`` where the address alone counts."""
        if self.private_addresses or len(node.endpoint) > 6:
            return None
        return self._index(number), network_of(node.endpoint[:-2], 24, 64)

    def _host(self, node: Node) -> bytes:
        """What one operator has without effort: an address of IPv4, a /64 of IPv6."""
        address = node.endpoint[:-2]
        return address if self.private_addresses else network_of(address, 32, 64)

    def _index(self, number: int) -> int:
        return shared_bits(number ^ self.entries.own)
