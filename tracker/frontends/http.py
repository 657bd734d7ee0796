"""The HTTP front end: announce and scrape (BEP 3, BEP 48) over aiohttp, without a router.

Clients ignore the body of anything but a 200, so every refusal is a 200 with a bencoded ``failure
reason``; that goes for unknown paths around /announce, for methods other than GET, and for what
aiohttp refuses before a handler runs (connection.py). The query stays bytes throughout: text would
ruin binary hashes. Nothing a client sends is logged.
"""

import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol, cast
from urllib.parse import unquote_to_bytes

import structlog
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.http_exceptions import (
    BadHttpMethod,
    BadStatusLine,
    HttpProcessingError,
    InvalidURLError,
    LineTooLong,
)

from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeReply, is_routable
from tracker.errors import ClientError, RetryIn
from tracker.frontends.connection import NO_ADDRESS, Connection, Rules, Server, describe
from tracker.frontends.exchange import Answer, Request
from tracker.listeners import Listener, open_listeners
from tracker.settings import AnnounceSettings, HttpSettings
from tracker.wire.compact import format_address
from tracker.wire.http import encode_announce, encode_failure, encode_scrape
from tracker.wire.proxy import TrustedNetworks, client_address
from tracker.wire.query import parse_announce, parse_scrape

DRAIN_SECONDS = 7.0
"""How long requests in flight may take when the front end stops."""

_INDEX = (
    b"This is a BitTorrent tracker. Its announce path is /announce, or /<passkey>/announce with a passkey.\n"
)
_NOT_FOUND = b"There is nothing here. The announce path of this tracker is /announce.\n"
_HEALTH, _READY = "/health", "/ready"
_PASSKEY = re.compile(r"[A-Za-z0-9._~=+-]{1,128}")

log = structlog.get_logger()


class Tracker(Protocol):
    """The decisions, as far as this front end needs them. Both coroutines raise only ClientError."""

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply: ...

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply: ...

    def refused(self, label: str, kind: str = "other") -> None:
        """Count a request that never reached a decision; ``kind`` is announces, scrapes or other."""


Problems = Callable[[], Sequence[str]]
"""Why the tracker is not fit to serve, in texts for anybody; nothing when it is."""


def no_problems() -> Sequence[str]:
    return ()


class Route(NamedTuple):
    kind: str
    """announce, scrape, index or other."""
    passkey: str | None = None


_KINDS = {"announce": "announces", "scrape": "scrapes"}
_ROUTES = {"/announce": Route("announce"), "/scrape": Route("scrape")}


def find_route(path: str) -> Route:
    """What a request path (origin or absolute form, not decoded) asks for; ClientError for a near miss."""
    if not path.startswith("/"):
        path = path.partition("://")[2].partition("/")[2]
    segments = [_decode(segment) for segment in path.split("/") if segment]
    if not any(segment.lower().startswith(("announce", "scrape")) for segment in segments):
        return Route("other" if segments else "index")
    kind = segments.pop()
    if kind not in ("announce", "scrape") or len(segments) > 1:
        raise ClientError("no such path: announce to /announce or /<passkey>/announce", retry_in="never")
    if segments and not _PASSKEY.fullmatch(segments[0]):
        raise ClientError("the passkey in the announce URL is malformed", retry_in="never")
    return Route(kind, segments[0] if segments else None)


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment).decode("latin-1") if "%" in segment else segment


class Proxies(TrustedNetworks):
    """The trusted networks, and the peers on a unix socket, who have no address."""

    def __contains__(self, address: Address) -> bool:
        return address == NO_ADDRESS or super().__contains__(address)


