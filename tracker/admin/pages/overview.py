"""The overview page: current state of the tracker, and charts over minutes, hours and days; and its live updates, which
are server-sent events.

The store is read at most once a second for all streams together, and never without an open stream: the first stream
that finds the last reading outdated reads for all. A stream ends when the tracker stops, and when its session or token
ends; the browser reconnects by itself and is redirected to the sign-in if needed.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from redis.exceptions import RedisError

from tracker.admin.auth.auth import ACCESS, IDENTITY
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import STOPPING
from tracker.admin.http.problems import Problem
from tracker.admin.pages.history import chart_data, rounded
from tracker.admin.pages.rendering import NOTHING, Pages, get, milliseconds, number, rate, size
from tracker.errors import StoreUnavailable
from tracker.operations import history
from tracker.operations.history import CHARTS, JOINS, LATENCY, RANGES, RELAYS, REQUESTS, Slices
from tracker.runtime.telemetry import BOUNDS

CHART_NAMES = ("requests", "latency")
LATENCY_NAME = "announce_seconds"
_REASONS = 100
"""Above the number of fixed refusal texts; bounds what other writers of the store may add."""
_RATE_SLICES = 5

Failures = list[tuple[str, int, int]]
"""(reason, count in the last two hours, total), highest recent count first."""


@dataclass(slots=True)
class OverviewReading:
    at: float
    slices: Slices
    """The rates and the latency of the last two minutes."""
    totals: Mapping[str, int]
    torrents: int
    sockets: int
    """Open WebSockets of this tracker."""
    failures: Failures
    mean: float | None
    """Mean announce latency of the last two minutes (s)."""
    p95: float | None
    has_main: bool
    """Whether the main store is available, which has the counters of requests."""


async def read_failures(context: AdminContext) -> Failures:
    counters = context.store.counters
    ever = await counters.failures()
    names = (await counters.names("failures.*"))[:_REASONS]
    series = await asyncio.gather(*(counters.series(name, 60) for name in names))
    counts = [sum(count for _, count in slices) for slices in series]
    late = dict(zip((name.removeprefix("failures.") for name in names), counts, strict=True))
    rows = [(reason, late.get(reason, 0), ever.get(reason, 0)) for reason in {*late, *ever}]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))[:_REASONS]


def _rate(slices: Slices, name: str) -> float:
    """Mean rate of the last few slices."""
    last = [value or 0.0 for value in slices.values[name][-_RATE_SLICES:]]
    return sum(last) / len(last) if last else 0.0


_OF_MAIN = ("announces", "scrapes", "joins", "failures", "latency")
"""Tiles whose values are under the main prefix."""


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The quantile ``share`` of a histogram whose last bucket is unbounded; None for an empty one. Interpolates within
    a bucket. Values above the last bound count as that bound."""
    wanted, so_far, lower = share * sum(counts), 0.0, 0.0
    if not wanted:
        return None
    for count, bound in zip(counts, bounds, strict=False):
        if count and so_far + count >= wanted:
            return lower + (bound - lower) * (wanted - so_far) / count
        so_far, lower = so_far + count, bound
    return bounds[-1]


def texts(reading: OverviewReading) -> dict[str, str]:
    """The texts of the tiles, by their names in the page."""
    totals, slices = reading.totals, reading.slices
    shown = {
        "announces": rate(_rate(slices, "announces")),
        "announces_note": f"{number(totals['announces'])} total"
        + "".join(
            f", {rate(_rate(slices, name))}/s over {shown}"
            for name, shown in (("udp", "UDP"), ("ws", "WebSockets"))
            if any(slices.values[name])
        ),
        "scrapes": rate(_rate(slices, "scrapes")),
        "scrapes_note": f"{number(totals['scrapes'])} total",
        "joins": rate(_rate(slices, "joins")),
        "joins_note": "peers joining",
        "failures": rate(_rate(slices, "failures")),
        "failures_note": "refused requests",
        "latency": milliseconds(reading.mean),
        "latency_note": f"p95 {milliseconds(reading.p95)}" if reading.p95 is not None else "no data yet",
        "peers": number(totals["seeders"] + totals["leechers"]),
        "seeders": number(totals["seeders"]),
        "leechers": number(totals["leechers"]),
        "torrents": number(reading.torrents),
        "sockets": number(reading.sockets),
        "sockets_note": f"{rate(_rate(slices, 'relays'))}/s offers and answers",
        "reaped": number(totals["reaped"]),
        "repairs": number(totals["repairs"]),
        "repairs_note": "OK (0 expected)" if not totals["repairs"] else "0 expected; see Doctor",
        "credit_cut": size(totals["credit_cut"]),
        "credit_cut_note": "above the maximum rate",
    }
    if not reading.has_main:
        notes = {f"{name}_note": "main store unavailable" for name in (*_OF_MAIN, "sockets")}
        shown |= dict.fromkeys(_OF_MAIN, NOTHING) | notes
    return shown


def tones(reading: OverviewReading) -> dict[str, str]:
    """The colours of tiles that signal good or bad."""
    totals = reading.totals
    return {"repairs": "bad" if totals["repairs"] else "good", "credit_cut": "warn" if totals["credit_cut"] > 0 else ""}


