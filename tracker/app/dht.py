"""Wires the node of the DHT, in the background process.

One tracker of a store runs the node of a name: a second one waits until the first has ended. A node whose name was
taken, because it could not renew its lease, is silent until it gets the name back. A command has a node of its own.
"""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from tracker import __version__
from tracker.bittorrent import Address, Endpoint, InfoHash, is_routable
from tracker.dht.node import DhtNode
from tracker.dht.node_id import ExternalAddress, fits_address, id_for_address
from tracker.dht.rate_limits import InboundLimits, OutboundLimits
from tracker.dht.responder import NO_PART, AnnouncedPeers, Family, Responder, SampleSet, Swarm
from tracker.dht.table import RoutingTable
from tracker.errors import ClientError, Postponed, StartupError
from tracker.frontends.dht.server import DhtSocket, serve_dht
from tracker.runtime.context import RuntimeContext
from tracker.runtime.telemetry import Telemetry
from tracker.settings.background import DhtSettings
from tracker.settings.types import host_and_port
from tracker.store.dht.nodes import LENGTHS, SavedNode, state_of
from tracker.store.dht.torrents import Participation
from tracker.system.datagrams import DatagramSocket, close_all, open_datagram_sockets
from tracker.system.event_loop import running
from tracker.system.logger import Logger
from tracker.wire.endpoint import format_endpoint, pack_address, pack_endpoint, split_address
from tracker.wire.krpc import Node, NodeId, split_nodes
from tracker.workers.dht import Forgetter, NameLease, StatusWorker, follow_changes, keep_connected, own_peers, restore
from tracker.workers.dht_lookups import RETRY_SECONDS, LookupWorker, counts, find_peers
from tracker.workers.loop import survive
from tracker.workers.prober import Prober

RECEIVE_BUFFER = 262_144
HEALTH = "dht_up", "dht_answered_at", "dht_torrents"
_FLUSH_SECONDS = 1.0
CONNECT_SECONDS = 10.0
FEW_SECONDS = 3.0
"""At least one node is known, but fewer than a lookup begins with."""
_ENOUGH_NODES = 8
_MAX_SAVED = 64
"""Saved nodes that are pinged, of each family: a command must not make thousands of connections in a small router."""
_POLL_SECONDS = 0.1

log = Logger("tracker.dht")


@dataclass
class DhtRuntime:
    """``nodes`` by 4 and 6; none while the node is off, or another tracker runs it."""

    addresses: tuple[str, ...] = ()
    nodes: dict[int, DhtNode] = field(default_factory=dict)
    participation: Participation | None = None
    """What was counted at the start; None if it could not be counted."""
    status: StatusWorker | None = None
    lookups: LookupWorker | None = None

    async def look_up(self, payload: Mapping[str, Any]) -> None:
        """Runs a job of the queue ``dht_lookup``."""
        if self.lookups is None or not self.nodes:
            raise Postponed(RETRY_SECONDS)
        await self.lookups.handle(payload)


