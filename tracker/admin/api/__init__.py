"""/api: the admin API, its OpenAPI document, and an HTML reference of it.

Each module declares the endpoints of one subject (contract.py). Routes and document are made from the declarations.
"""

import asyncio
from collections.abc import Sequence
from functools import cache

import aiohttp_jinja2
import orjson
from aiohttp import web
from jinja2 import Template
from markupsafe import Markup

from tracker.admin.api import (
    changes,
    clients,
    dht,
    exports,
    jobs,
    multipliers,
    statistics,
    system,
    torrents,
    users,
    work,
    work_items,
)
from tracker.admin.api.contract import Endpoints
from tracker.admin.api.openapi import Schema, document
from tracker.admin.api.reading import route
from tracker.admin.context import AdminContext
from tracker.admin.pages.rendering import prose, render

GROUPS: Sequence[Endpoints] = [
    torrents.endpoints,
    clients.denial_endpoints,
    users.endpoints,
    exports.user_torrent_endpoints,
    exports.endpoints,
    changes.endpoints,
    multipliers.endpoints,
    multipliers.rule_endpoints,
    multipliers.group_endpoints,
    users.freeleech_endpoints,
    clients.endpoints,
    statistics.endpoints,
    statistics.history_endpoints,
    statistics.unique_endpoints,
    torrents.score_endpoints,
    work.endpoints,
    work_items.endpoints,
    work.claim_endpoints,
    work.result_endpoints,
    work.policy_endpoints,
    work.blocked_endpoints,
    dht.endpoints,
    jobs.endpoints,
    system.token_endpoints,
    system.audit_endpoints,
    system.endpoints,
]


def routes(context: AdminContext) -> list[web.AbstractRouteDef]:
    async def describe(request: web.Request) -> web.Response:
        return web.Response(body=await asyncio.to_thread(_document_text), content_type="application/json")

    async def show(request: web.Request) -> web.Response:
        template = aiohttp_jinja2.get_env(request.app).get_template("parts/api_body.html")
        return render(request, "api.html", {"body": await asyncio.to_thread(_rendered, template)})

    declared = [route(context, endpoint) for group in GROUPS for endpoint in group.all]
    return [web.get("/api/openapi.json", describe), web.get("/api", show), *declared]


@cache
def _described() -> Schema:
    """Building it takes 0.2 s, a fifth of a tracker's start: done for the first request, in a thread."""
    return document(GROUPS)


@cache
def _document_text() -> bytes:
    return orjson.dumps(_described(), option=orjson.OPT_INDENT_2)


@cache
def _rendered(template: Template) -> Markup:
    """Slow enough for a thread, and the same for every user."""
    return Markup(template.render(document=_described(), kind=kind, prose=prose))  # noqa: S704  # escaped there


def kind(schema: Schema) -> str:
    """A short name of a JSON Schema, such as ``list of PeerRow`` or ``integer or null``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}"
    if schema.get("format") == "binary":
        return "file"
    return str(schema.get("type", "anything"))
