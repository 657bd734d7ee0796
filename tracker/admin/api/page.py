"""/api: the HTML reference of the API, rendered from the OpenAPI document."""

import asyncio

import aiohttp_jinja2
from aiohttp import web
from markupsafe import Markup

from tracker.admin.api.openapi import Schema
from tracker.admin.pages.formats import prose
from tracker.admin.pages.rendering import render


def routes(document: Schema) -> list[web.AbstractRouteDef]:
    rendered: list[Markup] = []

    async def show(request: web.Request) -> web.Response:
        if not rendered:  # slow enough for a thread, and the same for every user
            template = aiohttp_jinja2.get_env(request.app).get_template("parts/api_body.html")
            rendered.append(Markup(await asyncio.to_thread(template.render, document=document, kind=kind, prose=prose)))  # noqa: S704  # escaped there
        return render(request, "api.html", {"body": rendered[0]})

    return [web.get("/api", show)]


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