class FrontEnd:
    """The one handler: a request in, an answer out."""

    def __init__(
        self,
        tracker: Tracker,
        http: HttpSettings,
        announce: AnnounceSettings,
        max_scrape: int,
        problems: Problems = no_problems,
    ) -> None:
        self._tracker = tracker
        self._problems = problems
        self._announce = announce
        self._max_scrape = max_scrape
        self._proxies = Proxies(http.trusted_proxies)
        self._ip_from_private = http.ip_parameter_from_private
        self.rules = Rules(http, self._proxies, malformed=self.malformed, crashed=self.crashed)

    async def handle(self, request: Request) -> Answer:
        if request.method != "GET":
            return self._other_method(request)
        path, _, query = request.raw_path.partition("?")
        try:
            route = _ROUTES.get(path) or find_route(path)
            request.kind = route.kind
            if route.kind == "announce":
                return await self._announced(request, query, route.passkey)
            if route.kind == "scrape":
                return await self._scraped(request, query, route.passkey)
        except ClientError as error:
            return self._refuse(error, _KINDS.get(request.kind, "other"))
        except TimeoutError as error:  # aiohttp would not say where it came from
            return self.crashed(error)
        return Answer(_INDEX) if route.kind == "index" else self._probed(path)

    def _probed(self, path: str) -> Answer:
        """/health and /ready, for those who start, stop and watch trackers; they count as nothing."""
        if path == _HEALTH:
            return Answer(b"alive\n")
        if path != _READY:
            return Answer(_NOT_FOUND, status=404)
        problems = self._problems()
        if problems:
            return Answer("".join(f"{problem}\n" for problem in problems).encode(), status=503)
        return Answer(b"ready\n")

    async def _announced(self, request: Request, query: str, passkey: str | None) -> Answer:
        if not query:
            raise ClientError(
                "this is a BitTorrent tracker: open this URL in a torrent client", retry_in="never"
            )
        announce = parse_announce(query.encode("utf-8", "surrogateescape"))
        address = self._address(request, announce.stated_address)
        try:
            reply = await self._tracker.announce(announce, passkey, address)
        except ClientError as error:
            return self._failure(error)
        return Answer(encode_announce(reply, compact=announce.compact, no_peer_id=announce.no_peer_id))

    async def _scraped(self, request: Request, query: str, passkey: str | None) -> Answer:
        scrape = parse_scrape(query.encode("utf-8", "surrogateescape"), self._max_scrape)
        address = self._address(request, None)
        try:
            reply = await self._tracker.scrape(scrape, passkey, address)
        except ClientError as error:
            return self._failure(error)
        return Answer(encode_scrape(reply))

    def _address(self, request: Request, stated: Address | None) -> Address:
        """The address a request is credited to; ``stated`` is its ``ip`` parameter.

        A proxy may state an address for itself only, that is when its headers name no client behind
        it: else everybody behind it could have peers sent wherever they like.
        """
        connection = cast(Connection, request.protocol)
        address = connection.address
        if connection.trusted:
            headers = request.headers
            forwarded_for = headers.getall("X-Forwarded-For", ())
            address = client_address(address, forwarded_for, headers.getall("Forwarded", ()), self._proxies)
        if stated is not None and self._may_state(connection, address):
            address = stated
        if address == NO_ADDRESS:
            raise ClientError("the tracker cannot see your address: its proxy must send X-Forwarded-For")
        request.client = address
        return address

    def _may_state(self, connection: Connection, address: Address) -> bool:
        if connection.trusted and address in self._proxies:
            return True
        return self._ip_from_private and address != NO_ADDRESS and not is_routable(address)

    def _other_method(self, request: Request) -> Answer:
        if request.method == "HEAD":
            request.kind = "head"
            unfit = request.raw_path.partition("?")[0] == _READY and bool(self._problems())
            return Answer(b"", status=503 if unfit else 200)
        cast(Connection, request.protocol).close()  # a body is thrown away unread
        answer = self._refuse(ClientError("announce and scrape are GET requests", retry_in="never"))
        answer.force_close()
        return answer

    def malformed(self, error: BaseException | None) -> Answer:
        answer = self._refuse(explain(error))
        answer.force_close()
        return answer

    def crashed(self, error: BaseException | None) -> Answer:
        log.error("a request failed", **describe(error))
        answer = self._refuse(ClientError("internal error", retry_in=5))
        answer.force_close()
        return answer

    def _refuse(self, error: ClientError, kind: str = "other") -> Answer:
        self._tracker.refused(error.label, kind)
        return self._failure(error)

    def _failure(self, error: ClientError) -> Answer:
        interval, least = self._intervals(error.retry_in)
        body = encode_failure(
            error.text, retry_in=error.retry_in, interval_seconds=interval, min_interval_seconds=least
        )
        return Answer(body)

    def _intervals(self, retry_in: RetryIn) -> tuple[int, int]:
        """(interval, min interval) of a failure, in seconds.

        libtorrent obeys these two and not ``retry in``: told the usual interval while the store was away
        for a moment, its peers would come back after they have been reaped.
        """
        interval = self._announce.interval_seconds
        if retry_in == "never":
            return interval, min(interval, self._announce.min_interval_seconds)
        soon = min(interval, 60 * retry_in)
        return soon, soon


