"""Announces and scrapes over UDP (BEP 15): reads datagrams, passes requests to the tracker, and sends its replies.

A sender's address is proved by the connection id that it was sent there. Before that no limit counts a packet, and no
reply is longer than its request: anyone can send packets in the name of another address. What is spent on such packets
has a budget per process. Beyond it, and while a socket is behind, connects are answered by turns of addresses, and
other such packets are ignored. While its buffer is more than half full, connects are ignored too, so that it drops
nothing of proved senders. On sockets bound to all addresses control messages tell which address to answer from.
"""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import lru_cache, partial
from math import inf
from typing import cast

from tracker.bittorrent import Address, Announce, InfoHash, Reply, Scrape, ScrapeReply
from tracker.core.announce import Answer, Tracker
from tracker.refusals import Refusal, SilentlyDropped
from tracker.settings.model import LiveSettings
from tracker.system.aiohttp_connection import describe
from tracker.system.datagrams import Ancillary, DatagramSocket, reply_control
from tracker.system.event_loop import running
from tracker.system.logger import Logger
from tracker.token_bucket import TokenBucket
from tracker.wire.announce_path import PasskeyForms, passkey_in
from tracker.wire.connection_id import CONNECTION_ID_LENGTH, ConnectionIds
from tracker.wire.endpoint import format_address
from tracker.wire.proxy import Networks
from tracker.wire.udp import (
    ANNOUNCE_LENGTH,
    MAX_SCRAPE_HASHES,
    MAX_URL_LENGTH,
    encode_announce_reply,
    encode_connect_reply,
    encode_error,
    encode_scrape_reply,
    parse_announce,
    parse_options,
    parse_scrape,
    request_kind,
)

MAX_DATAGRAMS = 64
"""Datagrams that one socket reads in one turn of the event loop."""
MAX_BYTES = 2048
"""Longer datagrams are cut."""
CONNECTS_SECOND = 50_000
"""Connect requests that a process answers per second, which takes about half of its time."""
TURNS_SECOND = 30_000
"""Connect requests that it answers per second beyond that budget, or while a socket is behind: the first of an address
(IPv6: a /64) in each turn."""
FURTHER_SECOND = 5000
"""Further ones then: a client that starts with a thousand torrents sends as many."""
MAX_OF_ADDRESS = 1000
"""Connect requests of an address in a turn."""
TURN_SECONDS = 1.0
MAX_TURN = 10_000
"""Addresses of a turn; the next one begins when it is full."""
ERRORS_SECOND = 500
"""Errors per second to senders with an invalid connection id."""
MAX_LATE_SECONDS = 0.1
"""A socket that was not empty for longer is behind."""
MAX_FILL = 0.5
"""Connect requests are ignored while the buffer of a socket is fuller."""
MAX_LATER = 1000
"""Announces that may wait for the allow list."""
DRAIN_SECONDS = 5.0
"""How long requests in flight may take when the tracker stops."""
FLUSH_SECONDS = 1.0
_DRAIN_STEP_SECONDS = 0.01
_WRAP = 2**32
"""The system's count of dropped datagrams has 32 bits."""
_BURST_SECONDS = 0.1
_MAX_OPTIONS_LENGTH = MAX_URL_LENGTH + 88
_TRANSACTION = slice(12, 16)

_IGNORED = {kind: f"udp.ignored.{kind}" for kind in ("short", "action", "magic")}
"""Counters of packets that are no requests."""
_CRASHED = Refusal("internal error")
_EXPIRED = Refusal("connection id expired")

_pack_address = cast(Callable[[int, str], Address], socket.inet_pton)

log = Logger(__name__)

LaterAnnounce = tuple[Announce, str | None, Address, Answer]
"""(announce, passkey, address, reply callback)"""
Origin = tuple[bytes, tuple[str, int], Ancillary]
"""What a reply needs of its request: (transaction id, sender, control messages that choose the address it is from)."""


