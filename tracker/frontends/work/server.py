"""The listener of work distribution: its aiohttp application and sockets."""

import contextlib
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tracker.core.rate_limits import WorkLimits
from tracker.core.refusals import Failures
from tracker.core.work import Refused, WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.errors import ClientError, NotFound, StoreUnavailable
from tracker.frontends.work.calls import Calls
from tracker.frontends.work.connections import Server
from tracker.frontends.work.live import Live
from tracker.frontends.work.public import Public
from tracker.frontends.work.replies import PRIVATE, Links, refusal
from tracker.frontends.work.requests import MAX_BODY_BYTES, Handlers
from tracker.refusals import Refusal
from tracker.settings.model import Settings
from tracker.system.aiohttp_connection import accepting, describe
from tracker.system.listeners import open_listeners
from tracker.system.logger import Logger
from tracker.wire.proxy import TrustedProxies

RETRY_SECONDS = 2
"""Retry-After while the store is unavailable."""
STOP_SECONDS = 2.0
"""For requests in flight when the port closes."""
PROJECT = "/{project:[-_0-9A-Za-z]+}"

log = Logger("tracker.work")


@contextlib.asynccontextmanager
async def serve_work(
    work: WorkRequests,
    figures: WorkFigures,
    settings: Settings,
    address_limit: WorkLimits,
    failures: Failures,
    *,
    listening: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left; yields the addresses, with real ports in place of 0. ``listening`` are the
    addresses where peers announce; ``failures`` counts what a proxy does wrong. Raises StartupError for an address that
    is not available."""
    proxies = TrustedProxies(settings.http.trusted_proxies)

    def refused(text: str) -> None:
        failures.count(Refusal(text).label)

    shared = (work, figures, proxies, refused, Links(settings, listening), settings.work.default)
    calls = Calls(*shared)
    guard = _guard(calls, address_limit, clock, legacy_status=settings.work.legacy_status)
    app = make_app(calls, Public(*shared), Live(*shared), guard)
    listeners = await open_listeners(settings.work.listen)
    protocol = settings.http.proxy_protocol
    build = functools.partial(Server, proxies=proxies, refused=refused, proxy_protocol=protocol)
    async with accepting(app, listeners, STOP_SECONDS, build):
        yield tuple(listener.address for listener in listeners)


def make_app(calls: Calls, public: Public, live: Live, guard: Middleware) -> web.Application:
    app = web.Application(middlewares=[guard], client_max_size=MAX_BODY_BYTES)
    app.on_shutdown.append(live.stop)
    app.add_routes(
        [
            web.get("/static/{file}", public.static),
            web.get(PROJECT, public.to_page),
            web.post(PROJECT, _nothing),  # /request and the like, without a default project
        ]
    )
    for base in (PROJECT, *([""] if public.default else [])):
        app.add_routes(
            [
                web.post(f"{base}/request", calls.request),
                web.post(f"{base}/done", calls.done),
                web.post(f"{base}/done+request", calls.done_and_request),
                web.post(f"{base}/release", calls.release),
                web.post(f"{base}/extend", calls.extend),
                web.post(f"{base}/upload", calls.upload),
                web.post(f"{base}/uploaded", calls.uploaded),
                web.get(f"{base}/mine", calls.mine),
                web.get(f"{base}/stats.json", public.shared(public.figures.stats)),
                web.get(f"{base}/figures.json", public.shared(public.of_page)),
                web.get(f"{base}/charts.json", public.shared(public.charts)),
                web.get(f"{base}/update-status.json", public.shared(public.figures.update_status)),
                web.get(f"{base}/items/{{item:.+}}.json", public.item),
                web.get(f"{base}/feed.rss", public.feed),
                web.get(f"{base}/needed.json", public.shared(public.needed)),
                web.get(f"{base}/live", live.handle, allow_head=False),
                web.get(f"{base}/", public.page),
            ]
        )
    app.on_response_prepare.append(_add_headers)
    return app


async def _nothing(_request: web.Request) -> web.Response:
    raise web.HTTPNotFound


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("Cache-Control", PRIVATE)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers.popall("Server", None)


def _guard(
    handlers: Handlers, address_limit: WorkLimits, clock: Callable[[], float], *, legacy_status: bool
) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        """The only middleware: limits requests by address, and turns every exception into a response."""
        try:
            wait = address_limit.wait_seconds(handlers.address(request), clock())
            if wait > 0:
                return _later(429, "too many requests from your address\n", wait)
            return await handler(request)
        except Refused as error:
            return refusal(error, legacy_status=legacy_status)
        except NotFound:  # the only thing that the store may not have
            return refusal(Refused("no project", "no such project"), legacy_status=legacy_status)
        except ClientError as error:
            return refusal(Refused("malformed", error.text), legacy_status=legacy_status)
        except StoreUnavailable:
            return _later(503, "store unavailable; try again later\n", RETRY_SECONDS)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            return web.Response(status=error.status, text=f"{error.reason}\n", headers=headers)
        except ConnectionError:  # the client disconnected
            raise
        except Exception as error:  # logged without its text, which may contain a passkey
            if request.writer.output_size > 0:
                raise ConnectionAbortedError("the response has already begun") from error
            resource = request.match_info.route.resource  # without the path: a client may have put a passkey there
            route = f"{request.method} {resource.canonical if resource is not None else '-'}"
            log.error("work request failed", route=route, **describe(error))
            return web.Response(status=500, text="internal error\n")

    return guard


def _later(status: int, text: str, seconds: float) -> web.Response:
    return web.Response(status=status, text=text, headers={"Retry-After": str(math.ceil(seconds))})
