"""The live view: finished items as server-sent events. ``Last-Event-ID`` is an id of the log, so none is missed. All
streams of a project share one reading of the log and of the counts of items per second."""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import orjson
from aiohttp import web

from tracker.bittorrent import Address
from tracker.core.work import Refused
from tracker.core.work_figures import Finished
from tracker.errors import StoreUnavailable
from tracker.frontends.work.requests import Handlers

MAX_STREAMS = 2000
MAX_PER_NETWORK = 8
PERIOD_SECONDS = 1.0
QUIET_SECONDS = 15.0
"""After so long without an event a comment is sent, so that proxies keep the stream open."""
KEPT = 500
"""The newest entries that are kept for streams that are a little behind."""
PAGE = 100
WRITE_SECONDS = 15.0
"""A client that reads nothing for this long is disconnected."""
RECONNECT_MILLISECONDS = 3000
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)

Read = Callable[[str, int], Awaitable[Sequence[Finished]]]
"""(id, count): the entries after that id, the oldest first."""
Count = Callable[[], Awaitable[dict[str, Any]]]


def order_of(id: str) -> tuple[int, int]:
    at, _, number = id.partition("-")
    return int(at), int(number)


class Tail:
    """The end of a project's log, and the counts of its items with the current periods. ``timer`` returns seconds."""

    def __init__(self, read: Read, newest: str, timer: Callable[[], float], count: Count | None = None) -> None:
        self._read = read
        self._timer = timer
        self._count = count
        self.counts: dict[str, Any] = {}
        self._from = self._to = newest
        self._entries: deque[Finished] = deque()
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")
        self._news = asyncio.Event()
        self._is_watched = False
        self._chunk: tuple[str, str, dict[str, Any], bytes] = ("", "", {}, b"")

    async def after(self, id: str) -> Sequence[Finished]:
        """Returns at most PAGE entries that follow ``id``, or more of the newest ones."""
        async with self._reading:
            if self._timer() - self._read_at >= PERIOD_SECONDS * 0.9:
                self._read_at = self._timer()
                await self._read_new()
        after = order_of(id)
        if after >= order_of(self._from):
            return [entry for entry in self._entries if order_of(entry.id) > after]
        return await self._read(id, PAGE)

    def has_news(self, id: str, counts: dict[str, Any] | None) -> bool:
        """Whether a stream that has shown the entries up to ``id``, and ``counts``, is behind."""
        return counts is not self.counts or order_of(id) < order_of(self._to)

    async def chunk(self, id: str) -> tuple[str, bytes]:
        """The events after ``id`` and the id of the last; they are written once for all streams that are there."""
        after, to, counts, data = self._chunk
        if (after, to) == (id, self._to) and counts is self.counts:
            return to, data
        entries = await self.after(id)
        last = entries[-1].id if entries else id
        data = b"".join(map(event, entries)) + b"event: counts\ndata: %b\n\n" % orjson.dumps(self.counts)
        self._chunk = id, last, self.counts, data
        return last, data

    async def _read_new(self) -> None:
        news = False
        while entries := await self._read(self._to, PAGE):
            news = True
            self._entries += entries
            self._to = entries[-1].id
            while len(self._entries) > KEPT:
                self._from = self._entries.popleft().id
            if len(entries) < PAGE:
                break
        if self._count is not None and (counts := await self._count()) != self.counts:
            self.counts, news = counts, True
        if news:
            self.wake()

    def wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Returns when there may be something new. One of the streams that wait reads each second, for all."""
        news = self._news
        if self._is_watched:
            await news.wait()
            return
        self._is_watched = True
        try:
            while not news.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_SECONDS):
                        await news.wait()
                with suppress(StoreUnavailable):
                    await self.after(self._to)
        finally:  # another goes on
            self._is_watched = False
            self.wake()


@dataclass(eq=False)
class Live(Handlers):
    def __post_init__(self) -> None:
        self._tails = WeakValueDictionary[str, Tail]()
        """The tail that the streams of each project share."""
        self._streams: Counter[Address] = Counter()
        self._stopping = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        project = await self.project(request)
        last = request.headers.get("Last-Event-ID", request.query.get("after", ""))
        if last and not _ID.fullmatch(last):
            raise Refused("malformed", "Last-Event-ID is no id of the log")
        address = self.address(request)
        net = Address(address[:8])
        if self._stopping.is_set() or self._streams.total() >= MAX_STREAMS or self._streams[net] >= MAX_PER_NETWORK:
            raise web.HTTPServiceUnavailable
        self._streams[net] += 1
        try:
            newest = await self.figures.newest_id(project)
            read, count = partial(self.figures.finished_after, project), partial(self.figures.counts, project)
            if not last or order_of(last) > order_of(newest):  # of a log that was restored or deleted since
                last = newest
            tail = self._tails.setdefault(project.name, Tail(read, newest, asyncio.get_running_loop().time, count))
            return await _stream(request, tail, last, self._stopping)
        finally:
            self._streams -= Counter([net])

    async def stop(self, _app: web.Application) -> None:
        """Ends all streams."""
        self._stopping.set()
        for tail in list(self._tails.values()):
            tail.wake()


async def _stream(request: web.Request, tail: Tail, last: str, stopping: asyncio.Event) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_type = "text/event-stream"
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # otherwise nginx buffers events
    await response.prepare(request)
    with suppress(ConnectionError, TimeoutError):
        await _send(response, b"retry: %d\nid: %b\n\n" % (RECONNECT_MILLISECONDS, last.encode()))
        seen: dict[str, Any] | None = None
        while not stopping.is_set():
            if tail.has_news(last, seen):
                before = last
                with suppress(StoreUnavailable):
                    last, data = await tail.chunk(before)
                    if last != before or tail.counts is not seen:
                        seen = tail.counts
                        await _send(response, data)
                        continue
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await tail.news()
            except TimeoutError:
                await _send(response, b": still here\n\n")
    return response


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(data)


def event(entry: Finished) -> bytes:
    return b"id: %b\nevent: done\ndata: %b\n\n" % (entry.id.encode(), orjson.dumps(entry.shown))
