"""Authentication and authorization. Everything not allowed here is refused, including unknown paths.

Programs send a token (``Authorization: Bearer …``). Browsers send a session cookie, set by the sign-in. RULES has the
role that each route needs. Browsers attach cookies to cross-site requests too, so a change with a cookie also
needs the session's CSRF token and an Origin of this port.

Recent readers of /metrics are remembered for when the store is unavailable: Prometheus would lose the tracker exactly
during an incident. A token that is revoked or expires during the outage can read metrics until the store is back, if it
was used shortly before.

Failed authentication has a rate limit, per address and in total. Only failures count, and only failures are delayed. A
valid token is always accepted, because its address may be that of a proxy. Tokens of 256 bits cannot be guessed; the
limit bounds load and log lines.

Which role a route needs, and under which operation the audit log records a change by it, endpoints of the API and
handlers of pages declare beside its path. A GET without a rule needs role ``read``. A change without a rule is refused.
"""

import asyncio
import hashlib
import hmac
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware
from multidict import MultiMapping

from tracker.admin.http.connections import mark_anonymous, mark_authenticated
from tracker.admin.http.cookies import cookie_of
from tracker.admin.http.form_body import MULTIPART, URL_ENCODED, read_form_body
from tracker.admin.http.problems import Handler, Problem, describe_request
from tracker.bittorrent import Address
from tracker.errors import StoreUnavailable
from tracker.store.access.tokens import Role, Tokens, may
from tracker.system.logger import Logger
from tracker.token_bucket import TokenBucket
from tracker.wire.endpoint import pack_address
from tracker.wire.proxy import TrustedProxies, client_address

REMEMBERED_SECONDS = 900.0
"""Time since the last successful lookup."""
MAX_REMEMBERED = 16
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf"
SIGN_IN = "/sign-in"
METRICS = "/metrics"

_CHECKS_AT_ONCE = 16
"""Max concurrent credential lookups, so that invalid ones never occupy all store connections."""


log = Logger("tracker.admin")


@dataclass(frozen=True, slots=True)
class Identity:
    """The authenticated caller. ``csrf`` must come with forms; empty for a caller with a token. ``token_id`` is empty
    for a session that began with a link, ``address`` for an unknown address."""

    name: str
    role: Role
    token_id: str
    address: Address
    csrf: str = ""

    def may(self, needed: Role) -> bool:
        return may(self.role, needed)


IDENTITY = web.RequestKey("identity", Identity)


def remote_address(request: web.Request) -> Address:
    """That of the connection; empty for a unix socket."""
    return pack_address((request.remote or "").partition("%")[0]) or Address(b"")


