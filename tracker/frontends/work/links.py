"""The URLs that claimants get: announce URL, .torrent file, magnet link."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from aiohttp import web

from tracker.settings.model import Settings
from tracker.settings.site import INFO_HASH

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
