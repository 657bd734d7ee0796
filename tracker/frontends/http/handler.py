"""The front end of HTTP: a request in, an answer out; announce and scrape (BEP 3, BEP 48) without a router.

Clients ignore the body of anything but a 200, so every refusal is a 200 with a bencoded ``failure
reason``; that goes for unknown paths around /announce, for methods other than GET, and for what
aiohttp refuses before a handler runs (connection.py). The query stays bytes throughout: text would
ruin binary hashes. Nothing a client sends is logged.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import unquote_to_bytes

import structlog
from aiohttp.http_exceptions import (
    BadHttpMethod,
    BadStatusLine,
    HttpProcessingError,
    InvalidURLError,
    LineTooLong,
)

from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeReply, is_routable
from tracker.errors import Busy, ClientError, Dropped, RetryIn
from tracker.frontends.connection import NO_ADDRESS, Connection, Rules, describe
from tracker.frontends.exchange import Answer, Request
from tracker.settings import AnnounceSettings, HttpSettings
from tracker.wire.compact import pack_address
from tracker.wire.http import encode_announce, encode_failure, encode_scrape
from tracker.wire.proxy import TrustedNetworks, client_address
from tracker.wire.query import parse_announce, parse_scrape

_INDEX = (
    b"This is a BitTorrent tracker. Its announce path is /announce, or /<passkey>/announce with a passkey.\n"
)
_NOT_FOUND = b"There is nothing here. The announce path of this tracker is /announce.\n"
_HEALTH, _READY = "/health", "/ready"
_PASSKEY = re.compile(r"[A-Za-z0-9._~=+-]{1,128}")

log = structlog.get_logger()


class Tracker(Protocol):
    """The decisions, as far as this front end needs them. Both coroutines raise only ClientError."""

    def submit(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        answer: Callable[[AnnounceReply | ClientError], None],
    ) -> bool:
        """As announce, by a callback; False, and nothing done, when it would have to ask somebody first."""

    def submit_scrape(
        self,
        scrape: Scrape,
        passkey: str | None,
        address: Address,
        answer: Callable[[ScrapeReply | ClientError], None],
    ) -> bool:
        """As scrape, by a callback; False, and nothing done, when it would take long."""

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply: ...

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply: ...

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        """Count requests that never reached a decision; ``kind`` is announces, scrapes or other."""


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
    """The handler of aiohttp's requests, and for those of the door (door.py) whom they count for and how to refuse them."""

    def __init__(
        self,
        tracker: Tracker,
        http: HttpSettings,
        announce: AnnounceSettings,
        max_scrape: int,
        problems: Problems = no_problems,
    ) -> None:
        self.tracker = tracker
        self._problems = problems
        self._announce = announce
        self.max_scrape = max_scrape
        self._proxies = Proxies(http.trusted_proxies)
        self._ip_from_private = http.ip_parameter_from_private
        self.rules = Rules(http, self._proxies, malformed=self.malformed, crashed=self.crashed)

    def go_by(self, tracker: Tracker, announce: AnnounceSettings, max_scrape: int) -> None:
        """From the next request on."""
        self.tracker, self._announce, self.max_scrape = tracker, announce, max_scrape

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
            reply = await self.tracker.announce(announce, passkey, address)
        except ClientError as error:
            return self._told(request, error)
        return Answer(encode_announce(reply, compact=announce.compact, no_peer_id=announce.no_peer_id))

    async def _scraped(self, request: Request, query: str, passkey: str | None) -> Answer:
        scrape = parse_scrape(query.encode("utf-8", "surrogateescape"), self.max_scrape)
        address = self._address(request, None)
        try:
            reply = await self.tracker.scrape(scrape, passkey, address)
        except ClientError as error:
            return self._told(request, error)
        return Answer(encode_scrape(reply))

    def _told(self, request: Request, error: ClientError) -> Answer:
        """What a limit drops is not told, and whoever finds it busy told for the last time. A proxy's connections are shared, and one that is cut off would count against us."""
        connection = cast(Connection, request.protocol)
        if isinstance(error, Dropped) and not connection.trusted and request.transport is not None:
            request.transport.abort()
            return Answer(b"", close=True)
        return Answer(self.failure(error), close=isinstance(error, Busy) and not connection.trusted)

    def _address(self, request: Request, stated: Address | None) -> Address:
        """The address a request is credited to; ``stated`` is its ``ip`` parameter.

        A proxy may state an address for itself only, that is when its headers name no client behind
        it: else everybody behind it could have peers sent wherever they like.
        """
        connection, headers = cast(Connection, request.protocol), request.headers
        request.client = self.credited(
            connection.address,
            connection.trusted,
            headers.getall("X-Forwarded-For", ()) if connection.trusted else (),
            headers.getall("Forwarded", ()) if connection.trusted else (),
            stated,
        )
        return request.client

    def credited(
        self,
        address: Address,
        trusted: bool,
        forwarded_for: Sequence[str],
        forwarded: Sequence[str],
        stated: Address | None,
    ) -> Address:
        """The same, for a connection from ``address``. Raises ClientError where there is none."""
        if trusted:
            address = client_address(address, forwarded_for, forwarded, self._proxies)
        if stated is not None and self._may_state(trusted, address):
            address = stated
        if address == NO_ADDRESS:
            raise ClientError("the tracker cannot see your address: its proxy must send X-Forwarded-For")
        return address

    def is_proxy(self, end: Any) -> bool:
        """Whether the other end of a socket, as the socket gives it, is trusted; on a unix socket everybody is, or nobody."""
        if not isinstance(end, tuple):
            return True
        address = pack_address(end[0].partition("%")[0]) if self._proxies else None
        return address is not None and address in self._proxies

    def _may_state(self, trusted: bool, address: Address) -> bool:
        if trusted and address in self._proxies:
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
        answer = Answer(self.crash(error))
        answer.force_close()
        return answer

    def crash(self, error: BaseException | None) -> bytes:
        """Logs and counts a mistake of ours; what the client is told."""
        log.error("a request failed", **describe(error))
        return self.refusal(ClientError("internal error", retry_in=5))

    def _refuse(self, error: ClientError, kind: str = "other") -> Answer:
        return Answer(self.refusal(error, kind))

    def refusal(self, error: ClientError, kind: str = "other") -> bytes:
        """Counts a request that was refused before it came to a decision; what the client is told."""
        self.tracker.refused(error.label, kind)
        return self.failure(error)

    def failure(self, error: ClientError) -> bytes:
        interval, least = self._intervals(error.retry_in)
        return encode_failure(
            error.text, retry_in=error.retry_in, interval_seconds=interval, min_interval_seconds=least
        )

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
