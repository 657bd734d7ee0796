"""Wires the front ends to the announce logic and the swarm store, once in each process that serves peers, and says
whether this tracker is ready, for /ready on both ports.

A check reads what the loops know already and sends the store no command, so clients may call it at any rate.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from tracker.bittorrent import Address, InfoHash, PeerId
from tracker.core.announce import Tracker
from tracker.core.clients import ClientRules
from tracker.core.counter_names import UDP, WEBSOCKET
from tracker.core.rate_limits import Limits
from tracker.errors import StartupError
from tracker.frontends.http.server import serve_http
from tracker.frontends.udp.server import serve_udp
from tracker.frontends.websocket.server import WebSockets
from tracker.geoip import GeoIP
from tracker.runtime.context import RuntimeContext
from tracker.settings.model import Settings
from tracker.settings.public import AUTO
from tracker.store.sharding.shards import Shards
from tracker.store.store import Store
from tracker.system.datagrams import DatagramSocket, close_all, open_datagram_sockets
from tracker.system.event_loop import running
from tracker.system.listeners import Listener
from tracker.system.logger import Logger
from tracker.workers import admission
from tracker.workers.admission import share_limits
from tracker.workers.join_counts import ClientSoftwareCounter, UniqueUserCounter
from tracker.workers.loop import follow, survive, wait_for
from tracker.workers.samples import RefusalSampler
from tracker.workers.shard_reapers import AnyReaper

NO_EXPIRY_EVENTS = "no subscription to the store's expiry events"
SWEEP_BEHIND = "the sweep is behind"
STOPPING = "shutting down"
NO_WEB_PROCESS = "no web process is running"
SUBSCRIBED_SECONDS = 2.0
"""A start waits so long for the subscription: what other processes pass on before it would be lost."""

log = Logger("tracker")


class JoinEvents:
    """Counts what joins and refusals show: unique users by place, client software, samples. Its callbacks put each
    event on a queue and return at once, so no announce waits for it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.places = GeoIP(settings.geoip_file)
        self.counts_users, self.counts_software = settings.uniques.enabled, settings.clients.count_software
        self.unique_users = UniqueUserCounter(
            store, settings.uniques, lookup=self.places.place_to_count, refresh=self.places.refresh
        )
        self.client_software = ClientSoftwareCounter(store)
        self.refusals = RefusalSampler(store)
        self._count = store.counters.count

    def on_join(self, info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
        if self.counts_users:
            self.unique_users.add(info_hash, address)
        if self.counts_software:
            self.client_software.add(peer_id, "", address)

    def on_late_join(self, info_hash: InfoHash, peer_id: PeerId, address: Address) -> None:
        """A peer joined, but the store's reply was lost. Also counts the join, because the announce did not."""
        self._count("joins", "joins.v4" if len(address) == 4 else "joins.v6")
        self.on_join(info_hash, peer_id, address)

    def on_refused(self, info_hash: InfoHash, peer_id: PeerId, label: str, passkey: str, address: Address) -> None:
        """An announce was refused with the failure ``label``; ``passkey``: empty without one."""
        self.refusals.add(label, info_hash, peer_id, passkey)
        if self.counts_software:
            self.client_software.add(peer_id, label, address)


@asynccontextmanager
async def open_joins(context: RuntimeContext) -> AsyncIterator[JoinEvents]:
    """Opens the GeoIP database and runs the counters. On exit, after the last announce, counts what is still queued."""
    joins = JoinEvents(context.store, context.live.current)
    context.telemetry.gauge("joins_waiting", lambda: joins.unique_users.waiting)
    context.telemetry.gauge("geoip_misses", lambda: joins.places.misses)
    context.telemetry.gauge("software_waiting", lambda: joins.client_software.waiting)
    users = [joins.unique_users.run] if joins.counts_users else []
    software = [joins.client_software.run] if joins.counts_software else []
    try:
        async with running(joins.refusals.run, *users, *software):
            try:
                yield joins
            finally:  # also if the block fails or is cancelled: announces were answered
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(joins.unique_users.flush(), name="unique users flush")
                    tasks.create_task(joins.client_software.flush(), name="client software flush")
    finally:
        joins.places.close()


@asynccontextmanager
async def open_web(
    context: RuntimeContext,
    joins: JoinEvents,
    listeners: Sequence[Listener] | None = None,
    problems: Callable[[], Sequence[str]] = tuple,
    datagrams: Sequence[DatagramSocket] = (),
) -> AsyncIterator[tuple[str, ...]]:
    """Serves on ``listeners``, or on those of the settings, and yields their addresses; and over UDP on ``datagrams``.
    It closes all of them. Sockets open last and close first. ``problems`` returns why the tracker is not ready."""
    store, telemetry, settings = context.store, context.telemetry, context.live.current
    telemetry.gauge("announces_waiting", lambda: store.swarms.waiting)
    telemetry.gauge("announces_in_flight", lambda: store.swarms.in_flight)
    limits = Limits(settings.limits, accounts=settings.users.private)
    tracker = Tracker(
        store.swarms,
        store.counters,
        ClientRules(store.allow_list_cache, store.deny_list_cache),
        context.live,
        clock=time.time,
        limits=limits,
        on_join=joins.on_join,
        on_refused=joins.on_refused,
    )

    clear_lists = partial(admission.clear_on_change, store)
    read_deny_list = partial(admission.keep_reading, store, lambda: context.live.current.clients.deny_list)
    update_limits = partial(share_limits, limits, store.rate_limits, time.time)
    copy_users_on_reconnect(store)
    if settings.clients.deny_list:  # before the first announce
        await survive(store.deny_list_cache.read())
    async with (
        running(partial(store.swarms.run, joins.on_late_join), clear_lists, read_deny_list, update_limits),
        open_websockets(context, tracker) as sockets,
        serve_udp(tracker.over(UDP), context.live, datagrams, secret=store.secret),
        serve_http(
            tracker,
            context.live,
            listeners=listeners,
            problems=problems,
            notices=store.shards.notices,
            upgrade=None if sockets is None else sockets.serve,
            show_open=lambda read: telemetry.gauge("connections", read),
        ) as addresses,
    ):
        yield addresses


def copy_users_on_reconnect(store: Store) -> None:
    """A shard beside the main prefix that was unavailable gets changed users before its first announce."""
    for shard in store.shards.others:
        shard.connection.on_reconnect(partial(store.user_copies.copy_before_serving, shard))


def find_problems(
    shards: Shards, reaper: AnyReaper | None = None, *, stopping: bool = False, needs_all: bool = False
) -> list[str]:
    """Why this tracker is not ready: fixed public texts; empty if it is. It is ready while at least one shard is
    served, and degraded if not all are: Shards.notices names the unavailable ones, which are problems if it
    ``needs_all``. ``reaper`` is None if another process reaps. What an unavailable store causes is left out."""
    found = [STOPPING] if stopping else []
    if cause := shards.cause:
        return [*found, cause]
    found += [f"store refuses writes: {reason}"] if (reason := shards.refusal) else []
    found += shards.notices() if needs_all else []
    if reaper is not None:
        found += [NO_EXPIRY_EVENTS] if any(each.missing_events for each in reaper.running) else []
        found += [SWEEP_BEHIND] if any(each.sweep_behind for each in reaper.running) else []
    return found


async def open_udp_sockets(settings: Settings, tcp: Sequence[str], processes: int) -> list[list[DatagramSocket]]:
    """The sockets of each process. ``tcp`` are the addresses of the listeners, with real ports. With ``auto`` an
    address that is not available is skipped with a warning; a named one raises StartupError."""
    buffer = settings.udp.receive_buffer_bytes
    sockets: list[list[DatagramSocket]] = [[] for _ in range(processes)]
    try:
        for address in settings.udp_addresses(tcp):
            try:
                opened = await open_datagram_sockets([address], buffer, processes)
            except StartupError as error:
                if settings.udp.listen != (AUTO,):
                    raise
                log.warning("an address is not served over UDP", why=str(error))
                continue
            for mine, more in zip(sockets, opened, strict=True):
                mine.extend(more)
    except BaseException:
        close_all(sockets)
        raise
    if why := settings.why_no_udp(tcp):
        log.info("UDP is off; to serve it, name addresses in TRACKER_UDP__LISTEN", why=why)
    granted = min((each.receive_buffer for each in sockets[0]), default=buffer)
    if granted < buffer:
        remedy = f"sysctl -w net.core.rmem_max={buffer}"
        log.info("the system limits the receive buffer of UDP", bytes=granted, for_many_peers=remedy)
    return sockets


@asynccontextmanager
async def open_websockets(context: RuntimeContext, tracker: Tracker) -> AsyncIterator[WebSockets | None]:
    """None if the settings do not allow WebSockets."""
    if not context.live.current.serves_websockets:
        yield None
        return
    store, process = context.store, context.store.socket_process
    sockets = WebSockets(tracker.over(WEBSOCKET), context.live, process.number, process.publish)
    process.begin()
    context.telemetry.gauge("sockets", sockets.__len__)

    subscribed = asyncio.Event()

    async def receive(payload: bytes | None) -> None:
        if payload is None:
            subscribed.set()
        else:
            sockets.relay.receive(payload)

    async with running(sockets.relay.run, partial(follow, store.connection, process.channel, receive)):
        await wait_for(subscribed, SUBSCRIBED_SECONDS)
        yield sockets
