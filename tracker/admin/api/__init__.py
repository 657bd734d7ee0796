"""/api: the admin API, its OpenAPI document, and an HTML reference of it.

Each module declares the endpoints of one subject (contract.py). Routes and document are made from the declarations.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from aiohttp import web

from tracker.admin.api import (
    audit,
    changes,
    clients,
    denials,
    dht,
    exports,
    freeleech,
    groups,
    history,
    jobs,
    multipliers,
    page,
    rules,
    scores,
    statistics,
    swarms,
    system,
    tokens,
    torrents,
    unique_users,
    user_torrents,
    users,
    work,
    work_blocked,
    work_claims,
    work_items,
    work_policy,
    work_results,
)
from tracker.admin.api.contract import Endpoints
from tracker.admin.api.openapi import document
from tracker.admin.api.routing import routes as routes_of
from tracker.admin.context import AdminContext

GROUPS: Sequence[Endpoints] = [
    module.endpoints
    for module in (
        torrents,
        swarms,
        denials,
        users,
        user_torrents,
        exports,
        changes,
        multipliers,
        rules,
        groups,
        freeleech,
        clients,
        statistics,
        history,
        unique_users,
        scores,
        work,
        work_items,
        work_claims,
        work_results,
        work_policy,
        work_blocked,
        dht,
        jobs,
        tokens,
        audit,
        system,
    )
]


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    """Every route under /api."""
    described = _described()
    text = orjson.dumps(described, option=orjson.OPT_INDENT_2)

    async def describe(request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="application/json")

    endpoints = [endpoint for group in GROUPS for endpoint in group.all]
    return [web.get("/api/openapi.json", describe), *page.routes(described), *routes_of(context, endpoints)]


@cache
def _described() -> dict[str, Any]:
    """Cached: building it takes 0.1 s."""
    return document(GROUPS)
