"""The listener for the calls of a site's own code: addresses, keys, the audit log."""

import asyncio
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel, SecretStr, ValidationError

from tracker.admin.api.reading import first_error
from tracker.admin.auth.auth import Attempts, remote_address, too_many
from tracker.admin.context import AdminContext
from tracker.admin.http.connections import (
    Connection,
    Limits,
    Server,
    mark_authenticated,
    serving,
    size_limit_middleware,
)
from tracker.admin.http.problems import Handler, Problem, describe_request, problem_middleware
from tracker.admin.site import ocelot
from tracker.admin.site.changes import Action, Rates, SiteCall
from tracker.admin.site.unit3d import CALLS
from tracker.bittorrent import HASH_LENGTH
from tracker.errors import ClientError
from tracker.operations.audit import Caller, Change
from tracker.settings.model import Settings
from tracker.system.aiohttp_connection import with_host
from tracker.system.event_loop import running
from tracker.system.listeners import open_listeners
from tracker.system.logger import Logger
from tracker.wire.endpoint import format_address
from tracker.wire.proxy import Networks

MAX_BODY_BYTES = 65_536
UNIT3D = "/announce/{key}/"
_HASH = re.compile(r"[0-9a-fA-F]{40}", re.ASCII)

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")
log = Logger("tracker.site")


@asynccontextmanager
async def serve_site(
    context: AdminContext, apply: Callable[[Settings], None], count: Callable[[str], None], limits: Limits | None = None
) -> AsyncIterator[tuple[str, ...]]:
    """Serves until the block is left, if a setting says so; yields the addresses, with real ports in place of 0.
    ``apply`` receives changed settings, ``count`` the outcome of each call. Raises StartupError for an address that is
    not available."""
    rates = Rates(context.telemetry, context.clock)
    listeners = await open_listeners(context.settings.site.listen)
    app = make_app(Site(context, rates, apply, count))
    async with serving(app, listeners, limits or Limits(), SiteConnection), running(rates.run):
        yield tuple(listener.address for listener in listeners)


