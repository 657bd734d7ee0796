"""What comes in with a request, checked against an endpoint's declaration.

Everything wrong with it is a Problem: 400 for what is no JSON or no form at all, 415 for another kind of body, 422 with
the list of fields for what does not fit the models. What was sent is not repeated, except the names of fields.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiDict, MultiMapping
from pydantic import BaseModel, ValidationError

from tracker.admin.api.contract import Body, Endpoint, Form
from tracker.admin.connections import check_size
from tracker.admin.multipart import File, parse_form
from tracker.admin.posted import MULTIPART
from tracker.admin.problems import Problem

JSON = "application/json"
MOST_JSON_BYTES = 65_536
"""Of a JSON body. The longest that makes sense is half of that; what is wrong with a large one takes seconds to tell."""

_MOST_LISTED = 20
_LONGEST_NAME = 100
_LONGEST_TEXT = 200

Place = Literal["path", "query", "body"]
M = TypeVar("M", bound=BaseModel)


async def read(endpoint: Endpoint, request: web.Request) -> dict[str, Any]:
    """The arguments of the endpoint's handler, besides the call. Raises Problem."""
    arguments: dict[str, Any] = {}
    if endpoint.path_model is not None:
        parts = _checked(endpoint.path_model, dict(request.match_info), "path")
        arguments |= {name: getattr(parts, name) for name in endpoint.path_model.model_fields}
    if endpoint.query is not None:
        arguments["query"] = _checked(endpoint.query, _single(request.query, "query"), "query")
    elif request.query_string:
        raise invalid([("query", name, "there is no such parameter") for name in request.query])
    if endpoint.body is not None or endpoint.form is not None:
        arguments["body"] = await _body(endpoint, request)
    return arguments


async def _body(endpoint: Endpoint, request: web.Request) -> Body | Form:
    if endpoint.body is not None and request.content_type == JSON:
        return await _json(endpoint.body, request)
    if endpoint.form is not None and request.content_type == MULTIPART:
        return _checked(endpoint.form, await _fields(request), "body")
    kinds = [kind for kind, model in ((JSON, endpoint.body), (MULTIPART, endpoint.form)) if model]
    raise Problem(415, detail=f"send a body of type {' or '.join(kinds)}")


async def _json(model: type[Body], request: web.Request) -> Body:
    check_size(request, MOST_JSON_BYTES)
    data = await _data(request)
    if len(data) > MOST_JSON_BYTES:  # it did not say so beforehand
        raise web.HTTPRequestEntityTooLarge(max_size=MOST_JSON_BYTES, actual_size=len(data))
    try:
        return model.model_validate_json(data, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        if any(problem["type"] == "json_invalid" for problem in problems):
            raise Problem(400, detail="the body is not a JSON document") from None
        raise invalid(_listed(problems, "body")) from None


async def _fields(request: web.Request) -> dict[str, Any]:
    """The fields of a form: texts, and the contents of files."""
    data = await _data(request)
    try:
        found = parse_form(request.headers["Content-Type"], data)
    except ValueError:
        raise Problem(400, detail="the body is not a well-formed form") from None
    contents = [(name, field.content if isinstance(field, File) else field) for name, field in found]
    return _single(MultiDict(contents), "body")


async def _data(request: web.Request) -> bytes:
    try:
        return await request.read()
    except HttpProcessingError:
        raise Problem(400, detail="the body is not encoded as its headers say") from None


def _single(values: MultiMapping[Any], place: Place) -> dict[str, Any]:
    """Raises Problem where a name stands twice: which of the two was meant nobody knows."""
    twice = {name for name in values if len(values.getall(name)) > 1}
    if twice:
        raise invalid([(place, name, "give it once only") for name in sorted(twice)])
    return dict(values)


def _checked(model: type[M], values: Mapping[str, Any], place: Place) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise invalid(_listed(problems, place)) from None


def _listed(problems: Iterable[Mapping[str, Any]], place: Place) -> list[tuple[Place, str, str]]:
    return [(place, ".".join(map(str, problem["loc"])), str(problem["msg"])) for problem in problems]


def invalid(problems: Iterable[tuple[Place, str, str]], detail: str = "") -> Problem:
    """422 for (where it stood, the field's name, what is wrong with it)."""
    listed = [
        {"in": place, "field": _clean(field)[:_LONGEST_NAME], "message": _clean(message)[:_LONGEST_TEXT]}
        for place, field, message in problems
    ][:_MOST_LISTED]
    return Problem(422, detail=detail or "some fields are not as they should be", errors=listed)


def _clean(text: str) -> str:
    """Without what UTF-8 cannot hold, and what would not print."""
    printable = (character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return "".join(printable)
