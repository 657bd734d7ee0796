"""Routes for declared endpoints: validated arguments in, JSON out, errors as problem details."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel

from tracker.admin.api.contract import ROOT, Call, Download, Endpoint, Export, Reply
from tracker.admin.api.reading import JSON, read
from tracker.admin.auth.auth import IDENTITY
from tracker.admin.auth.recording import CHANGE, note_created, touch_named
from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.errors import ClientError, Conflict, NotFound
from tracker.operations.audit import Change
from tracker.store.sharding.unavailable import MAIN, noting_unavailable_shards

IDEMPOTENCY_KEY = "Idempotency-Key"
SHARDS_UNAVAILABLE, MAIN_UNAVAILABLE = "shards_unavailable", "main_unavailable"
"""The member of a reply that names the shards that it leaves out."""


def routes(context: AdminContext, endpoints: Iterable[Endpoint]) -> list[web.AbstractRouteDef]:
    return [_route(context, endpoint) for endpoint in endpoints]


def _route(context: AdminContext, endpoint: Endpoint) -> web.RouteDef:
    async def handle(request: web.Request) -> web.Response:
        arguments = await read(endpoint, request)
        keys = request.headers.getall(IDEMPOTENCY_KEY, ())
        if len(keys) > endpoint.repeatable:
            why = "is given more than once" if endpoint.repeatable else "is not taken by this call"
            raise Problem(400, detail=f"{IDEMPOTENCY_KEY} {why}")
        try:
            if not keys:
                return await _answer(context, endpoint, request, arguments)
            return await _answer_once(context, endpoint, request, arguments, keys[0])
        except (NotFound, Conflict):
            raise
        except ClientError as error:
            raise Problem(422, detail=error.text) from error

    if endpoint.method == "GET":
        return web.get(ROOT + endpoint.path, handle)
    return web.route(endpoint.method, ROOT + endpoint.path, handle)


async def _answer(
    context: AdminContext, endpoint: Endpoint, request: web.Request, arguments: Mapping[str, Any], once: str = ""
) -> web.Response:
    change = request.get(CHANGE)
    call = Call(context, request[IDENTITY], change, once)
    if change is not None:
        await _touch(change, arguments)
    with noting_unavailable_shards() as missing:
        reply = await endpoint.handler(call, **arguments)
    if change is not None:
        for part in (reply, *getattr(reply, "torrents", ())):
            note_created(change, part)
    return _response(endpoint, reply, missing)


async def _answer_once(
    context: AdminContext, endpoint: Endpoint, request: web.Request, arguments: Mapping[str, Any], key: str
) -> web.Response:
    """The reply that the same request got before, if it got one. Raises ClientError if another request had the key."""
    repeats = context.store.repeats
    said = b"\n".join((request.method.encode(), request.path.encode(), await request.read()))
    if (known := await repeats.begin(key, said)) is not None:
        if (change := request.get(CHANGE)) is not None:
            await _touch(change, arguments)
            change.note(repeated=True)
        return web.Response(body=known, status=endpoint.status, content_type=JSON)
    response = await _answer(context, endpoint, request, arguments, key)
    assert isinstance(response.body, bytes)
    await repeats.finish(key, response.body)
    return response


async def _touch(change: Change, arguments: Mapping[str, Any]) -> None:
    """Notes the objects that the request names: in the path, the query and the body. A batch notes its rows itself."""
    models = [value for value in arguments.values() if isinstance(value, BaseModel)]
    named = {name: value for name, value in arguments.items() if not isinstance(value, BaseModel)}
    for model in models:
        named |= {name: getattr(model, name) for name in model.model_fields_set if name != "root"}
    await touch_named(change, named)


def _response(endpoint: Endpoint, reply: Reply | None, missing: Collection[int]) -> web.Response:
    """``missing``: the unavailable shards, and the main store, which the reply leaves out."""
    if reply is None:
        return web.Response(status=204)
    if isinstance(reply, (Download, Export)):
        disposition = f'attachment; filename="{reply.file_name}"'
        headers = {"Content-Disposition": disposition, **getattr(reply, "headers", {})}
        body = reply.content if isinstance(reply, Download) else reply.chunks
        return web.Response(body=body, content_type=reply.media_type, headers=headers)
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
