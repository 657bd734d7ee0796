"""Problem details (RFC 9457): the error responses of the admin port. A handler raises ``Problem``; this module turns
all other exceptions into one. Internal errors are logged, and the response shows no details of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from redis.exceptions import OutOfMemoryError

from tracker.errors import ClientError, StoreUnavailable
from tracker.system.logger import Logger

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = 2
"""Retry-After while the store is unavailable."""

STORE_NOTICES: web.AppKey[Callable[[], Sequence[str]]] = web.AppKey("store_notices")
"""Returns which parts of the store are unavailable while the others are available."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = Logger("tracker.admin")


class Problem(Exception):
    """An error response. ``detail`` names the cause and what to do; ``extra`` are additional members."""

    def __init__(
        self, status: int, *, detail: str = "", headers: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        self.status = status
        self.title = HTTPStatus(status).phrase
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra
        super().__init__(f"{status} {self.title}")

    def response(self) -> web.Response:
        members: dict[str, Any] = {"type": "about:blank", "title": self.title, "status": self.status}
        if self.detail:
            members["detail"] = self.detail
        body = orjson.dumps({**members, **self.extra})
        return web.Response(status=self.status, body=body, content_type=CONTENT_TYPE, headers=self.headers)


def from_http(error: web.HTTPException) -> Problem:
    headers = {name: error.headers[name] for name in ("Allow", "Retry-After") if name in error.headers}
    details = {
        404: "page not found",
        405: f"method not allowed; allowed: {headers.get('Allow', 'others')}",
        413: "request too large; TRACKER_ADMIN__MAX_UPLOAD_BYTES limits uploads",
        417: "only the expectation 100-continue is supported",
    }
    return Problem(error.status, detail=details.get(error.status, ""), headers=headers)


def internal(route: str, error: BaseException) -> Problem:
    """Logs an internal error with its route."""
    log.error("admin request failed", route=route, exc_info=error)
    return Problem(500, detail="internal error; see the tracker's log")


@web.middleware
async def problem_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: turns every exception into a response."""
    try:
        return await handler(request)
    except ConnectionError:  # the client disconnected
        raise
    except web.HTTPException as error:
        if error.status < 400:
            raise
        problem = from_http(error)
    except Exception as error:  # noqa: BLE001  # logged in full, without details in the response
        problem = _problem_of(request, error)
    if request.writer.output_size > 0:
        raise ConnectionAbortedError("the response has already begun")  # the client sees a broken response
    return problem.response()


def _problem_of(request: web.Request, error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreUnavailable):
        detail = f"{'; '.join(request.app.get(STORE_NOTICES, tuple)()) or 'store unavailable'}; try again later"
        return Problem(503, detail=detail, headers={"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, OutOfMemoryError):
        return Problem(503, detail="store full; no new data is accepted until memory is freed")
    if isinstance(error, ClientError):
        return Problem(error.status, detail=error.text)
    if isinstance(error, RequestPayloadError | HttpProcessingError):
        return Problem(400, detail="malformed request body")
    return internal(describe_request(request), error)


def describe_request(request: web.Request) -> str:
    """Method and route for the log. The path itself may contain a passkey."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource is not None else '-'}"
