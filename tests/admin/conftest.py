"""A running admin port in this process, on a real store with its own key prefix.

admin          an Admin: `admin.url`, `admin.context`, `admin.store`, `await admin.token("admin")`
serve          the same with other settings, or several: `await serve(hosts=("tracker.test",))`

async with admin.client("read") as client:          # sends a token
    await client.get("/api/v1/torrents")
async with admin.browser("admin") as browser:        # is signed in, and sends Origin and the CSRF token
    await browser.post("/torrents", data={...})
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.store.harness import Clock
from tracker.admin.context import AdminContext, StreamLimits
from tracker.admin.http.cookies import COOKIE
from tracker.admin.server import serve_admin
from tracker.geoip import GeoIP
from tracker.runtime.store import store_options
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import LiveSettings, RedisSettings, Settings
from tracker.settings.site import AdminSettings
from tracker.store.access.tokens import Role
from tracker.store.client.connection import Connection, connect
from tracker.store.client.scripts import Scripts
from tracker.store.store import Store

PATIENCE = 20.0


@dataclass
class Admin:
    """A running admin port. Tests change ``problems`` and ``telemetry``, and move ``clock``."""

    url: str
    addresses: tuple[str, ...]
    context: AdminContext
    clock: Clock
    problems: list[str]
    telemetry: Telemetry
    scripts: Scripts
    _tokens: dict[Role, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.context.store

    async def token(self, role: Role = "admin") -> str:
        """A token named after its role; the same for every call."""
        if role not in self._tokens:
            _, self._tokens[role] = await self.store.tokens.create(f"test {role}", role)
        return self._tokens[role]

    @asynccontextmanager
    async def client(self, role: Role | None = None, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
        """A client that sends a token of this role, or none. It does not follow redirects by default."""
        headers = {"Authorization": f"Bearer {await self.token(role)}"} if role else {}
        headers |= options.pop("headers", {})
        async with self._session(headers=headers, **options) as session:
            yield session

    @asynccontextmanager
    async def browser(self, role: Role = "admin", **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
        """A signed-in browser, whose every request carries its cookie, Origin and the CSRF token."""
        signed_in = await self.store.tokens.sign_in_by_token(
            await self.token(role), self.context.settings.admin.session_seconds
        )
        assert signed_in is not None
        session, secret = signed_in
        headers = {"Origin": self.url, "X-CSRF-Token": session.csrf, "Accept": "text/html"}
        headers |= options.pop("headers", {})
        async with self._session(cookies={COOKIE: secret}, headers=headers, **options) as client:
            yield client

    def _session(self, **options: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self.url,
            cookie_jar=aiohttp.CookieJar(unsafe=True),  # accepts cookies of IP addresses
            timeout=aiohttp.ClientTimeout(PATIENCE),
            **options,
        )


Serve = Callable[..., Awaitable[Admin]]


@pytest.fixture
async def serve(redis_url: str, prefix: str) -> AsyncIterator[Serve]:
    """Starts admin ports. Options are settings of section admin; ``settings`` holds the others, ``streams`` the limits
    on event streams."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings | None = None, streams: StreamLimits | None = None, **options: Any) -> Admin:
            settings = settings or Settings(redis=RedisSettings(prefix=prefix))
            admin = AdminSettings(**{"listen": ("127.0.0.1:0",), **options})
            settings = settings.model_copy(update={"admin": admin})
            connection = Connection(connect(redis_url, connect_timeout=20, timeout=20))
            stack.push_async_callback(connection.close)
            return await stack.enter_async_context(
                running_admin(settings, connection, prefix, streams or StreamLimits())
            )

        yield start


@pytest.fixture
async def admin(serve: Serve) -> Admin:
    return await serve()


@contextlib.asynccontextmanager
async def running_admin(
    settings: Settings, connection: Connection, prefix: str, streams: StreamLimits
) -> AsyncIterator[Admin]:
    clock, telemetry, problems = Clock(), Telemetry(), list[str]()
    store = Store(connection, prefix, store_options(settings), clock=clock)
    context = AdminContext(
        store=store,
        live=LiveSettings(settings),
        places=GeoIP(None),
        telemetry=telemetry.snapshot,
        problems=lambda: tuple(problems),
        clock=clock,
        server="valkey under test",
        listening=("127.0.0.1:6969",),
        stream_limits=streams,
    )
    async with serve_admin(context, settings.admin) as addresses:
        yield Admin(f"http://{addresses[0]}", addresses, context, clock, problems, telemetry, store.scripts)
