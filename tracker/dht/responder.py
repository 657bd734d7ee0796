"""Answers the queries of other nodes (BEP 5, 32, 33, 42, 43, 51). No datagram is larger than 1,024 bytes.

A torrent that does not take part looks like one without room for more peers: nodes, but no token, so that nodes
announce elsewhere.

Peers that nodes announce live in memory only, and are bounded. Strangers write them, so only hashes and counts go to
the store, for two minutes. Of too many hashes those nearest to our id are kept, because others look for them there.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import takewhile
from math import gcd
from typing import NamedTuple

from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht import bloom
from tracker.dht.buckets import Buckets
from tracker.dht.node_id import to_id, to_number
from tracker.dht.table import RoutingTable
from tracker.errors import QueryError
from tracker.wire import krpc
from tracker.wire.connection_id import ConnectionIds
from tracker.wire.endpoint import pack_endpoint

MAX_SAMPLES = 20
LIFETIME_SECONDS = 2700
"""Clients announce again within half an hour."""
MAX_VALUES, MAX_VALUES6 = 50, 25
FILTER_SECONDS = 10
"""How long filters of at least MANY_PEERS are remembered."""
MANY_PEERS = 60
MAX_FILTERS = 1000
TOKEN_HASH_LENGTH = 8
_EMPTY_FILTER = bytes(krpc.FILTER_LENGTH)


class AnnouncedPeer(NamedTuple):
    endpoint: Endpoint
    seed: bool
    announced_at: float


_Swarm = dict[bytes, AnnouncedPeer]
"""The peers of a hash by address, the latest announce last."""


class AnnouncedPeers:
    """Those of one address family. ``max_peers``: of all hashes together."""

    def __init__(
        self,
        own: krpc.NodeId,
        bucket_hashes: int = 80,
        max_hashes: int = 2000,
        max_peers_of_hash: int = 500,
        max_peers: int = 100_000,
    ) -> None:
        self.max_peers_of_hash, self.max_peers = max_peers_of_hash, max_peers
        self.swarms: Buckets[_Swarm] = Buckets(
            to_number(own), bucket_hashes, max_entries=max_hashes, on_drop=self._on_drop
        )
        self.peer_count = 0

    def __len__(self) -> int:
        return len(self.swarms)

    def __contains__(self, info_hash: InfoHash) -> bool:
        return to_number(info_hash) in self.swarms

    def has_room(self, info_hash: InfoHash, address: bytes, now: float) -> bool:
        """Whether an announce is stored. One that renews an entry always is."""
        swarm = self._fresh(info_hash, now)
        if swarm is not None and address in swarm:
            return True
        if self.peer_count >= self.max_peers:
            return False
        if swarm is None:
            return self.swarms.has_room(to_number(info_hash))
        return len(swarm) < self.max_peers_of_hash

    def announce(self, info_hash: InfoHash, endpoint: Endpoint, now: float, *, seed: bool) -> bool:
        """One entry per address and hash: the latest port and kind count. Returns False where there is no room."""
        address = endpoint[:-2]
        if not self.has_room(info_hash, address, now):
            return False
        number = to_number(info_hash)
        swarm = self.swarms.get(number)
        if swarm is None:
            swarm = {}
            self.swarms.put(number, swarm)
        if swarm.pop(address, None) is None:
            self.peer_count += 1
        swarm[address] = AnnouncedPeer(endpoint, seed, now)
        return True

    def peers(self, info_hash: InfoHash, now: float) -> list[AnnouncedPeer]:
        return list((self._fresh(info_hash, now) or {}).values())

    def hashes(self) -> Iterator[InfoHash]:
        return (InfoHash(to_id(number)) for number, _ in self.swarms.items())

    def expire(self, now: float) -> None:
        """Removes all that is too old. For every minute."""
        for info_hash in list(self.hashes()):
            self._fresh(info_hash, now)

    def forget(self, info_hash: InfoHash) -> None:
        self.swarms.drop(to_number(info_hash))

    def change_id(self, own: krpc.NodeId) -> None:
        """Our id changed: the hashes are filed again."""
        self.swarms.rebase(to_number(own))
        self.peer_count = sum(map(len, self.swarms))

    def _fresh(self, info_hash: InfoHash, now: float) -> _Swarm | None:
        """The swarm without peers that are too old; ``None`` where nothing is left."""
        swarm = self.swarms.get(to_number(info_hash))
        if swarm is None:
            return None
        oldest = now - LIFETIME_SECONDS
        expired = list(takewhile(lambda address: swarm[address].announced_at <= oldest, swarm))
        for address in expired:
            del swarm[address]
        self.peer_count -= len(expired)
        if swarm:
            return swarm
        self.forget(info_hash)
        return None

    def _on_drop(self, swarm: _Swarm) -> None:
        self.peer_count -= len(swarm)


class SampleSet:
    """A random set that stays the same for an interval, so that asking often reveals no more."""

    def __init__(self, interval_seconds: int = 3600, *, by_worker: bool = False) -> None:
        """``by_worker``: a worker draws the sets, as it reads public torrents from the store for them
        (tracker/workers/dht.py). Else the responder does, when it is asked."""
        self.by_worker = by_worker
        self._interval_seconds = min(max(interval_seconds, 0), krpc.MAX_INTERVAL_SECONDS)
        self._hashes: list[InfoHash] = []
        self.total = 0
        """The size of what the set was drawn from."""
        self._until: float | None = None

    def is_due(self, now: float) -> bool:
        return self._until is None or now >= self._until

    def draw(
        self,
        hashes: Sequence[InfoHash],
        now: float,
        rng: random.Random,
        *,
        others: Sequence[InfoHash] = (),
        others_total: int = 0,
    ) -> None:
        """Draws another set. For when one is due, as ``hashes`` may be long. ``others``: up to MAX_SAMPLES random ones
        of ``others_total`` that are not among ``hashes``; each of all has the same chance."""
        self.total = len(hashes) + others_total
        chosen = rng.sample(range(self.total), min(self.total, MAX_SAMPLES))
        count = sum(each < len(hashes) for each in chosen)
        self._hashes = rng.sample(hashes, count) + list(others[: len(chosen) - count])
        rng.shuffle(self._hashes)
        self._until = now + self._interval_seconds

    def clear(self) -> None:
        """Shows nothing until the next set."""
        self._hashes, self.total, self._until = [], 0, None

    def hashes(self) -> list[InfoHash]:
        return list(self._hashes)

    def forget(self, info_hash: InfoHash) -> None:
        if info_hash in self._hashes:
            self._hashes.remove(info_hash)
            self.total -= 1

    def seconds_left(self, now: float) -> int:
        return 0 if self._until is None else max(int(self._until - now), 0)


@dataclass(slots=True)
class Family:
    """The two DHTs, of IPv4 and of IPv6, share nothing (BEP 32)."""

    table: RoutingTable
    announced: AnnouncedPeers
    samples: SampleSet | None = None
    """``None``: none are shown."""


class Swarm(NamedTuple):
    """What the tracker's store says about a torrent, in the family of the asker."""

    takes_part: bool = False
    """The torrent is public, or may be unknown. Without it all else is ignored."""
    seeds: Sequence[Endpoint] = ()
    leechers: Sequence[Endpoint] = ()


