"""The dashboard: pages rendered on the server, with htmx, live updates and charts."""

from aiohttp import web

from tracker.admin.context import AdminContext
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
from tracker.admin.pages.error_pages import error_page_middleware
from tracker.admin.pages.live import LatestReading, Live
from tracker.admin.pages.rendering import setup_templates


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
        *history.routes(context),
        *failures.routes(context),
        *torrents.routes(context),
        *deny_list.routes(context),
        *torrent.routes(context),
        *users.routes(context),
        *user.routes(context),
        *world.routes(context),
        *work.routes(context),
        *work_project.routes(context),
        *dht.routes(context),
        *jobs.routes(context),
        *clients.routes(context),
        *system.routes(context),
        *tokens.routes(context),
        *audit.routes(context),
    ]
