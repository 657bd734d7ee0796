"""The dashboard: pages rendered on the server, with htmx, live updates and charts."""

import orjson
from aiohttp import web

from tracker.admin.context import AdminContext
from tracker.admin.http.problems import CONTENT_TYPE, Handler
from tracker.admin.pages import (
    audit,
    clients,
    deny_list,
    dht,
    failures,
    history,
    jobs,
    overview,
    system,
    tokens,
    torrent,
    torrents,
    user,
    users,
    work,
    work_project,
    world,
)
from tracker.admin.pages.live import LatestReading, Live
from tracker.admin.pages.rendering import render, setup_templates


def setup(app: web.Application) -> None:
    """Set up templates and error pages for ``app``."""
    setup_templates(app)
    app.middlewares.insert(0, error_page_middleware)


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    """The routes of all pages."""
    latest_reading = LatestReading(context)
    return [
        web.get("/live", Live(context, latest_reading).handle, allow_head=False),
        *overview.routes(context, latest_reading),
        *history.HistoryPages(context).routes(),
        *failures.FailurePages(context).routes(),
        *torrents.TorrentPages(context).routes(),
        *deny_list.DenyListPage(context).routes(),
        *torrent.TorrentPage(context).routes(),
        *users.UserPages(context).routes(),
        *user.UserPage(context).routes(),
        *world.WorldPages(context).routes(),
        *work.WorkPages(context).routes(),
        *work_project.ProjectPages(context).routes(),
        *dht.routes(context),
        *jobs.JobPages(context).routes(),
        *clients.ClientPages(context).routes(),
        *system.routes(context),
        *tokens.TokenPage(context).routes(),
        *audit.routes(context),
    ]


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
