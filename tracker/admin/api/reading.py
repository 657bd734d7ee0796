"""The routes of declared endpoints: each reads a request, validates it with the models of its endpoint, and sends JSON.

Errors are Problems. 400: the body is not JSON or not a form. 415: wrong content type. 422: some values do not match the
models; the error lists the fields. Errors never contain the values that were sent.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiDict, MultiMapping
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tracker.admin.api.contract import ROOT, Body, BodyModel, Call, Download, Endpoint, Form, Lines, Reply
from tracker.admin.auth.auth import IDENTITY
from tracker.admin.auth.recording import CHANGE, note_created, touch_named
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import check_size
from tracker.admin.http.form_body import MULTIPART, File, read_form_body
from tracker.admin.http.problems import Problem
from tracker.errors import ClientError, Conflict, NotFound, plain
from tracker.store.sharding.shards import MAIN, noting_unavailable_shards

JSON = "application/json"
TEXT = "text/plain"
_MAX_NAMES = 1000
"""Max fields of a JSON object. Listing the errors of more would take seconds."""
_MAX_LISTED = 20
_MAX_NAME_LENGTH = 100
_MAX_TEXT_LENGTH = 200

Place = Literal["path", "query", "body"]
M = TypeVar("M", bound=BaseModel)


async def read(endpoint: Endpoint, request: web.Request) -> dict[str, Any]:
    """The arguments of the endpoint's handler, without the call. Raises Problem."""
    arguments: dict[str, Any] = {}
    if endpoint.path_model is not None:
        parts = _checked(endpoint.path_model, dict(request.match_info), "path")
        arguments |= {name: getattr(parts, name) for name in endpoint.path_model.model_fields}
    if endpoint.query is not None:
        arguments["query"] = _checked(endpoint.query, _single(request.query, "query"), "query")
    elif request.query_string:
        raise invalid([("query", name, "unknown parameter") for name in request.query])
    if endpoint.body is not None:
        arguments["body"] = await _body(endpoint.body, request)
    return arguments


def media_type(model: BodyModel) -> str:
    """The content type of a body of this model."""
    if issubclass(model, Lines):
        return TEXT
    return MULTIPART if issubclass(model, Form) else JSON


async def _body(model: BodyModel, request: web.Request) -> Body | Form | Lines:
    if request.content_type != media_type(model):
        raise Problem(415, detail=f"send a body of type {media_type(model)}")
    if issubclass(model, Body):
        check_size(request, model.max_bytes)
    try:
        data = await request.read()
    except HttpProcessingError:
        raise Problem(400, detail="the body does not match its encoding headers") from None
    if issubclass(model, Lines):
        try:
            return model(data.decode())
        except UnicodeDecodeError:
            raise Problem(400, detail="the body is not UTF-8 text") from None
    if issubclass(model, Form):
        fields = (await read_form_body(request)).items()
        contents = MultiDict((name, field.content if isinstance(field, File) else field) for name, field in fields)
        return _checked(model, _single(contents, "body"), "body")
    return _json(model, data)


def _json(model: type[Body], data: bytes) -> Body:
    if len(data) > model.max_bytes:  # the request had no Content-Length
        raise web.HTTPRequestEntityTooLarge(max_size=model.max_bytes, actual_size=len(data))
    if model.max_bytes > Body.max_bytes:
        with suppress(orjson.JSONDecodeError):  # the model says so
            if isinstance(found := orjson.loads(data), dict) and len(found) > _MAX_NAMES:
                raise invalid([("body", "", "too many fields")])
    try:
        return model.model_validate_json(data, strict=True)
    except ValidationError as error:
        if any(problem["type"] == "json_invalid" for problem in _errors(error)):
            raise Problem(400, detail="the body is not valid JSON") from None
        raise invalid(_listed(error, "body")) from None


def _single(values: MultiMapping[Any], place: Place) -> dict[str, Any]:
    """Returns the values by name. Raises Problem if a name occurs more than once."""
    twice = {name for name in values if len(values.getall(name)) > 1}
    if twice:
        raise invalid([(place, name, "given more than once") for name in sorted(twice)])
    return dict(values)


def _checked(model: type[M], values: Mapping[str, Any], place: Place) -> M:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid(_listed(error, place)) from None


def first_error(error: ValidationError) -> str:
    """The first error of a model as one line, without the value that was sent."""
    problem = _errors(error)[0]
    field = ".".join(map(str, problem["loc"]))
    text = plain(problem["msg"])
    return _clean(f"{field[:_MAX_NAME_LENGTH]}: {text}" if field else text)[:_MAX_TEXT_LENGTH]


