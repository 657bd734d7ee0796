"""The dashboard: pages made on the server, enlivened by htmx, a stream of figures, and charts."""

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.pages import (
    clients,
    denied,
    jobs,
    overview,
    system,
    tokens,
    torrent,
    torrents,
    user,
    users,
    world,
)
from tracker.admin.pages.live import Live, Readings
from tracker.admin.pages.mistakes import shown_as_pages
from tracker.admin.pages.rendering import setup_templates


def setup(app: web.Application) -> None:
    """Templates for the pages of ``app``, those of other parts among them; and a page for whatever goes wrong."""
    setup_templates(app)
    app.middlewares.insert(0, shown_as_pages)


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    """Every page."""
    readings = Readings(desk)
    return [
        web.get("/live", Live(desk, readings).handle, allow_head=False),
        *overview.routes(desk, readings),
        *torrents.routes(desk),
        *denied.routes(desk),
        *torrent.routes(desk),
        *users.routes(desk),
        *user.routes(desk),
        *world.routes(desk),
        *jobs.routes(desk),
        *clients.routes(desk),
        *system.routes(desk),
        *tokens.routes(desk),
    ]
