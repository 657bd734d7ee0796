"""Reads what claimants send: a JSON object whatever its Content-Type, a passkey, the address behind proxies. Also the
status of each refusal, and the URLs that claimants get."""

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast
from urllib.parse import quote

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from tracker.bittorrent import Address
from tracker.core.work import Project, Reason, Refused, Sender, WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.refusals import ADDRESS_HIDDEN
from tracker.settings.model import Settings
from tracker.settings.site import INFO_HASH
from tracker.system.aiohttp_connection import ProxiedConnection
from tracker.wire.endpoint import format_address
from tracker.wire.proxy import TrustedProxies, named_client

STATUSES: Mapping[Reason, int] = {
    "malformed": 400,
    "domains": 400,
    "no passkey": 401,
    "blocked": 403,
    "no project": 404,
    "unknown item": 404,
    "budget": 404,
    "empty": 404,
    "unverified": 409,
    "lost": 410,
    "rate": 429,
    "outdated": 455,
}
PHRASES = {420: "Rate Limited", 455: "Client Out Of Date"}
"""Statuses without a standard phrase."""
PRIVATE = "private, no-store"
MAX_BODY_BYTES = 65_536
BODY_SECONDS = 10.0
_TYPES: Mapping[str, tuple[type, ...]] = {"bytes": (dict,), "id": (str, dict), "free_bytes": (int,), "port": (int,)}
"""The types of the fields that are read, if not text. All others are ignored."""
_BEARER = re.compile(r"Bearer +([!-~]+)", re.IGNORECASE)
_HOST = re.compile(r"[-.0-9A-Za-z]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


def json_reply(row: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(row), content_type="application/json")


def refusal(error: Refused, *, legacy_status: bool) -> web.Response:
    """Refusals of a claim have no body, as in the original protocol."""
    if error.reason == "unverified":
        return json_reply({"missing_seconds": math.ceil(error.seconds)}, 409)
    status = STATUSES[error.reason]
    if status == 429 and legacy_status:
        status = 420
    reply = web.Response(status=status, reason=PHRASES.get(status), text=f"{error.text}\n" if error.text else "")
    if error.reason == "rate":
        reply.headers["Retry-After"] = str(max(1, math.ceil(error.seconds)))
    if status == 401:
        reply.headers["WWW-Authenticate"] = "Bearer"
    return reply


class Links:
    """``listening`` are the addresses where peers announce."""

    def __init__(self, settings: Settings, listening: Sequence[str]) -> None:
        self._settings = settings
        ports = [address.rpartition(":")[2] for address in listening if not address.startswith("unix:")]
        self._port = "" if settings.http.trusted_proxies else next(iter(ports), "")

    def announce_url(self, request: web.Request, passkey: str) -> str | None:
        """None where no setting names it and it cannot be derived from the request."""
        if urls := self._settings.announce.urls_of(passkey):
            return urls[0]
        host, path = (_host(request.headers.get("Host", "")), f"/{passkey}/announce" if passkey else "/announce")
        if not host or not self._port:
            return None
        return f"http://{host}{path}" if self._port == "80" else f"http://{host}:{self._port}{path}"

    def page_url(self, request: web.Request, project: str) -> str:
        """The URL of a project's page, by the host name that the client used."""
        host = request.headers.get("Host", "")
        return f"http://{host}/{project}/" if _host(host) else f"/{project}/"

    def torrent_url(self, info_hash: str) -> str | None:
        return self._settings.work.torrent_url.replace(INFO_HASH, info_hash) or None

    def magnet(self, info_hash: str, name: str, size: int | None, announce_url: str | None) -> str:
        parts = [f"magnet:?xt=urn:btih:{info_hash}"]
        parts += [f"dn={quote(name, safe='')}"] if name else []
        parts += [f"xl={size}"] if size is not None else []
        parts += [f"tr={quote(announce_url, safe='')}"] if announce_url else []
        return "&".join(parts)


def _host(authority: str) -> str:
    """The host without its port; empty for an invalid one."""
    host = authority.partition("]")[0] + "]" if authority.startswith("[") else authority.partition(":")[0]
    return host if _HOST.fullmatch(host) else ""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a body; text fields are empty where they are missing."""

    downloader: str = ""
    passkey: str = ""
    version: str = ""
    api_version: str = ""
    item: str = ""
    token: str = ""
    bytes: Mapping[str, Any] = field(default_factory=dict)
    """By domain."""
    id: str | Mapping[str, Any] = ""
    """The claimant's id of the result."""
    free_bytes: int | None = None
    port: int | None = None
    """Where the claimant's client accepts connections."""

    def required(self, name: Literal["item", "token"]) -> str:
        """Raises Refused."""
        found = self.item if name == "item" else self.token
        if not found:
            raise Refused("malformed", f"{name} is missing")
        return found


async def read_fields(request: web.Request) -> Fields:
    """The fields of the body. Raises Refused, HTTPRequestEntityTooLarge, and HTTPRequestTimeout after BODY_SECONDS."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY_BYTES, actual_size=request.content_length or 0)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except (RequestPayloadError, HttpProcessingError):
        raise Refused("malformed", "malformed body") from None
    return parse_fields(body)


def parse_fields(body: bytes) -> Fields:
    """Raises Refused for anything but a JSON object, and for a field of a wrong type. A field that is null counts as
    missing."""
    try:
        row = orjson.loads(body)
    except ValueError:
        raise Refused("malformed", "the body is not JSON") from None
    if not isinstance(row, dict):
        raise Refused("malformed", "the body is not a JSON object")
    values = {each.name: row[each.name] for each in fields(Fields) if row.get(each.name) is not None}
    for name, value in values.items():
        if not isinstance(value, _TYPES.get(name, (str,))) or isinstance(value, bool):
            raise Refused("malformed", f"{name} has a wrong type")
    if values.get("free_bytes", 0) < 0:
        raise Refused("malformed", "free_bytes is negative")
    if not 1 <= values.get("port", 1) <= 65_535:
        raise Refused("malformed", "port is 1 to 65535")
    return Fields(**values)


@dataclass(eq=False)
class Handlers:
    """What the handlers of requests need. ``proxies`` are the networks whose forwarding headers are trusted;
    ``refused`` counts a request by the text of its refusal. ``default`` is the project of paths without a name."""

    work: WorkRequests
    figures: WorkFigures
    proxies: TrustedProxies
    refused: Callable[[str], None]
    links: Links
    default: str

    def address(self, request: web.Request) -> Address:
        """The packed address of the client. Raises Refused when a proxy does not name it."""
        connection, headers = cast(ProxiedConnection, request.protocol), request.headers
        address = connection.address
        forwarded_for, forwarded = headers.getall("X-Forwarded-For", ()), headers.getall("Forwarded", ())
        if connection.trusted and not (connection.named and not forwarded_for and not forwarded):
            address = named_client(address, forwarded_for, forwarded, self.proxies)
        if not address:
            self.refused(ADDRESS_HIDDEN)
            raise Refused("malformed", ADDRESS_HIDDEN)
        return address

    def sender(self, request: web.Request, sent: Fields, *, name: str = "", passkey: str = "") -> Sender:
        """The sender of a call with the fields ``sent``. ``name`` and ``passkey`` are those of the query, for the calls
        that take them from there."""
        bearer = _BEARER.fullmatch(request.headers.get("Authorization", "").strip())
        return Sender(
            address=format_address(self.address(request)),
            name=sent.downloader or name,
            passkey=bearer[1] if bearer else sent.passkey or passkey,
            user_agent=request.headers.get("User-Agent", ""),
        )

    def project_name(self, request: web.Request) -> str:
        return request.match_info.get("project", self.default)

    async def project(self, request: web.Request) -> Project:
        """Raises Refused."""
        return await self.work.project(self.project_name(request))
