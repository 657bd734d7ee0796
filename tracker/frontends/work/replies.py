"""Replies of the claimants' listener, the status of each refusal, and the URLs that claimants get."""

import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import orjson
from aiohttp import web

from tracker.core.work import Reason, Refused
from tracker.settings.model import Settings
from tracker.settings.site import INFO_HASH

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


_HOST = re.compile(r"[-.0-9A-Za-z]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")


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
