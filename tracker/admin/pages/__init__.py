"""The dashboard: pages rendered on the server, with htmx, live updates and charts."""

from collections.abc import Sequence

import aiohttp_jinja2
import orjson
from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import CONTENT_TYPE, Handler
from tracker.admin.pages import clients, dht, history, jobs, overview, system, torrents, users, work, world
from tracker.admin.pages.rendering import Pages, render, template_environment


def setup(app: web.Application) -> None:
    app[aiohttp_jinja2.APP_KEY] = template_environment()
    app.middlewares.insert(0, error_page_middleware)


_PAGES: Sequence[type[Pages]] = (
    overview.OverviewPage,
    history.HistoryPages,
    torrents.TorrentPages,
    users.UserPages,
    world.WorldPages,
    work.WorkPages,
    dht.DhtPage,
    jobs.JobPages,
    clients.ClientPages,
    system.SystemPages,
)


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    return [route for pages in _PAGES for route in pages(context).routes()]


_PROGRAM_PATHS = ("/api/", "/metrics", "/live")


@web.middleware
async def error_page_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: turns problem details into an HTML page when a browser navigates."""
    response = await handler(request)
    if not (isinstance(response, web.Response) and response.content_type == CONTENT_TYPE and _is_navigation(request)):
        return response
    assert isinstance(response.body, bytes)
    page = render(request, "error.html", {"problem": orjson.loads(response.body)}, status=response.status)
    for name in ("Retry-After", "Allow", "WWW-Authenticate"):
        if name in response.headers:
            page.headers[name] = response.headers[name]
    return page


def _is_navigation(request: web.Request) -> bool:
    """Whether a browser navigates to this URL; false for scripts and programs."""
    accept = request.headers.get("Accept", "")
    return (
        "text/html" in accept
        and "HX-Request" not in request.headers
        and not request.path.startswith(_PROGRAM_PATHS)
        and not request.path.endswith(".json")  # data of charts
    )
