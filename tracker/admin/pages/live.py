"""Figures as they change: server-sent events for every overview that is open.

However many listen, the store is read once a second, and not at all while nobody listens: whoever finds the last
reading old reads for all. A stream ends when the tracker stops, and when the session or token it was opened with does;
the browser comes back by itself, and is sent to sign in when it must.
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

from tracker.admin.auth import IDENTITY, still_signed_in
from tracker.admin.desk import Desk
from tracker.admin.pages import figures
from tracker.admin.pages.figures import Failures, Figures
from tracker.admin.problems import Problem
from tracker.admin.stopping import STOPPING
from tracker.errors import StoreAway
from tracker.telemetry import BOUNDS

MOST_STREAMS = 64
"""Open at once; further ones are asked to come back later."""
MOST_OF_ONE = 32
"""Of these, with one token: nobody takes the places of all others."""
PERIOD_SECONDS = 1.0
FAILURES_SECONDS = 5.0
"""How often failures by reason are read."""
QUANTILE_SECONDS = 60
"""What the 95th percentile is of, as long as somebody looks; at first it is of all since the start."""
IDENTITY_SECONDS = 2.0
WRITE_SECONDS = 15.0
"""A browser that takes nothing for so long is gone."""
RECONNECT_MILLISECONDS = 2000
AWAY = "The store does not answer."


class Readings:
    """The newest figures, read at most once a second however many ask. ``monotonic`` gives seconds."""

    def __init__(self, desk: Desk, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._desk = desk
        self._monotonic = monotonic
        self._reading = asyncio.Lock()
        self._read_at = self._failures_at = float("-inf")
        self._figures: Figures | None = None
        self._failures: Failures = []
        self._histograms: deque[tuple[float, list[int]]] = deque(maxlen=QUANTILE_SECONDS + 1)

    async def figures(self) -> Figures:
        """Raises StoreAway and RedisError."""
        async with self._reading:
            now = self._monotonic()
            if self._figures is None or now - self._read_at >= PERIOD_SECONDS * 0.9:
                if now - self._failures_at >= FAILURES_SECONDS:
                    self._failures = await figures.read_failures(self._desk)
                    self._failures_at = now
                self._figures = await figures.read_figures(self._desk, self._failures, self._p95(now))
                self._read_at = now
            return self._figures

    def _p95(self, now: float) -> float | None:
        """Of the announces since the oldest histogram remembered; of all when those are none."""
        histogram = self._desk.telemetry().histograms.get(figures.LATENCY)
        if histogram is None:
            return None
        while self._histograms and now - self._histograms[0][0] > QUANTILE_SECONDS:
            self._histograms.popleft()
        before = self._histograms[0][1] if self._histograms else [0] * len(histogram.counts)
        self._histograms.append((now, list(histogram.counts)))
        late = [max(0, count - old) for count, old in zip(histogram.counts, before, strict=True)]
        bounds = BOUNDS[figures.LATENCY]
        return figures.quantile(late if sum(late) else histogram.counts, bounds, 0.95)


class Live:
    """The streams: GET /live."""

    def __init__(self, desk: Desk, readings: Readings) -> None:
        self._desk = desk
        self._readings = readings
        self._streams: Counter[str] = Counter()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        stopping, who = request.app[STOPPING], request[IDENTITY].name
        full = self._streams.total() >= MOST_STREAMS or self._streams[who] >= MOST_OF_ONE
        if full or stopping.is_set():
            raise Problem(503, detail="too many streams are open", headers={"Retry-After": "5"})
        self._streams[who] += 1
        try:
            return await self._stream(request, stopping)
        finally:
            self._streams -= Counter([who])

    async def _stream(self, request: web.Request, stopping: asyncio.Event) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["X-Accel-Buffering"] = "no"  # or nginx keeps events back
        await response.prepare(request)
        with suppress(ConnectionError, TimeoutError):
            await _send(response, b"retry: %d\n\n" % RECONNECT_MILLISECONDS)
            await self._events(request, response, stopping)
        return response

    async def _events(
        self, request: web.Request, response: web.StreamResponse, stopping: asyncio.Event
    ) -> None:
        checked = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() - checked >= IDENTITY_SECONDS:
                checked = time.monotonic()
                if not await _still_signed_in(request):
                    await _send(response, b"event: signed-out\ndata: {}\n\n")
                    return
            await _send(response, await self._event())
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await stopping.wait()

    async def _event(self) -> bytes:
        problems = list(self._desk.problems())
        try:
            reading = await self._readings.figures()
        except (StoreAway, RedisError):
            return _encoded("away", {"problems": problems or [AWAY]})
        return _encoded("figures", message(reading, problems))


async def _still_signed_in(request: web.Request) -> bool:
    """While the store is away nobody can say: the stream stays, for it shows nothing then."""
    try:
        return await still_signed_in(request)
    except (StoreAway, RedisError):
        return True


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def message(reading: Figures, problems: Sequence[str]) -> dict[str, Any]:
    """What live.js puts into the page."""
    return {
        "at": int(reading.at),
        "texts": figures.texts(reading),
        "tones": figures.tones(reading),
        "sparks": figures.sparks(reading.window),
        "charts": {name: draw(reading.window) for name, draw in figures.CHARTS.items()},
        "failures": reading.failures,
        "problems": problems,
        "requests": reading.totals["requests"],
    }


def _encoded(event: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data))
