"""One lookup: asks ever nearer nodes for a torrent's peers, or for the nodes nearest to an id (BEP 5, BEP 33). This
only decides. The caller sends the queries, and reports answers and failures."""

from bisect import insort
from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass
from enum import Enum
from typing import NamedTuple

from tracker.bittorrent import Address, Endpoint
from tracker.dht import bloom
from tracker.dht.node_id import fits_address, is_usable, network_of, to_number
from tracker.dht.table import ANSWER_NODES
from tracker.wire.krpc import FILTER_LENGTH, NODE6_LENGTH, NODE_LENGTH, Answer, FindNode, GetPeers, Node, split_nodes

PARALLEL = 4
SLOW_SECONDS = 1
"""A query that is not answered for so long makes room for another one."""
MAX_CANDIDATES = 100
MAX_QUERIES = 100
MAX_SECONDS = 30
MAX_PEERS = 1000
MAX_NAMED_PEERS = 100
"""Peers taken from one answer: so a few liars do not displace the peers that others name. Answers of usual nodes have
fewer."""


class _State(Enum):
    WAITING = 1
    ASKED = 2
    ANSWERED = 3
    FAILED = 4


@dataclass(slots=True, eq=False)
class _Candidate:
    distance: int
    node: Node
    verified: bool
    state: _State = _State.WAITING
    asked_at: float = 0.0
    named: tuple["_Candidate", ...] = ()
    """The nodes in its answer, where the lookup has room for them."""

    def __lt__(self, other: "_Candidate") -> bool:
        return self.distance < other.distance


class LookupResult(NamedTuple):
    peers: dict[Endpoint, frozenset[bytes]]
    """Each with the networks (/16 of IPv4, /32 of IPv6) of the nodes that named it."""
    seeds: float
    """By the filters of BEP 33, as ``leechers``. Nodes without filters add the peers they name."""
    leechers: float
    answered: int
    """Nodes that answered."""
    nearest: tuple[Node, ...]
    """The nearest nodes that answered, in order."""


