"""A node of the DHT in one address family, without its socket: datagrams in, datagrams out. The caller delivers
datagrams and lets time pass with ``tick``, then sends what ``take_datagrams`` returns. It fetches what the store says
about a torrent, because this module does not wait for anything."""

import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from itertools import takewhile

from tracker.bittorrent import Address, Endpoint, InfoHash, is_routable
from tracker.dht.lookup import Lookup
from tracker.dht.node_id import ExternalAddress, fits_address, id_for_address, to_id
from tracker.dht.rate_limits import InboundLimits, OutboundLimits
from tracker.dht.responder import NO_PART, Family, Responder, Swarm
from tracker.errors import KrpcError, QueryError
from tracker.wire import krpc

MAX_PENDING = 256
TIMEOUT_SECONDS = 10
_ID_LENGTH = 4
_ID_FIELD = b"1:t4:"
_PING = krpc.Ping()


@dataclass(slots=True, eq=False)
class Pending:
    """A query of ours that waits for the limits, or for its answer."""

    endpoint: Endpoint
    id: krpc.NodeId | None
    """``None`` for a node that is known by its address only."""
    arguments: krpc.Arguments = _PING
    lookup: Lookup | None = None
    sent_at: float = 0.0

    @property
    def query(self) -> str:
        return krpc.NAMES[type(self.arguments)]


class Transactions:
    def __init__(self) -> None:
        self._pending: dict[tuple[Endpoint, bytes], Pending] = {}  # in the order they were sent

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, pending: Pending, rng: random.Random) -> bytes:
        """Returns the transaction id to send. At most MAX_PENDING queries wait. ``rng`` must not be guessable."""
        assert len(self._pending) < MAX_PENDING
        transaction = rng.randbytes(_ID_LENGTH)
        while (pending.endpoint, transaction) in self._pending:
            transaction = rng.randbytes(_ID_LENGTH)
        self._pending[pending.endpoint, transaction] = pending
        return transaction

    def awaited(self, endpoint: Endpoint, data: bytes) -> bytes | None:
        """The transaction id of a query that a datagram claims to answer, by its bytes alone; ``None`` where it answers
        none, or has its fields in an unusual order. It tells answers from a flood before they are decoded."""
        at = data.rfind(_ID_FIELD) + len(_ID_FIELD)
        transaction = data[at : at + _ID_LENGTH]
        return transaction if (endpoint, transaction) in self._pending else None

    def finish(self, endpoint: Endpoint, transaction: bytes) -> Pending | None:
        """The query that an answer or error belongs to; ``None`` for a late, forged or repeated one."""
        return self._pending.pop((endpoint, transaction), None)

    def fail(self, endpoint: Endpoint) -> list[Pending]:
        """The queries to an address that the network reports as unreachable."""
        return [self._pending.pop(key) for key in list(self._pending) if key[0] == endpoint]

    def expire(self, now: float) -> list[Pending]:
        """The queries that were not answered in time. For every second."""
        late = takewhile(lambda item: now - item[1].sent_at >= TIMEOUT_SECONDS, self._pending.items())
        return [self._pending.pop(key) for key, _ in list(late)]


MAX_LOOKUPS = 8
MAX_WAITING = 2048
"""Queries that wait for the limits. A restart pings up to 2,000 saved nodes."""
MAX_SECONDS = 1000
"""Answer times that are kept for metrics. A node sends 50 queries a second, and metrics take them every second."""
PING_ROUND_SECONDS = 10
GROWTH_ROUND_SECONDS = 1
EXPIRE_ROUND_SECONDS = 60

Datagram = tuple[Endpoint, bytes]


@dataclass(slots=True)
class NodeCounts:
    """Since the start, for metrics."""

    queries_in: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By query and outcome: answered, refused, limited (too many bytes), ignored (a read-only node, or our own id)."""
    queries_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By query and outcome: answered, refused, failed."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Datagrams by reason."""
    packets_in: int = 0
    packets_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=MAX_SECONDS))
    """The query and the time of each answer that is not in the metrics yet."""


