"""The composition root: opens the parts in order, runs their loops, closes in reverse; sockets open last and close first."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import structlog
from redis.exceptions import RedisError

from tracker import logs
from tracker.admin.desk import Desk
from tracker.background import open_background
from tracker.errors import StartupError, StoreAway
from tracker.foundation import Foundation, laid, reaping_on
from tracker.joins import Joins, open_joins
from tracker.listeners import open_listeners
from tracker.loops import running, spare_the_collector
from tracker.readiness import NOBODY_SERVES, Readiness
from tracker.reloading import Reload
from tracker.settings import Settings
from tracker.settings_page import mask_url
from tracker.store.secret import shared_secret
from tracker.store.tokens import Tokens
from tracker.store_server import StoreServer
from tracker.stores import open_connection, stores_on
from tracker.telemetry import Snapshot, Telemetry, merged
from tracker.web import open_web
from tracker.workers.reaper import Reaper
from tracker.workforce import Orders, open_workforce

Problems = Callable[[], Sequence[str]]
"""Why the tracker is not fit to serve."""

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class Banner:
    """What a person wants to know once the tracker serves."""

    addresses: tuple[str, ...]
    store: str
    data: str
    admin: tuple[str, ...] = ()
    """The addresses of the admin port."""
    link: str = ""
    """The secret of a link that signs in there once; empty where somebody has a token already."""


async def serve(
    settings: Settings,
    server: StoreServer,
    stop: asyncio.Event,
    ready: Callable[[Banner], None],
    reload: Reload,
) -> None:
    """Serves from ``server`` until ``stop``; raises StartupError when it cannot start."""
    redis, telemetry, url = settings.redis, Telemetry(), server.url
    async with (
        open_connection(url, redis, redis.timeout_seconds, telemetry.round_trip) as (connection, version),
        running(*([server.private.supervise] if server.private else [])),
        laid(settings, connection, telemetry) as base,
    ):
        reaper, secret = await reaper_on(settings, base)
        problems = Readiness(connection, stop.is_set, reaper).problems
        async with (
            open_joins(settings, base, secret) as joins,
            open_background(settings, base, reaper, joins.joined),
            running(reaper.run),
            _web(settings, base, joins, secret, url, problems) as (addresses, figures, all_problems),
            _admin(settings, base, joins, figures, all_problems, version, addresses) as (admin, tokens),
            running(partial(reload.run, settings, base.changes.tell)),
        ):
            base.changes.follow(_logging_from(settings))
            store = f"{version} at {'a private socket' if server.private else mask_url(url)}"
            spare_the_collector()
            link = await tokens.new_link() if admin and server.private and not await tokens.any() else ""
            ready(Banner(addresses, store, server.data, admin, link))
            log.info("serving", addresses=addresses, store=version, mode=settings.torrents.mode)
            await stop.wait()
            log.info("stopping")


def _logging_from(settings: Settings) -> Callable[[Settings], None]:
    choices = settings.log

    def follow(changed: Settings) -> None:
        nonlocal choices
        if changed.log != choices:
            choices = changed.log
            logs.configure(choices)

    return follow


async def reaper_on(settings: Settings, base: Foundation) -> tuple[Reaper, bytes]:
    """(the reaper, the secret that the trackers on one store share)"""
    reaping = reaping_on(settings, base)
    reaper = Reaper(
        reaping, base.connection, base.keys, base.counters, settings.reaper.interval_seconds, time.time
    )
    try:
        secret = await shared_secret(base.connection, base.keys)
        await reaping.heartbeat()
    except StoreAway as error:
        raise StartupError(f"the store stopped answering: {error}") from error
    except RedisError as error:
        raise StartupError(f"the store refuses what the tracker needs: {error}") from error
    base.connection.on_return(reaper.note_return)
    base.changes.follow(lambda changed: setattr(reaper, "interval", changed.reaper.interval_seconds))
    base.telemetry.gauge("due_behind_seconds", lambda: reaper.due_behind_seconds)
    base.telemetry.gauge("swept_at", lambda: reaper.swept_at)
    base.telemetry.gauge("sweep_seconds", lambda: reaper.sweep_seconds)
    return reaper, secret


@asynccontextmanager
async def _web(
    settings: Settings,
    base: Foundation,
    joins: Joins,
    secret: bytes,
    url: str,
    problems: Problems,
) -> AsyncIterator[tuple[tuple[str, ...], Callable[[], Snapshot], Problems]]:
    """What answers peers, in this process or in several: (addresses, the figures of all processes, and ``problems`` with
    those of the processes)."""
    telemetry = base.telemetry
    if settings.http.workers == 1:
        async with open_web(settings, base, joins, secret, problems=problems) as addresses:
            yield addresses, telemetry.snapshot, problems
        return
    async with AsyncExitStack() as stack:
        listeners = await open_listeners(settings.http.listen)
        for listener in listeners:
            stack.callback(listener.close)
        orders = Orders(settings, url, secret, tuple(listener.address for listener in listeners))
        force = await stack.enter_async_context(open_workforce(orders, listeners, problems))
        telemetry.gauge("web_processes", lambda: force.alive)
        base.changes.follow(force.go_by)

        def all_problems() -> list[str]:
            return [*problems(), *([] if force.alive else [NOBODY_SERVES])]

        yield orders.addresses, lambda: merged([telemetry.snapshot(), force.snapshot()]), all_problems


@asynccontextmanager
async def _admin(
    settings: Settings,
    base: Foundation,
    joins: Joins,
    figures: Callable[[], Snapshot],
    problems: Problems,
    version: str,
    listening: tuple[str, ...],
) -> AsyncIterator[tuple[tuple[str, ...], Tokens]]:
    """The admin port, if it is wanted: (its addresses, who may use it)."""
    stores = stores_on(base.connection, base.scripts, base.keys, settings, base.counters)
    if not settings.admin.enabled:
        yield (), stores.tokens
        return
    # A quarter of all that is imported, and peers are answered by now: they should not wait for it.
    await asyncio.to_thread(import_module, "tracker.admin.server")
    from tracker.admin.server import serve_admin  # noqa: PLC0415

    desk = Desk(stores, settings, joins.places, figures, problems, time.time, version, listening)
    base.changes.follow(lambda changed: setattr(desk, "settings", changed))
    async with serve_admin(desk, settings.admin) as addresses:
        yield addresses, stores.tokens
