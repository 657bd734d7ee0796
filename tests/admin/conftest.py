"""A running admin port in this process, on a real store with a key prefix of its own.

admin          an Admin: `admin.url`, `admin.desk`, `admin.stores`, `await admin.token("full")`
serve          the same with other settings, or several: `await serve(hosts=("tracker.test",))`

async with admin.client("read") as client:          # sends a token
    await client.get("/api/v1/torrents")
async with admin.browser("full") as browser:        # is signed in, and sends Origin and the CSRF token
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
from tracker.admin.cookies import COOKIE
from tracker.admin.desk import Desk
from tracker.admin.server import serve_admin
from tracker.geoip import GeoIP
from tracker.settings import AdminSettings, RedisSettings, Settings
from tracker.store.connection import Connection, connect
from tracker.store.counters import Counters
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts
from tracker.store.tokens import Scope
from tracker.stores import Stores, stores_on
from tracker.telemetry import Telemetry

PATIENCE = 20.0


@dataclass
class Admin:
    """A running admin port. ``problems`` and ``telemetry`` are what the desk tells of; ``clock`` is moved by hand."""

    url: str
    addresses: tuple[str, ...]
    desk: Desk
    clock: Clock
    problems: list[str]
    telemetry: Telemetry
    scripts: Scripts
    _tokens: dict[Scope, str] = field(default_factory=dict)

    @property
    def stores(self) -> Stores:
        return self.desk.stores

    async def token(self, scope: Scope = "full") -> str:
        """The text of a token named after its scope; the same at every call."""
        if scope not in self._tokens:
            _, self._tokens[scope] = await self.stores.tokens.create(f"test {scope}", scope)
        return self._tokens[scope]

    @asynccontextmanager
    async def client(
        self, scope: Scope | None = None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """A program: sends a token of this scope, or none. Redirects are not followed unless asked for."""
        headers = {"Authorization": f"Bearer {await self.token(scope)}"} if scope else {}
        headers |= options.pop("headers", {})
        async with self._session(headers=headers, **options) as session:
            yield session

    @asynccontextmanager
    async def browser(self, scope: Scope = "full", **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
        """A signed-in browser, whose every request carries its cookie, Origin and the CSRF token."""
        signed_in = await self.stores.tokens.sign_in_by_token(
            await self.token(scope), self.desk.settings.admin.session_seconds
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
            cookie_jar=aiohttp.CookieJar(unsafe=True),  # it takes cookies of addresses, not only of names
            timeout=aiohttp.ClientTimeout(PATIENCE),
            **options,
        )


Serve = Callable[..., Awaitable[Admin]]


@pytest.fixture
async def serve(redis_url: str, prefix: str) -> AsyncIterator[Serve]:
    """Starts admin ports; options are settings of the section admin, ``settings`` all others."""
    async with AsyncExitStack() as stack:

        async def start(settings: Settings | None = None, **options: Any) -> Admin:
            settings = settings or Settings(redis=RedisSettings(prefix=prefix))
            admin = AdminSettings(**{"listen": ("127.0.0.1:0",), **options})
            settings = settings.model_copy(update={"admin": admin})
            connection = Connection(connect(redis_url, connect_timeout=5), timeout=5)
            stack.push_async_callback(connection.close)
            return await stack.enter_async_context(_running(settings, connection, prefix))

        yield start


@pytest.fixture
async def admin(serve: Serve) -> Admin:
    return await serve()


@contextlib.asynccontextmanager
async def _running(settings: Settings, connection: Connection, prefix: str) -> AsyncIterator[Admin]:
    clock, telemetry, problems = Clock(), Telemetry(), list[str]()
    keys = Keys(prefix)
    scripts = Scripts(connection, prefix)
    counters = Counters(connection, scripts, keys, clock)
    desk = Desk(
        stores=stores_on(connection, scripts, keys, settings, counters, clock),
        settings=settings,
        places=GeoIP(None),
        telemetry=telemetry.snapshot,
        problems=lambda: tuple(problems),
        clock=clock,
        server="valkey under test",
        listening=settings.http.listen,
    )
    async with serve_admin(desk, settings.admin) as addresses:
        yield Admin(f"http://{addresses[0]}", addresses, desk, clock, problems, telemetry, scripts)
