"""Announce and scrape over HTTP: the listeners, the door of each connection, and aiohttp behind it."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

import structlog
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from tracker.bittorrent import Address
from tracker.frontends.connection import Connection, Server
from tracker.frontends.crowd import Crowd
from tracker.frontends.door import Door
from tracker.frontends.doors import Doors
from tracker.frontends.exchange import Request
from tracker.frontends.front import FrontEnd, Problems, Tracker, no_problems
from tracker.frontends.gate import TURNED_AWAY, Gate
from tracker.listeners import Listener, open_listeners
from tracker.loops import running
from tracker.settings import AnnounceSettings, HttpSettings
from tracker.wire.compact import format_address

DRAIN_SECONDS = 7.0
"""How long requests in flight may take when the front end stops."""

Change = Callable[[Tracker, AnnounceSettings, int], None]
"""(the decisions, what failures go by, most torrents in a scrape)"""

log = structlog.get_logger()


class AccessLog(AbstractAccessLogger):
    """One line per request; paths and queries stay out of it, for they hold passkeys."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        request = cast(Request, request)
        log_request(
            request.kind, response.status, time, request.client or cast(Connection, request.protocol).address
        )


def log_request(kind: str, status: int, seconds: float, client: Address) -> None:
    shown = format_address(client) if client else None
    log.info("request", kind=kind, status=status, milliseconds=round(seconds * 1000, 3), client=shown)


@contextlib.asynccontextmanager
async def serve_http(
    tracker: Tracker,
    http: HttpSettings,
    announce: AnnounceSettings,
    *,
    max_scrape: int,
    listeners: Sequence[Listener] | None = None,
    problems: Problems = no_problems,
    show_open: Callable[[Callable[[], float]], None] | None = None,
    show_change: Callable[[Change], None] | None = None,
    door: bool = True,
) -> AsyncIterator[tuple[str, ...]]:
    """Serve until the block is left; gives the bound addresses, with real ports where 0 was asked for.

    Serves on ``listeners`` where they are open already, else on those that the settings name. ``problems`` says why
    the tracker is not ready, ``show_open`` is given what tells how many connections are open, ``show_change`` what has it go by
    other decisions from the next request on. Without ``door`` aiohttp answers
    everything.

    Leaving it is the graceful stop: for as long as the settings say everybody is served, and asked to go; then listeners
    close, what is in flight is answered within 8 seconds, idle connections are closed. Raises StartupError when an address cannot be had.
    """
    front = FrontEnd(tracker, http, announce, max_scrape, problems)
    access = {
        "access_log": logging.getLogger(__name__) if http.access_log else None,
        "access_log_class": AccessLog,
    }
    crowd = Crowd(http, tracker.refused)
    server = Server(front.handle, front.rules, crowd, **access)
    doors = Doors(front, server, log_request if http.access_log else None, ajar=door)

    def change(tracker: Tracker, announce: AnnounceSettings, max_scrape: int) -> None:
        front.go_by(tracker, announce, max_scrape)
        doors.tracker = tracker

    if show_change is not None:
        show_change(change)
    if show_open is not None:
        show_open(lambda: len(crowd))
    if listeners is None:
        listeners = await open_listeners(http.listen)
    if not http.trusted_proxies and any(listener.is_unix for listener in listeners):
        log.warning("nobody can announce over a unix socket until http.trusted_proxies names a proxy")
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        stack.push_async_callback(_drain, crowd, server)
        crowd.sweep()
        stack.callback(crowd.stop)
        gate = doors.gate = _gate(doors, listeners)
        await gate.open()
        stack.push_async_callback(gate.shut)
        await stack.enter_async_context(running(gate.run))
        yield tuple(listener.address for listener in listeners)
        doors.heads.leave()
        server.leaving = True
        await asyncio.sleep(http.stop_delay_seconds)


def _gate(doors: Doors, listeners: Sequence[Listener]) -> Gate:
    return Gate(
        listeners,
        functools.partial(Door, doors),
        turned_away=lambda number: doors.tracker.refused(TURNED_AWAY, number=number),
        spared=doors.front.is_proxy,
    )


async def _drain(crowd: Crowd, server: Server) -> None:
    await crowd.drain(DRAIN_SECONDS)
    await server.shutdown(0.5)  # it ends the handlers that are left, too
    crowd.cut_off()
