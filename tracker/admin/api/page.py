"""/api: the HTML reference of the API, rendered from the OpenAPI document."""

import asyncio
from typing import Any

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
            rendered.append(Markup(await asyncio.to_thread(template.render, variables(document))))  # noqa: S704  # escaped there
        return render(request, "api.html", {"body": rendered[0]})

    return [web.get("/api", show)]


def variables(document: Schema) -> dict[str, Any]:
    """The variables of parts/api_body.html."""
    return {
        "document": document,
        "groups": _groups(document),
        "schemas": _schemas(document),
        "kind": kind,
        "prose": prose,
    }


def _groups(document: Schema) -> list[dict[str, Any]]:
    """The operations by tag, in the order of the document."""
    operations = [
        {"method": method.upper(), "path": path, **operation}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return [
        {**tag, "operations": [each for each in operations if tag["name"] in each["tags"]]} for tag in document["tags"]
    ]


def _schemas(document: Schema) -> list[dict[str, Any]]:
    """Every schema with its fields."""
    return [
        {
            "name": name,
            "description": schema.get("description", ""),
            "fields": [
                {
                    "name": field,
                    "kind": kind(each),
                    "required": field in schema.get("required", ()),
                    "description": each.get("description", ""),
                }
                for field, each in schema.get("properties", {}).items()
            ],
        }
        for name, schema in sorted(document["components"]["schemas"].items())
    ]


def _model(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def kind(schema: Schema) -> str:
    """A short name of a JSON Schema, such as ``list of PeerRow`` or ``integer or null``."""
    if "$ref" in schema:
        return _model(schema)
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