def explain(error: BaseException | None) -> ClientError:
    """What to tell a client whose request aiohttp's parser refused."""
    text = "malformed HTTP request"
    if isinstance(error, LineTooLong):
        text = "the request is too long: scrape fewer torrents at once"
    elif isinstance(error, InvalidURLError):
        text = "malformed URL: every byte of info_hash and peer_id must be percent-encoded"
    elif isinstance(error, BadHttpMethod):
        text = "not an HTTP request: check the scheme and port of the announce URL"
    elif isinstance(error, BadStatusLine):
        text = "malformed request line: spaces in the URL must be percent-encoded"
    elif isinstance(error, HttpProcessingError) and error.message.startswith("Missing 'Host'"):
        text = "an HTTP/1.1 request needs a Host header"
    return ClientError(text, retry_in="never")


class AccessLog(AbstractAccessLogger):
    """One line per request; paths and queries stay out of it, for they hold passkeys."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        request = cast(Request, request)
        client = request.client or cast(Connection, request.protocol).address
        log.info(
            "request",
            kind=request.kind,
            status=response.status,
            milliseconds=round(time * 1000, 3),
            client=format_address(client) if client else None,
        )


@contextlib.asynccontextmanager
async def serve_http(
    tracker: Tracker,
    http: HttpSettings,
    announce: AnnounceSettings,
    *,
    max_scrape: int,
    listeners: Sequence[Listener] | None = None,
    problems: Problems = no_problems,
    show_open: Callable[[Callable[[], float]], None] | None = None,
) -> AsyncIterator[tuple[str, ...]]:
    """Serve until the block is left; gives the bound addresses, with real ports where 0 was asked for.

    Serves on ``listeners`` where they are open already, else on those that the settings name. ``problems`` says why
    the tracker is not ready, ``show_open`` is given what tells how many connections are open.

    Leaving it is the graceful stop: listeners close first, what is in flight is answered within 8
    seconds, idle connections are closed. Raises StartupError when an address cannot be had.
    """
    front = FrontEnd(tracker, http, announce, max_scrape, problems)
    access = {
        "access_log": logging.getLogger(__name__) if http.access_log else None,
        "access_log_class": AccessLog,
    }
    server = Server(front.handle, front.rules, **access)
    if show_open is not None:
        show_open(lambda: server.open)
    if listeners is None:
        listeners = await open_listeners(http.listen)
    if not http.trusted_proxies and any(listener.is_unix for listener in listeners):
        log.warning("nobody can announce over a unix socket until http.trusted_proxies names a proxy")
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            stack.callback(listener.close)
        stack.push_async_callback(server.drain, DRAIN_SECONDS)
        for listener in listeners:
            stack.callback((await listener.accept(server)).close)
        addresses = tuple(listener.address for listener in listeners)
        yield addresses
