"""The admin port: its aiohttp application, middlewares and listeners."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from aiohttp import web

from tracker.admin import api, pages
from tracker.admin.auth.auth import ACCESS, Access, Hosts, access_middleware, host_middleware
from tracker.admin.auth.recording import recording_middleware
from tracker.admin.context import CONTEXT, AdminContext
from tracker.admin.http import static_files
from tracker.admin.http.connections import STOPPING, Limits, serving, size_limit_middleware
from tracker.admin.http.problems import STORE_NOTICES, problem_middleware
from tracker.admin.metrics import exposition
from tracker.admin.pages.system import sign_in_routes
from tracker.settings.site import AdminSettings
from tracker.system.listeners import open_listeners
from tracker.wire.http_reply import ready_text
from tracker.wire.proxy import TrustedProxies


@contextlib.asynccontextmanager
async def serve_admin(
    context: AdminContext, settings: AdminSettings, limits: Limits | None = None
) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left; yields the addresses, with real ports in place of 0. Leaving the block closes the
    sockets, ends event streams, and gives requests in flight a few seconds. Raises StartupError for an address that is
    not available."""
    listeners = await open_listeners(settings.listen)
    addresses = tuple(listener.address for listener in listeners)
    try:
        app = make_app(context, settings, addresses)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    async with serving(app, listeners, limits or Limits()):
        yield addresses


def make_app(context: AdminContext, settings: AdminSettings, addresses: Sequence[str]) -> web.Application:
    proxies = TrustedProxies(context.settings.http.trusted_proxies)
    names = [*settings.hosts, *([urlsplit(settings.url).hostname or ""] if settings.url else [])]
    guards = [
        problem_middleware,
        size_limit_middleware,
        host_middleware(Hosts(names, addresses)),
        access_middleware,
        recording_middleware,
    ]
    app = web.Application(middlewares=guards, client_max_size=settings.max_upload_bytes)
    app[ACCESS] = Access(context.store.tokens, asyncio.get_running_loop().time, proxies)
    app[CONTEXT] = context
    app[STORE_NOTICES] = context.store.shards.notices
    app[STOPPING] = stopping = asyncio.Event()

    async def stop(_app: web.Application) -> None:
        stopping.set()

    app.on_shutdown.append(stop)
    app.add_routes([*_probes(context), *sign_in_routes(context), *static_files.routes()])
    for part in (exposition, api, pages):
        app.add_routes(part.routes(context))
    pages.setup(app)
    return app


def _probes(context: AdminContext) -> list[web.AbstractRouteDef]:
    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        problems = context.problems()
        if problems:
            return web.Response(status=503, text="".join(f"{problem}\n" for problem in problems))
        return web.Response(text=ready_text(context.store.shards.notices()))

    return [web.get("/health", health), web.get("/ready", ready)]