@contextlib.asynccontextmanager
async def open_dht(
    context: RuntimeContext,
    prober: Prober,
    runtime: DhtRuntime | None = None,
    *,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[DhtRuntime]:
    """Runs the node if a setting says so, and fills ``runtime``. Raises StartupError where an address cannot be used.
    ``prober`` is the process's only one. ``timer`` is the time of the node in seconds from any start; ``sleep`` waits
    between renewals of the lease."""
    runtime = runtime or DhtRuntime()
    settings = context.live.current.dht
    if not settings.enabled:
        yield runtime
        return
    if settings.give_peers and settings.verify_peers and not context.live.current.probe.enabled:
        log.warning("no peers of the DHT are handed out: TRACKER_DHT__VERIFY_PEERS needs TRACKER_PROBE__ENABLED")
    (sockets,) = await open_datagram_sockets(settings.listen, RECEIVE_BUFFER)
    with contextlib.ExitStack() as stack:
        for each in sockets:
            stack.callback(each.close)
        if len({each.ipv6 for each in sockets}) < len(sockets):
            raise StartupError("TRACKER_DHT__LISTEN: at most one IPv4 and one IPv6 address")
        runtime.addresses = tuple(each.address for each in sockets)
        counting = context.store.dht_torrents.participation(all_torrents=settings.torrents == "all")
        runtime.participation = await survive(counting)
        lease = NameLease(context.store.scripts, settings.node_name, time.time, sleep)
        try:
            async with running(partial(_run, context, prober, sockets, runtime, lease, timer)):
                yield runtime
        finally:  # here, as the tasks of the block above may not take long to end
            if runtime.status is not None:
                await runtime.status.save_nodes()
                await runtime.status.save()
            await lease.release()


async def _run(
    context: RuntimeContext,
    prober: Prober,
    sockets: Sequence[DatagramSocket],
    runtime: DhtRuntime,
    lease: NameLease,
    timer: Callable[[], float],
) -> None:
    """Runs the node until cancelled. Where another tracker has taken its name, it is silent until it has it back."""
    store, settings = context.store, context.live.current.dht
    await lease.acquire()
    loading = store.dht_nodes.load(settings.node_name)
    saved = await survive(loading, "the nodes of the DHT's last run are not known", log) or SavedNode()
    nodes = build_nodes(settings, [6 if each.ipv6 else 4 for each in sockets], saved, timer())

    async def read_swarm(info_hash: InfoHash, family: int) -> Swarm:
        every, any_hash = settings.torrents == "all", settings.torrents == "any"
        found = await store.dht_torrents.swarm(info_hash, family, all_torrents=every, any_hash=any_hash)
        if found is None:
            return NO_PART
        return Swarm(True, *(found if settings.answer else ((), ())))

    forgetter = Forgetter(store.dht_torrents, nodes, all_torrents=settings.torrents != "public", timer=timer)
    runtime.status, runtime.lookups = status, lookups = _workers(context, prober, nodes, lease, timer)
    telemetry = DhtTelemetry(context.telemetry, nodes, lambda: status.participation, timer=timer)
    loops = [
        partial(keep_connected, node, partial(_bootstrap, context, settings, family), timer=timer)
        for family, node in nodes.items()
    ]

    async def keep_name() -> None:
        while True:
            runtime.nodes.update(nodes)
            telemetry.add_health()
            await lease.until_lost()
            runtime.nodes.clear()
            telemetry.remove_health()
            await lease.acquire()

    async with serve_dht(nodes, sockets, read_swarm, timer, lambda: lease.held) as served:
        restore(saved, nodes, timer())

        def changed(info_hash: InfoHash | None) -> None:
            forgetter.changed(info_hash)
            for each in served:
                each.cache.forget(info_hash)

        async with running(
            *loops,
            telemetry.run,
            partial(forgetter.run, draws=settings.samples == "public"),
            partial(follow_changes, store, changed),
            status.run,
            keep_name,
            *([lookups.run] if settings.lookups_per_minute else ()),
        ):
            await asyncio.Event().wait()


def _workers(
    context: RuntimeContext, prober: Prober, nodes: dict[int, DhtNode], lease: NameLease, timer: Callable[[], float]
) -> tuple[StatusWorker, LookupWorker]:
    store, live = context.store, context.live

    def count(outcome: str) -> None:
        context.telemetry.count(f"dht.lookups.{outcome}")
        status.lookups[outcome] += 1

    status = StatusWorker(live.current.dht, nodes, store, clock=time.time, timer=timer, may_save=lambda: lease.held)
    lookups = LookupWorker(
        store.dht_torrents, nodes, prober, lambda: live.current.dht, count=count, clock=time.time, timer=timer
    )
    return status, lookups


def build_nodes(settings: DhtSettings, families: Sequence[int], saved: SavedNode, now: float) -> dict[int, DhtNode]:
    """A node for each family (4, 6), with the id of the last run where it fits the external address."""
    rng = random.SystemRandom()
    version = b"SK" + bytes(int(part) for part in __version__.split(".")[:2])
    externals = {family: _external(settings, family, saved) for family in families}
    parts: dict[int, Family] = {}
    for family in families:
        own = _own_id(saved.ids.get(family), externals[family].address, rng)
        table = RoutingTable(
            own,
            now,
            bucket_nodes=settings.bucket_nodes,
            node_timeout_seconds=settings.node_timeout_seconds,
            private_addresses=settings.private_addresses,
        )
        announced = AnnouncedPeers(own, settings.bucket_hashes)
        samples = None if settings.samples == "none" else SampleSet(by_worker=settings.samples == "public")
        parts[family] = Family(table, announced, samples)
    responder = Responder(parts, os.urandom(32), version=version, read_only=settings.read_only)
    return {
        family: DhtNode(
            parts[family],
            responder,
            inbound=InboundLimits(
                now,
                address_rate=settings.address_queries_second,
                address_burst=settings.address_burst,
                total_rate=settings.queries_second,
                total_burst=settings.queries_burst,
                answer_bytes=settings.answer_bytes_second,
            ),
            outbound=OutboundLimits(now, settings.sent_queries_second),
            external=externals[family],
            rng=rng,
            now=now,
        )
        for family in families
    }


def _external(settings: DhtSettings, family: int, saved: SavedNode) -> ExternalAddress:
    length = 4 if family == 4 else 16
    for text in settings.external_address:
        address = pack_address(text)
        if address is not None and len(address) == length:
            return ExternalAddress(Address(address), fixed=True)
    known = pack_address(saved.externals.get(family, ""))
    return ExternalAddress(Address(known) if known is not None and len(known) == length else None)


def _own_id(saved: bytes | None, external: Address | None, rng: random.Random) -> NodeId:
    if saved is not None and (external is None or fits_address(saved, external)):
        return NodeId(saved)
    if external is not None and is_routable(external):
        return id_for_address(external, rng.randbytes(20))
    return NodeId(rng.randbytes(20))


async def _bootstrap(context: RuntimeContext, settings: DhtSettings, family: int) -> list[Endpoint]:
    """The configured nodes and some clients of public swarms, of one family."""
    found: list[Endpoint] = []
    for each in settings.bootstrap:
        found += await resolve(each, family)
    return found + await own_peers(
        context.store.dht_torrents,
        family,
        all_torrents=settings.torrents == "all",
        private_addresses=settings.private_addresses,
    )


async def resolve(text: str, family: int) -> list[Endpoint]:
    """The endpoints of ``host:port`` in a family; none where the name is not known."""
    host, port = host_and_port(text)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
    except (OSError, UnicodeError) as error:  # UnicodeError: no host name
        log.warning("a bootstrap node of the DHT is not known", node=text, error=str(error))
        return []
    addresses = {pack_address(str(item[4][0]).partition("%")[0]) for item in found}
    length = 4 if family == 4 else 16
    return [pack_endpoint(Address(each), port) for each in addresses if each is not None and len(each) == length]


@dataclass(eq=False)
class DhtTelemetry:
    """Passes the counts of the nodes on to the telemetry of the process. ``nodes`` by 4 and 6. ``clock`` returns epoch
    seconds, ``timer`` the time of the nodes."""

    telemetry: Telemetry
    nodes: Mapping[int, DhtNode]
    participation: Callable[[], Participation | None] = lambda: None
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._passed: Mapping[str, int] = {}
        self.telemetry.gauge("dht_nodes", lambda: sum(len(each.table) for each in self.nodes.values()))
        self.telemetry.gauge("dht_hashes", lambda: sum(len(each.announced) for each in self.nodes.values()))
        self.telemetry.gauge("dht_peers", lambda: sum(each.announced.peer_count for each in self.nodes.values()))

    def add_health(self) -> None:
        """Adds the gauges of nodes that run here: they start now."""
        started = self.timer()

        def up() -> float:
            return state_of(started, self._last_answer(), self.timer()) != "down"

        def answered_at() -> float:
            answered = self._last_answer()
            return 0 if answered is None else self.clock() - (self.timer() - answered)

        def torrents() -> float:
            counted = self.participation()
            return counted.estimate if counted is not None else 0

        for name, read in zip(HEALTH, (up, answered_at, torrents), strict=True):
            self.telemetry.gauge(name, read)

    def remove_health(self) -> None:
        """Removes these gauges: another tracker runs the nodes of this name."""
        for name in HEALTH:
            self.telemetry.remove_gauge(name)

    def _last_answer(self) -> float | None:
        answers = (node.table.last_answer for node in self.nodes.values())
        return max((at for at in answers if at is not None), default=None)

    async def run(self) -> None:
        """Flushes every second until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.flush()

    def flush(self) -> None:
        """Passes on what was counted since the last call. For every second."""
        sums: Counter[str] = Counter()
        for node in self.nodes.values():
            sums.update(dict(counted(node)))
        for name, number in sums.items():
            grown = number - self._passed.get(name, 0)
            if grown or name not in self._passed:  # also zeros, so that the first event shows as an increase
                self.telemetry.count(name, grown)
        self._passed = sums
        for node in self.nodes.values():
            while node.counts.seconds:
                query, seconds = node.counts.seconds.popleft()
                self.telemetry.observe(f"dht_query_seconds.{query}", seconds)


def counted(node: DhtNode) -> Iterator[tuple[str, int]]:
    """Names of telemetry, and the numbers since the start of the node."""
    for (query, outcome), number in node.counts.queries_in.items():
        yield f"dht.in.{query}.{outcome}", number
    for (query, outcome), number in node.counts.queries_out.items():
        yield f"dht.out.{query}.{outcome}", number
    for reason, number in node.counts.dropped.items():
        yield f"dht.dropped.{reason}", number
    yield "dht.packets.in", node.counts.packets_in
    yield "dht.packets.out", node.counts.packets_out
    yield "dht.bytes.in", node.counts.bytes_in
    yield "dht.bytes.out", node.counts.bytes_out
    for kind, entries in (("nodes", node.table.entries), ("hashes", node.announced.swarms)):
        yield f"dht.{kind}.added", entries.added
        yield f"dht.{kind}.dropped", entries.dropped


# A node for one command: read-only, on ports that the system chooses


class Found(NamedTuple):
    """The result of a lookup in all families."""

    seeders: int
    peers: int
    endpoints: tuple[str, ...]
    answered: int
    """Nodes that answered."""


@contextlib.asynccontextmanager
async def open_client(settings: DhtSettings) -> AsyncIterator[dict[int, DhtSocket]]:
    """Yields a node with its socket for each family, by 4 and 6."""
    (sockets,) = await open_datagram_sockets(["0.0.0.0:0", "[::]:0"], 65_536)
    settings = settings.model_copy(update={"read_only": True})
    nodes = build_nodes(settings, [6 if each.ipv6 else 4 for each in sockets], SavedNode(), time.monotonic())

    async def read_swarm(info_hash: InfoHash, family: int) -> Swarm:
        del info_hash, family
        return NO_PART

    try:
        async with serve_dht(nodes, sockets, read_swarm, time.monotonic) as served:
            yield {each.family: each for each in served}
    finally:
        close_all([sockets])


async def ping_node(settings: DhtSettings, target: str) -> float | None:
    """Seconds until the node at ``host:port`` answered, in the first family in which it did. ``None``: no answer.
    Raises ClientError for an unknown host."""
    async with open_client(settings) as sockets:
        known = {family: await resolve(target, family) for family in sockets}
        if not any(known.values()):
            raise ClientError("the host is not known, or has no address of a family that this host has")
        began = time.monotonic()
        for family, endpoints in known.items():
            sockets[family].node.contact(endpoints, began)
            sockets[family].flush()
        while time.monotonic() < began + CONNECT_SECONDS:
            for each in sockets.values():
                if each.node.counts.queries_out["find_node", "answered"]:
                    return time.monotonic() - began
            await asyncio.sleep(_POLL_SECONDS / 10)
    return None


def some_nodes(saved: Sequence[SavedNode], family: int) -> list[Node]:
    """At most _MAX_SAVED of those that the tracker's nodes know, at random, each once."""
    known = {each for one in saved for each in split_nodes(one.nodes.get(family), LENGTHS[family])}
    return random.sample(sorted(known), min(len(known), _MAX_SAVED))


async def find_torrent(settings: DhtSettings, saved: Sequence[SavedNode], info_hash: InfoHash) -> Found | None:
    """Looks up a torrent now. ``None`` where no node answered. ``saved``: what the tracker's nodes know."""
    async with open_client(settings) as sockets:
        nodes = {family: each.node for family, each in sockets.items()}
        for family, node in nodes.items():
            node.ping(some_nodes(saved, family), time.monotonic())
            node.contact(await _first_nodes(settings, family), time.monotonic())
        await _connected(nodes.values())
        asked = [node for node in nodes.values() if len(node.table)]
        results = await asyncio.gather(
            *(find_peers(node, info_hash, time.monotonic, scrape=scrape) for node in asked for scrape in (False, True))
        )
    found = [each for each in results if each is not None and each.answered]
    sums = counts(found)
    if sums is None:
        return None
    endpoints = {format_endpoint(endpoint) for each in found for endpoint in each.peers}
    return Found(*sums, tuple(sorted(endpoints)), max(each.answered for each in found))


async def _first_nodes(settings: DhtSettings, family: int) -> list[Endpoint]:
    """The tracker's own node, if it runs, and the configured ones."""
    own = []
    for text in settings.listen:
        host, port = split_address(text)
        if port:
            loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            own.append(f"[{loopback}]:{port}" if ":" in loopback else f"{loopback}:{port}")
    return [endpoint for text in (*own, *settings.bootstrap) for endpoint in await resolve(text, family)]


async def _connected(nodes: Collection[DhtNode]) -> None:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < CONNECT_SECONDS:
        known = sum(len(node.table) for node in nodes)
        if known >= _ENOUGH_NODES or (known and waited > FEW_SECONDS):
            return
        await asyncio.sleep(_POLL_SECONDS)
