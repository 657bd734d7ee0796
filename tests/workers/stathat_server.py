"""A server for StatHat's EZ API on loopback, with faults on demand.

    async with StatHatServer() as stathat:          # in a test that is a coroutine
        stathat.mode = "500"
    with stathat_in_thread() as stathat:            # in any other test, beside child processes
        ...
    stathat.url, stathat.accepted["countries.France.users"], stathat.values["torrents.count"]

A batch counts only when the reply reports success.
"""

import asyncio
import json
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Mode = Literal[
    "ok", "slow", "hang", "500", "503", "error in json", "garbage", "empty", "huge", "redirect", "404", "403", "bad key"
]
KEY = "EZKEY-d41d8cd98f00b204"
_PLAIN: dict[str, tuple[int, bytes]] = {
    "500": (500, b'{"status":500,"msg":"try later"}'),
    "503": (503, b"<html>Service Unavailable: back-end server is at capacity</html>"),
    "error in json": (200, b'{"status":500,"msg":"try later"}'),
    "garbage": (200, b"\x00<html>{]"),
    "empty": (200, b""),
    "huge": (200, b'{"status":200,"msg":"' + b"x" * 1_000_000 + b'"}'),
    "404": (404, b"not found"),
    "403": (403, b"no"),
}


@dataclass
class StatHatServer:
    """``mode`` selects the reply to each request; ``delay`` (s) applies to mode ``slow``."""

    mode: Mode = "ok"
    delay: float = 0.2
    key: str = KEY
    poison: Callable[[str], bool] = lambda _: False
    """A batch with a name for which this is true gets ``poison_status``."""
    poison_status: int = 400
    max_samples: int = 1000
    """A larger batch gets status 413."""
    before_reply: Callable[[], Awaitable[None]] | None = None
    """Awaited after a batch is counted and before its reply is sent."""

    accepted: "Counter[str]" = field(default_factory=Counter)
    by_minute: "Counter[tuple[str, int]]" = field(default_factory=Counter)
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    """Every batch received, accepted or not."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """(headers, body) of each."""
    redirected: int = 0
    """Requests that followed a redirect."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "StatHatServer":
        self._end = asyncio.Event()
        app = web.Application(client_max_size=2**22)
        app.router.add_post("/ez", self._ez)
        app.router.add_route("*", "/elsewhere", self._elsewhere)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end.set()
        await self._runner.cleanup()

    async def listen(self) -> None:
        """Opens the port; after ``refuse`` the same one."""
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def refuse(self) -> None:
        """Refuses connections until ``listen``."""
        await self._site.stop()

    async def _elsewhere(self, _: web.Request) -> web.Response:
        self.redirected += 1
        return _success()

    async def _ez(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        batch, error = self._read(request, body)
        self.batches.append(batch)
        if self.mode == "hang":
            await self._end.wait()
        elif self.mode == "slow":
            with suppress(TimeoutError):
                async with asyncio.timeout(self.delay):
                    await self._end.wait()
        elif self.mode in _PLAIN:
            status, text = _PLAIN[self.mode]
            return web.Response(status=status, body=text)
        elif self.mode == "redirect":
            return web.Response(status=307, headers={"Location": "/elsewhere"})
        elif self.mode == "bad key":
            # The worst case for the log: the reply repeats the key.
            return web.json_response({"status": 500, "msg": f"no such ezkey: {self.key}"}, status=500)
        if error is not None:
            return error
        if request.transport is None or request.transport.is_closing():  # nobody receives the reply
            return _success()
        for stat in batch:
            if "count" in stat:
                self.accepted[stat["stat"]] += stat["count"]
                self.by_minute[stat["stat"], stat["t"]] += stat["count"]
            else:
                self.values[stat["stat"]].append(stat["value"])
        if self.before_reply is not None:
            await self.before_reply()
        return _success()

    def _read(self, request: web.Request, body: bytes) -> tuple[list[dict[str, Any]], web.Response | None]:
        """The batch, and the error reply when it breaks the API's rules."""
        sent = json.loads(body)
        batch: list[dict[str, Any]] = sent["data"]
        names = [stat["stat"] for stat in batch]
        if request.content_type != "application/json" or set(sent) != {"ezkey", "data"}:
            return batch, _failure(400)
        if sent["ezkey"] != self.key:
            return batch, _failure(403)
        if len(batch) > self.max_samples:
            return batch, _failure(413)
        valid = all(
            0 < len(stat["stat"]) <= 255
            and "~" not in stat["stat"]
            and ("count" in stat) != ("value" in stat)
            and isinstance(stat["t"], int)
            for stat in batch
        )
        if not valid:
            return batch, _failure(400)
        if any(self.poison(name) for name in names):
            return batch, _failure(self.poison_status)
        return batch, None


def _success() -> web.Response:
    return web.json_response({"status": 200, "msg": "ok"})


def _failure(status: int) -> web.Response:
    return web.json_response({"status": status, "msg": "rejected"}, status=status)


@contextmanager
def stathat_in_thread() -> Iterator[StatHatServer]:
    """Runs in its own event loop, for tests that block theirs or have none."""
    started = threading.Event()
    server = StatHatServer()
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        end = asyncio.Event()
        ends.append(lambda: loop.call_soon_threadsafe(end.set))
        loop = asyncio.get_running_loop()
        async with server:
            started.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="stathat", daemon=True)
    thread.start()
    assert started.wait(10), "the StatHat server did not start"
    try:
        yield server
    finally:
        ends[0]()
        thread.join(10)


@asynccontextmanager
async def not_stathat(reply: bytes) -> AsyncIterator[str]:
    """The URL of a server that sends ``reply`` to any request, then closes the connection."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read(1)
        writer.write(reply)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for writer in writers:
            writer.close()
