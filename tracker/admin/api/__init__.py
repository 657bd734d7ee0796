"""/api: the admin API for programs, its description, and a page about it.

Each module declares the endpoints of one subject as contract.py says; routes and description are made from that.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from aiohttp import web

from tracker.admin.api import (
    clients,
    denials,
    figures,
    jobs,
    page,
    scores,
    swarms,
    system,
    tokens,
    torrents,
    uniques,
    users,
)
from tracker.admin.api.contract import Endpoints
from tracker.admin.api.openapi import document
from tracker.admin.api.routing import routes as routes_of
from tracker.admin.desk import Desk

GROUPS: Sequence[Endpoints] = [
    module.endpoints
    for module in (
        torrents,
        swarms,
        denials,
        users,
        clients,
        figures,
        uniques,
        scores,
        jobs,
        tokens,
        system,
    )
]


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    """Every route under /api."""
    described = _described()
    text = orjson.dumps(described, option=orjson.OPT_INDENT_2)

    async def describe(request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="application/json")

    endpoints = [endpoint for group in GROUPS for endpoint in group.all]
    return [web.get("/api/openapi.json", describe), *page.routes(described), *routes_of(desk, endpoints)]


@cache
def _described() -> dict[str, Any]:
    """Made once: it takes a tenth of a second."""
    return document(GROUPS)
