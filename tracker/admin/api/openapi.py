"""Builds the OpenAPI 3.1 document from the declared endpoints."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tracker import __version__
from tracker.admin.api.contract import ROOT, Body, Download, Endpoint, Endpoints, Reply
from tracker.admin.api.reading import IDEMPOTENCY_KEY, JSON, SHARDS_UNAVAILABLE, media_type
from tracker.admin.auth.auth import CSRF_HEADER, RULES
from tracker.admin.http.cookies import COOKIE
from tracker.admin.http.problems import CONTENT_TYPE
from tracker.store.access.repeats import KEY

REF = "#/components/schemas/{model}"
Schema = dict[str, Any]

_ABOUT = """The admin API of this tracker.

Send a token as `Authorization: Bearer …`. `x-role` names the role that an operation needs: `read`, `operate` or
`admin`; each includes those before it. Times are epoch seconds (UTC). Info hashes and peer ids are hexadecimal digits.
Lists are paged: send `next_cursor` back as `cursor` until it is null. Errors are problem details (RFC 9457). Unknown
parameters and fields are refused.

Countries, cities and postcodes come from the GeoIP database that is set. Who shows them to others names its source: "IP
Geolocation by DB-IP" (https://db-ip.com), or "This product includes GeoLite data created by MaxMind, available from
https://www.maxmind.com".
"""


class InvalidField(Reply):
    """An invalid parameter or field."""

    place: Literal["path", "query", "body"] = Field(alias="in")
    field: str
    message: str


class ProblemDetails(Reply):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str | None = Field(None, description="The cause, and what to do about it.")
    errors: list[InvalidField] | None = Field(None, description="For status 422: the invalid fields.")


def document(groups: Sequence[Endpoints]) -> Schema:
    endpoints = [endpoint for group in groups for endpoint in group.all]
    references, components = _schemas(endpoints)
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        paths.setdefault(ROOT + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "swarmkeeper",
            "version": __version__,
            "summary": "The admin API of a BitTorrent tracker.",
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about in {g.tag: g.about for g in groups}.items()],
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


_IDEMPOTENCY_KEY: Schema = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "A name for this request that no other request has. Sent again within a week, the same request "
    "gets the same reply and changes nothing again. 409: another request had the key.",
    "schema": {"type": "string", "pattern": f"^{KEY}$"},
}
_MISSING: Schema = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "Only if the store has several shards and some are unavailable: their numbers. The reply does "
    "not contain their torrents.",
}
_SECURITY: Schema = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token from `tracker token create`, POST /api/v1/tokens or the dashboard.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"The session of a signed-in browser. Changes also need the header `{CSRF_HEADER}`.",
    },
}


def _schemas(endpoints: Iterable[Endpoint]) -> tuple[dict[type[BaseModel], Schema], Schema]:
    """(the reference to each model, all schemas by name)."""
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ProblemDetails, "serialization"): None}
    for endpoint in endpoints:
        if endpoint.reply is not None and not issubclass(endpoint.reply, Download):
            wanted[endpoint.reply, "serialization"] = None
        if endpoint.body is not None:
            wanted[endpoint.body, "validation"] = None
    found, definitions = models_json_schema(list(wanted), ref_template=REF)
    for endpoint in endpoints:
        if endpoint.reply is not None and endpoint.reply.__name__ in definitions["$defs"]:
            definitions["$defs"][endpoint.reply.__name__]["properties"].setdefault(SHARDS_UNAVAILABLE, _MISSING)
    return {model: found[model, mode] for model, mode in wanted}, definitions["$defs"]


def _operation(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    operation: Schema = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "x-role": RULES[f"{endpoint.method} {ROOT}{endpoint.path}"].role,
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [*_parameters("path", endpoint.path_model), *_parameters("query", endpoint.query)]
    if endpoint.repeatable:
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {media_type(endpoint.body): {"schema": references[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(endpoint, references)
    return operation


def _parameters(place: Literal["path", "query"], model: type[BaseModel] | None) -> list[Schema]:
    if model is None:
        return []
    schema = model.model_json_schema(ref_template=REF)
    assert "$defs" not in schema, "query parameters cannot be models"
    return [
        {"name": name, "in": place, "required": name in schema.get("required", ()), **_parameter(dict(each))}
        for name, each in schema["properties"].items()
    ]


def _parameter(schema: Schema) -> Schema:
    """A parameter cannot be null: drop the null variant and a null default."""
    schema.pop("title", None)
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    if kinds:
        schema = {**schema, **kinds[0]}
    if schema.get("default", ...) is None:
        del schema["default"]
    description = schema.pop("description", "")
    return {"schema": schema, **({"description": description} if description else {})}


def _responses(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    success = _success(endpoint, references)
    responses: Schema = {str(endpoint.status): success}
    if endpoint.reply is not None and endpoint.reply.known_text:
        responses["200"] = {"description": endpoint.reply.known_text, "content": success["content"]}
    errors = {
        401: "Missing or invalid token or session, or not valid from this address.",
        403: "Another role is needed, or the origin or CSRF token is wrong.",
        431: "The URL or a header is too long.",
        429: "Too many failed authentication attempts.",
        503: "The store is unavailable or full; try again later.",
        422: "Invalid or unknown parameters or fields.",
    }
    if endpoint.body is not None:
        limit = "TRACKER_ADMIN__MAX_UPLOAD_BYTES"
        if issubclass(endpoint.body, Body):
            limit = f"{endpoint.body.max_bytes // 1024} KiB"
        errors[400] = "The body is not valid JSON, not a valid form or not UTF-8."
        errors[413] = f"The body is larger than {limit}."
        errors[415] = "Unsupported content type."
    if endpoint.missing:
        errors[404] = endpoint.missing
    if endpoint.conflict or endpoint.repeatable:
        errors[409] = endpoint.conflict or "Another request had the Idempotency-Key."
    content = {CONTENT_TYPE: {"schema": references[ProblemDetails]}}
    for status, description in sorted(errors.items()):
        responses[str(status)] = {"description": description, "content": content}
    return responses


def _success(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    if endpoint.reply is None:
        return {"description": "Done."}
    if issubclass(endpoint.reply, Download):
        content = {endpoint.reply.media_type: {"schema": {"type": "string", "format": "binary"}}}
    else:
        content = {JSON: {"schema": references[endpoint.reply]}}
    success: Schema = {"description": (endpoint.reply.__doc__ or endpoint.summary).splitlines()[0], "content": content}
    if endpoint.location:
        path = {"type": "string", "format": "uri-reference"}
        success["headers"] = {"Location": {"description": "The path of the new resource.", "schema": path}}
    return success