class SiteConnection(Connection):
    """Gazelle sends no Host, which HTTP/1.1 requires. The first head of a connection gets one."""

    __slots__ = ("_head",)

    def __init__(self, manager: Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._head: bytes | None = b""
        """What came of the first head; None once it is complete."""

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            data = self._head + data
            if b"\r\n\r\n" not in data and len(data) <= self.max_line_size + self.max_field_size:
                self._head = data
                return
            head, end, body = data.partition(b"\r\n\r\n")
            self._head, data = None, with_host(head + end) + body
        super().data_received(data)


@dataclass
class Site:
    """Admits the requests of one site, and runs its calls."""

    context: AdminContext
    rates: Rates
    apply: Callable[[Settings], None]
    count: Callable[[str], None]

    def __post_init__(self) -> None:
        self.settings = self.context.settings.site
        self._allowed = Networks(self.settings.allowed)
        self._attempts = Attempts(asyncio.get_running_loop().time)

    @contextmanager
    def admitted(self, request: web.Request, key: SecretStr | None, call: str) -> Iterator[None]:
        """Counts the outcome of a call. Raises Problem if it is not admitted."""
        outcome = "failed"
        try:
            self._admit(request, key)
            yield
            outcome = "done"
        except Problem as error:
            outcome = "refused" if error.status < 500 else "failed"
            raise
        finally:
            self.count(f"site_call.{call}.{outcome}")

    def _admit(self, request: web.Request, key: SecretStr | None) -> None:
        """A connection to a unix socket has no address."""
        address = remote_address(request)
        if address and address not in self._allowed:
            if not self._attempts.failed(request.remote or ""):
                log.warning("site call refused", address=format_address(address), why="TRACKER_SITE__ALLOWED")
            raise Problem(403, detail="TRACKER_SITE__ALLOWED has no network with your address")
        given = request.match_info["key"].encode("utf-8", "replace")
        if key is None or not hmac.compare_digest(given, key.get_secret_value().encode()):
            if wait := self._attempts.failed(request.remote or ""):
                raise too_many(wait)
            log.warning("site call refused", address=request.remote or "unix", why="wrong key")
            raise Problem(401, detail="wrong key")
        mark_authenticated(request)

    async def run(
        self,
        request: web.Request,
        operation: str,
        fields: Mapping[str, object],
        handle: Callable[[SiteCall], Awaitable[R]],
    ) -> R:
        """What the call has changed is in the audit log under ``operation``, also if it fails then. Raises Problem."""
        address = format_address(found) if (found := remote_address(request)) else ""
        change = Change(self.context.store, Caller(self.settings.name, "operate", "site", "", address), operation)
        failed = True
        try:
            reply = await handle(SiteCall(self.context, change, self.rates, self.apply))
            failed = False
            return reply
        except ClientError as error:
            raise _refused(request, operation, error, fields, change.named) from error
        finally:
            if operation:
                await change.record(failed=failed)


def _refused(
    request: web.Request, operation: str, error: ClientError, fields: Mapping[str, object], objects: Sequence[str] = ()
) -> Problem:
    """``fields``: of the call, ``objects``: which it has read. Both are in the log, without passkeys."""
    log.warning(
        "site call failed",
        what=describe_request(request),
        operation=operation,
        why=error.text,
        **_ids(fields),
        **({"objects": list(objects)} if objects else {}),
    )
    return Problem(error.status, detail=error.text)


def _ids(fields: Mapping[str, object]) -> dict[str, str]:
    """Which torrent and user a call names, as far as these are ids. Ocelot's info hashes are 20 characters."""
    found = {name: str(fields[name]) for name in ("id", "user_id", "userid", "torrent_id") if name in fields}
    found = {name: text for name, text in found.items() if text.isascii() and text.isdigit() and len(text) < 20}
    info_hash = fields.get("info_hash")
    if isinstance(info_hash, str) and _HASH.fullmatch(info_hash):
        return {**found, "info_hash": info_hash.lower()}
    if isinstance(info_hash, str) and len(info_hash) == HASH_LENGTH:
        return {**found, "info_hash": info_hash.encode("latin-1", "replace").hex()}
    return found


def _checked(request: web.Request, fields: Mapping[str, object], read: Callable[[], M]) -> M:
    """A body or a query. Raises Problem."""
    try:
        return read()
    except ValidationError as error:
        raise _refused(request, "", ClientError(first_error(error)), fields) from error


def _fields_of(data: bytes) -> dict[str, object]:
    """The fields of a body that may be invalid."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def make_app(site: Site) -> web.Application:
    middlewares = [_close_middleware, problem_middleware, size_limit_middleware]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY_BYTES)
    app.add_routes([*(_unit3d(site, *where, call) for where, call in CALLS.items()), *_ocelot(site)])
    return app


@web.middleware
async def _close_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gazelle reads a reply until the connection ends."""
    response = await handler(request)
    if not request.path.startswith("/announce/"):
        response.force_close()
    return response


def _unit3d(site: Site, method: str, path: str, call: Action) -> web.RouteDef:
    name = f"{method} {path.partition('/')[0]}"

    async def handle(request: web.Request) -> web.Response:
        with site.admitted(request, site.settings.key, name):
            if method == "GET":
                fields: dict[str, object] = dict(request.match_info)
                del fields["key"]
                found = call.fields.model_validate(fields)
            else:
                data = await request.read()
                fields = _fields_of(data)
                found = _checked(request, fields, lambda: call.fields.model_validate_json(data))
            reply = await site.run(request, call.operation, fields, lambda this: call.handler(this, **dict(found)))
        if reply is None:
            return web.Response()
        return web.Response(body=orjson.dumps(reply), content_type="application/json")

    return web.route(method, UNIT3D + path, handle)


def _ocelot(site: Site) -> list[web.RouteDef]:
    async def update(request: web.Request) -> web.Response:
        fields = ocelot.read_query(request.raw_path)
        name = fields.get("action", "")
        action = ocelot.ACTIONS.get(name)
        with site.admitted(request, site.settings.key, name if action else "unknown"):
            if action is None:
                raise _refused(request, "", ClientError("unknown action"), fields)
            query = _checked(request, fields, lambda: action.fields.model_validate(fields))
            await site.run(request, action.operation, fields, lambda this: action.handler(this, **dict(query)))
        return web.Response(text="success")

    async def report(request: web.Request) -> web.Response:
        with site.admitted(request, site.settings.report_key, "report"):
            fields = ocelot.read_query(request.raw_path)
            text = await site.run(request, "", {}, lambda this: ocelot.report(this, fields))
        return web.Response(text=f"{text}success")

    return [web.get("/{key}/update", update, allow_head=False), web.get("/{key}/report", report, allow_head=False)]