def _errors(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def _listed(error: ValidationError, place: Place) -> list[tuple[Place, str, str]]:
    return [(place, ".".join(map(str, problem["loc"])), plain(problem["msg"])) for problem in _errors(error)]


def invalid(problems: Iterable[tuple[Place, str, str]], detail: str = "") -> Problem:
    """Status 422. ``problems``: (place, field name, message)."""
    listed = [
        {"in": place, "field": _clean(field)[:_MAX_NAME_LENGTH], "message": _clean(message)[:_MAX_TEXT_LENGTH]}
        for place, field, message in problems
    ][:_MAX_LISTED]
    return Problem(422, detail=detail or "some fields are invalid", errors=listed)


def _clean(text: str) -> str:
    """Replaces characters that are not printable or that UTF-8 cannot encode."""
    printable = (character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return "".join(printable)


IDEMPOTENCY_KEY = "Idempotency-Key"
SHARDS_UNAVAILABLE, MAIN_UNAVAILABLE = "shards_unavailable", "main_unavailable"
"""The member of a reply that names the shards that it leaves out."""


def route(context: AdminContext, endpoint: Endpoint) -> web.RouteDef:
    async def handle(request: web.Request) -> web.Response:
        arguments = await read(endpoint, request)
        keys = request.headers.getall(IDEMPOTENCY_KEY, ())
        if len(keys) > endpoint.repeatable:
            why = "is given more than once" if endpoint.repeatable else "is not taken by this call"
            raise Problem(400, detail=f"{IDEMPOTENCY_KEY} {why}")
        try:
            return await _answer(context, endpoint, request, arguments, keys[0] if keys else None)
        except (NotFound, Conflict):
            raise
        except ClientError as error:
            raise Problem(422, detail=error.text) from error

    if endpoint.method == "GET":
        return web.get(ROOT + endpoint.path, handle)
    return web.route(endpoint.method, ROOT + endpoint.path, handle)


async def _answer(
    context: AdminContext, endpoint: Endpoint, request: web.Request, arguments: Mapping[str, Any], key: str | None
) -> web.Response:
    """With a key, the reply that the same request got before, if it got one. Raises ClientError if another request had
    the key."""
    change, repeats, known = request.get(CHANGE), context.store.repeats, None
    if key is not None:
        said = b"\n".join((request.method.encode(), request.path.encode(), await request.read()))
        known = await repeats.begin(key, said)
    if change is not None:
        # What the path, the query and the body name. A batch notes its rows itself.
        named = {name: value for name, value in arguments.items() if not isinstance(value, BaseModel)}
        for model in arguments.values():
            if isinstance(model, BaseModel):
                named |= {name: getattr(model, name) for name in model.model_fields_set if name != "root"}
        await touch_named(change, named)
    if known is not None:
        if change is not None:
            change.note(repeated=True)
        return web.Response(body=known, status=endpoint.status, content_type=JSON)
    with noting_unavailable_shards() as missing:
        reply = await endpoint.handler(Call(context, request[IDENTITY], change, key or ""), **arguments)
    if change is not None:
        for part in (reply, *getattr(reply, "torrents", ())):
            note_created(change, part)
    response = _response(endpoint, reply, missing)
    if key is not None:
        assert isinstance(response.body, bytes)
        await repeats.finish(key, response.body)
    return response


def _response(endpoint: Endpoint, reply: Reply | None, missing: Collection[int]) -> web.Response:
    """``missing``: the unavailable shards, and the main store, which the reply leaves out."""
    if reply is None:
        return web.Response(status=204)
    if isinstance(reply, Download):
        headers = {"Content-Disposition": f'attachment; filename="{reply.file_name}"', **reply.headers}
        return web.Response(body=reply.content, content_type=reply.media_type, headers=headers)
    headers = {}
    if endpoint.location:
        headers["Location"] = ROOT + endpoint.location.format(reply=reply)
    is_known = bool(reply.known_text) and not getattr(reply, "new", True)
    body = reply.model_dump_json().encode()
    if missing:
        parts = {SHARDS_UNAVAILABLE: sorted({*missing} - {MAIN})} if {*missing} != {MAIN} else {}
        main = {MAIN_UNAVAILABLE: True} if MAIN in missing else {}
        body = orjson.dumps({**orjson.loads(body), **parts, **main})
    return web.Response(body=body, status=200 if is_known else endpoint.status, content_type=JSON, headers=headers)
