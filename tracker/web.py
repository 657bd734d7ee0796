"""What answers peers, put together: decisions over swarms, and a front end over decisions.

One of it runs in each process that serves: in the only one, or in each web process of several.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tracker.announce import Tracker
from tracker.foundation import Foundation, swarms_on
from tracker.frontends.http import Change, serve_http
from tracker.joins import Joins
from tracker.limits import Limits
from tracker.listeners import Listener
from tracker.loops import Loop, running
from tracker.settings import Settings
from tracker.store.clients import AllowList, Clients
from tracker.store.offences import Offences
from tracker.workers.changes import follow_changes
from tracker.workers.limits import share_limits


@asynccontextmanager
async def open_web(
    settings: Settings,
    base: Foundation,
    joins: Joins,
    secret: bytes,
    listeners: Sequence[Listener] | None = None,
    problems: Callable[[], Sequence[str]] = tuple,
) -> AsyncIterator[tuple[str, ...]]:
    """Serves on ``listeners``, or on those of the settings, and gives their addresses. Sockets open last and close first.

    ``problems`` says why the tracker is not ready.
    """
    swarms, telemetry = swarms_on(settings, base), base.telemetry
    telemetry.gauge("announces_waiting", lambda: swarms.waiting)
    telemetry.gauge("announces_in_flight", lambda: swarms.in_flight)
    allow_list = AllowList(Clients(base.connection, base.keys), time.monotonic)
    limits, share = _limits_on(settings, base)

    def deciding(settings: Settings) -> Tracker:
        return Tracker(
            swarms,
            base.counters,
            allow_list,
            joins.joined,
            announce=settings.announce,
            torrents=settings.torrents,
            users=settings.users,
            clients=settings.clients,
            reaper=settings.reaper,
            secret=secret,
            clock=time.time,
            limits=limits,
            software=joins.heard,
        )

    def follow_settings(change: Change) -> None:
        base.changes.follow(
            lambda changed: change(deciding(changed), changed.announce, changed.torrents.max_scrape)
        )

    async def follow() -> None:
        await follow_changes(base.connection, base.keys, allow_list)

    async with (
        running(swarms.run, follow, share),
        serve_http(
            deciding(settings),
            settings.http,
            settings.announce,
            max_scrape=settings.torrents.max_scrape,
            listeners=listeners,
            problems=problems,
            show_open=lambda read: telemetry.gauge("connections", read),
            show_change=follow_settings,
        ) as addresses,
    ):
        yield addresses


def _limits_on(settings: Settings, base: Foundation) -> tuple[Limits, Loop]:
    """The limits of this process, and what keeps them in step with the others."""
    limits = Limits(settings.limits, private=settings.users.private)
    base.changes.follow(lambda changed: limits.go_by(changed.limits))
    offences = Offences(base.connection, base.scripts, base.keys, time.time, limits.most)

    async def share() -> None:
        await share_limits(limits, offences, time.time)

    return limits, share
