"""Declared endpoints as routes: checked arguments in, JSON out, refusals as problem details."""

from collections.abc import Iterable

from aiohttp import web

from tracker.admin.api.contract import Answer, Call, Endpoint
from tracker.admin.api.reading import JSON, read
from tracker.admin.auth import IDENTITY, require_full
from tracker.admin.desk import Desk
from tracker.admin.problems import Problem
from tracker.errors import ClientError

ROOT = "/api/v1"


def routes(desk: Desk, endpoints: Iterable[Endpoint]) -> list[web.AbstractRouteDef]:
    return [_route(desk, endpoint) for endpoint in endpoints]


def _route(desk: Desk, endpoint: Endpoint) -> web.RouteDef:
    async def handle(request: web.Request) -> web.Response:
        call = Call(desk, request[IDENTITY])
        if endpoint.full_only:
            require_full(call.identity)
        arguments = await read(endpoint, request)
        try:
            answer = await endpoint.handler(call, **arguments)
        except ClientError as error:
            raise Problem(422, detail=error.text) from error
        return _response(endpoint, answer)

    if endpoint.method == "GET":
        return web.get(ROOT + endpoint.path, handle)
    return web.route(endpoint.method, ROOT + endpoint.path, handle)


def _response(endpoint: Endpoint, answer: Answer | None) -> web.Response:
    if answer is None:
        return web.Response(status=204)
    headers = {}
    if endpoint.location:
        headers["Location"] = ROOT + endpoint.location.format(answer=answer)
    is_known = bool(endpoint.known) and not getattr(answer, "new", True)
    return web.Response(
        body=answer.model_dump_json().encode(),
        status=200 if is_known else endpoint.status,
        content_type=JSON,
        headers=headers,
    )


def not_found(what: str) -> Problem:
    return Problem(404, detail=f"there is no such {what}")


def conflict(error: ClientError) -> Problem:
    return Problem(409, detail=error.text)