class Access:
    def __init__(self, tokens: Tokens, clock: Callable[[], float], proxies: TrustedProxies | None = None) -> None:
        """``clock`` returns monotonic seconds. ``proxies``: whose forwarding headers tell the client's address."""
        self.attempts = Attempts(clock)
        self._clock = clock
        self._readers: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()
        """Of /metrics, by SHA-256 of address and secret, with the time of the last lookup."""
        self._tokens = tokens
        self._proxies = proxies if proxies is not None else TrustedProxies()
        self._checks = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def identify(self, request: web.Request) -> Identity | None:
        """The caller; None if unknown. An Authorization header takes precedence over a cookie."""
        given = request.headers.getall("Authorization", [])
        secret, address = cookie_of(request), self.address_of(request)
        async with self._checks:
            if given:
                scheme, _, text = given[0].partition(" ")
                if len(given) > 1 or scheme.lower() != "bearer":
                    return None
                token = await self._tokens.verify(text.strip(), address)
                return Identity(token.name, token.role, token.token_id, address) if token else None
            session = await self._tokens.session(secret, address) if secret else None
            if session is None:
                return None
            return Identity(session.name, session.role, session.token_id, address, session.csrf)

    def address_of(self, request: web.Request) -> Address:
        """The client's address, behind trusted proxies too; empty if it is unknown."""
        headers = request.headers
        forwarded_for, forwarded = headers.getall("X-Forwarded-For", []), headers.getall("Forwarded", [])
        return client_address(remote_address(request), forwarded_for, forwarded, self._proxies)

    def note_failure(self, request: web.Request) -> None:
        """Counts a failed authentication. Raises Problem if there were too many."""
        if wait := self.attempts.failed(request.remote or ""):
            raise too_many(wait)
        log.warning("admin authentication failed", address=request.remote or "unix", what=describe_request(request))

    async def admit(self, request: web.Request) -> None:
        """Stores the identity in the request. Raises Problem or a redirect to the sign-in."""
        # Decide by the matched route, not by the path text: the two may differ in escapes and dots.
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else ""
        if route in OPEN:
            mark_anonymous(request)
            return
        identity = await self._known(request, route)
        if identity is None:
            raise self._unknown(request)
        mark_authenticated(request)
        if resource is not None:
            rule = rule_of(request.method, route)
            if rule is None:
                raise Problem(403, detail="this route has no rule of access")
            if not identity.may(rule.role):
                raise Problem(403, detail=f"role {rule.role} is needed; yours is {identity.role}")
        if request.method not in SAFE_METHODS and identity.csrf:
            await _check_csrf(request, identity.csrf)
        request[IDENTITY] = identity

    async def _known(self, request: web.Request, route: str) -> Identity | None:
        """The caller. Without the store, /metrics accepts tokens from its cache."""
        secret = request.headers.get("Authorization", "") if route == METRICS else ""
        if not secret or request.method not in SAFE_METHODS:
            return await self.identify(request)
        # The token may be valid for some addresses only.
        caller = f"{self.address_of(request).hex()} {secret}".encode("utf-8", "surrogateescape")
        reader = hashlib.sha256(caller).digest()
        try:
            identity = await self.identify(request)
        except StoreUnavailable:
            noted, identity = self._readers.get(reader, (0.0, None))
            if identity is None or self._clock() - noted > REMEMBERED_SECONDS:
                raise
            return identity
        self._readers.pop(reader, None)
        if identity is not None:
            self._readers[reader] = self._clock(), identity
            if len(self._readers) > MAX_REMEMBERED:
                self._readers.popitem(last=False)
        return identity

    def _unknown(self, request: web.Request) -> Exception:
        """The refusal: a redirect to the sign-in for pages, else a Problem. Raises Problem for too many failures."""
        page = not request.path.startswith(("/api/", "/metrics")) and request.path != "/api"
        streamed = "text/event-stream" in request.headers.get("Accept", "")
        tried, part = "Authorization" in request.headers, "HX-Request" in request.headers
        if page and request.method in SAFE_METHODS and not (tried or part or streamed):
            return web.HTTPSeeOther(SIGN_IN)
        if tried:
            self.note_failure(request)
        headers = {"WWW-Authenticate": "Bearer"}
        if part:
            headers["HX-Redirect"] = SIGN_IN
        detail = (
            "unknown, revoked or expired token, or not valid from your address"
            if tried
            else "sign in, or send a token as Authorization: Bearer …"
        )
        return Problem(401, detail=detail, headers=headers)


ACCESS = web.AppKey("access", Access)


@web.middleware
async def access_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    await request.app[ACCESS].admit(request)
    response = await handler(request)
    identity = request.get(IDENTITY)
    if identity is not None and request.method not in SAFE_METHODS:
        # Log the path only on success: handlers have validated the hashes and IDs in it.
        what = f"{request.method} {request.path}" if response.status < 400 else describe_request(request)
        log.info("admin change", by=identity.name, what=what, status=response.status)
    return response


def too_many(wait: float) -> Problem:
    """``wait`` is in seconds."""
    return Problem(429, detail="too many failed attempts", headers={"Retry-After": str(max(1, math.ceil(wait)))})


async def _check_csrf(request: web.Request, expected: str) -> None:
    if "Origin" not in request.headers:  # one that Hosts.check has validated
        raise Problem(403, detail="missing Origin header")
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.content_type in (URL_ENCODED, MULTIPART):
        field = (await read_form_body(request)).get(CSRF_FIELD)
        given = field if isinstance(field, str) else None
    if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
        raise Problem(403, detail="missing or wrong CSRF token; reload the page")


MAX_ADDRESSES = 4096
"""Max addresses kept; beyond that the one with the oldest failure is dropped."""


