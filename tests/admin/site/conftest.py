"""A running listener for a site's calls in this process, on a real store with its own key prefix.

site           a Site: `await site.put("users", {...})`, `await site.ocelot("add_user", ...)`, `site.store`
serve          the same with other settings: `await serve(allowed=("192.0.2.0/24",))`
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
import pytest
from yarl import URL

from tests.store.harness import Clock
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import Limits
from tracker.admin.site.listener import serve_site
from tracker.geoip import GeoIP
from tracker.runtime.store import store_options
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import LiveSettings, RedisSettings, Settings
from tracker.settings.public import UserSettings
from tracker.settings.site import SiteSettings
from tracker.store.client.connection import Connection, connect
from tracker.store.store import Store

KEY, REPORT_KEY = "k" * 32, "r" * 32
HASH = bytes.fromhex("01" * 20)
PASSKEY, OTHER = "a" * 32, "b" * 32
TORRENT = {
    "id": 700,
    "status": 1,
    "info_hash": HASH.hex(),
    "is_deleted": False,
    "seeders": 3,
    "leechers": 4,
    "times_completed": 5,
    "download_factor": 100,
    "upload_factor": 100,
}
USER = {
    "id": 7,
    "group_id": 3,
    "passkey": PASSKEY,
    "new_passkey": None,
    "can_download": True,
    "is_donor": False,
    "is_lifetime": False,
    "num_seeding": 1,
    "num_leeching": 2,
}
GROUP = {
    "id": 3,
    "slug": "user",
    "download_slots": None,
    "is_immune": False,
    "is_freeleech": False,
    "is_double_upload": False,
}


@dataclass
class Site:
    """``settings`` receives those that a call applies."""

    address: str
    context: AdminContext
    telemetry: Telemetry
    clock: Clock
    applied: list[Settings] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return self.context.store

    async def ask(self, method: str, path: str, body: object = None, key: str = KEY) -> tuple[int, Any]:
        """The status and the body, which is parsed if it is JSON."""
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        url = f"http://{self.address}/announce/{key}/{path}"
        async with aiohttp.ClientSession() as session, session.request(method, url, data=data) as got:
            text = await got.read()
            return got.status, orjson.loads(text) if "json" in got.content_type else text

    async def put(self, path: str, body: object) -> int:
        return (await self.ask("PUT", path, body))[0]

    async def delete(self, path: str, body: object) -> int:
        return (await self.ask("DELETE", path, body))[0]

    async def get(self, path: str) -> Any:
        return (await self.ask("GET", path))[1]

    async def ocelot(self, action: str, key: str = KEY, **fields: str | int | bytes) -> tuple[int, str]:
        """The status and the body."""
        query = "".join(
            f"&{name}={quote(value if isinstance(value, bytes) else str(value), safe='')}"
            for name, value in fields.items()
        )
        return await self.fetch(f"/{key}/update?action={action}{query}")

    async def fetch(self, path: str) -> tuple[int, str]:
        url = URL(f"http://{self.address}{path}", encoded=True)
        async with aiohttp.ClientSession() as session, session.get(url) as got:
            return got.status, await got.text()


Serve = Callable[..., Awaitable[Site]]


@pytest.fixture
async def serve(redis_url: str, prefix: str) -> AsyncIterator[Serve]:
    """Starts listeners. Options are settings of section site; ``limits`` are those of its connections."""
    async with AsyncExitStack() as stack:

        async def start(limits: Limits | None = None, shards: int = 1, **options: Any) -> Site:
            own = {"listen": ("127.0.0.1:0",), "key": KEY, "report_key": REPORT_KEY, "name": "tests", **options}
            settings = Settings(
                redis=RedisSettings(prefix=prefix, shards=shards),
                users=UserSettings(private="required"),
                site=SiteSettings(**own),
            )
            connection = Connection(connect(redis_url, connect_timeout=20, timeout=20))
            stack.push_async_callback(connection.close)
            clock, telemetry = Clock(), Telemetry()
            store = Store(connection, prefix, store_options(settings), clock=clock)
            context = AdminContext(
                store=store,
                live=LiveSettings(settings),
                places=GeoIP(None),
                telemetry=telemetry.snapshot,
                problems=tuple,
                clock=clock,
                server="valkey under test",
            )
            site = Site("", context, telemetry, clock)
            (site.address,) = await stack.enter_async_context(
                serve_site(context, site.applied.append, telemetry.count, limits)
            )
            return site

        yield start


@pytest.fixture(params=[1, 4], ids=["one shard", "four shards"])
async def site(serve: Serve, request: pytest.FixtureRequest) -> Site:
    return await serve(shards=request.param)
