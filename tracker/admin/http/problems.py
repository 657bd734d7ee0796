"""Problem details (RFC 9457): how the admin side says no, on every path and for every reason.

A handler raises ``Problem``; what else it raises becomes one here. Nothing internal is shown: what the tracker itself
did wrong is in its log.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError
from redis.exceptions import OutOfMemoryError

from tracker.errors import ClientError, StoreAway

CONTENT_TYPE = "application/problem+json"
RETRY_SECONDS = 2
"""When to come back while the store is away."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger("tracker.admin")


class Problem(Exception):
    """Why a request is refused. ``detail`` is for people: what is wrong, and what to do. ``extra`` are further members.

    ``title`` is the name of the status unless given.
    """

    def __init__(
        self,
        status: int,
        title: str = "",
        detail: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        self.status = status
        self.title = title or _phrase(status)
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra
        super().__init__(f"{status} {self.title}")

    def response(self) -> web.Response:
        return web.Response(
            status=self.status,
            body=self.body(),
            content_type=CONTENT_TYPE,
            headers=self.headers,
        )

    def body(self) -> bytes:
        members: dict[str, Any] = {"type": "about:blank", "title": self.title, "status": self.status}
        if self.detail:
            members["detail"] = self.detail
        return orjson.dumps({**members, **self.extra})


def store_away() -> Problem:
    return Problem(
        503, detail="the store does not answer: try again soon", headers={"Retry-After": str(RETRY_SECONDS)}
    )


def store_full() -> Problem:
    return Problem(503, detail="the store is full: it takes nothing new until there is room")


def from_http(error: web.HTTPException) -> Problem:
    """What aiohttp refuses by itself."""
    headers = {name: error.headers[name] for name in ("Allow", "Retry-After") if name in error.headers}
    details = {
        404: "there is nothing at this address",
        405: f"this address takes {headers.get('Allow', 'other methods')}",
        413: "the request is too large; for uploads TRACKER_ADMIN__MAX_UPLOAD_BYTES says how large",
        417: "the only expectation that can be met is 100-continue",
    }
    return Problem(error.status, detail=details.get(error.status, ""), headers=headers)


def internal(route: str, error: BaseException) -> Problem:
    """Something of ours went wrong: the log says what, and at which route."""
    log.error("an admin request failed", route=route, exc_info=error)
    return Problem(500, detail="something went wrong here: the tracker's log says what")


@web.middleware
async def explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: whatever is raised becomes an answer."""
    try:
        return await handler(request)
    except ConnectionError:  # who asked is gone
        raise
    except web.HTTPException as error:
        if error.status < 400:
            raise
        problem = from_http(error)
    except Exception as error:  # noqa: BLE001  # told in the log, and not to a stranger
        problem = _problem_of(request, error)
    if request.writer.output_size > 0:
        raise ConnectionAbortedError(
            "the answer is already on its way"
        )  # its breaking off is all that can be said
    return problem.response()


def _problem_of(request: web.Request, error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreAway):
        return store_away()
    if isinstance(error, OutOfMemoryError):
        return store_full()
    if isinstance(error, ClientError):
        return Problem(400, detail=error.text)
    if isinstance(error, RequestPayloadError | HttpProcessingError):
        return Problem(400, detail="the body of the request is malformed")
    return internal(asked_for(request), error)


def asked_for(request: web.Request) -> str:
    """What a request asks for, as it may stand in a log: its route, for the path itself may hold a passkey."""
    resource = request.match_info.route.resource
    return f"{request.method} {resource.canonical if resource is not None else '-'}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
