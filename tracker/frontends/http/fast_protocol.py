"""The first protocol of every connection: answers plain announces and scrapes, and hands all else over to aiohttp.

aiohttp took more than half of an announce's CPU time, so plain announces bypass it. It has to support bodies, chunks,
upgrades and streams, so it makes dictionaries, a message, a stream and a task for every request. An announce is one GET
that arrives in one piece and is answered in one piece.

This protocol handles exactly that: a complete head whose lines aiohttp's own parser has found plain (request_heads.py),
and a query of visible ASCII. At the first byte of anything else the connection passes to aiohttp for good, with all
bytes read so far (aiohttp_protocol.py). Timeouts, half-closed connections, clients that do not read, and the graceful
stop are the same in both protocols.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

from tracker.bittorrent import Address, Announce, Reply, Scrape, ScrapeReply, with_agent
from tracker.frontends.http.aiohttp_messages import answer_head
from tracker.frontends.http.aiohttp_protocol import Server
from tracker.frontends.http.direct_transport import DirectTransport
from tracker.frontends.http.handler import HttpHandler
from tracker.frontends.http.request_heads import ParsedHead, RequestHeadCache
from tracker.refusals import Busy, Refusal, SilentlyDropped
from tracker.system.aiohttp_connection import with_host
from tracker.wire.announce_path import PASSKEY_PARAMETER
from tracker.wire.http_reply import encode_announce, encode_scrape
from tracker.wire.http_request import VISIBLE, parse_announce, parse_scrape, parse_usual

_OPEN = {b"GET /announce": True, b"GET /scrape": False}
"""Paths without a passkey: True for announces."""
_OPEN_PHP = {b"GET /announce.php": True, b"GET /scrape.php": False}
"""The same, where the query may carry a passkey."""
_BEFORE = re.compile(rb"GET /([A-Za-z0-9._~=+-]{1,128})/(announce|scrape)").fullmatch
_AFTER = re.compile(rb"GET /(announce|scrape)/(?!(?:announce|scrape)\.php$)([A-Za-z0-9._~=+-]{1,128})").fullmatch
_PARAMETER = PASSKEY_PARAMETER.encode()
_FIRST_PARAMETER = re.compile(rb"passkey=([A-Za-z0-9._~-]{1,128})[&?](.+)", re.DOTALL).fullmatch
"""Clients append their parameters to the query of the announce URL, some after a second ``?``."""
_INCOMPLETE = re.compile(rb"(?:G|GE|GET|GET |GET /[^\r\n]*(?:\r\n[^\r\n]+)*(?:\r|\r\n\r?)?)").fullmatch
"""The start of a head with correct line ends, without its empty line."""
_LAST = ParsedHead(answer_head(200, version11=True, keep_alive=False), keep_alive=False)
"""The head of the last answer of a connection."""
_MAX_EARLY_BYTES = 65536
"""Bytes that a client may send before it has its answer: hundreds of requests."""
_MAX_REQUEST_BYTES = 8192
"""Bytes of a request that this protocol waits for, or answers."""

LogRequest = Callable[[str, int, float, Address], None]
"""(kind, status, seconds, client)"""


class FastHttpServer:
    """The state that all connections of a server share. ``log_request`` is called for every request answered here.
    Without ``fast_path`` every connection passes to aiohttp at once."""

    def __init__(
        self,
        handler: HttpHandler,
        aiohttp_server: Server,
        log_request: LogRequest | None = None,
        *,
        fast_path: bool = True,
    ) -> None:
        self.handler = handler
        self.tracker = handler.tracker
        self.aiohttp_server = aiohttp_server
        self.table = aiohttp_server.table
        self.log_request = log_request
        self.fast_path = fast_path
        self.settings = handler.http
        _, self._reads_after, self._reads_parameter = handler.passkey_forms
        # Where a query may carry a passkey, a path alone does not tell whether the request has one.
        self.open_paths: dict[bytes, bool] = {} if self._reads_parameter else _OPEN
        self._open = _OPEN | _OPEN_PHP if self._reads_parameter else _OPEN
        # aiohttp refuses longer requests.
        self.max_request_bytes = min(_MAX_REQUEST_BYTES, self.settings.max_request_line_bytes)
        self.heads = RequestHeadCache(self.settings)

    def close_after_answers(self) -> None:
        self.heads.stop()
        self.aiohttp_server.stopping = True

    def is_single(self, received: bytes) -> bool:
        """Whether these bytes end with a known head that asks to close the connection."""
        head = self.heads.known.get(received.partition(b" HTTP/1.")[2])
        return head is not None and not head.keep_alive

    def find_route(self, path: bytes, query: bytes) -> tuple[str | None, bool, bytes] | None:
        """(passkey, whether it is an announce, the query without the passkey); None where aiohttp's handler decides.
        For all but ``/<passkey>/announce`` and ``/<passkey>/scrape`` without ``passkey=`` in the query."""
        announcing = self._open.get(path)
        if _PARAMETER in query:
            if self._reads_parameter:
                found = _FIRST_PARAMETER(query)
                if announcing is None or found is None or _PARAMETER in found[2]:
                    return None
                return found[1].decode(), announcing, found[2]
            if (found := _BEFORE(path)) is not None:
                return found[1].decode(), found[2] == b"announce", query
        if announcing is not None:
            return None, announcing, query
        found = _AFTER(path) if self._reads_after else None
        return None if found is None else (found[2].decode(), found[1] == b"announce", query)


class FastHttpProtocol(asyncio.Protocol):
    """A connection that has sent only plain announces and scrapes so far. See the head of this module. ``received`` has
    been read from it already."""

    __slots__ = (
        "_began",
        "_client",
        "_early",
        "_full",
        "_half_closed",
        "_head",
        "_last",
        "_needs_head",
        "_pipe",
        "_request",
        "_server",
        "_trusted",
        "until",
    )

    def __init__(self, server: FastHttpServer, received: bytes = b"") -> None:
        self._server = server
        self._request: Announce | Scrape | None = None
        self._early = received
        self._full = False
        self._last = False
        self._half_closed: asyncio.TimerHandle | None = None
        self.until = server.table.now + server.table.head_sweeps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._pipe: asyncio.Transport = transport  # type: ignore[assignment]  # of a socket
        admitted = server.table.add(self, transport)
        if admitted is None:
            self._pipe.abort()
            return
        self._client, self._trusted = admitted
        self._needs_head = self._trusted or not self._client or server.settings.keep_user_agents
        self._pipe.set_write_buffer_limits(0)  # reports every byte that cannot leave at once
        if server.table.closing:
            transport.close()
        elif not server.fast_path or (self._trusted and server.settings.proxy_protocol):
            self._hand_over(b"")
        elif self._early:
            received, self._early = self._early, b""
            self.data_received(received)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.table.remove(self)
        if self._half_closed is not None:
            self._half_closed.cancel()

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            self._hold(data)
            return
        server = self._server
        if self._early:
            data, self._early = self._early + data, b""
            server.table.requests.release(self)
        target, _, lines = data.partition(b" HTTP/1.")
        head = server.heads.known.get(lines) or self._read(lines)
        path, _, query = target.partition(b"?")
        if head is None or not query or len(data) > server.max_request_bytes:
            self._wait_or_hand_over(data)
            return
        passkey, announcing = None, server.open_paths.get(path)
        if announcing is None:
            if query.partition(_PARAMETER)[1] or (found := _BEFORE(path)) is None:  # `in` takes four times as long
                route = server.find_route(path, query)
                if route is None:
                    self._wait_or_hand_over(data)
                    return
                passkey, announcing, query = route
            else:
                passkey, announcing = found[1].decode(), found[2] == b"announce"
        self._head = head
        if server.log_request is not None:
            self._began = "announce" if announcing else "scrape", time.perf_counter(), self._client
        try:
            if not (
                self._submit_announce(query, head, passkey) if announcing else self._submit_scrape(query, head, passkey)
            ):
                self._request = None
                self._hand_over(data)
        except Refusal as error:
            self._respond(server.handler.refusal(error, "announces" if announcing else "scrapes"))
        except Exception as error:  # noqa: BLE001  # as aiohttp does for its handlers
            self._answer_crash(error)

    def _hold(self, data: bytes) -> None:
        """Keeps bytes that came before the answer to the last request. Later ones stay in the socket."""
        self._early += data
        self._pipe.pause_reading()
        if len(self._early) > _MAX_EARLY_BYTES:
            self._pipe.abort()
        else:
            self._server.table.requests.hold(self, len(self._early))

    def _submit_announce(self, query: bytes, head: ParsedHead, passkey: str | None) -> bool:
        """Passes an announce to the tracker; False when aiohttp's handler must do it."""
        address, stated = self._client, None
        announce = parse_usual(query)
        if announce is None:
            if query.translate(None, VISIBLE):  # the two parsers of the port might read it differently
                return False
            announce = parse_announce(query)
            stated = announce.stated_address
        if self._needs_head or stated is not None:
            announce = with_agent(announce, head.user_agent)
            handler = self._server.handler
            address = handler.client_address(address, self._trusted, head.forwarded_for, head.forwarded, stated)
        if self._server.log_request is not None:
            self._began = (*self._began[:2], address)
        self._request = announce
        return self._server.tracker.submit(announce, passkey, address, self._on_reply)

    def _submit_scrape(self, query: bytes, head: ParsedHead, passkey: str | None) -> bool:
        server = self._server
        if query.translate(None, VISIBLE):
            return False
        scrape = parse_scrape(query, server.handler.max_scrape)
        address = server.handler.client_address(self._client, self._trusted, head.forwarded_for, head.forwarded, None)
        if server.log_request is not None:
            self._began = (*self._began[:2], address)
        self._request = scrape
        return server.tracker.submit_scrape(scrape, passkey, address, self._on_reply)

    def _on_reply(self, reply: Reply | ScrapeReply | Refusal) -> None:
        request: Any = self._request  # an announce for the reply to one
        self._request = None
        try:
            if isinstance(reply, tuple):
                body = encode_announce(reply, request)
            elif isinstance(reply, Refusal):
                if isinstance(reply, SilentlyDropped) and not self._trusted:
                    self._pipe.abort()
                    return
                if isinstance(reply, Busy) and not self._trusted:
                    self._head = _LAST
                body = self._server.handler.failure(reply)
            else:
                body = encode_scrape(reply)
            self._respond(body)
        except Exception as error:  # noqa: BLE001  # the other announces of the batch must be answered
            self._answer_crash(error)

    def _respond(self, body: bytes) -> None:
        pipe, head, server = self._pipe, self._head, self._server
        if pipe.is_closing():
            return
        pipe.write(b"%b%d\r\n\r\n%b" % (head.answer, len(body), body))
        self.until = server.table.now + server.table.idle_sweeps
        if server.log_request is not None:
            kind, began, client = self._began
            server.log_request(kind, 200, time.perf_counter() - began, client)
        if not head.keep_alive:
            pipe.close()
        elif self._early:
            self._hand_over(b"")
        elif self._last or server.heads.stopping:
            pipe.close()

    def _answer_crash(self, error: Exception) -> None:
        self._request, self._early = None, b""
        self._head = _LAST
        self._respond(self._server.handler.crash(error))

    def _read(self, lines: bytes) -> ParsedHead | None:
        """Parses a head that is not in the cache. A proxy's heads differ by client, so they are not cached."""
        if not lines.endswith(b"\r\n\r\n") or len(lines) > self._server.max_request_bytes:
            return None
        heads = self._server.heads
        return heads.read(with_host(lines)) if self._trusted else heads.read_and_cache(lines)

    def _wait_or_hand_over(self, data: bytes) -> None:
        """Waits for the rest of what may become an announce; hands anything else over."""
        if len(data) <= self._server.max_request_bytes and _INCOMPLETE(data):
            self._early = data
            table = self._server.table
            self.until = min(self.until, table.now + table.head_sweeps)
            table.requests.hold(self, len(data))
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        pipe, early = self._pipe, self._early
        if isinstance(pipe, DirectTransport):
            pipe.pass_on()  # with all that has been read
            return
        connection = self._server.aiohttp_server()
        connection.address, connection.trusted = self._client, self._trusted
        connection.until = min(connection.until, self.until)  # the head may have begun here
        self._server.table.replace(self, connection)
        pipe.set_protocol(connection)
        connection.connection_made(pipe)
        if self._full:  # a transport reports this once, to the protocol it has then
            connection.pause_writing()
        if early:
            pipe.resume_reading()
        if early or data:
            connection.data_received(data + early)
        if self._last and not connection.eof_received():
            pipe.close()

    def eof_received(self) -> bool:
        """The client has closed its sending side, and may still wait for its answer, for a limited time."""
        if self._request is None:
            return False
        self._last = True
        seconds = self._server.table.half_close_seconds
        self._half_closed = asyncio.get_running_loop().call_later(seconds, self._pipe.abort)
        return True

    def pause_writing(self) -> None:
        """The client does not read its answers: no more is read from it, and it times out like an idle one."""
        self._full = True
        self._pipe.pause_reading()
        self._server.table.answers.hold(self, self._pipe.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._full = False
        self._server.table.answers.release(self)
        if not self._early:
            self._pipe.resume_reading()

    @property
    def fresh(self) -> bool:
        return self._request is None and not hasattr(self, "_head")

    @property
    def idle(self) -> bool:
        return self._request is None

    def close_gracefully(self) -> None:
        if self._request is None:
            self._pipe.close()
        else:
            self._last = True

    def on_overdue(self) -> None:
        if self._request is None:
            self._pipe.abort()

    def abort(self) -> None:
        self._pipe.abort()
