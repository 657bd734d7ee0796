"""The OpenAPI 3.1 document, made from the declared endpoints."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tracker import __version__
from tracker.admin.api.contract import Answer, Endpoint, Endpoints
from tracker.admin.api.reading import JSON
from tracker.admin.api.routing import ROOT
from tracker.admin.auth import CSRF_HEADER
from tracker.admin.cookies import COOKIE
from tracker.admin.posted import MULTIPART
from tracker.admin.problems import CONTENT_TYPE

REF = "#/components/schemas/{model}"
Schema = dict[str, Any]

_ABOUT = """Everything that can be seen and done on this tracker.

A program sends a token as `Authorization: Bearer …`. Scope `read` may use GET; every other method, and what shows
secrets, needs scope `full`. Times are epoch seconds (UTC), info hashes and peer ids hexadecimal digits. Lists come in
pages: send `next_offset` back as `offset`, or `next_cursor` as `cursor`, until it is null. Errors are problem details
(RFC 9457). Unknown parameters and fields are refused.
"""
_BODY_ERRORS = {
    400: "The body is no JSON document, or no form.",
    413: "The body is larger than TRACKER_ADMIN__MAX_UPLOAD_BYTES, or than 64 KiB where it is JSON.",
    415: "The body is of another type than one of those named.",
}


class InvalidField(Answer):
    """What is wrong with one field."""

    place: Literal["path", "query", "body"] = Field(alias="in")
    field: str
    message: str


class ProblemDetails(Answer):
    """Why a request was refused (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str
    status: int
    detail: str | None = Field(None, description="What is wrong, and what to do, for people.")
    errors: list[InvalidField] | None = Field(
        None, description="Of 422: the fields that are not as they should be."
    )


def document(groups: Sequence[Endpoints]) -> Schema:
    """The document about these endpoints."""
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
        "tags": [
            {"name": name, "description": about} for name, about in {g.tag: g.about for g in groups}.items()
        ],
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


_SECURITY: Schema = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `tracker token create`, of POST /api/v1/tokens or of the dashboard.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"A browser that is signed in. What changes something needs the header `{CSRF_HEADER}` as well.",
    },
}


def _schemas(endpoints: Iterable[Endpoint]) -> tuple[dict[type[BaseModel], Schema], Schema]:
    """(the reference to each model, all schemas by name)."""
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ProblemDetails, "serialization"): None}
    for endpoint in endpoints:
        if endpoint.answer is not None:
            wanted[endpoint.answer, "serialization"] = None
        for model in (endpoint.body, endpoint.form):
            if model is not None:
                wanted[model, "validation"] = None
    found, definitions = models_json_schema(list(wanted), ref_template=REF)
    return {model: found[model, mode] for model, mode in wanted}, definitions["$defs"]


def _operation(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    operation: Schema = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "x-scope": "full" if endpoint.full_only or endpoint.method != "GET" else "read",
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [
        *_parameters("path", endpoint.path_model),
        *_parameters("query", endpoint.query),
    ]
    if parameters:
        operation["parameters"] = parameters
    bodies = [(JSON, endpoint.body), (MULTIPART, endpoint.form)]
    content = {kind: {"schema": references[model]} for kind, model in bodies if model is not None}
    if content:
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(endpoint, references)
    return operation


def _parameters(place: Literal["path", "query"], model: type[BaseModel] | None) -> list[Schema]:
    if model is None:
        return []
    schema = model.model_json_schema(ref_template=REF)
    assert "$defs" not in schema, "a parameter of a model has no place in a query string"
    return [
        {
            "name": name,
            "in": place,
            "required": name in schema.get("required", ()),
            **_parameter(dict(each)),
        }
        for name, each in schema["properties"].items()
    ]


def _parameter(schema: Schema) -> Schema:
    """A parameter that is left out is left out: none can be null."""
    schema.pop("title", None)
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    if kinds:
        schema = {**schema, **kinds[0]}
    if schema.get("default", ...) is None:
        del schema["default"]
    description = schema.pop("description", "")
    return {"schema": schema, **({"description": description} if description else {})}


def _responses(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    responses: Schema = {str(endpoint.status): _success(endpoint, references)}
    if endpoint.known:
        responses["200"] = {
            "description": endpoint.known,
            "content": _success(endpoint, references)["content"],
        }
    errors = {
        401: "No token or session, or one that is unknown or revoked.",
        403: "This needs scope full, or the host, origin or CSRF token is wrong.",
        431: "The address or a header is too long.",
        429: "Too many failed attempts to be let in.",
        503: "The store does not answer: try again soon.",
        422: "Parameters or fields are not as they should be, or more than there are.",
    }
    if endpoint.body is not None or endpoint.form is not None:
        errors |= _BODY_ERRORS
    if endpoint.path_model is not None:
        errors[404] = "There is nothing at this address."
    errors |= endpoint.errors
    content = {CONTENT_TYPE: {"schema": references[ProblemDetails]}}
    for status, description in sorted(errors.items()):
        responses[str(status)] = {"description": description, "content": content}
    return responses


def _success(endpoint: Endpoint, references: dict[type[BaseModel], Schema]) -> Schema:
    if endpoint.answer is None:
        return {"description": "Done."}
    success: Schema = {
        "description": (endpoint.answer.__doc__ or endpoint.summary).splitlines()[0],
        "content": {JSON: {"schema": references[endpoint.answer]}},
    }
    if endpoint.location:
        where = {
            "description": "Where it is from now on.",
            "schema": {"type": "string", "format": "uri-reference"},
        }
        success["headers"] = {"Location": where}
    return success
