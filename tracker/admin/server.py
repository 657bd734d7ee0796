"""The admin port: one application, what guards it, and the sockets it listens on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from tracker.admin import api, metrics, pages, sign_in, static_files
from tracker.admin.auth import ACCESS, Access, admitted
from tracker.admin.connections import Limits, serving, sized
from tracker.admin.desk import Desk
from tracker.admin.hosts import Hosts, checked
from tracker.admin.problems import explained
from tracker.admin.stopping import STOPPING
from tracker.listeners import open_listeners
from tracker.settings import AdminSettings


@contextlib.asynccontextmanager
async def serve_admin(
    desk: Desk, settings: AdminSettings, limits: Limits | None = None
) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left; gives the addresses, with real ports where 0 was asked for.

    Leaving it closes the sockets first, ends streams, and gives what is in the making a few seconds. Raises StartupError
    when an address cannot be had.
    """
    listeners = await open_listeners(settings.listen)
    addresses = tuple(listener.address for listener in listeners)
    try:
        app = make_app(desk, settings, addresses)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    async with serving(app, listeners, limits or Limits()):
        yield addresses


def make_app(desk: Desk, settings: AdminSettings, addresses: Sequence[str]) -> web.Application:
    """What answers at these addresses."""
    access = Access(desk.stores.tokens, asyncio.get_running_loop().time)
    guards = [explained, sized, checked(Hosts(settings.hosts, addresses)), admitted(access)]
    app = web.Application(middlewares=guards, client_max_size=settings.max_upload_bytes)
    app[ACCESS] = access
    app[STOPPING] = stopping = asyncio.Event()

    async def stop(_app: web.Application) -> None:
        stopping.set()

    app.on_shutdown.append(stop)
    app.add_routes([*_probes(desk), *sign_in.routes(desk), *static_files.routes()])
    for part in (metrics, api, pages):
        app.add_routes(part.routes(desk))
    pages.setup(app)
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
