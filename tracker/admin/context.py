"""The objects that all parts of the admin port share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from tracker.geoip import GeoIP
from tracker.runtime.telemetry import Snapshot
from tracker.settings.model import Settings
from tracker.settings.reload import LastReload, LiveSettings
from tracker.store.store import Store
from tracker.system.torrent_files import TorrentFiles

MAX_BATCHES = 2
"""Max batches of rows that one process applies at once; further ones wait."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits on the event streams of the dashboard."""

    streams: int = 64
    """Max open streams; further ones get status 503."""
    streams_per_token: int = 32
    """Max open streams of one token, so that it cannot occupy all of them."""
    identity_seconds: float = 2.0
    """How often a stream checks that its session or token is still valid."""


async def nothing_newer() -> bool:
    return False


@dataclass(slots=True)
class AdminContext:
    """Passed to every part of the admin port.

    - ``telemetry``: returns the metrics of all processes of this tracker
    - ``problems``: returns why the tracker is not ready; empty if ready
    - ``clock``: returns epoch seconds
    - ``server``: server software of the store and its version
    - ``listening``, ``udp``: addresses for peers over HTTP and UDP, with real ports
    - ``last_reload``: returns the result of the last SIGHUP; None before the first
    - ``update_places``: fetches a newer GeoIP database; False if there is none. Raises ClientError
    - ``batches``: limits the batches of rows that are applied at once
    """

    store: Store
    live: LiveSettings
    places: GeoIP
    telemetry: Callable[[], Snapshot]
    problems: Callable[[], Sequence[str]]
    clock: Callable[[], float]
    server: str
    listening: tuple[str, ...] = ()
    udp: tuple[str, ...] = ()
    last_reload: Callable[[], LastReload | None] = lambda: None
    stream_limits: StreamLimits = StreamLimits()
    update_places: Callable[[], Awaitable[bool]] = nothing_newer
    batches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_BATCHES))

    @property
    def places_type(self) -> str:
        """The type of the GeoIP database in use, whose licence may ask for an attribution; empty without one."""
        return found.database_type if (found := self.places.describe()) else ""

    @property
    def torrent_files(self) -> TorrentFiles:
        settings = self.settings
        return TorrentFiles(settings.data.directory, enabled=settings.torrents.keep_files)

    @property
    def settings(self) -> Settings:
        """The current settings, replaced on reload."""
        return self.live.current


CONTEXT = web.AppKey("context", AdminContext)
