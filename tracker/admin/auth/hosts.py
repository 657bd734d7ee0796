"""Checks the Host and Origin of requests to the admin port.

Against DNS rebinding (a foreign page makes its own name resolve to 127.0.0.1), only names on a list are served.
Against cross-site forms, a change must come from a page of this port, as Origin and Sec-Fetch-Site say. Programs send
neither header; they have tokens.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware
from multidict import MultiMapping

from tracker.admin.http.problems import Handler, Problem

SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that change nothing. OPTIONS is not served, because no other site may call this port."""


class Hosts:
    """The valid host names: ``localhost``, loopback addresses, ``configured`` names, and the local address."""

    def __init__(self, configured: Iterable[str], addresses: Iterable[str] = ()) -> None:
        self._configured = frozenset(_host(name) for name in configured)
        listened = {_host(address.rpartition(":")[0]) for address in addresses if address[:5] != "unix:"}
        self._names = {"localhost", "127.0.0.1", "::1"} | self._configured | (listened - {"0.0.0.0", "::"})

    def check(self, method: str, path: str, headers: MultiMapping[str], local: str | None = None) -> None:
        """Raises Problem for an unknown host name, and for a change from another site.

        ``local`` is the local address of the connection.
        """
        given = headers.getall("Host", [])
        if len(given) != 1 or not path.startswith("/"):
            raise Problem(400, detail="exactly one Host header and a path starting with / are required")
        name = _authority(given[0])
        if name is None or not (name[0] in self._names or (local and name[0] == _host(local))):
            raise Problem(421, detail="unknown host name; add it to TRACKER_ADMIN__HOSTS")
        if method not in SAFE_METHODS:
            self._check_origin(headers, given[0])

    def _check_origin(self, headers: MultiMapping[str], host: str) -> None:
        origins = headers.getall("Origin", [])
        site = headers.get("Sec-Fetch-Site", "same-origin")
        ours = all(self._is_ours(origin, host) for origin in origins)
        if not ours or site not in ("same-origin", "none"):
            raise Problem(403, detail="cross-site request refused")

    def _is_ours(self, origin: str, host: str) -> bool:
        """Whether a page with this origin was served by this port: under the host and port it now sends to.

        A proxy may pass on another Host than the browser sent; then a configured name on the default port is accepted.
        Another port of the same host is another site, although cookies ignore ports.
        """
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != origin:
            return False
        found, sent_to = _authority(parts.netloc), _authority(host)
        if found is None or sent_to is None:
            return False
        usual = {"http": 80, "https": 443}[parts.scheme]
        if found[0] in self._configured and found[1] in (None, usual):
            return True
        return found[0] == sent_to[0] and (found[1] or usual) == (sent_to[1] or usual)


def host_middleware(hosts: Hosts) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A wildcard listener does not know the local address of a connection in advance.
        name = request.transport.get_extra_info("sockname") if request.transport is not None else None
        local = str(name[0]).partition("%")[0] if isinstance(name, tuple) else None
        hosts.check(request.method, request.raw_path, request.headers, local)
        return await handler(request)

    return check


def _authority(text: str) -> tuple[str, int | None] | None:
    """(host, port) of a Host header; None if malformed."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.netloc != text or "@" in text:
        return None
    return _host(host), port


def _host(text: str) -> str:
    """A host name or address in canonical form, without brackets and trailing dot."""
    host = text.strip().strip("[]").lower().removesuffix(".")
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
