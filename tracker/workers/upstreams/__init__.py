"""Asks other trackers ("upstreams") for the numbers of peers of torrents.

A tracker is scraped for many torrents at a time. If the settings ask for addresses of peers, it is also sent an
announce as an observer: ``stopped`` and without a port, so that it neither counts us nor lists us as a peer. Requests
beyond a host's budget are skipped, not queued. A tracker that fails repeatedly is paused.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import ClientTimeout

from tracker.bittorrent import Address, Announce, AnnounceReply, Digits, Event, InfoHash, PeerId, is_routable, unmap
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.settings.background import ScoringSettings
from tracker.system.http_client import open_session
from tracker.system.logger import Logger
from tracker.token_bucket import TokenBucket
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH, split_endpoints
from tracker.wire.tracker_url import TrackerUrl, parse_tracker_url
from tracker.workers.upstreams.clients import HttpTracker, UdpTracker

MAX_IN_FLIGHT = 4
"""Concurrent requests to one tracker."""
MAX_FAILURES = 3
MAX_REFUSED_SCRAPES = 10
MAX_REFUSED_ANNOUNCES = 3
"""Failures or refusals in a row before a pause. A tracker that refuses one observer refuses all."""
_TRIAL_SECONDS = 120.0
FIRST_PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 3600.0
_JITTER = 0.25
_MAX_TEXT_LENGTH = 120

Request = TypeVar("Request")
Reply = TypeVar("Reply")
OnPeer = Callable[[InfoHash, Address], None]

log = Logger("tracker.upstreams")


def request_budget(per_minute: float, now: float) -> TokenBucket:
    """At most ``per_minute`` requests in any minute: up to a quarter at once, the others spread over the minute."""
    burst = max(1.0, per_minute / 4)
    steady = per_minute - burst if per_minute >= 2 else per_minute
    return TokenBucket(steady / 60, burst, now)


@dataclass(eq=False)
class Backoff:
    """Pauses after failures in a row: one minute, then twice as long each time, up to an hour, with 25 % jitter. After
    a pause one trial request is allowed. If it fails, the next pause begins."""

    request: str
    _failures: int = 0
    _pauses: int = 0
    """Since the last success."""
    _until: float = 0.0

    def allows(self, now: float, trial_seconds: float) -> bool:
        """Whether a request is allowed now. A trial excludes others for ``trial_seconds``, or until it ends."""
        if not self._pauses:
            return True
        if now < self._until:
            return False
        self._until = now + trial_seconds
        return True

    def succeeded(self) -> bool:
        """Ends the pauses; true if there was one."""
        was_paused = self._pauses > 0
        self._failures = self._pauses = 0
        return was_paused

    def failed(self, now: float, limit: int) -> float | None:
        """``limit`` failures in a row begin a pause. Returns its seconds if it is the first one."""
        self._failures += 1
        began = not self._pauses
        if began and self._failures < limit:
            return None
        seconds = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._pauses, 10))
        seconds *= random.uniform(1 - _JITTER, 1 + _JITTER)
        self._pauses += 1
        self._until = now + seconds
        return seconds if began else None


@dataclass(eq=False, repr=False)
class Upstream:
    """``budget`` is shared by trackers on the same host. ``announce_for`` makes the announce of an observer for a
    torrent; without it the tracker is only scraped. ``on_peer`` is called with each address in a reply to it."""

    url: TrackerUrl
    tracker: HttpTracker | UdpTracker
    budget: TokenBucket
    monotonic: Callable[[], float]
    announce_for: Callable[[InfoHash], Announce] | None
    on_peer: OnPeer | None

    def __post_init__(self) -> None:
        self._scrapes, self._announces = Backoff("scrape"), Backoff("announce")
        self._turns = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def ask(self, info_hashes: Sequence[InfoHash], found: dict[InfoHash, int]) -> None:
        """Adds the number of peers of each torrent to ``found`` as replies arrive. The counts of an announce are used
        where a scrape gave none."""
        observable = await self._scrape(info_hashes, found) if self.tracker.scrapes else info_hashes
        if self.announce_for is not None:
            async with asyncio.TaskGroup() as tasks:
                for info_hash in observable:
                    tasks.create_task(self._observe(self.announce_for(info_hash), found))

    async def _scrape(self, info_hashes: Sequence[InfoHash], found: dict[InfoHash, int]) -> list[InfoHash]:
        """Returns the torrents of which the tracker may have peers."""
        observable: list[InfoHash] = []
        at = 0
        while batch := info_hashes[at : at + self.tracker.max_scrape]:
            files = None
            try:
                files = await self._attempt(self._scrapes, MAX_REFUSED_SCRAPES, self.tracker.scrape, batch)
            except TrackerRefusal:
                observable += batch
            if files is not None:
                found |= {info_hash: file.seeders + file.leechers for info_hash, file in files.items()}
                observable += (info_hash for info_hash in files if found[info_hash])
            at += len(batch if files is None else files)
        return observable

    async def _observe(self, announce: Announce, found: dict[InfoHash, int]) -> None:
        info_hash = announce.info_hash
        request = self._ask_for_peers if info_hash in found else self.tracker.announce
        try:
            reply = await self._attempt(self._announces, MAX_REFUSED_ANNOUNCES, request, announce)
        except TrackerRefusal:
            return
        if reply is None:
            return
        packed = ((reply.peers, ENDPOINT_LENGTH), (reply.peers6, ENDPOINT6_LENGTH))
        endpoints = (endpoint for peers, size in packed for endpoint in split_endpoints(peers, size))
        addresses = list(dict.fromkeys(unmap(address) for address, _ in endpoints))
        # Counts are optional in an announce reply. Without them, the listed peers are a lower bound.
        found.setdefault(info_hash, max(reply.seeders + reply.leechers, len(addresses)))
        for address in addresses:
            if self.on_peer is not None and is_routable(address):
                self.on_peer(info_hash, address)

    async def _ask_for_peers(self, announce: Announce) -> AnnounceReply:
        """Raises TrackerRefusal for a reply without peers: many trackers return none to a stopped peer."""
        reply = await self.tracker.announce(announce)
        if reply.seeders + reply.leechers and not (reply.peers or reply.peers6):
            raise TrackerRefusal("no peers for an observer")
        return reply

    async def _attempt(
        self, backoff: Backoff, max_refusals: int, request: Callable[[Request], Awaitable[Reply]], argument: Request
    ) -> Reply | None:
        """Sends one request if backoff and budget allow it. None without a reply. Raises TrackerRefusal."""
        async with self._turns:
            now = self.monotonic()
            if not (backoff.allows(now, _TRIAL_SECONDS) and self.budget.take(now)):
                return None
            try:
                reply = await request(argument)
            except TrackerRefusal as refusal:
                self._note_failure(backoff, max_refusals, f"refused: {self._readable(refusal.text)}")
                raise
            except (TrackerReplyError, Unreachable) as error:
                self._note_failure(backoff, MAX_FAILURES, str(error))
                return None
            if backoff.succeeded():
                log.info("upstream tracker available again", tracker=self.url.masked, request=backoff.request)
            return reply

    def _note_failure(self, backoff: Backoff, limit: int, text: str) -> None:
        seconds = backoff.failed(self.monotonic(), limit)
        if seconds is not None:
            tracker, request, seconds = self.url.masked, backoff.request, round(seconds)
            log.warning(
                "upstream tracker paused after failures", tracker=tracker, request=request, last=text, seconds=seconds
            )

    def _readable(self, text: str) -> str:
        """A tracker's text, made printable and cut, with secrets masked: it may repeat our passkey."""
        text = "".join(character if character.isprintable() else " " for character in self.url.hide(text))
        return text[:_MAX_TEXT_LENGTH] or "without a reason"


MAX_PEERS_WANTED = 200
TIMEOUT_SECONDS = 10.0
"""Time limit of one request. A slower tracker is paused like one that is down."""
WITHIN_SECONDS = 75.0
"""Longer than any single request: a tracker that has not replied by then has failed."""
_CONNECTIONS_PER_HOST = 4


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
    return lambda info_hash: Announce(
        info_hash, peer_id, port=0, bytes_left=Digits(b"1"), event=Event.STOPPED, peers_wanted=wanted, key=key
    )
