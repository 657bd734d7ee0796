"""The composition root: opens the parts in order, runs their loops, and closes them in reverse order. Sockets open last
and close first."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import inf
from typing import TypeVar

from redis.exceptions import RedisError

from tracker.admin.context import AdminContext
from tracker.app.background import build_prober, open_background
from tracker.app.dht import DhtRuntime, open_dht
from tracker.app.web import NO_WEB_PROCESS, JoinEvents, find_problems, open_joins, open_udp_sockets, open_web
from tracker.app.web_processes import WorkerConfig, open_web_processes
from tracker.core.rate_limits import WorkLimits
from tracker.core.refusals import Failures
from tracker.core.work import WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.errors import StartupError, StoreUnavailable
from tracker.frontends.work.server import serve_work
from tracker.runtime.context import RuntimeContext, open_context
from tracker.runtime.store import Patience, open_connection
from tracker.runtime.telemetry import Snapshot, Telemetry, merged
from tracker.settings.model import Settings
from tracker.settings.reference import mask_url
from tracker.settings.reload import Reload
from tracker.store.access.audit import AuditEntry
from tracker.store.access.tokens import Tokens
from tracker.store.client.server import refused_writes
from tracker.store.dht.torrents import Participation
from tracker.store.store import Store
from tracker.system.datagrams import close_all
from tracker.system.event_loop import freeze_gc, running
from tracker.system.listeners import open_listeners
from tracker.system.logger import Logger
from tracker.valkey.server import StoreServer
from tracker.workers.admission import denied_prefixes, share_limits
from tracker.workers.geoip_update import update_now
from tracker.workers.reaper import Pauses, Reaper
from tracker.workers.shard_reapers import AnyReaper, LeaseKeeper, ShardReapers

Problems = Callable[[], Sequence[str]]
"""Returns why the tracker is not ready; empty if it is."""

_Result = TypeVar("_Result")

log = Logger("tracker")


@dataclass(frozen=True, slots=True)
class Banner:
    """What the terminal shows once the tracker serves."""

    addresses: tuple[str, ...]
    udp: tuple[str, ...]
    store: str
    data: str
    admin: tuple[str, ...] = ()
    """The addresses of the admin port."""
    link: str = ""
    """The secret of a link that signs in once on the admin port; empty if a token exists."""
    admin_url: str = ""
    """The URL of the admin port for browsers; empty if it is not set."""
    work: tuple[str, ...] = ()
    """The addresses where claimants ask for work."""
    site: tuple[str, ...] = ()
    """The addresses where the calls of a site are answered."""
    dht: tuple[str, ...] = ()
    """The addresses of the DHT node."""
    upgraded: str = ""
    """How the layout of the store was upgraded by this start; empty if it was not."""
    participation: Participation | None = None
    """How many torrents take part in the DHT; None without a node."""


async def serve(
    settings: Settings, server: StoreServer, stop: asyncio.Event, ready: Callable[[Banner], None], reload: Reload
) -> None:
    """Serves from ``server`` until ``stop``; raises StartupError when it cannot start."""
    redis, telemetry, url = settings.redis, Telemetry(), server.url
    patience = Patience(inf if server.private else redis.start_wait_seconds or inf)
    async with (
        open_connection(url, redis, redis.timeout_seconds, telemetry.round_trip, patience) as (connection, version),
        running(*([server.private.supervise] if server.private else [])),
        open_context(settings, connection, telemetry) as context,
    ):
        upgraded = await upgrade_store(context.store, patience)
        reaper = await reaper_on(context, patience)
        shards, live = context.store.shards, context.live

        def problems() -> list[str]:
            needs_all = not live.current.http.ready_when_degraded
            return find_problems(shards, reaper, stopping=stop.is_set(), needs_all=needs_all)

        prober, dht = build_prober(context), DhtRuntime()
        async with (
            open_joins(context) as joins,
            open_background(context, reaper, joins.unique_users.add, prober, dht.look_up),
            running(reaper.run),
            _web(context, joins, url, problems) as web,
        ):
            try:
                apply = partial(_apply_settings, context, joins, web)
                admin_context = _admin_context(context, joins, web, version, reload)
                to_admin, to_site = (admin_context, settings.admin), (admin_context, apply, context.telemetry.count)
                async with (
                    _listener(settings.admin.enabled, "tracker.admin.server", "serve_admin", *to_admin) as admin,
                    _listener(settings.site.listen, "tracker.admin.site.listener", "serve_site", *to_site) as site,
                    open_work(context, web.addresses) as work,
                    open_dht(context, prober, dht),
                    running(partial(reload.run, settings, apply)),
                ):
                    link = ""
                    if admin and server.private:
                        link = await retry_while_unavailable(partial(_link, context.store.tokens), patience)
                    at = f"{version} at {'a private socket' if server.private else mask_url(server.url)}"
                    where = (web.addresses, web.udp, at, server.data, admin, link, settings.admin.url or "", work, site)
                    freeze_gc()
                    ready(Banner(*where, dht.addresses, upgraded, dht.participation))
                    say = log.debug if sys.stderr.isatty() else log.info  # the banner stands there
                    mode = settings.torrents.mode
                    say("serving", addresses=web.addresses, udp=web.udp, store=version, mode=mode)
                    await stop.wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or not stop.is_set():
                    raise
                task.uncancel()  # a signal during the start: peers are served by now, so what they sent is written
            log.info("stopping")


async def retry_while_unavailable(operation: Callable[[], Awaitable[_Result]], patience: Patience) -> _Result:
    """Returns what ``operation`` returns. Retries while the store is unavailable. Raises StartupError after that, and
    if the store refuses."""
    while True:
        try:
            return await operation()
        except StoreUnavailable as error:
            await patience.wait(StartupError(f"cannot start: {error}"))
        except RedisError as error:
            reason = refused_writes(error)
            why = f"refuses writes: {reason}" if reason else "rejects a command that the tracker needs"
            raise StartupError(f"the store {why}: {error}") from error


async def _link(tokens: Tokens) -> str:
    """The secret of a new sign-in link; empty if a token exists."""
    return "" if await tokens.any() else await tokens.new_link()


@dataclass(frozen=True, slots=True)
class _Web:
    """The part that serves peers, in this process or in several."""

    addresses: tuple[str, ...]
    udp: tuple[str, ...]
    telemetry: Callable[[], Snapshot]
    """Returns the sums over all processes."""
    problems: Problems
    """The problems of all processes."""
    apply_settings: Callable[[Settings], None]
    """Sends changed settings to the other processes."""


def _apply_settings(context: RuntimeContext, joins: JoinEvents, web: _Web, changed: Settings) -> None:
    context.apply_settings(changed)
    joins.places.use(changed.geoip_file)
    web.apply_settings(changed)


async def upgrade_store(store: Store, patience: Patience) -> str:
    """Checks the store's layout, and loads its secret. Upgrades an older layout, and returns what was done."""
    upgraded = await retry_while_unavailable(store.upgrade, patience)
    await retry_while_unavailable(store.load_secret, patience)
    store.keep_checking_layout()
    if upgraded:
        entry = AuditEntry("tracker", "", "admin", "cli", "", "store.upgrade", details={"layout": upgraded})
        await store.audit.add(entry)
    return upgraded


