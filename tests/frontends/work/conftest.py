"""A running claimants' listener in this process, on a real store with its own key prefix.

site           a Site: `site.url`, `site.store`, `await site.ask("/proj/request", {...})`; project `proj` of kind items
serve          the same with other settings: `await serve(work={"legacy_status": True}, http={...})`
"""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from tests.store.harness import ALICE, BOB, Store, running
from tracker.core.rate_limits import WorkLimits
from tracker.core.refusals import Failures
from tracker.core.work import WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.frontends.work.server import serve_work
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import AnnounceSettings, HttpSettings, LimitSettings
from tracker.settings.site import WorkSettings
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import NewItem, Project
from tracker.workers.admission import share_once

PATIENCE = 20.0
HASH = "01" * 20


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Site:
    """A listener and its store. ``store.clock`` moves their time."""

    addresses: tuple[str, ...]
    store: Store
    limits: WorkLimits

    @property
    def url(self) -> str:
        return f"http://{self.addresses[0]}"

    async def ask(self, path: str, body: Any = None, method: str = "", headers: dict[str, str] | None = None) -> Reply:
        """One request. A ``body`` other than bytes is sent as JSON, and makes it a POST."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        method = method or ("GET" if body is None else "POST")
        timeout = aiohttp.ClientTimeout(PATIENCE)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, f"{self.url}{path}", data=data, headers=headers, allow_redirects=False) as got,
        ):
            return Reply(got.status, await got.read(), {k.lower(): v for k, v in got.headers.items()})

    async def project(self, name: str = "proj", **fields: Any) -> Project:
        return await self.store.work.projects.create(Project(name, **fields))

    async def add(self, *names: str, project: str = "proj", **options: Any) -> None:
        await self.store.work.items.add(project, [NewItem(name, **options) for name in names])

    async def share_limits(self) -> None:
        await share_once(self.limits, self.store.rate_limits, self.store.clock.now)


Serve = Callable[..., Awaitable[Site]]


@pytest.fixture
async def serve(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(
            work: dict[str, Any] | None = None,
            http: dict[str, Any] | None = None,
            limits: dict[str, Any] | None = None,
            announce: dict[str, Any] | None = None,
            constants: dict[str, Any] | None = None,
            url: str = redis_url,
        ) -> Site:
            for name, value in (constants or {}).items():
                monkeypatch.setattr(f"tracker.frontends.work.{name}", value)
            settings = Settings(
                work=WorkSettings(**{"listen": ("127.0.0.1:0",), **(work or {})}),
                http=HttpSettings(**{"listen": ("127.0.0.1:6969",), **(http or {})}),
                limits=LimitSettings(**(limits or {})),
                announce=AnnounceSettings(**(announce or {})),
            )
            store = await stack.enter_async_context(running(Store(url, Keys(prefix), SwarmRules())))
            return await stack.enter_async_context(listening(settings, store))

        yield start


@contextlib.asynccontextmanager
async def listening(settings: Settings, store: Store) -> AsyncIterator[Site]:
    limits = WorkLimits(LiveSettings(settings))
    async with serve_work(
        WorkRequests(store, store.clock),
        WorkFigures(store, store.clock),
        settings,
        limits,
        Failures(store.counters),
        listening=settings.http.listen,
        clock=store.clock,
    ) as addresses:
        yield Site(addresses, store, limits)


@pytest.fixture
async def site(serve: Serve) -> Site:
    site = await serve()
    await site.project()
    return site


@pytest.fixture
async def seeding(serve: Serve) -> Site:
    """A listener with the project ``seeds`` of kind seeding, and users 7 and 8 with passkeys ALICE and BOB."""
    site = await serve()
    await site.project("seeds", kind="seeding", verify="announce", keep_done_days=30, order="weakest")
    await site.store.users.add("7", ALICE)
    await site.store.users.add("8", BOB)
    return site