class Pace(NamedTuple):
    """Allows ``burst`` failures at once, then one every ``seconds``."""

    burst: int
    seconds: float

    def bucket(self, now: float) -> TokenBucket:
        return TokenBucket(1 / self.seconds, self.burst, now)


PER_ADDRESS = Pace(10, 6.0)
OVERALL = Pace(200, 0.3)


class Attempts:
    """Counts failed attempts. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], per_address: Pace = PER_ADDRESS, overall: Pace = OVERALL) -> None:
        self._clock = clock
        self._per_address = per_address
        self._buckets: OrderedDict[bytes, TokenBucket] = OrderedDict()
        self._all = overall.bucket(clock())

    def failed(self, address: str) -> float:
        """Counts a failure. Returns 0.0, or the seconds to wait if there were too many."""
        now = self._clock()
        # Of IPv6 the /64, because a client usually controls all of it. A unix socket has no address.
        name = (pack_address(address.partition("%")[0]) or b"")[:8]
        bucket = self._buckets.setdefault(name, self._per_address.bucket(now))
        self._buckets.move_to_end(name)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return max([0.0 if each.take(now) else each.wait(now) for each in (bucket, self._all)])


OPEN = frozenset({"/health", "/ready", "/sign-in", "/static/{path}"})
"""The routes without authentication. They show nothing about the tracker but its health."""


class Rule(NamedTuple):
    """``role``: the lowest role that may use the route. ``operation``: its name in the audit log; empty: no change."""

    role: Role
    operation: str = ""


RULES: dict[str, Rule] = {"POST /sign-out": Rule("read")}
"""By method and route."""


def add_rule(method: str, path: str, rule: Rule) -> None:
    """``path``: its placeholders may have patterns, which the route has not."""
    RULES[f"{method} {re.sub(r':[^}]*', '', path)}"] = rule


def rule_of(method: str, route: str) -> Rule | None:
    """The rule of a route, which is a path with placeholders; None: the route is closed."""
    if method in SAFE_METHODS:
        return RULES.get(f"GET {route}", Rule("read"))
    return RULES.get(f"{method} {route}")


SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that change nothing. OPTIONS is not served, because no other site may call this port."""


class Hosts:
    """The valid host names: ``localhost``, loopback addresses, ``configured`` names, and the local address.

    Against DNS rebinding (a foreign page makes its own name resolve to 127.0.0.1), only names on a list are served.
    Against cross-site forms, a change must come from a page of this port, as Origin and Sec-Fetch-Site say. Programs
    send neither header; they have tokens.
    """

    def __init__(self, configured: Iterable[str], addresses: Iterable[str] = ()) -> None:
        self._configured = frozenset(_host(name) for name in configured)
        listened = {_host(address.rpartition(":")[0]) for address in addresses if address[:5] != "unix:"}
        self._names = {"localhost", "127.0.0.1", "::1"} | self._configured | (listened - {"0.0.0.0", "::"})

    def check(self, method: str, path: str, headers: MultiMapping[str], local: str | None = None) -> None:
        """Raises Problem for an unknown host name, and for a change from another site. ``local`` is the local address
        of the connection."""
        given = headers.getall("Host", [])
        if len(given) != 1 or not path.startswith("/"):
            raise Problem(400, detail="exactly one Host header and a path starting with / are required")
        name = _authority(given[0])
        if name is None or not (name[0] in self._names or (local and name[0] == _host(local))):
            raise Problem(421, detail="unknown host name; add it to TRACKER_ADMIN__HOSTS")
        if method not in SAFE_METHODS:
            site = headers.get("Sec-Fetch-Site", "same-origin")
            is_ours = all(self._is_ours(origin, given[0]) for origin in headers.getall("Origin", []))
            if not is_ours or site not in ("same-origin", "none"):
                raise Problem(403, detail="cross-site request refused")

    def _is_ours(self, origin: str, host: str) -> bool:
        """Whether a page with this origin was served by this port: under the host and port it now sends to. A proxy may
        pass on another Host than the browser sent; then a configured name on the default port is accepted. Another port
        of the same host is another site, although cookies ignore ports."""
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