@dataclass(eq=False)
class DhtNode:
    """``rng`` must not be guessable: it draws the ids of our queries. ``family`` is one of the responder's."""

    family: InitVar[Family]
    responder: Responder
    _: KW_ONLY
    inbound: InboundLimits
    outbound: OutboundLimits
    external: ExternalAddress
    rng: random.Random
    now: InitVar[float]
    counts: NodeCounts = field(default_factory=NodeCounts)
    _transactions: Transactions = field(default_factory=Transactions)
    _lookups: list[Lookup] = field(default_factory=list)
    _waiting: deque[Pending] = field(default_factory=deque)
    _datagrams: list[Datagram] = field(default_factory=list)

    def __post_init__(self, family: Family, now: float) -> None:
        self.table, self.announced, self.samples = family.table, family.announced, family.samples
        # Which peers an answer names may be guessed, and the system's randomness is a system call for each number.
        self._choices = random.Random(self.rng.getrandbits(64))
        self._next_pings = self._next_growth = now
        self._next_expiry = now + EXPIRE_ROUND_SECONDS

    @property
    def id(self) -> krpc.NodeId:
        return to_id(self.table.entries.own)

    def take_datagrams(self) -> list[Datagram]:
        datagrams, self._datagrams = self._datagrams, []
        return datagrams

    def receive(self, data: bytes, source: Endpoint, now: float) -> krpc.Query | None:
        """Returns a query about a torrent, which the caller answers with ``respond``."""
        self.counts.packets_in += 1
        self.counts.bytes_in += len(data)
        if source.endswith(b"\0\0"):
            self.counts.dropped["port 0"] += 1
            return None
        awaited = self._transactions.awaited(source, data)
        if awaited is None and (reason := krpc.why_no_query(data) or self.inbound.refuse(Address(source[:-2]), now)):
            self.counts.dropped[reason] += 1
            return None
        message: krpc.Query | krpc.Answer | krpc.Failure | None = None
        try:
            message = krpc.parse_message(data)
        except KrpcError as error:
            self.counts.dropped[str(error)] += 1
        except QueryError as error:
            self.counts.queries_in["other", "refused"] += 1
            self._answer(self.responder.refuse(error), source, now)
        answers = message.transaction if isinstance(message, krpc.Answer | krpc.Failure) else None
        # What has the transaction id of our query, and is no answer to it, is the end of the query.
        if awaited not in (None, answers) and (pending := self._transactions.finish(source, awaited)) is not None:
            self._fail(pending, now)
        if isinstance(message, krpc.Answer | krpc.Failure):
            self._finish(message, source, now)
        elif awaited is None and message is not None:
            if isinstance(message.arguments, krpc.GetPeers | krpc.AnnouncePeer) and not self.responder.read_only:
                return message
            self.respond(message, source, NO_PART, now)
        return None

    def respond(self, query: krpc.Query, source: Endpoint, swarm: Swarm, now: float) -> None:
        """Answers a query that ``receive`` returned. Not to be called while the store is unavailable."""
        data = self.responder.respond(query, source, swarm, now, self._choices)
        sent = self._answer(data, source, now)
        outcome = "answered" if sent else "limited" if data is not None else "ignored"
        self.counts.queries_in[krpc.NAMES[type(query.arguments)], outcome] += 1

    def unreachable(self, endpoint: Endpoint, now: float) -> None:
        for pending in self._transactions.fail(endpoint):
            self._fail(pending, now)

    def tick(self, now: float) -> None:
        """Lets time pass. For several times a second while lookups run, else once a second."""
        for pending in self._transactions.expire(now):
            self._fail(pending, now)
        if now >= self._next_pings:
            self._next_pings = now + PING_ROUND_SECONDS
            self.ping(self.table.due_pings(now) or self.table.quiet_pings(now), now)
        if now >= self._next_growth:
            self._next_growth = now + GROWTH_ROUND_SECONDS
            self.ping(self.table.due_candidates(now), now)
            target = self.table.due_lookup(now, self.rng)
            if target is not None:
                self.find_nodes(target, now)
        if now >= self._next_expiry:
            self._next_expiry = now + EXPIRE_ROUND_SECONDS
            self.announced.expire(now)
        waiting, self._waiting = self._waiting, deque()
        for query in waiting:
            self._ask(query, now)
        for lookup in list(self._lookups):
            self._advance(lookup, now)

    def contact(self, endpoints: Iterable[Endpoint], now: float) -> None:
        """Asks nodes known by their address only, such as bootstrap nodes, for those near us."""
        for endpoint in endpoints:
            self._ask(Pending(endpoint, None, krpc.FindNode(self.id)), now)

    def ping(self, nodes: Iterable[krpc.Node], now: float) -> None:
        """Pings nodes, such as those of an earlier run. They enter the table when they answer."""
        for node in nodes:
            self._ask(Pending(node.endpoint, node.id), now)

    def find_nodes(self, target: int, now: float) -> Lookup | None:
        return self._look_up(krpc.FindNode(to_id(target)), now)

    def find_peers(self, info_hash: InfoHash, now: float, *, scrape: bool = False) -> Lookup | None:
        """Returns ``None`` while too many lookups run. ``scrape``: counts instead of peers (BEP 33)."""
        return self._look_up(krpc.GetPeers(info_hash, scrape=scrape), now)

    def stop(self, lookup: Lookup) -> None:
        """Ends a lookup if it is not done: no more nodes are asked."""
        if lookup.outcome is None:
            lookup.outcome = lookup.result()
            self._lookups.remove(lookup)

    def _look_up(self, query: krpc.FindNode | krpc.GetPeers, now: float) -> Lookup | None:
        if len(self._lookups) >= MAX_LOOKUPS:
            return None
        lookup = Lookup(
            query,
            self.table.lookup_start(query.target if isinstance(query, krpc.FindNode) else query.info_hash),
            now,
            own=self.table.entries.own,
            private_addresses=self.table.private_addresses,
            external=self.external.address,
        )
        self._lookups.append(lookup)
        self._advance(lookup, now)
        return lookup

    def _advance(self, lookup: Lookup, now: float) -> None:
        for node in lookup.next_queries(now):
            self._ask(Pending(node.endpoint, node.id, lookup.query, lookup), now)
        if lookup.is_done(now):
            self.stop(lookup)

    def _ask(self, query: Pending, now: float) -> None:
        """Sends a query, or keeps it until the limits allow it."""
        if query.lookup is not None and query.lookup.outcome is not None:
            return
        if len(self._transactions) >= MAX_PENDING or not self.outbound.take(Address(query.endpoint[:-2]), now):
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(query)
            elif query.lookup is not None and query.id is not None:
                query.lookup.on_failure(krpc.Node(query.id, query.endpoint))
            return
        query.sent_at = now
        transaction = self._transactions.begin(query, self.rng)
        message = krpc.Query(transaction, self.id, query.arguments, self.responder.read_only, self.responder.version)
        self._send(query.endpoint, krpc.encode_query(message))

    def _answer(self, data: bytes | None, source: Endpoint, now: float) -> bool:
        if data is None or not self.inbound.may_answer(len(data), now):
            return False
        self._send(source, data)
        return True

    def _send(self, endpoint: Endpoint, data: bytes) -> None:
        self.counts.packets_out += 1
        self.counts.bytes_out += len(data)
        self._datagrams.append((endpoint, data))

    def _finish(self, message: krpc.Answer | krpc.Failure, source: Endpoint, now: float) -> None:
        pending = self._transactions.finish(source, message.transaction)
        if pending is None:
            self.counts.dropped["not asked for"] += 1
            return
        if isinstance(message, krpc.Failure):
            self.counts.queries_out[pending.query, "refused"] += 1
            if isinstance(pending.arguments, krpc.Ping) and pending.id is not None:
                # A node that refuses pings would be pinged for ever, in place of others.
                self.table.on_failure(krpc.Node(pending.id, source), now)
            self._fail_lookup(pending, now)
            return
        self.counts.queries_out[pending.query, "answered"] += 1
        self.counts.seconds.append((pending.query, now - pending.sent_at))
        node = krpc.Node(message.id, source)
        self.table.on_answer(node, now)
        length = krpc.NODE_LENGTH if len(source) == 6 else krpc.NODE6_LENGTH
        self.table.on_named(krpc.split_nodes(message.nodes if len(source) == 6 else message.nodes6, length))
        if pending.id is None:
            if not self._lookups:
                self.find_nodes(self.table.entries.own, now)
        elif pending.id != message.id:
            self.table.on_failure(krpc.Node(pending.id, source), now)
            self._fail_lookup(pending, now)
        elif pending.lookup is not None:
            pending.lookup.on_answer(node, message)
            self._advance(pending.lookup, now)
        self._vote(message, Address(source[:-2]), now)

    def _fail(self, pending: Pending, now: float) -> None:
        self.counts.queries_out[pending.query, "failed"] += 1
        if pending.id is not None:
            self.table.on_failure(krpc.Node(pending.id, pending.endpoint), now)
        self._fail_lookup(pending, now)

    def _fail_lookup(self, pending: Pending, now: float) -> None:
        if pending.lookup is not None and pending.id is not None:
            pending.lookup.on_failure(krpc.Node(pending.id, pending.endpoint))
            self._advance(pending.lookup, now)

    def _vote(self, answer: krpc.Answer, voter: Address, now: float) -> None:
        """A new external address is a new id of ours (BEP 42)."""
        if answer.external is None or not fits_address(answer.id, voter):
            return
        seen = Address(answer.external[:-2])
        if is_routable(seen) and self.external.vote(seen, voter, now) and not fits_address(self.id, seen):
            own = id_for_address(seen, self.rng.randbytes(20))
            self.table.change_id(own)
            self.announced.change_id(own)
