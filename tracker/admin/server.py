"""The admin port: one application, what guards it, and the sockets it listens on."""

import asyncio
import contextlib
import importlib
import importlib.util
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from tracker.admin import sign_in, static_files
from tracker.admin.auth import ACCESS, Access, admitted
from tracker.admin.desk import Desk
from tracker.admin.headers import add_headers
from tracker.admin.hosts import Hosts, checked
from tracker.admin.problems import explained
from tracker.admin.stopping import STOPPING
from tracker.listeners import BACKLOG, Listener, open_listeners
from tracker.settings import AdminSettings

STOP_SECONDS = 2.0
"""How long answers in the making may take when the port closes."""


@contextlib.asynccontextmanager
async def serve_admin(desk: Desk, settings: AdminSettings) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left; gives the addresses, with real ports where 0 was asked for.

    Raises StartupError when an address cannot be had.
    """
    listeners = await open_listeners(settings.listen)
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        addresses = tuple(listener.address for listener in listeners)
        app = make_app(desk, settings, addresses)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS, keepalive_timeout=60)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        for listener in listeners:
            stack.callback((await _accept(runner.server, listener)).close)
        yield addresses


async def _accept(server: web.Server, listener: Listener) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if listener.path is not None:
        return await loop.create_unix_server(server, sock=listener.socket, backlog=BACKLOG)
    return await loop.create_server(server, sock=listener.socket, backlog=BACKLOG)


def make_app(desk: Desk, settings: AdminSettings, addresses: Sequence[str]) -> web.Application:
    access = Access(desk.stores.tokens, asyncio.get_running_loop().time)
    app = web.Application(
        middlewares=[explained, checked(Hosts(settings.hosts, addresses)), admitted(access)],
        client_max_size=settings.max_upload_bytes,
    )
    app[ACCESS] = access
    app[STOPPING] = stopping = asyncio.Event()

    async def stop(_app: web.Application) -> None:
        stopping.set()

    app.on_shutdown.append(stop)
    app.on_response_prepare.append(add_headers)
    app.add_routes([*_probes(desk), *sign_in.routes(desk), *static_files.routes()])
    for name in ("metrics", "api", "pages"):
        if importlib.util.find_spec(f"tracker.admin.{name}") is not None:
            part = importlib.import_module(f"tracker.admin.{name}")
            if hasattr(part, "routes"):
                app.add_routes(part.routes(desk))
            if hasattr(part, "setup"):
                part.setup(app)
    return app


def _probes(desk: Desk) -> list[web.AbstractRouteDef]:
    async def health(_request: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def ready(_request: web.Request) -> web.Response:
        problems = desk.problems()
        if problems:
            return web.Response(status=503, text="".join(f"{problem}\n" for problem in problems))
        return web.Response(text="ready\n")

    return [web.get("/health", health), web.get("/ready", ready)]
