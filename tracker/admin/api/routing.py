"""Routes for declared endpoints: validated arguments in, JSON out, errors as problem details."""

from collections.abc import Iterable

from aiohttp import web

from tracker.admin.api.contract import Call, Download, Endpoint, Reply
from tracker.admin.api.reading import JSON, read
from tracker.admin.auth.auth import IDENTITY
from tracker.admin.context import AdminContext
from tracker.admin.http.problems import Problem
from tracker.errors import ClientError, Conflict, NotFound

ROOT = "/api/v1"


def routes(context: AdminContext, endpoints: Iterable[Endpoint]) -> list[web.AbstractRouteDef]:
    return [_route(context, endpoint) for endpoint in endpoints]


def _route(context: AdminContext, endpoint: Endpoint) -> web.RouteDef:
    async def handle(request: web.Request) -> web.Response:
        call = Call(context, request[IDENTITY])
        arguments = await read(endpoint, request)
        try:
            reply = await endpoint.handler(call, **arguments)
        except NotFound as error:
            raise Problem(404, detail=error.text) from error
        except Conflict as error:
            raise Problem(409, detail=error.text) from error
        except ClientError as error:
            raise Problem(422, detail=error.text) from error
        return _response(endpoint, reply)

    if endpoint.method == "GET":
        return web.get(ROOT + endpoint.path, handle)
    return web.route(endpoint.method, ROOT + endpoint.path, handle)


def _response(endpoint: Endpoint, reply: Reply | None) -> web.Response:
    if reply is None:
        return web.Response(status=204)
    if isinstance(reply, Download):
        disposition = f'attachment; filename="{reply.file_name}"'
        headers = {"Content-Disposition": disposition}
        return web.Response(body=reply.content, content_type=reply.media_type, headers=headers)
    headers = {}
    if endpoint.location:
        headers["Location"] = ROOT + endpoint.location.format(reply=reply)
    is_known = bool(endpoint.known) and not getattr(reply, "new", True)
    return web.Response(
        body=reply.model_dump_json().encode(),
        status=200 if is_known else endpoint.status,
        content_type=JSON,
        headers=headers,
    )


def not_found(what: str) -> Problem:
    return Problem(404, detail=f"unknown {what}")