async def reaper_on(context: RuntimeContext, patience: Patience) -> AnyReaper:
    """Writes the first heartbeats, and returns the reaper."""
    store, pauses = context.store, Pauses()
    reapers = [
        Reaper(
            store,
            shard,
            lambda: context.live.current.reaper.interval_seconds,
            time.time,
            denied=partial(denied_prefixes, store.deny_list, lambda: context.live.current.clients.deny_list),
            pauses=pauses,
        )
        for shard in store.shards
    ]
    await retry_while_unavailable(partial(store.shards.gather, store.start_shard, store.shards.all), patience)
    await store.copy_access(store.shards.others)
    for shard in store.shards.others:
        shard.connection.on_reconnect(partial(store.copy_access, [shard]))
    for shard, each in zip(store.shards, reapers, strict=True):
        shard.connection.on_reconnect(each.on_reconnect)
    reaper: AnyReaper = reapers[0]
    if store.shards.others:
        leases = LeaseKeeper(store, secrets.token_hex(8), time.time)
        reaper = ShardReapers(reapers, store.reaping, leases)
    gauge = context.telemetry.gauge  # those of the worst reaper here
    gauge("due_behind_seconds", lambda: max((each.due_behind_seconds for each in reaper.running), default=0.0))
    gauge("swept_at", lambda: min((each.swept_at for each in reaper.running), default=0.0))
    gauge("sweep_seconds", lambda: max((each.sweep_seconds for each in reaper.running), default=0.0))
    return reaper