def sparks(slices: Slices) -> dict[str, list[float | None]]:
    values = slices.values
    return {
        **{name: rounded(values[name], 2) for name in ("announces", "scrapes", "joins", "failures")},
        "latency": rounded(values["mean"], 3, 1000),
    }


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
                    # None are known while only the main store is unavailable.
                    self._failures = await self._context.store.shards.main_or(read_failures(self._context), [])
                    self._failures_at = now
                self._latest = await self._read(self._p95(now))
                self._read_at = now
            return self._latest

    async def _read(self, p95: float | None) -> OverviewReading:
        context, now, counters = self._context, self._context.clock(), self._context.store.counters
        window = history.window_between(int(now) - RANGES["2m"].seconds, int(now), now)
        slices, totals, torrents = await asyncio.gather(
            history.read(counters, (*REQUESTS, JOINS, RELAYS, *LATENCY), window, now),
            counters.totals(),
            context.store.torrents.count(),
        )
        measured = [value for value in slices.values["mean"] if value is not None]
        mean = sum(measured) / len(measured) if measured else None
        has_main, sockets = not counters.is_unavailable, int(context.telemetry().gauges.get("sockets", 0))
        return OverviewReading(now, slices, totals, torrents, sockets, self._failures, mean, p95, has_main)

    def _p95(self, now: float) -> float | None:
        """The percentile of announces since the oldest kept histogram; of all announces if there were none."""
        histogram = self._context.telemetry().histograms.get(LATENCY_NAME)
        if histogram is None:
            return None
        while self._histograms and now - self._histograms[0][0] > QUANTILE_SECONDS:
            self._histograms.popleft()
        before = self._histograms[0][1] if self._histograms else [0] * len(histogram.counts)
        self._histograms.append((now, list(histogram.counts)))
        late = [max(0, count - old) for count, old in zip(histogram.counts, before, strict=True)]
        bounds = BOUNDS[LATENCY_NAME]
        return quantile(late if sum(late) else histogram.counts, bounds, 0.95)


class OverviewPage(Pages):
    def __init__(self, context: AdminContext) -> None:
        super().__init__(context)
        self._latest_reading = LatestReading(context)
        self._streams: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/live", self.stream, allow_head=False), *super().routes()]

    @get("/", "overview.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """Without the store the page shows the problem, and recovers with the store."""
        problems, reading = list(self._context.problems()), await self._read()
        return {
            "range": RANGES.get(request.query.get("range", ""), RANGES["2m"]),
            "ranges": RANGES.values(),
            "server": self._context.server,
            "listen": self._context.listening,
            "texts": texts(reading) if reading else {},
            "tones": tones(reading) if reading else {},
            "failures": reading.failures if reading else [],
            "outage": "" if reading or problems or self._store.shards.notices() else UNAVAILABLE,
            "fresh": reading is not None and not reading.totals["requests"],
            "problems": problems,
        }

    async def _read(self) -> OverviewReading | None:
        """None without the store."""
        try:
            return await self._latest_reading.latest()
        except (StoreUnavailable, RedisError):
            return None

    async def stream(self, request: web.Request) -> web.StreamResponse:
        stopping, name, limits = request.app[STOPPING], request[IDENTITY].name, self._context.stream_limits
        full = self._streams.total() >= limits.streams or self._streams[name] >= limits.streams_per_token
        if full or stopping.is_set():
            raise Problem(503, detail="too many open event streams", headers={"Retry-After": "5"})
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        response.headers["X-Accel-Buffering"] = "no"  # otherwise nginx buffers events
        self._streams[name] += 1
        try:
            await response.prepare(request)
            with suppress(ConnectionError, TimeoutError):
                await _send(response, b"retry: %d\n\n" % RECONNECT_MILLISECONDS)
                await self._events(request, response, stopping)
        finally:
            self._streams -= Counter([name])
        return response

    async def _events(self, request: web.Request, response: web.StreamResponse, stopping: asyncio.Event) -> None:
        checked = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() - checked >= self._context.stream_limits.identity_seconds:
                checked = time.monotonic()
                if not await _still_signed_in(request):
                    await _send(response, b"event: signed-out\ndata: {}\n\n")
                    return
            await _send(response, await self._event())
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await stopping.wait()

    async def _event(self) -> bytes:
        problems, notices = list(self._context.problems()), self._store.shards.notices()
        reading = await self._read()
        if reading is None:
            outage = "" if problems or notices else UNAVAILABLE
            return _encoded("unavailable", {"problems": problems, "notices": notices, "text": outage})
        figures = {
            "at": int(reading.at),
            "texts": texts(reading),
            "tones": tones(reading),
            "sparks": sparks(reading.slices),
            "charts": {name: chart_data(CHARTS[name], reading.slices) for name in CHART_NAMES},
            "failures": reading.failures,
            "problems": problems,
            "notices": notices,
            "requests": reading.totals["requests"],
        }
        return _encoded("figures", figures)


async def _still_signed_in(request: web.Request) -> bool:
    """True while the store is unavailable: the stream stays open and shows no data."""
    try:
        return await request.app[ACCESS].identify(request) is not None
    except (StoreUnavailable, RedisError):
        return True


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def _encoded(event: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(data))
