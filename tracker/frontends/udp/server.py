"""Announce and scrape over UDP: the sockets of one process, their counts, and the end."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

from tracker.bittorrent import Address, Announce, Reply
from tracker.core.announce import Answer, Tracker
from tracker.frontends.udp.protocol import CRASHED, Count, LaterAnnounce, UdpProtocol, UdpServer
from tracker.refusals import Refusal
from tracker.settings.reload import LiveSettings
from tracker.system.aiohttp_connection import describe
from tracker.system.datagrams import DatagramSocket
from tracker.system.event_loop import running
from tracker.system.logger import Logger
from tracker.wire.connection_id import ConnectionIds
from tracker.wire.endpoint import format_address
from tracker.wire.proxy import TrustedNetworks

DRAIN_SECONDS = 5.0
"""How long requests in flight may take when the tracker stops."""
FLUSH_SECONDS = 1.0
MAX_LATER = 1000
"""Announces that may wait for the allow list."""
_DRAIN_STEP_SECONDS = 0.01
_WRAP = 2**32
"""The system's count of dropped datagrams has 32 bits."""

log = Logger(__name__)


def log_request(kind: str, seconds: float, client: Address) -> None:
    """Logs one line per announce, as for HTTP; without its passkey."""
    log.info("request", kind=kind, protocol="udp", milliseconds=round(seconds * 1000, 3), client=format_address(client))


@contextlib.asynccontextmanager
async def serve_udp(
    tracker: Tracker,
    settings: LiveSettings,
    sockets: Sequence[DatagramSocket],
    *,
    secret: bytes,
    count: Count,
    clock: Callable[[], float] = time.time,
    timer: Callable[[], float] = time.monotonic,
    drain_seconds: float = DRAIN_SECONDS,
) -> AsyncIterator[Callable[[], None]]:
    """Serves on ``sockets``, which it closes, until the block is left. ``secret`` keys the connection ids.

    Counts are passed to ``count`` once a second, at the end, and by the function that is yielded.
    Leaving the block stops gracefully: nothing more is read, and requests in flight are answered.
    """
    current, later = settings.current, _Later(tracker)
    server = UdpServer(
        tracker,
        ConnectionIds(secret),
        passkey_forms=current.users.passkey_forms,
        max_scrape=lambda: settings.current.torrents.max_scrape,
        proxies=TrustedNetworks(current.http.trusted_proxies) or None,
        announce_later=later.add,
        log_request=log_request if current.http.access_log else None,
        clock=clock,
        timer=timer,
    )
    dropped = [each.dropped for each in sockets]
    loop = asyncio.get_running_loop()

    def flush() -> None:
        for place, each in enumerate(sockets):
            before, dropped[place] = dropped[place], each.dropped
            if number := (dropped[place] - before) % _WRAP:
                count("udp.dropped", number)
        server.flush(count)

    async def keep_flushing() -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            flush()

    async with contextlib.AsyncExitStack() as stack:
        for each in sockets:
            stack.callback(each.close)
        stack.callback(flush)
        await stack.enter_async_context(running(keep_flushing, later.run))
        stack.push_async_callback(_drain, server, drain_seconds)
        for each in sockets:
            loop.add_reader(each.socket, UdpProtocol(server, each).read)
            stack.callback(loop.remove_reader, each.socket)
        yield flush


async def _drain(server: UdpServer, seconds: float) -> None:
    """Waits for the replies of requests in flight."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while server.waiting:
                await asyncio.sleep(_DRAIN_STEP_SECONDS)


class _Later:
    """Announces that wait until the allow list is read."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._queue: asyncio.Queue[LaterAnnounce] = asyncio.Queue()
        self._waiting = 0

    def add(self, waiting: LaterAnnounce) -> bool:
        """False if too many wait."""
        if self._waiting >= MAX_LATER:
            return False
        self._waiting += 1
        self._queue.put_nowait(waiting)
        return True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._announce(*await self._queue.get()))

    async def _announce(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> None:
        try:
            reply: Reply | Refusal = await self._tracker.announce(announce, passkey, address)
        except Refusal as error:
            reply = error
        except Exception as error:  # noqa: BLE001  # an error of one request must not stop the others
            log.error("a request failed", **describe(error))
            self._tracker.refused(CRASHED.label, "announces")
            reply = CRASHED
        self._waiting -= 1
        answer(reply)