@asynccontextmanager
async def _web(context: RuntimeContext, joins: JoinEvents, url: str, problems: Problems) -> AsyncIterator[_Web]:
    """Serves peers, in this process or in several. ``problems`` returns the problems of this process."""
    telemetry, settings = context.telemetry, context.live.current
    processes = settings.http.workers
    async with AsyncExitStack() as stack:
        listeners = await open_listeners(settings.http.listen)
        for listener in listeners:
            stack.callback(listener.close)
        addresses = tuple(listener.address for listener in listeners)
        datagrams = await open_udp_sockets(settings, addresses, processes)
        stack.callback(close_all, datagrams)
        udp = tuple(each.address for each in datagrams[0])
        if processes == 1:
            stack.pop_all()  # open_web closes them
            async with open_web(context, joins, listeners, problems, datagrams[0]):
                yield _Web(addresses, udp, telemetry.snapshot, problems, lambda changed: None)
            return
        store = context.store
        config = WorkerConfig(settings, url, store.secret, addresses, udp, store.connection.topology.nodes)
        pool = await stack.enter_async_context(open_web_processes(config, listeners, problems, datagrams))
        telemetry.gauge("web_processes", lambda: pool.alive)

        def all_problems() -> list[str]:
            return [*problems(), *([] if pool.alive else [NO_WEB_PROCESS])]

        def snapshot() -> Snapshot:
            return merged([telemetry.snapshot(), pool.snapshot()])

        yield _Web(addresses, udp, snapshot, all_problems, pool.apply_settings)


def _admin_context(context: RuntimeContext, joins: JoinEvents, web: _Web, version: str, reload: Reload) -> AdminContext:
    return AdminContext(
        context.store,
        context.live,
        joins.places,
        web.telemetry,
        web.problems,
        time.time,
        version,
        web.addresses,
        web.udp,
        lambda: reload.last,
        update_places=lambda: update_now(context.live.current.geoip, context.live.current.geoip_file, time.time()),
    )


@asynccontextmanager
async def _listener(enabled: object, module: str, serve: str, *arguments: object) -> AsyncIterator[tuple[str, ...]]:
    """Opens a listener if it is ``enabled``, by the function ``serve`` of ``module``, and yields its addresses."""
    if not enabled:
        yield ()
        return
    # A quarter of all imports. Peers are served by now and should not wait for it, hence the thread.
    imported = await asyncio.to_thread(import_module, module)
    async with getattr(imported, serve)(*arguments) as addresses:
        yield addresses


@asynccontextmanager
async def open_work(context: RuntimeContext, listening: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
    """Serves claimants if a setting says so, and yields the addresses. ``listening`` are the addresses where peers
    announce."""
    settings = context.live.current
    if not settings.work.listen:
        yield ()
        return
    limits = WorkLimits(context.live)
    update_limits = partial(share_limits, limits, context.store.rate_limits, time.time)
    work, figures = WorkRequests(context.store, time.time), WorkFigures(context.store, time.time)
    served = serve_work(work, figures, settings, limits, Failures(context.store.counters), listening=listening)
    async with running(update_limits), served as addresses:
        yield addresses
