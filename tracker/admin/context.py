"""The objects that all parts of the admin port share."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from tracker.geoip import GeoIP
from tracker.runtime.telemetry import Snapshot
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.reload import LastReload
from tracker.store.store import Store
from tracker.system.torrent_files import TorrentFiles

MAX_BATCHES = 2
"""Max batches of rows that one process applies at once; further ones wait."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
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
    def torrent_files(self) -> TorrentFiles:
        settings = self.settings
        return TorrentFiles(settings.data.directory, enabled=settings.torrents.keep_files)

    @property
    def settings(self) -> Settings:
        """The current settings, replaced on reload."""
        return self.live.current


CONTEXT = web.AppKey("context", AdminContext)


def announce_urls(context: AdminContext, host: str = "", passkey: str = "") -> list[str]:
    """The configured ones; else one URL per address for peers, over HTTP, UDP and WebSockets, in this order. Wildcard
    addresses are replaced by ``host``, the Host header of the request. They are left out where that is this machine,
    which a tunnel may have made of another one. Behind proxies nothing is known. ``passkey`` is part of a user's
    URL."""
    settings = context.settings
    if settings.announce.urls or settings.http.trusted_proxies:
        return settings.announce.urls_of(passkey)
    path = f"/{passkey}/announce" if passkey else "/announce"
    bracketed, bracket, _ = host.partition("]")  # of an IPv6 address
    name = f"{bracketed}]" if bracket else host.partition(":")[0]
    if name in ("localhost", "[::1]") or name.startswith("127."):
        name = ""
    urls = [f"http://{place.removesuffix(':80')}{path}" for place in _places(context.listening, name)]
    urls += [f"udp://{place}{path}" for place in _places(context.udp, name)]
    if settings.serves_websockets:
        urls += [f"ws{url.removeprefix('http')}" for url in urls if url.startswith("http:")]
    return list(dict.fromkeys(urls))


def _places(listen: Sequence[str], name: str) -> Iterator[str]:
    for address in listen:
        if address.startswith("unix:"):
            continue
        at, _, port = address.rpartition(":")
        at = name if at in ("0.0.0.0", "[::]", "*") else at
        if at and port != "0":  # 0: chosen by the system at startup
            yield f"{at}:{port}"
