"""The composition root: opens the parts in order, runs their loops, closes in reverse; sockets open last and close first."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError

from tracker.announce import Tracker, swarm_rules
from tracker.background import Background, Foundation, exported, open_background, outbox_most
from tracker.bittorrent import Address, InfoHash
from tracker.errors import StartupError, StoreAway
from tracker.frontends.http import serve_http
from tracker.loops import Loop, running
from tracker.settings import Settings
from tracker.settings_page import mask_url
from tracker.store.clients import AllowList, Clients
from tracker.store.connection import Connection
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.swarms import Moved, Swarms
from tracker.stores import open_connection, open_server
from tracker.workers.changes import follow_changes
from tracker.workers.reaper import Reaper

STOP_SECONDS = 10
_BYTES = tuple((f"bytes.{way}", f"bytes.{way}.{family}") for family in ("v4", "v6") for way in ("up", "down"))
"""What is counted of each figure of Moved."""

log = structlog.get_logger("tracker")


@dataclass(frozen=True, slots=True)
class Banner:
    """What a person wants to know once the tracker serves."""

    addresses: tuple[str, ...]
    store: str
    data: str


async def serve(settings: Settings, ready: Callable[[Banner], None]) -> None:
    """Serves until SIGTERM or SIGINT; raises StartupError when it cannot start."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    redis = settings.redis
    async with open_server(settings) as (url, data, embedded):
        async with open_connection(url, redis, redis.timeout_seconds) as (connection, version):
            core = await _assemble(settings, connection)
            supervise = [embedded.supervise] if embedded else []
            async with (
                running(connection.watch, *supervise),
                _flushed(core.base.counters),
                open_background(settings, core.base, core.reaper, core.secret) as background,
                running(*core.loops, *background.loops),
                _wound_up(background),
                serve_http(
                    _tracker(settings, core, background),
                    settings.http,
                    settings.announce,
                    max_scrape=settings.torrents.max_scrape,
                ) as addresses,
            ):
                _spare_the_collector()
                store = f"{version} at {'a private socket' if embedded else mask_url(url)}"
                ready(Banner(addresses, store, data))
                log.info("serving", addresses=addresses, store=version, mode=settings.torrents.mode)
                await stop.wait()
                log.info("stopping")
    log.info("stopped")


def _spare_the_collector() -> None:
    """Nearly all that an announce makes is freed by reference counts; what the start made stays for ever.

    With Python's defaults the cycle collector runs every few announces, and walks through all of that now and then.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@asynccontextmanager
async def _flushed(counters: Counters) -> AsyncIterator[None]:
    """What was counted is written when nothing is left that counts."""
    yield
    await counters.flush()


@asynccontextmanager
async def _wound_up(background: Background) -> AsyncIterator[None]:
    """What followed from the last announces is done when the sockets are closed, before the loops end."""
    yield
    await background.wind_up()


@dataclass(frozen=True, slots=True)
class _Core:
    """What answers announces, and keeps their swarms true."""

    base: Foundation
    swarms: Swarms
    allow_list: AllowList
    reaper: Reaper
    secret: bytes
    loops: tuple[Loop, ...]


async def _assemble(settings: Settings, connection: Connection) -> _Core:
    keys = Keys(settings.redis.prefix)
    scripts = Scripts(connection, keys.prefix)
    counters = Counters(
        connection, scripts, keys, time.time, exports=exported, outbox_most=outbox_most(settings)
    )
    swarms = _swarms(settings, connection, scripts, keys, counters)
    allow_list = AllowList(Clients(connection, keys), time.monotonic)
    reaper = Reaper(swarms, connection, keys, counters, settings.reaper.interval_seconds, time.time)
    try:
        secret = await swarms.secret()
        await swarms.heartbeat()
    except StoreAway as error:
        raise StartupError(f"the store stopped answering: {error}") from error
    except RedisError as error:
        raise StartupError(f"the store refuses what the tracker needs: {error}") from error
    connection.on_return(reaper.note_return)
    loops = (swarms.run, counters.run, reaper.run, lambda: follow_changes(connection, keys, allow_list))
    base = Foundation(connection, scripts, keys, counters)
    return _Core(base, swarms, allow_list, reaper, secret, loops)


def _swarms(
    settings: Settings, connection: Connection, scripts: Scripts, keys: Keys, counters: Counters
) -> Swarms:
    def on_batch(announces: int, moved: Moved) -> None:
        counters.observe("announce_batch", announces)
        for names, number in zip(_BYTES, moved, strict=True):
            if number:
                counters.count(*names, by=number)

    rules = swarm_rules(settings.announce, settings.torrents, settings.users, settings.reaper)
    return Swarms(connection, scripts, keys, rules, time.time, settings.redis.max_waiting, on_batch)


def _tracker(settings: Settings, core: _Core, background: Background) -> Tracker:
    return Tracker(
        core.swarms,
        core.base.counters,
        core.allow_list,
        background.tally.offer if settings.uniques.enabled else _nobody_counts,
        announce=settings.announce,
        torrents=settings.torrents,
        users=settings.users,
        clients=settings.clients,
        reaper=settings.reaper,
        secret=core.secret,
        clock=time.time,
    )


def _nobody_counts(info_hash: InfoHash, address: Address) -> None:
    del info_hash, address


def _stop_on_signals(stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT stops gracefully, for at most STOP_SECONDS; the second at once."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()
        loop.call_later(STOP_SECONDS, lambda: os._exit(1))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