NO_PART = Swarm()


@dataclass(slots=True)
class Responder:
    """``families`` by 4 and 6. ``secret``, of the tokens of announces: 32 random bytes, new at each start.
    ``read_only``: no query is answered (BEP 43)."""

    families: dict[int, Family]
    secret: InitVar[bytes]
    version: bytes
    read_only: bool = False
    _filters: dict[tuple[InfoHash, int], tuple[float, tuple[bytes, bytes]]] = field(default_factory=dict)
    """By torrent and family: when they were made, and the filters."""
    tokens: ConnectionIds = field(init=False)

    def __post_init__(self, secret: bytes) -> None:
        self.tokens = ConnectionIds(secret, TOKEN_HASH_LENGTH)

    def refuse(self, error: QueryError) -> bytes | None:
        if self.read_only:
            return None
        return krpc.encode_failure(krpc.Failure(error.transaction, error.code, str(error), self.version))

    def forget(self, info_hash: InfoHash) -> None:
        """Forgets a torrent that no longer takes part: nothing announced is kept or shown."""
        for number, family in self.families.items():
            self._filters.pop((info_hash, number), None)
            family.announced.forget(info_hash)
            if family.samples is not None:
                family.samples.forget(info_hash)

    def respond(
        self, query: krpc.Query, source: Endpoint, swarm: Swarm, now: float, rng: random.Random
    ) -> bytes | None:
        """The datagram to send, if any. ``swarm``: of the torrent that the query names; else ``NO_PART``. Remembers
        announces, and tells the table about the asker. A torrent without part is forgotten: while the store is
        unavailable, a query about a torrent is left unanswered instead."""
        address = Address(source[:-2])
        number = 4 if len(address) == 4 else 6
        family = self.families.get(number)
        if family is None or query.id == to_id(family.table.entries.own) or source.endswith(b"\0\0"):
            return None
        family.table.on_query(krpc.Node(query.id, source), now, read_only=query.read_only)
        if self.read_only:
            return None
        answer = krpc.Answer(query.transaction, to_id(family.table.entries.own), external=source, version=self.version)
        match query.arguments:
            case krpc.Ping():
                return krpc.encode_answer(answer)
            case krpc.FindNode(target, want):
                return self._sent(self._with_nodes(answer, target, want, number), number)
            case krpc.SampleInfohashes(target, want):
                answer = self._with_nodes(answer, target, want, number)
                return self._sent(self._with_samples(answer, number, now, rng), number)
            case krpc.GetPeers(info_hash, want):
                answer = self._with_nodes(answer, info_hash, want, number)
                if swarm.takes_part and family.announced.has_room(info_hash, address, now):
                    answer = answer._replace(token=self.tokens.issue(address + info_hash, now))
                return self._with_peers(answer, query.arguments, number, swarm, now, rng)
            case krpc.AnnouncePeer() as announce:
                return self._announced(answer, announce, number, source, swarm, now)

    def _announced(
        self, answer: krpc.Answer, announce: krpc.AnnouncePeer, number: int, source: Endpoint, swarm: Swarm, now: float
    ) -> bytes:
        """An announce that is not stored gets the error of a wrong token, whatever the reason."""
        address = Address(source[:-2])
        endpoint = source if announce.implied_port else pack_endpoint(address, announce.port)
        if not swarm.takes_part:
            self.forget(announce.info_hash)
        elif (
            announce.token
            and self.tokens.is_valid(announce.token, address + announce.info_hash, now)
            and self.families[number].announced.announce(announce.info_hash, endpoint, now, seed=announce.seed)
        ):
            return krpc.encode_answer(answer)
        return krpc.encode_failure(krpc.Failure(answer.transaction, krpc.PROTOCOL, "wrong token", self.version))

    def _with_nodes(self, answer: krpc.Answer, target: bytes, want: tuple[int, ...], family: int) -> krpc.Answer:
        nodes = {
            each: b"".join(map(b"".join, self.families[each].table.closest(target)))
            for each in want or (family,)
            if each in self.families
        }
        return answer._replace(nodes=nodes.get(4), nodes6=nodes.get(6))

    def _with_samples(self, answer: krpc.Answer, family: int, now: float, rng: random.Random) -> krpc.Answer:
        """As many samples as fit, always the first ones."""
        samples = self.families[family].samples
        if samples is None:
            return answer._replace(samples=krpc.Samples(b"", 0, krpc.MAX_INTERVAL_SECONDS))
        if not samples.by_worker and samples.is_due(now):
            samples.draw(list(self.families[family].announced.hashes()), now, rng)
        empty = answer._replace(samples=krpc.Samples(b"", samples.total, samples.seconds_left(now)))
        # The length of the samples in digits takes two bytes more than that of none.
        room = (krpc.MAX_SENT_BYTES - len(krpc.encode_answer(empty)) - 2) // 20
        hashes = samples.hashes()[: max(room, 0)]
        return answer._replace(samples=krpc.Samples(b"".join(hashes), samples.total, samples.seconds_left(now)))

    def _with_peers(
        self, answer: krpc.Answer, query: krpc.GetPeers, number: int, swarm: Swarm, now: float, rng: random.Random
    ) -> bytes:
        if not swarm.takes_part:
            self.forget(query.info_hash)
            return self._sent(answer, number)
        announced = self.families[number].announced.peers(query.info_hash, now)
        if query.scrape:
            filters = self._counts(query.info_hash, number, swarm, announced, now)
            if filters != (_EMPTY_FILTER, _EMPTY_FILTER):
                answer = answer._replace(seeds_filter=filters[0], peers_filter=filters[1])
            return self._sent(answer, number)
        if query.no_seeds:
            seeds = {*swarm.seeds, *(peer.endpoint for peer in announced if peer.seed)}
            leechers = [*swarm.leechers, *(peer.endpoint for peer in announced)]
            peers = [each for each in leechers if each not in seeds]
        else:
            peers = [*swarm.leechers, *swarm.seeds, *[peer.endpoint for peer in announced]]
        length = 8 if number == 4 else 21  # 6:xxxxxx, 18:xxxxxxxxxxxxxxxxxx
        room = (krpc.MAX_SENT_BYTES - len(krpc.encode_answer(answer)) - len("6:valuesle")) // length
        count = max(min(MAX_VALUES if number == 4 else MAX_VALUES6, room), 0)
        return self._sent(answer._replace(values=_drawn(peers, count, rng)), number)

    def _counts(
        self, info_hash: InfoHash, number: int, swarm: Swarm, announced: Sequence[AnnouncedPeer], now: float
    ) -> tuple[bytes, bytes]:
        """The filters of seeds and of other peers. Those of many peers are remembered for some seconds, as a thousand
        take a millisecond."""
        key = info_hash, number
        known = self._filters.get(key)
        if known is not None and now - known[0] < FILTER_SECONDS:
            return known[1]
        seeds = {*swarm.seeds, *(peer.endpoint for peer in announced if peer.seed)}
        others = {*swarm.leechers, *(peer.endpoint for peer in announced if not peer.seed)}
        filters = _filter(seeds), _filter(others - seeds)
        self._filters.pop(key, None)
        if len(seeds) + len(others) < MANY_PEERS:
            return filters
        if len(self._filters) >= MAX_FILTERS:
            del self._filters[next(iter(self._filters))]
        self._filters[key] = now, filters
        return filters

    def _sent(self, answer: krpc.Answer, family: int) -> bytes:
        """The datagram. Where it is too large, nodes of the other family are left out, the farthest first."""
        data = krpc.encode_answer(answer)
        excess = len(data) - krpc.MAX_SENT_BYTES
        if excess <= 0:
            return data
        other = answer.nodes6 if family == 4 else answer.nodes
        length = krpc.NODE6_LENGTH if family == 4 else krpc.NODE_LENGTH
        kept = (other or b"")[: max((len(other or b"") - excess) // length, 0) * length]
        shorter = answer._replace(nodes6=kept) if family == 4 else answer._replace(nodes=kept)
        return krpc.encode_answer(shorter)


def _drawn(endpoints: Sequence[Endpoint], count: int, rng: random.Random) -> tuple[Endpoint, ...]:
    """``count`` different ones, or all where there are fewer: a random one, and each a random number of places further.
    That takes two random numbers, where independent ones would take longer than all else."""
    total = len(endpoints)
    if not total:
        return ()
    at, step = rng.randrange(total), rng.randrange(total) + 1
    while gcd(step, total) > 1:  # it would not reach all
        step = rng.randrange(total) + 1
    chosen: dict[Endpoint, None] = {}
    for _ in range(total):
        if len(chosen) >= count:
            break
        chosen[endpoints[at]] = None
        at = (at + step) % total
    return tuple(chosen)


def _filter(endpoints: Iterable[Endpoint]) -> bytes:
    return bloom.filter_of(endpoint[:-2] for endpoint in endpoints)
