"""The overview page: current state of the tracker, and charts over minutes, hours and days; and its live updates, which
are server-sent events.

The store is read at most once a second for all streams together, and never without an open stream: the first stream
that finds the last reading outdated reads for all. A stream ends when the tracker stops, and when its session or token
ends; the browser reconnects by itself and is redirected to the sign-in if needed.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import orjson
from aiohttp import web
from redis.exceptions import RedisError

from tracker.admin.auth.auth import IDENTITY, still_signed_in
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import STOPPING
from tracker.admin.http.problems import Problem
from tracker.admin.pages import overview_readings
from tracker.admin.pages.announce_urls import announce_urls
from tracker.admin.pages.overview_readings import Failures, OverviewReading
from tracker.admin.pages.rendering import Pages, get
from tracker.errors import StoreUnavailable
from tracker.operations.history import RANGES
from tracker.runtime.telemetry import BOUNDS

PERIOD_SECONDS = 1.0
FAILURES_SECONDS = 5.0
"""Interval between reads of failures by reason."""
QUANTILE_SECONDS = 60
"""The period of the 95th percentile; until it has passed, all announces since the start count."""
WRITE_SECONDS = 15.0
"""A browser that reads nothing for this long is disconnected."""
RECONNECT_MILLISECONDS = 2000
UNAVAILABLE = "The store is unavailable."


class LatestReading:
    """Caches the newest reading for one second. ``monotonic`` returns seconds."""

    def __init__(self, context: AdminContext, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._monotonic = monotonic
        self._reading = asyncio.Lock()
        self._read_at = self._failures_at = float("-inf")
        self._latest: OverviewReading | None = None
        self._failures: Failures = []
        self._histograms: deque[tuple[float, list[int]]] = deque(maxlen=QUANTILE_SECONDS + 1)

    async def latest(self) -> OverviewReading:
        """Raises StoreUnavailable and RedisError."""
        async with self._reading:
            now = self._monotonic()
            if self._latest is None or now - self._read_at >= PERIOD_SECONDS * 0.9:
                if now - self._failures_at >= FAILURES_SECONDS:
                    self._failures = await overview_readings.read_failures(self._context)
                    self._failures_at = now
                self._latest = await overview_readings.read_overview(self._context, self._failures, self._p95(now))
                self._read_at = now
            return self._latest

    def _p95(self, now: float) -> float | None:
        """The percentile of announces since the oldest kept histogram; of all announces if there were none."""
        histogram = self._context.telemetry().histograms.get(overview_readings.LATENCY_NAME)
        if histogram is None:
            return None
        while self._histograms and now - self._histograms[0][0] > QUANTILE_SECONDS:
            self._histograms.popleft()
        before = self._histograms[0][1] if self._histograms else [0] * len(histogram.counts)
        self._histograms.append((now, list(histogram.counts)))
        late = [max(0, count - old) for count, old in zip(histogram.counts, before, strict=True)]
        bounds = BOUNDS[overview_readings.LATENCY_NAME]
        return overview_readings.quantile(late if sum(late) else histogram.counts, bounds, 0.95)


class OverviewPage(Pages):
    def __init__(self, context: AdminContext) -> None:
        super().__init__(context)
        self._limits = context.stream_limits
        self._latest_reading = LatestReading(context)
        self._streams: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/live", self.stream, allow_head=False), *super().routes()]

    @get("/", "overview.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """Without the store the page shows the problem, and recovers with the store."""
        problems = list(self._context.problems())
        variables: dict[str, Any] = {
            "range": RANGES.get(request.query.get("range", ""), RANGES["2m"]),
            "ranges": RANGES.values(),
            "server": self._context.server,
            "listen": self._context.listening,
            "announce_urls": announce_urls(self._context, request.host),
            "texts": {},
            "tones": {},
            "failures": [],
            "outage": "",
            "fresh": False,
            "problems": problems,
        }
        try:
            reading = await self._latest_reading.latest()
        except (StoreUnavailable, RedisError):
            return variables | {"outage": "" if problems or self._context.store.shards.notices() else UNAVAILABLE}
        return variables | {
            "texts": overview_readings.texts(reading),
            "tones": overview_readings.tones(reading),
            "failures": reading.failures,
            "fresh": not reading.totals["requests"],
        }

    async def stream(self, request: web.Request) -> web.StreamResponse:
        stopping, name, limits = request.app[STOPPING], request[IDENTITY].name, self._limits
        full = self._streams.total() >= limits.streams or self._streams[name] >= limits.streams_per_token
        if full or stopping.is_set():
            raise Problem(503, detail="too many open event streams", headers={"Retry-After": "5"})
        self._streams[name] += 1
        try:
            return await self._stream(request, stopping)
        finally:
            self._streams -= Counter([name])

    async def _stream(self, request: web.Request, stopping: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["X-Accel-Buffering"] = "no"  # otherwise nginx buffers events
        await response.prepare(request)
        with suppress(ConnectionError, TimeoutError):
            await _send(response, b"retry: %d\n\n" % RECONNECT_MILLISECONDS)
            await self._events(request, response, stopping)
        return response

    async def _events(self, request: web.Request, response: web.StreamResponse, stopping: asyncio.Event) -> None:
        checked = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() - checked >= self._limits.identity_seconds:
                checked = time.monotonic()
                if not await _still_signed_in(request):
                    await _send(response, b"event: signed-out\ndata: {}\n\n")
                    return
            await _send(response, await self._event())
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await stopping.wait()

    async def _event(self) -> bytes:
        problems = list(self._context.problems())
        try:
            reading = await self._latest_reading.latest()
        except (StoreUnavailable, RedisError):
            notices = self._context.store.shards.notices()
            outage = "" if problems or notices else UNAVAILABLE
            return _encoded("unavailable", {"problems": problems, "notices": notices, "text": outage})
        return _encoded("figures", message(reading, problems, self._context.store.shards.notices()))


async def _still_signed_in(request: web.Request) -> bool:
    """True while the store is unavailable: the stream stays open and shows no data."""
    try:
        return await still_signed_in(request)
    except (StoreUnavailable, RedisError):
        return True


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def message(reading: OverviewReading, problems: Sequence[str], notices: Sequence[str]) -> dict[str, Any]:
    """The data of a ``figures`` event, for live.js."""
    return {
        "at": int(reading.at),
        "texts": overview_readings.texts(reading),
        "tones": overview_readings.tones(reading),
        "sparks": overview_readings.sparks(reading.slices),
        "charts": overview_readings.charts(reading.slices),
        "failures": reading.failures,
        "problems": problems,
        "notices": notices,
        "requests": reading.totals["requests"],
    }


def _encoded(event: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data))