@dataclass(eq=False)
class Lookup:
    """``query``: the arguments of its queries. ``start``: the nearest nodes that are known. ``own``: our id, which is
    never asked. ``private_addresses``: as of the routing table. ``external``: our own address, where no peer is."""

    query: FindNode | GetPeers
    start: InitVar[Iterable[Node]]
    started: float
    _: KW_ONLY
    own: int
    private_addresses: bool = False
    external: Address | None = None
    outcome: LookupResult | None = None
    """``None`` until it has ended."""
    _queries: int = 0
    _seeds_filter: bytes = bytes(FILTER_LENGTH)
    _peers_filter: bytes = bytes(FILTER_LENGTH)

    def __post_init__(self, start: Iterable[Node]) -> None:
        self._number = to_number(self.query.target if isinstance(self.query, FindNode) else self.query.info_hash)
        self._candidates: list[_Candidate] = []  # nearest first
        self._by_node: dict[Node, _Candidate] = {}
        self._networks: set[bytes] = set()
        self._peers: dict[Endpoint, set[bytes]] = {}
        self._add(start)

    def next_queries(self, now: float) -> list[Node]:
        """The nodes to ask now. They count as asked."""
        if now - self.started >= MAX_SECONDS:
            return []
        busy = sum(
            candidate.state is _State.ASKED and now - candidate.asked_at < SLOW_SECONDS
            for candidate in self._candidates
        )
        count = min(PARALLEL - busy, MAX_QUERIES - self._queries)
        chosen = [each for each in self._relevant() if each.state is _State.WAITING][: max(count, 0)]
        for candidate in chosen:
            candidate.state, candidate.asked_at = _State.ASKED, now
        self._queries += len(chosen)
        return [candidate.node for candidate in chosen]

    def on_answer(self, node: Node, answer: Answer) -> None:
        """``node`` as in ``next_queries``; ignored where it was not asked. The id of the answer must be the node's."""
        candidate = self._by_node.get(node)
        if candidate is None or candidate.state is not _State.ASKED:
            return
        candidate.state = _State.ANSWERED
        teller = node.endpoint[:-2]
        if answer.seeds_filter is not None and answer.peers_filter is not None:
            self._seeds_filter = bloom.union(self._seeds_filter, answer.seeds_filter)
            self._peers_filter = bloom.union(self._peers_filter, answer.peers_filter)
        network = network_of(teller, 16, 32)
        for endpoint in answer.values[:MAX_NAMED_PEERS]:
            new = (
                len(self._peers) < MAX_PEERS
                and len(endpoint[:-2]) == len(teller)
                and endpoint[:-2] != self.external
                and is_usable(endpoint, private_addresses=self.private_addresses)
            )
            if new or endpoint in self._peers:
                self._peers.setdefault(endpoint, set()).add(network)
        if len(teller) == 4:
            named = split_nodes(answer.nodes, NODE_LENGTH)
        else:
            named = split_nodes(answer.nodes6, NODE6_LENGTH)
        candidate.named = self._add(named[: 2 * ANSWER_NODES])

    def on_failure(self, node: Node) -> None:
        """The node did not answer, or with an error."""
        candidate = self._by_node.get(node)
        if candidate is None or candidate.state is not _State.ASKED:
            return
        candidate.state = _State.FAILED
        # A node that names only dead ones stalls a lookup as much as one that does not answer.
        for each in self._candidates:
            if (
                candidate in each.named
                and len(each.named) >= ANSWER_NODES
                and all(other.state is _State.FAILED for other in each.named)
            ):
                each.state = _State.FAILED

    def is_done(self, now: float) -> bool:
        """Whether the nearest nodes have answered, or no node is left to ask, or time is over."""
        if now - self.started >= MAX_SECONDS:
            return True
        states = {candidate.state for candidate in self._relevant()}
        if _State.ASKED in states:
            return False
        return _State.WAITING not in states or self._queries >= MAX_QUERIES

    def result(self) -> LookupResult:
        # A peer without a known kind counts as a leecher.
        others = (endpoint[:-2] for endpoint in self._peers if not bloom.contains(self._seeds_filter, endpoint[:-2]))
        leechers = bloom.filter_of(others, self._peers_filter)
        answered = [each.node for each in self._candidates if each.state is _State.ANSWERED]
        return LookupResult(
            {endpoint: frozenset(tellers) for endpoint, tellers in self._peers.items()},
            bloom.estimate(self._seeds_filter),
            bloom.estimate(leechers),
            len(answered),
            tuple(answered[:ANSWER_NODES]),
        )

    def _relevant(self) -> list[_Candidate]:
        """The candidates up to the eighth that answered. An answer of a node whose id does not fit its address does
        not count there (BEP 42)."""
        places = enumerate(self._candidates, 1)
        answered = [place for place, each in places if each.state is _State.ANSWERED and each.verified]
        return self._candidates[: answered[ANSWER_NODES - 1]] if len(answered) >= ANSWER_NODES else self._candidates

    def _add(self, nodes: Iterable[Node]) -> tuple[_Candidate, ...]:
        added = (self._by_node.get(node) or self._new_candidate(node) for node in nodes)
        return tuple(candidate for candidate in added if candidate is not None)

    def _new_candidate(self, node: Node) -> _Candidate | None:
        """None if the node is unreachable, its network is already present, or all places are taken by nearer nodes."""
        address = Address(node.endpoint[:-2])
        number = to_number(node.id)
        network = address if self.private_addresses else network_of(address, 24, 64)
        if number == self.own or network in self._networks:
            return None
        if not is_usable(node.endpoint, private_addresses=self.private_addresses):
            return None
        candidate = _Candidate(number ^ self._number, node, fits_address(node.id, address))
        if len(self._candidates) >= MAX_CANDIDATES and not self._remove_farthest(candidate.distance):
            return None
        insort(self._candidates, candidate)
        self._by_node[node] = candidate
        self._networks.add(network)
        return candidate

    def _remove_farthest(self, distance: int) -> bool:
        """Makes room for a candidate at this distance, where one that was not asked yet is farther."""
        waiting = (each for each in reversed(self._candidates) if each.state is _State.WAITING)
        farthest = next(waiting, None)
        if farthest is None or farthest.distance <= distance:
            return False
        self._candidates.remove(farthest)
        del self._by_node[farthest.node]
        address = farthest.node.endpoint[:-2]
        self._networks.discard(address if self.private_addresses else network_of(address, 24, 64))
        return True
