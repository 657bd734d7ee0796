"""The first protocol of every connection: it answers plain announces and scrapes itself, and hands on all else to aiohttp.

Why there are two: of what an announce cost in this process, more than half was aiohttp's share. It has to be ready for bodies,
chunks, upgrades, streams, and handlers that take their time, so every request gets dictionaries, a message, a stream and
a task. An announce needs none of it, nor a scrape: it is one GET that arrives in one piece and is answered in one. So the door takes
exactly that, a whole head whose lines aiohttp's own parser has found plain (heads.py) and a query of visible ASCII. At the
first byte of anything else the connection is aiohttp's for good, with all that was read so far (connection.py). Time-outs,
half-closed connections, clients that do not read, and the graceful stop are the same on both sides.
"""

import asyncio
import re
import time
from typing import cast

from tracker.bittorrent import Announce, AnnounceReply, Scrape, ScrapeReply
from tracker.errors import Busy, ClientError, Dropped
from tracker.frontends.connection import other_end
from tracker.frontends.doors import Doors
from tracker.frontends.exchange import answer_head
from tracker.frontends.heads import Head
from tracker.wire.http import encode_announce, encode_scrape
from tracker.wire.query import VISIBLE, parse_announce, parse_scrape, parse_usual

_OPEN = {b"GET /announce": True, b"GET /scrape": False}
"""Paths without a passkey, and whether they are those of announces."""
_PRIVATE = re.compile(rb"GET /([A-Za-z0-9._~=+-]{1,128})/(announce|scrape)").fullmatch
_BEGUN = re.compile(rb"(?:G|GE|GET|GET |GET /[^\r\n]*(?:\r\n[^\r\n]+)*(?:\r|\r\n\r?)?)").fullmatch
"""The beginning of a head, with line ends as they should be, up to before the empty line."""
_LAST = Head(answer_head(200, version11=True, keep_alive=False), keep_alive=False)
"""To be answered once, and then no more."""
_MOST_EARLY = 65536
"""Bytes that may come ahead of an answer: hundreds of requests."""


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
        "until",
    )

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._asked: Announce | Scrape | None = None
        self._early = b""
        self._full = False
        self._last = False
        self._cut: asyncio.TimerHandle | None = None
        self.until = doors.crowd.now + doors.crowd.head_sweeps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        doors = self._doors
        self._pipe = cast(asyncio.Transport, transport)
        self._client, self._trusted = other_end(transport, doors.front.rules.trusted)
        if not doors.crowd.enter(self, self._client, trusted=self._trusted):
            self._pipe.abort()
            return
        if doors.gate is not None:
            doors.gate.entered()
        if doors.crowd.closing:
            transport.close()
        elif not doors.ajar or (self._trusted and doors.settings.proxy_protocol):
            self._hand_over(b"")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._doors.crowd.leave(self)
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
                assert isinstance(asked, Announce)
                body = encode_announce(reply, compact=asked.compact, no_peer_id=asked.no_peer_id)
            elif isinstance(reply, ClientError):
                if isinstance(reply, Dropped) and not self._trusted:
                    self._pipe.abort()
                    return
                if isinstance(reply, Busy) and not self._trusted:
                    self._head = _LAST
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
        self.until = doors.crowd.now + doors.crowd.idle_sweeps
        if doors.log_request is not None:
            kind, began, client = self._began
            doors.log_request(kind, 200, time.perf_counter() - began, client)
        if not head.keep_alive:
            pipe.close()
        elif self._early:
            self._hand_over(b"")
        elif self._last or doors.heads.leaving:
            pipe.close()

    def _crashed(self, error: Exception) -> None:
        self._asked, self._early = None, b""
        self._head = _LAST
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
            crowd = self._doors.crowd
            self.until = min(self.until, crowd.now + crowd.head_sweeps)
        else:
            self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        """The connection is aiohttp's from here on."""
        pipe, early = self._pipe, self._early
        connection = self._doors.server()
        connection.address, connection.trusted = self._client, self._trusted
        connection.until = min(connection.until, self.until)  # of a head that began here
        self._doors.crowd.replace(self, connection)
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

    @property
    def fresh(self) -> bool:
        return self._asked is None and not hasattr(self, "_head")

    @property
    def idle(self) -> bool:
        return self._asked is None

    def wind_up(self) -> None:
        if self._asked is None:
            self._pipe.close()
        else:
            self._last = True

    def cut_off(self) -> None:
        self._pipe.abort()