@dataclass(eq=False)
class UdpServer:
    """What the sockets of one process share. ``secret`` keys the connection ids. ``clock`` gives epoch seconds,
    ``timer`` seconds from any start."""

    tracker: Tracker
    settings: LiveSettings
    secret: InitVar[bytes]
    clock: Callable[[], float]
    timer: Callable[[], float]
    counts: Counter[str] = field(default_factory=Counter)
    """Events since the last ``flush``, by the name of their counter."""
    waiting: int = 0
    """Requests without an answer yet."""
    _later: "asyncio.Queue[LaterAnnounce]" = field(default_factory=asyncio.Queue)
    _later_number: int = 0
    """Announces that wait for the allow list."""
    _turn: dict[bytes, int] = field(default_factory=dict)
    """The number of answered connects in this turn, by address."""

    def __post_init__(self, secret: bytes) -> None:
        current = self.settings.current
        self.ids = ConnectionIds(secret)
        self.passkey_forms = current.users.passkey_forms
        self.accounts = self.passkey_forms.accounts
        self.proxies = Networks(current.http.trusted_proxies) or None
        self.logs_requests = current.http.access_log
        self._turn_ends = moment = self.timer()
        self.connects = TokenBucket(CONNECTS_SECOND, CONNECTS_SECOND * _BURST_SECONDS, moment)
        self._turns = TokenBucket(TURNS_SECOND, TURNS_SECOND, moment)
        self._further = TokenBucket(FURTHER_SECOND, FURTHER_SECOND, moment)
        self.errors = TokenBucket(ERRORS_SECOND, ERRORS_SECOND * _BURST_SECONDS, moment)

    def takes_connect(self, address: Address, moment: float, *, late: bool) -> bool:
        network = address[:8]
        if moment >= self._turn_ends or len(self._turn) >= MAX_TURN:
            self._turn.clear()
            self._turn_ends = moment + TURN_SECONDS
        number = self._turn.get(network, 0)
        beyond = late or not self.connects.take(moment)
        turns = self._further if number else self._turns
        if beyond and (number >= MAX_OF_ADDRESS or not turns.take(moment)):
            return False
        self._turn[network] = number + 1
        return True

    def announce_later(self, waiting: LaterAnnounce) -> bool:
        """Starts a task for an announce that needs the store to be read first; False if too many wait."""
        if self._later_number >= MAX_LATER:
            return False
        self._later_number += 1
        self._later.put_nowait(waiting)
        return True

    async def run_later(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._announce(*await self._later.get()))

    async def _announce(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> None:
        try:
            await self.tracker.submit_later(announce, passkey, address, answer)
        except Exception as error:  # noqa: BLE001  # an error of one request must not stop the others
            log.error("a request failed", **describe(error))
            self.tracker.refused(_CRASHED.label, "announces")
            answer(_CRASHED)
        self._later_number -= 1

    async def drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.waiting:
                    await asyncio.sleep(_DRAIN_STEP_SECONDS)


class UdpProtocol:
    """One socket."""

    def __init__(self, server: UdpServer, sock: DatagramSocket) -> None:
        self._server = server
        self._socket = sock.socket
        self._ipv6 = sock.ipv6
        self._family = socket.AF_INET6 if sock.ipv6 else socket.AF_INET
        self._ancillary_bytes = sock.ancillary_bytes
        self._datagrams = sock
        self._full_since = inf
        """Since when packets have waited after each turn, by the timer."""
        self._fill = 0.0
        """How full the buffer was after the last turn, from 0 to 1."""

    def read(self) -> None:
        """Reads what waits, and passes it on. Never raises: an error of one sender must not stop the others."""
        server = self._server
        now, moment = server.clock(), server.timer()
        late = moment - self._full_since > MAX_LATE_SECONDS
        receive, ancillary_bytes = self._socket.recvmsg, self._ancillary_bytes
        for _ in range(MAX_DATAGRAMS):
            try:
                packet, ancillary, _, sender = receive(MAX_BYTES, ancillary_bytes)
            except (BlockingIOError, InterruptedError):
                self._full_since, self._fill = inf, 0.0
                return
            except OSError:  # an ICMP error about an earlier reply
                server.counts["udp.ignored.socket"] += 1
                continue
            try:
                self._receive(packet, ancillary, sender, now, moment, late=late)
            except Exception as error:  # noqa: BLE001  # as the HTTP front end does
                log.error("a request failed", **describe(error))
                server.tracker.refused(_CRASHED.label)
        self._fill = self._datagrams.fill
        self._full_since = min(self._full_since, moment) if self._fill else inf

    def _receive(
        self, packet: bytes, ancillary: Ancillary, sender: tuple[str, int], now: float, moment: float, *, late: bool
    ) -> None:
        server, kind = self._server, request_kind(packet)
        if kind in _IGNORED:
            server.counts[_IGNORED[kind]] += 1
            return
        if not sender[1]:  # forged
            server.counts["udp.ignored.port"] += 1
            return
        host = sender[0].partition("%")[0] if self._ipv6 else sender[0]
        address = _pack_address(self._family, host)
        origin = packet[_TRANSACTION], sender, reply_control(ancillary) if ancillary else ancillary
        if kind == "connect":
            is_full = self._fill > MAX_FILL
            if not is_full and server.takes_connect(address, moment, late=late):
                server.counts["udp.connects"] += 1
                self._send(origin, encode_connect_reply(origin[0], server.ids.issue(address, now)))
            else:
                server.counts["udp.ignored.late" if late or is_full else "udp.ignored.budget"] += 1
        elif not server.ids.is_valid(packet[:CONNECTION_ID_LENGTH], address, now):
            server.counts["udp.ignored.id"] += 1
            if not late and server.errors.take(moment):
                self._send(origin, encode_error(origin[0], _EXPIRED))
        elif server.proxies and address in server.proxies:
            self._refuse(origin, Refusal("UDP announces must not come through the proxy"), "other")
        elif kind == "announce":
            self._announce(packet, address, origin)
        else:
            self._scrape(packet, address, origin)

    def _announce(self, packet: bytes, address: Address, origin: Origin) -> None:
        """Passes an announce to the tracker; its address is proved."""
        server, passkey = self._server, None
        try:
            announce = parse_announce(packet, ipv6=self._ipv6)
            if server.accounts != "off":
                options = packet[ANNOUNCE_LENGTH : ANNOUNCE_LENGTH + _MAX_OPTIONS_LENGTH]
                passkey = _passkey(options, server.passkey_forms)
        except Refusal as error:
            self._refuse(origin, error, "announces")
            return
        answer: Answer = partial(self._on_announce_reply, origin)
        if server.logs_requests:
            answer = partial(self._log_and_answer, answer, server.timer(), address)
        server.waiting += 1
        if not server.tracker.submit(announce, passkey, address, answer) and not server.announce_later(
            (announce, passkey, address, answer)
        ):
            server.waiting -= 1
            server.counts["udp.ignored.budget"] += 1

    def _on_announce_reply(self, origin: Origin, reply: Reply | Refusal) -> None:
        server = self._server
        server.waiting -= 1
        if isinstance(reply, Refusal):
            self._send_error(origin, reply)
            return
        transaction, sender, control = origin
        packet = encode_announce_reply(transaction, reply, ipv6=self._ipv6)
        try:  # as _send, without a call: this is done for each announce
            self._socket.sendmsg((packet,), control, 0, sender)
        except OSError:
            server.counts["udp.unsent"] += 1

    def _log_and_answer(self, answer: Answer, began: float, address: Address, reply: Reply | Refusal) -> None:
        """Logs one line per announce, as for HTTP; without its passkey."""
        milliseconds, client = round((self._server.timer() - began) * 1000, 3), format_address(address)
        log.info("request", kind="announce", protocol="udp", milliseconds=milliseconds, client=client)
        answer(reply)

    def _scrape(self, packet: bytes, address: Address, origin: Origin) -> None:
        server = self._server
        if server.accounts == "required":
            self._refuse(origin, Refusal("a scrape over UDP has no passkey; scrape over HTTP"), "scrapes")
            return
        hashes = parse_scrape(packet)
        if len(hashes) > min(MAX_SCRAPE_HASHES, server.settings.current.torrents.max_scrape):
            # Counts have no info hashes: a client could not tell which of them a shorter reply leaves out.
            self._refuse(origin, Refusal("GET string too long: scrape fewer torrents at once"), "scrapes")
            return
        scrape = Scrape(tuple(dict.fromkeys(hashes)), complete=True)
        server.waiting += 1
        server.tracker.submit_scrape(scrape, None, address, partial(self._on_scrape_reply, origin, hashes))

    def _on_scrape_reply(self, origin: Origin, hashes: tuple[InfoHash, ...], reply: ScrapeReply | Refusal) -> None:
        server = self._server
        server.waiting -= 1
        if isinstance(reply, Refusal):
            self._send_error(origin, reply)
            return
        server.counts["scrapes.udp"] += 1
        self._send(origin, encode_scrape_reply(origin[0], hashes, reply.files))

    def _refuse(self, origin: Origin, error: Refusal, kind: str) -> None:
        """Counts and answers a request that was refused before a decision."""
        self._server.tracker.refused(error.label, kind)
        self._send_error(origin, error)

    def _send_error(self, origin: Origin, error: Refusal) -> None:
        if isinstance(error, SilentlyDropped):
            self._server.counts["udp.ignored.limit"] += 1
        else:
            self._send(origin, encode_error(origin[0], error))

    def _send(self, origin: Origin, packet: bytes) -> None:
        try:
            self._socket.sendmsg((packet,), origin[2], 0, origin[1])
        except OSError:  # no route, a full buffer, or the socket is closed: nothing can be done for this client
            self._server.counts["udp.unsent"] += 1


@lru_cache(maxsize=4096)
def _passkey(options: bytes, forms: PasskeyForms) -> str | None:
    """The passkey in the options of an announce. Clients repeat their options word for word. Raises Refusal for two
    passkeys, and for a malformed one."""
    return passkey_in(parse_options(options), forms)


@contextlib.asynccontextmanager
async def serve_udp(
    tracker: Tracker,
    settings: LiveSettings,
    sockets: Sequence[DatagramSocket],
    *,
    secret: bytes,
    clock: Callable[[], float] = time.time,
    timer: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Callable[[], None]]:
    """Serves on ``sockets``, which it closes, until the block is left: then nothing more is read, and requests in
    flight are answered. Counts are passed to the tracker once a second, at the end, and by the yielded function."""
    server = UdpServer(tracker, settings, secret, clock, timer)
    dropped = [each.dropped for each in sockets]
    loop = asyncio.get_running_loop()

    def flush() -> None:
        for place, each in enumerate(sockets):
            before, dropped[place] = dropped[place], each.dropped
            if number := (dropped[place] - before) % _WRAP:
                server.counts["udp.dropped"] += number
        counts, server.counts = server.counts, Counter()
        for name, number in counts.items():
            tracker.count(name, by=number)

    async def keep_flushing() -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            flush()

    async with contextlib.AsyncExitStack() as stack:
        for each in sockets:
            stack.callback(each.close)
        stack.callback(flush)
        await stack.enter_async_context(running(keep_flushing, server.run_later))
        stack.push_async_callback(server.drain)
        for each in sockets:
            loop.add_reader(each.socket, UdpProtocol(server, each).read)
            stack.callback(loop.remove_reader, each.socket)
        yield flush
