"""One other tracker: sends requests within its budget and collects numbers of peers; pauses after failures. The budget
is one of a host and minute."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tracker.bittorrent import Address, Announce, AnnounceReply, InfoHash, is_routable, unmap
from tracker.errors import TrackerRefusal, TrackerReplyError, Unreachable
from tracker.system.logger import Logger
from tracker.token_bucket import TokenBucket
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH, split_endpoints
from tracker.wire.tracker_url import TrackerUrl
from tracker.workers.upstreams.http import HttpTracker
from tracker.workers.upstreams.udp import UdpTracker

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


class Backoff:
    """Pauses after failures in a row: one minute, then twice as long each time, up to an hour, with 25 % jitter. After
    a pause one trial request is allowed. If it fails, the next pause begins."""

    def __init__(self) -> None:
        self._failures = 0
        self._pauses = 0
        self._until = 0.0

    @property
    def active(self) -> bool:
        """Whether it has failed too often since the last success."""
        return self._pauses > 0

    def allows(self, now: float, trial_seconds: float) -> bool:
        """Whether a request is allowed now. A trial excludes others for ``trial_seconds``, or until it ends."""
        if not self.active:
            return True
        if now < self._until:
            return False
        self._until = now + trial_seconds
        return True

    def succeeded(self) -> bool:
        """Ends the pauses; true if there was one."""
        was_active = self.active
        self._failures = self._pauses = 0
        return was_active

    def failed(self, now: float, limit: int) -> float | None:
        """``limit`` failures in a row begin a pause. Returns its seconds if it is the first one."""
        self._failures += 1
        if not self.active and self._failures < limit:
            return None
        began = not self.active
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
        self._scrapes = Backoff()
        self._announces = Backoff()
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
        addresses = _addresses(reply)
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
                self._failed(backoff, max_refusals, f"refused: {self._readable(refusal.text)}")
                raise
            except (TrackerReplyError, Unreachable) as error:
                self._failed(backoff, MAX_FAILURES, str(error))
                return None
            if backoff.succeeded():
                log.info("upstream tracker available again", tracker=self.url.masked, request=self._kind(backoff))
            return reply

    def _failed(self, backoff: Backoff, limit: int, text: str) -> None:
        seconds = backoff.failed(self.monotonic(), limit)
        if seconds is not None:
            log.warning(
                "upstream tracker paused after failures",
                tracker=self.url.masked,
                request=self._kind(backoff),
                last=text,
                seconds=round(seconds),
            )

    def _kind(self, backoff: Backoff) -> str:
        return "scrape" if backoff is self._scrapes else "announce"

    def _readable(self, text: str) -> str:
        """A tracker's text, made printable and cut, with secrets masked: it may repeat our passkey."""
        text = "".join(character if character.isprintable() else " " for character in self.url.hide(text))
        return text[:_MAX_TEXT_LENGTH] or "without a reason"


def _addresses(reply: AnnounceReply) -> list[Address]:
    packed = ((reply.peers, ENDPOINT_LENGTH), (reply.peers6, ENDPOINT6_LENGTH))
    return list(dict.fromkeys(unmap(address) for peers, size in packed for address, _ in split_endpoints(peers, size)))
