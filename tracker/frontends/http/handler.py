"""Handles HTTP requests: announce and scrape (BEP 3, BEP 48), without a router.

Clients ignore the body of anything but a 200, so every refusal is a 200 with a bencoded ``failure reason``. That
includes unknown paths around /announce, methods other than GET, and what aiohttp refuses before a handler runs
(aiohttp_protocol.py). The query stays bytes: decoding it as text would corrupt binary hashes. Nothing that a client
sends is logged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast
from weakref import WeakKeyDictionary

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, BadStatusLine, HttpProcessingError, InvalidURLError, LineTooLong

from tracker.bittorrent import Address, ScrapeReply, is_of_a_host, is_routable, with_agent
from tracker.core.announce import Tracker
from tracker.frontends.http.aiohttp_messages import Answer, Request, forbidden, is_browser, user_agent_of
from tracker.refusals import ADDRESS_HIDDEN, ADDRESS_IMPOSSIBLE, UPGRADE_MISSING, Busy, Refusal, SilentlyDropped
from tracker.settings.model import LiveSettings
from tracker.settings.public import HttpSettings
from tracker.system.aiohttp_connection import NO_ADDRESS, ProxiedConnection, describe
from tracker.system.logger import Logger
from tracker.wire.announce_path import Route, find_route, socket_passkey
from tracker.wire.http_reply import encode_announce, encode_failure, encode_scrape, encode_scrape_parts, ready_text
from tracker.wire.http_request import parse_announce, parse_scrape
from tracker.wire.proxy import TrustedProxies, named_client

_INDEX = b"This is a BitTorrent tracker. Its announce path is /announce, or /<passkey>/announce with a passkey.\n"
_NOT_FOUND = b"There is nothing here. The announce path of this tracker is /announce.\n"
_HEALTH, _READY = "/health", "/ready"

log = Logger(__name__)


Upgrade = Callable[[Request, Address, str | None], Awaitable[web.StreamResponse]]
"""Serves a WebSocket until it is closed: (request, address, passkey)."""
Problems = Callable[[], Sequence[str]]
"""The reasons why the tracker is not ready, without private details; empty when it is ready."""


_KINDS = {"announce": "announces", "scrape": "scrapes"}
_ROUTES = {"/announce": Route("announce"), "/scrape": Route("scrape")}
"""Routes by path, where no query carries a passkey."""


class ProxyMismatch(Exception):
    """A connection begins with a PROXY header, or with none, against the setting. Its argument is the reason."""


class HttpHandler:
    """Handles the requests that aiohttp reads. The fast protocol uses its address rules and its refusals."""

    def __init__(
        self,
        tracker: Tracker,
        settings: LiveSettings,
        problems: Problems = tuple,
        notices: Problems = tuple,
        upgrade: Upgrade | None = None,
    ) -> None:
        self.tracker = tracker
        self._upgrade = upgrade
        self._problems = problems
        self._notices = notices
        self._settings, http = settings, settings.current.http
        self.http = http
        self.proxies = TrustedProxies(http.trusted_proxies)
        self._encoding = asyncio.Lock()
        self._full_scrapes = WeakKeyDictionary[ScrapeReply, bytes]()
        """Their answers, as long as core/scrape.py caches the reply: one may have a hundred megabytes."""
        self.passkey_forms = settings.current.users.passkey_forms
        self._routes = {} if self.passkey_forms.parameter else _ROUTES
        self._ip_from_private = http.ip_parameter_from_private
        self._mismatches = set[str]()

    @property
    def max_scrape(self) -> int:
        return self._settings.current.torrents.max_scrape

    async def handle(self, request: Request) -> web.StreamResponse:
        if request.method != "GET":
            return self._other_method(request)
        path, _, query = request.raw_path.partition("?")
        upgrades = request.headers.get("Upgrade", "").lower() == "websocket"
        if self._upgrade is not None and (upgrades or "Sec-WebSocket-Key" in request.headers):
            return await self._open_socket(self._upgrade if upgrades else None, request, path, query)
        try:
            route = self._routes.get(path) or find_route(path, query, self.passkey_forms)
            request.kind = route.kind
            if route.kind in _KINDS:
                if route.kind == "announce" and not query:
                    raise Refusal("this is a BitTorrent tracker: open this URL in a torrent client")
                if is_browser(request.headers):  # the fast protocol hands its requests over (request_heads.py)
                    raise Refusal("this address is for BitTorrent clients")
                answer = self._announce if route.kind == "announce" else self._scrape
                return await answer(request, query.encode("utf-8", "surrogateescape"), route.passkey)
        except Refusal as error:
            return Answer(self.refusal(error, _KINDS.get(request.kind, "other")))
        except TimeoutError as error:  # aiohttp would not log where it was raised
            return Answer(self.crash(error), close=True)
        return Answer(_INDEX) if route.kind == "index" else self._probe(path)

    async def _open_socket(
        self, upgrade: Upgrade | None, request: Request, path: str, query: str
    ) -> web.StreamResponse:
        """``upgrade`` is None if a proxy has removed the header that asks for it."""
        request.kind = "websocket"
        try:
            if upgrade is None:
                raise Refusal(UPGRADE_MISSING)
            passkey = socket_passkey(path, query, self.passkey_forms)
            return await upgrade(request, self._address(request, None), passkey)
        except Refusal as error:
            self.tracker.refused(error.label)
            return forbidden(str(error))

    def _probe(self, path: str) -> Answer:
        """/health and /ready, for supervisors and load balancers; not counted."""
        if path == _HEALTH:
            return Answer(b"alive\n")
        if path != _READY:
            return Answer(_NOT_FOUND, status=404)
        problems = self._problems()
        if problems:
            return Answer("".join(f"{problem}\n" for problem in problems).encode(), status=503)
        return Answer(ready_text(self._notices()).encode())

    async def _announce(self, request: Request, query: bytes, passkey: str | None) -> Answer:
        announce = parse_announce(query)
        if self.http.keep_user_agents:
            announce = with_agent(announce, user_agent_of(request.headers))
        address = self._address(request, announce.stated_address)
        try:
            reply = await self.tracker.announce(announce, passkey, address)
        except Refusal as error:
            return self._fail(request, error)
        return Answer(encode_announce(reply, announce))

    async def _scrape(self, request: Request, query: bytes, passkey: str | None) -> Answer:
        scrape = parse_scrape(query, self.max_scrape)
        address = self._address(request, None)
        try:
            reply = await self.tracker.scrape(scrape, passkey, address)
        except Refusal as error:
            return self._fail(request, error)
        return Answer(encode_scrape(reply) if scrape.info_hashes else await self._encode_full(reply))

    async def _encode_full(self, reply: ScrapeReply) -> bytes:
        """Encodes a full scrape once, one at a time; the event loop runs between its parts."""
        async with self._encoding:
            if reply not in self._full_scrapes:
                parts = []
                for part in encode_scrape_parts(reply):
                    parts.append(part)
                    await asyncio.sleep(0)
                self._full_scrapes[reply] = b"".join(parts)
            return self._full_scrapes[reply]

    def _fail(self, request: Request, error: Refusal) -> Answer:
        """The answer to a refusal. Rate-limited drops close the connection; "busy" answers close it after the answer.
        Connections of trusted proxies stay open, because many clients share them."""
        connection = cast(ProxiedConnection, request.protocol)
        if isinstance(error, SilentlyDropped) and not connection.trusted and request.transport is not None:
            request.transport.abort()
            return Answer(b"", close=True)
        return Answer(self.failure(error), close=isinstance(error, Busy) and not connection.trusted)

    def _address(self, request: Request, stated: Address | None) -> Address:
        """The client's address; ``stated`` is the ``ip`` parameter. A proxy may state an address only where its headers
        name no client. Otherwise any client behind it could direct peers to any address."""
        connection, headers = cast(ProxiedConnection, request.protocol), request.headers
        forwarded_for = headers.getall("X-Forwarded-For", ()) if connection.trusted else ()
        forwarded = headers.getall("Forwarded", ()) if connection.trusted else ()
        trusted = connection.trusted and not (connection.named and not forwarded_for and not forwarded)
        request.client = self.client_address(connection.address, trusted, forwarded_for, forwarded, stated)
        return request.client

    def client_address(
        self,
        address: Address,
        trusted: bool,
        forwarded_for: Sequence[str],
        forwarded: Sequence[str],
        stated: Address | None,
    ) -> Address:
        """The same, for a connection from ``address``. Raises Refusal when the address is unknown."""
        if trusted:
            address = named_client(address, forwarded_for, forwarded, self.proxies)
        if stated is not None and (
            (trusted and address in self.proxies)
            or (self._ip_from_private and address != NO_ADDRESS and not is_routable(address))
        ):
            address = stated
        if address == NO_ADDRESS:
            raise Refusal(ADDRESS_HIDDEN)
        if not is_of_a_host(address):
            raise Refusal(ADDRESS_IMPOSSIBLE)
        return address

    def _other_method(self, request: Request) -> Answer:
        if request.method == "HEAD":
            request.kind = "head"
            not_ready = request.raw_path.partition("?")[0] == _READY and bool(self._problems())
            return Answer(b"", status=503 if not_ready else 200)
        cast(ProxiedConnection, request.protocol).close()  # discards a body
        return Answer(self.refusal(Refusal("announce and scrape are GET requests")), close=True)

    def malformed(self, error: BaseException | None) -> Answer:
        """The answer to what aiohttp refused before a handler ran. It closes the connection."""
        if isinstance(error, ProxyMismatch) and (text := str(error)) not in self._mismatches:
            self._mismatches.add(text)
            value = self.http.proxy_protocol
            log.warning(text, setting="TRACKER_HTTP__PROXY_PROTOCOL", value=value)
        return Answer(self.refusal(explain(error, self.http)), close=True)

    def crash(self, error: BaseException | None) -> bytes:
        """Logs and counts an internal error; returns the failure to send."""
        log.error("a request failed", **describe(error))
        return self.refusal(Refusal("internal error"))

    def refusal(self, error: Refusal, kind: str = "other") -> bytes:
        """Counts a request that was refused before a decision; returns the failure to send."""
        self.tracker.refused(error.label, kind)
        return self.failure(error)

    def failure(self, error: Refusal) -> bytes:
        """Its intervals are short where the client may retry soon. libtorrent obeys these two and ignores ``retry in``.
        With the usual interval after a short outage of the store, its peers would return after they have timed out."""
        announce, retry_in, seconds = self._settings.current.announce, error.retry_in, error.interval_seconds
        interval = announce.interval_seconds
        if seconds is None:
            if retry_in == "never":
                return encode_failure(error, interval, min(interval, announce.min_interval_seconds))
            seconds = 60 * retry_in
        interval = min(interval, seconds)
        return encode_failure(error, interval, interval)


def explain(error: BaseException | None, http: HttpSettings) -> Refusal:
    """The failure for a request that aiohttp's parser refused."""
    text = "malformed HTTP request"
    if isinstance(error, ProxyMismatch):
        text = str(error)
    elif isinstance(error, LineTooLong) and error.args[1] == http.max_header_bytes:
        text = "a header line of the request is too long"
    elif isinstance(error, LineTooLong):
        text = "GET string too long: scrape fewer torrents at once"
    elif isinstance(error, InvalidURLError):
        text = "malformed URL: every byte of info_hash and peer_id must be percent-encoded"
    elif isinstance(error, BadHttpMethod):
        text = "not an HTTP request: check the scheme and port of the announce URL"
    elif isinstance(error, BadStatusLine):
        text = "malformed request line: spaces in the URL must be percent-encoded"
    elif isinstance(error, HttpProcessingError) and error.message.startswith("Missing 'Host'"):
        text = "an HTTP/1.1 request needs a Host header"
    elif isinstance(error, HttpProcessingError) and error.message.startswith("Too many headers"):
        text = "the request has too many header lines"
    return Refusal(text)
