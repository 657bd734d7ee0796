"""The first protocol of every connection: it answers plain announces and scrapes itself, and hands on all else to aiohttp.

Why there are two: of what an announce cost in this process, more than half was aiohttp's share. It has to be ready for bodies,
chunks, upgrades, streams, and handlers that take their time, so every request gets dictionaries, a message, a stream and
a task. An announce needs none of it, nor a scrape: it is one GET that arrives in one piece and is answered in one. So the door takes
exactly that, a whole head whose lines aiohttp's own parser has found plain (heads.py) and a query of visible ASCII. At the
first byte of anything else the connection is aiohttp's for good, with all that was read so far (connection.py). Time-outs,
half-closed connections, clients that do not read, and the graceful stop are the same on both sides.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from typing import cast

import structlog

from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeReply
from tracker.errors import ClientError
from tracker.frontends.connection import Server, other_end
from tracker.frontends.exchange import answer_head
from tracker.frontends.front import FrontEnd
from tracker.frontends.gate import Gate
from tracker.frontends.heads import Head, Heads
from tracker.wire.http import encode_announce, encode_scrape
from tracker.wire.query import VISIBLE, parse_announce, parse_scrape, parse_usual

_OPEN = {b"GET /announce": True, b"GET /scrape": False}
"""Paths without a passkey, and whether they are those of announces."""
_PRIVATE = re.compile(rb"GET /([A-Za-z0-9._~=+-]{1,128})/(announce|scrape)").fullmatch
_BEGUN = re.compile(rb"(?:G|GE|GET|GET |GET /[^\r\n]*(?:\r\n[^\r\n]+)*(?:\r|\r\n\r?)?)").fullmatch
"""The beginning of a head, with line ends as they should be, up to before the empty line."""
_LONGEST = 8192
"""Bytes of a request that the door waits for, or answers."""
_MOST_EARLY = 65536
"""Bytes that may come ahead of an answer: hundreds of requests."""
_SWEEPS = 4
"""How often idle connections are looked for within the time that one may be idle."""

log = structlog.get_logger()

LogRequest = Callable[[str, int, float, Address], None]
"""(kind, status, seconds, client)"""


class Doors:
    """Makes the door of each connection, and looks after those that are not aiohttp's.

    ``log_request`` hears of every request answered here. When not ``ajar`` all connections are aiohttp's from the start.
    """

    def __init__(
        self, front: FrontEnd, server: Server, log_request: LogRequest | None = None, *, ajar: bool = True
    ) -> None:
        self.front = front
        self.tracker = front.tracker
        self.server = server
        self.log_request = log_request
        self.ajar = ajar
        self.settings = front.rules.settings
        self.longest = min(_LONGEST, self.settings.max_request_line_bytes)  # aiohttp refuses what is longer
        self.heads = Heads(self.settings)
        self.gate: Gate | None = None
        self.sweeps = 0
        self.here: set[Door] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None

    def __call__(self) -> "Door":
        return Door(self)

    @property
    def open(self) -> int:
        """Connections that are open here."""
        return len(self.here)

    def leave(self, door: "Door") -> None:
        self.here.discard(door)
        if self._empty is not None and not self.here:
            self._empty.set()

    def sweep(self) -> None:
        """Closes who was idle, or in the middle of a request, for too long; and again in a while, until stopped.

        One timer for all: an own one for each request would cost as much as reading it.
        """
        for door in [door for door in self.here if self.sweeps - door.since > _SWEEPS]:
            door.give_up()
        self.sweeps += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.settings.keepalive_seconds / _SWEEPS, self.sweep)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def drain(self, seconds: float) -> None:
        """Close idle connections, answer what is in flight, cut off what is left after ``seconds``."""
        self._empty = asyncio.Event()
        for door in list(self.here):
            door.wind_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self.here:
                    await self._empty.wait()
        if self.here:
            log.warning("cut off connections that did not finish", connections=self.open)
        for door in list(self.here):
            door.cut_off()

    @property
    def closing(self) -> bool:
        return self._empty is not None


class Door(asyncio.Protocol):
    """One connection, for as long as nothing but plain announces and scrapes come in. See the head of this module."""

    __slots__ = (
        "_asked",
        "_began",
        "_client",
        "_cut",
        "_doors",
        "_early",
        "_full",
        "_head",
        "_last",
        "_pipe",
        "_trusted",
        "since",
    )

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._asked: Announce | Scrape | None = None
        self._early = b""
        self._full = False
        self._last = False
        self._cut: asyncio.TimerHandle | None = None
        self.since = doors.sweeps
        """The sweep after which it began, or was answered last."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        doors = self._doors
        self._pipe = cast(asyncio.Transport, transport)
        self._client, self._trusted = other_end(transport, doors.front.rules.trusted)
        doors.here.add(self)
        if doors.gate is not None:
            doors.gate.entered()
        if doors.closing:
            transport.close()
        elif not doors.ajar or (self._trusted and doors.settings.proxy_protocol):
            self._hand_over(b"")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._doors.leave(self)
        if self._cut is not None:
            self._cut.cancel()

    def data_received(self, data: bytes) -> None:
        if self._asked is not None:  # ahead of its answer: it waits, and what follows stays in the socket
            self._early += data
            self._pipe.pause_reading()
            if len(self._early) > _MOST_EARLY:
                self._pipe.abort()
            return
        if self._early:
            data, self._early = self._early + data, b""
        doors = self._doors
        target, _, lines = data.partition(b" HTTP/1.")
        head = doors.heads.known.get(lines) or self._read(lines)
        path, _, query = target.partition(b"?")
        if head is None or not query or len(data) > doors.longest:
            self._otherwise(data)
            return
        passkey, announcing = None, _OPEN.get(path)
        if announcing is None:
            private = _PRIVATE(path)
            if private is None:
                self._otherwise(data)
                return
            passkey, announcing = private[1].decode(), private[2] == b"announce"
        self._head = head
        if doors.log_request is not None:
            self._began = "announce" if announcing else "scrape", time.perf_counter(), self._client
        try:
            submit = self._submit_announce if announcing else self._submit_scrape
            if not submit(query, head, passkey):
                self._asked = None
                self._hand_over(data)
        except ClientError as error:
            self._respond(doors.front.refusal(error, "announces" if announcing else "scrapes"))
        except Exception as error:  # noqa: BLE001  # as aiohttp does for its handlers
            self._crashed(error)

    def _submit_announce(self, query: bytes, head: Head, passkey: str | None) -> bool:
        """Hands an announce to the decisions; False when it or they need more time than there is here."""
        announce = parse_usual(query)
        if announce is None:
            if query.translate(None, VISIBLE):  # in which the two servers of the port might see two things
                return False
            announce = parse_announce(query)
        address, stated = self._client, announce.stated_address
        if self._trusted or stated is not None or not address:
            front = self._doors.front
            address = front.credited(address, self._trusted, head.forwarded_for, head.forwarded, stated)
        if self._doors.log_request is not None:
            self._began = (*self._began[:2], address)
        self._asked = announce
        return self._doors.tracker.submit(announce, passkey, address, self._answered)

    def _submit_scrape(self, query: bytes, head: Head, passkey: str | None) -> bool:
        doors = self._doors
        if query.translate(None, VISIBLE):
            return False
        scrape = parse_scrape(query, doors.front.max_scrape)
        address = doors.front.credited(self._client, self._trusted, head.forwarded_for, head.forwarded, None)
        if doors.log_request is not None:
            self._began = (*self._began[:2], address)
        self._asked = scrape
        return doors.tracker.submit_scrape(scrape, passkey, address, self._answered)

    def _answered(self, reply: AnnounceReply | ScrapeReply | ClientError) -> None:
        asked, self._asked = self._asked, None
        try:
            if isinstance(reply, AnnounceReply):
                announce = cast(Announce, asked)
                body = encode_announce(reply, compact=announce.compact, no_peer_id=announce.no_peer_id)
            elif isinstance(reply, ClientError):
                body = self._doors.front.failure(reply)
            else:
                body = encode_scrape(reply)
            self._respond(body)
        except Exception as error:  # noqa: BLE001  # the other requests of the batch are not to blame
            self._crashed(error)

    def _respond(self, body: bytes) -> None:
        pipe, head, doors = self._pipe, self._head, self._doors
        if pipe.is_closing():
            return
        pipe.write(b"%b%d\r\n\r\n%b" % (head.answer, len(body), body))
        self.since = doors.sweeps
        if doors.log_request is not None:
            kind, began, client = self._began
            doors.log_request(kind, 200, time.perf_counter() - began, client)
        if not head.keep_alive:
            pipe.close()
        elif self._early:
            self._hand_over(b"")
        elif self._last:
            pipe.close()

    def _crashed(self, error: Exception) -> None:
        self._asked, self._early = None, b""
        self._head = Head(answer_head(200, version11=True, keep_alive=False), keep_alive=False)
        self._respond(self._doors.front.crash(error))

    def _read(self, lines: bytes) -> Head | None:
        """A head that is not known. Those of proxies differ from client to client, so they are not remembered."""
        if not lines.endswith(b"\r\n\r\n") or len(lines) > self._doors.longest:
            return None
        heads = self._doors.heads
        return heads.read(lines) if self._trusted else heads.learn(lines)

    def _otherwise(self, data: bytes) -> None:
        """Something incomplete that may become an announce, or anything else."""
        if len(data) <= self._doors.longest and _BEGUN(data):
            self._early = data
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        """The connection is aiohttp's from here on."""
        pipe, early = self._pipe, self._early
        connection = self._doors.server()
        connection.address, connection.trusted = self._client, self._trusted
        self._doors.leave(self)
        pipe.set_protocol(connection)
        connection.connection_made(pipe)
        if self._full:  # which a transport tells once, and only who is there when it happens
            connection.pause_writing()
        if early:
            pipe.resume_reading()
        if early or data:
            connection.data_received(data + early)
        if self._last and not connection.eof_received():
            pipe.close()

    def eof_received(self) -> bool:
        """A client may close its sending side and still wait for its answer, for a while."""
        if self._asked is None:
            return False
        self._last = True
        seconds = self._doors.settings.half_close_seconds
        self._cut = asyncio.get_running_loop().call_later(seconds, self._pipe.abort)
        return True

    def pause_writing(self) -> None:
        """The client does not read its answers: it may not ask for more, and is given up like an idle one."""
        self._full = True
        self._pipe.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if not self._early:
            self._pipe.resume_reading()

    def give_up(self) -> None:
        """Nothing came for too long, or not enough of it."""
        if self._asked is None:
            self._pipe.abort()

    def wind_up(self) -> None:
        """Answer what was asked and close; at once when nothing was."""
        if self._asked is None:
            self._pipe.close()
        else:
            self._last = True

    def cut_off(self) -> None:
        self._pipe.abort()
