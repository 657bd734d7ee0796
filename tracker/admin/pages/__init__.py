"""The dashboard: pages made on the server, enlivened by htmx, a stream of figures, and charts."""

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.pages.rendering import setup_templates


def setup(app: web.Application) -> None:
    """Templates for the pages of ``app``, those of other parts among them."""
    setup_templates(app)


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    """Every page."""
    del desk
    return []
