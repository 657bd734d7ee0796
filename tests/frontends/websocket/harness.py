"""Shared by the tests of WebSockets: trackers of a process as the app wires them, and clients with made-up offers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import aiohttp

from tracker.app.web import open_joins, open_web
from tracker.runtime.context import RuntimeContext, open_context
from tracker.runtime.store import open_unchecked
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import Settings

HASH = "\xff\x01\x00" + "h" * 17
WAIT_SECONDS = 30.0


def peer(number: int) -> str:
    """Bytes above 127 and below 32."""
    return f"-WW0300-\xe9\x02{number:010}"


def offers(*names: str) -> list[dict[str, Any]]:
    return [{"offer": {"type": "offer", "sdp": f"v=0 {name}"}, "offer_id": name.rjust(20, "\xfe")} for name in names]


class Browser:
    """A client of one tracker."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, peer_id: str) -> None:
        self.socket, self.peer_id = socket, peer_id

    async def send(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message, ensure_ascii=False))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        read: dict[str, Any] = json.loads(message.data)
        return read

    async def announce(self, *names: str, info_hash: str = HASH, **fields: Any) -> dict[str, Any]:
        """The next message, which is the reply unless another one was under way."""
        await self.send(action="announce", info_hash=info_hash, peer_id=self.peer_id, offers=offers(*names), **fields)
        return await self.receive()

    async def answer(self, offer: dict[str, Any], **changes: Any) -> None:
        fields = {
            "action": "announce",
            "info_hash": offer["info_hash"],
            "peer_id": self.peer_id,
            "to_peer_id": offer["peer_id"],
            "offer_id": offer["offer_id"],
            "answer": {"type": "answer", "sdp": "v=0 answer"},
        }
        await self.send(**{**fields, **changes})

    async def is_silent(self) -> bool:
        """Whether nothing else is under way to it: replies keep their order."""
        await self.send(action="scrape", info_hash=HASH)
        return bool((await self.receive())["action"] == "scrape")

    async def closed(self) -> int | None:
        """The code of the close."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.socket.closed:
                await self.socket.receive()
        return self.socket.close_code


class Site:
    """One tracker."""

    def __init__(self, context: RuntimeContext, address: str, session: aiohttp.ClientSession) -> None:
        self.context, self.store, self.address, self._session = context, context.store, address, session
        self._peers = 0
        self._opened: list[aiohttp.ClientWebSocketResponse] = []

    async def open(self, path: str = "/", *, peer_id: str = "", **options: Any) -> Browser:
        self._peers += 1
        socket = await self._session.ws_connect(f"http://{self.address}{path}", **options)
        self._opened.append(socket)
        return Browser(socket, peer_id or peer(self._peers))

    def close_all(self) -> None:
        """Without waiting. aiohttp warns of connections that are collected open."""
        for socket in self._opened:
            socket._response.close()

    async def counts(self) -> tuple[int, int]:
        """(complete, incomplete) by a scrape over HTTP."""
        row = await self.torrent()
        return int(row.get(b"seeders", 0)), int(row.get(b"leechers", 0))

    async def torrent(self) -> dict[bytes, bytes]:
        info_hash = HASH.encode("latin-1")
        shard = self.store.shards.of(info_hash)  # type: ignore[arg-type]
        flat = await shard.connection.command("HGETALL", shard.keys.torrent(info_hash))  # type: ignore[arg-type]
        return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))

    async def counted(self, name: str) -> int:
        await self.store.counters.flush()
        return self.context.telemetry.snapshot().counts.get(name, 0)


@asynccontextmanager
async def serving(url: str, prefix: str, **settings: Any) -> AsyncIterator[Site]:
    sections: dict[str, Any] = {
        "http": {"listen": ("127.0.0.1:0",)},
        "redis": {"url": url, "prefix": prefix, "timeout_seconds": 8},
        "webtorrent": {"enabled": True},
    }
    for name, values in settings.items():
        sections[name] = {**sections.get(name, {}), **values}
    chosen = Settings(**sections)
    telemetry = Telemetry()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        closing = stack.enter_context(ExitStack())  # after the tracker
        connection = await stack.enter_async_context(open_unchecked(url, chosen.redis, 8.0, telemetry.round_trip))
        context = await stack.enter_async_context(open_context(chosen, connection, telemetry))
        await context.store.load_secret()
        joins = await stack.enter_async_context(open_joins(context))
        (address,) = await stack.enter_async_context(open_web(context, joins))
        site = Site(context, address, session)
        closing.callback(site.close_all)
        yield site
