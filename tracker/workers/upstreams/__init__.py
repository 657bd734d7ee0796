"""Asks other trackers ("upstreams") for the numbers of peers of torrents.

A tracker is scraped for many torrents at a time. If the settings ask for addresses of peers, it is also sent an
announce as an observer: ``stopped`` and without a port, so that it neither counts us nor lists us as a peer. Requests
beyond a host's budget are skipped, not queued. A tracker that fails repeatedly is paused.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import ClientTimeout

from tracker.bittorrent import Announce, Digits, Event, InfoHash, PeerId
from tracker.settings.background import ScoringSettings
from tracker.system.http_client import open_session
from tracker.system.logger import Logger
from tracker.token_bucket import TokenBucket
from tracker.wire.tracker_url import parse_tracker_url
from tracker.workers.upstreams.http import HttpTracker
from tracker.workers.upstreams.udp import UdpTracker
from tracker.workers.upstreams.upstream import OnPeer, Upstream, request_budget

MAX_PEERS_WANTED = 200
TIMEOUT_SECONDS = 10.0
"""Time limit of one request. A slower tracker is paused like one that is down."""
WITHIN_SECONDS = 75.0
"""Longer than any single request: a tracker that has not replied by then has failed."""
_CONNECTIONS_PER_HOST = 4

log = Logger("tracker.upstreams")


@asynccontextmanager
async def open_upstreams(
    settings: ScoringSettings,
    monotonic: Callable[[], float] = time.monotonic,
    on_peer: OnPeer | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> AsyncIterator[list[Upstream]]:
    """Keeps connections to the trackers of the settings. ``monotonic`` is in seconds. ``on_peer`` is called with each
    routable address of a peer that a tracker returns, at most ``upstream_max_peers`` per torrent, tracker and family.
    Without the setting ``upstream_peers`` no announce is sent."""
    announce_for = _observer(settings) if settings.upstream_peers else None
    budgets: dict[str, TokenBucket] = {}
    found: list[Upstream] = []
    timeout = ClientTimeout(total=None)  # each request has one
    async with open_session(timeout, limit_per_host=_CONNECTIONS_PER_HOST) as session, AsyncExitStack() as stack:
        for url in dict.fromkeys(secret.get_secret_value() for secret in settings.upstreams):
            parsed = parse_tracker_url(url)
            budget = budgets.setdefault(parsed.host, request_budget(settings.upstream_per_minute, monotonic()))
            tracker: HttpTracker | UdpTracker = HttpTracker(parsed, session, timeout_seconds)
            if parsed.scheme == "udp":
                tracker = UdpTracker(parsed, timeout_seconds, monotonic)
                stack.callback(tracker.close)
            if not tracker.scrapes and announce_for is None:
                text = "upstream tracker unused: its URL has no scrape, and upstream_peers is off"
                log.warning(text, tracker=parsed.masked)
            found.append(Upstream(parsed, tracker, budget, monotonic, announce_for, on_peer))
        yield found


async def ask_many(
    upstreams: Sequence[Upstream], info_hashes: Iterable[InfoHash], within_seconds: float = WITHIN_SECONDS
) -> dict[InfoHash, list[int]]:
    """The numbers of peers from the trackers that replied, in the order of the settings, in few requests: up to 50
    torrents take one scrape per tracker. Never raises for errors of a tracker. Returns after ``within_seconds`` with
    the replies received by then."""
    requested = list(dict.fromkeys(info_hashes))
    received: list[dict[InfoHash, int]] = [{} for _ in upstreams]
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(each.ask(requested, found), name=each.url.masked)
            for each, found in zip(upstreams, received, strict=True)
        ]
        late = (await asyncio.wait(asking, timeout=within_seconds))[1] if asking else ()
        for task in late:
            task.cancel()
    return {each: [found[each] for found in received if each in found] for each in requested}


def _observer(settings: ScoringSettings) -> Callable[[InfoHash], Announce]:
    """A new peer id at each start. It is one byte short of complete, because trackers list seeders to leechers only."""
    peer_id = PeerId(b"-SK0001-" + secrets.token_hex(6).encode())
    key = secrets.token_bytes(4)
    wanted = min(settings.upstream_max_peers, MAX_PEERS_WANTED)

    def announce(info_hash: InfoHash) -> Announce:
        return Announce(
            info_hash, peer_id, port=0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=wanted, key=key
        )

    return announce
