"""Asks other trackers about torrents: how many seeders, leechers and completions they know.

A tracker is scraped, many torrents at a time. Only where the settings want addresses of peers is it sent an announce
too, as an observer: ``stopped`` and without a port, so that nothing there counts us or hands us out. Requests that
its host's budget does not cover are left out rather than kept waiting, and a tracker that fails again and again rests.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

import structlog
from aiohttp import ClientSession

from tracker.bittorrent import Address, Announce, Digits, Event, InfoHash, PeerId
from tracker.settings import ScoringSettings
from tracker.tracker_url import TrackerUrl, parse_tracker_url
from tracker.workers.upstreams.answers import Answer, OtherTracker
from tracker.workers.upstreams.budget import Budget
from tracker.workers.upstreams.http import HttpTracker, open_session
from tracker.workers.upstreams.udp import UdpTracker
from tracker.workers.upstreams.upstream import Observer, Upstream

__all__ = ["Answer", "Upstreams"]

MAX_PEERS_WANTED = 200
WITHIN_SECONDS = 75.0
"""Longer than any one request may take: a tracker that is silent has failed by then."""

OnPeer = Callable[[InfoHash, Address], None]

log = structlog.get_logger("tracker.upstreams")


class Upstreams:
    """``async with`` opens and closes what it asks through. ``monotonic`` is in seconds.

    ``on_peer`` is handed each routable address of a peer that an observer is told, at most ``upstream_max_peers`` for
    each torrent, tracker and family; nothing is observed unless ``upstream_peers`` is set.
    """

    def __init__(
        self,
        settings: ScoringSettings,
        monotonic: Callable[[], float] = time.monotonic,
        on_peer: OnPeer | None = None,
    ) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._observer = _observer(settings, on_peer) if settings.upstream_peers else None
        self._session: ClientSession | None = None
        self._upstreams: list[Upstream] = []

    def __bool__(self) -> bool:
        """Is there anybody to ask?"""
        return bool(self._settings.upstreams)

    async def __aenter__(self) -> "Upstreams":
        self._upstreams = list(self._open())
        for upstream in self._upstreams:
            if not upstream.can_be_asked:
                log.warning(
                    "another tracker is never asked: its URL names no scrape, and peers are not asked for",
                    tracker=upstream.name,
                )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for upstream in self._upstreams:
            await upstream.close()
        if self._session is not None:
            await self._session.close()
        self._upstreams, self._session = [], None

    async def ask(self, info_hash: InfoHash) -> list[Answer]:
        """What each tracker says, in the order of the settings. Never raises for what a tracker does."""
        return (await self.ask_many([info_hash]))[info_hash]

    async def ask_many(
        self, info_hashes: Iterable[InfoHash], within_seconds: float = WITHIN_SECONDS
    ) -> dict[InfoHash, list[Answer]]:
        """The same for many torrents in as few requests as can be: 50 of them are one scrape for each tracker.

        What has been said ``within_seconds`` counts, whoever is still being asked.
        """
        asked = list(dict.fromkeys(info_hashes))
        heard: list[dict[InfoHash, Answer]] = [{} for _ in self._upstreams]
        async with asyncio.TaskGroup() as tasks:
            asking = [
                tasks.create_task(each.ask(asked, answers), name=each.name)
                for each, answers in zip(self._upstreams, heard, strict=True)
            ]
            late = (await asyncio.wait(asking, timeout=within_seconds))[1] if asking else ()
            for task in late:
                task.cancel()
        silent = [Answer(each.name, error="did not answer in time") for each in self._upstreams]
        return {
            info_hash: [
                answers.get(info_hash, nothing) for answers, nothing in zip(heard, silent, strict=True)
            ]
            for info_hash in asked
        }

    def _open(self) -> Iterator[Upstream]:
        budgets: dict[str, Budget] = {}
        now = self._monotonic()
        for url in dict.fromkeys(secret.get_secret_value() for secret in self._settings.upstreams):
            parsed = parse_tracker_url(url)
            budget = budgets.setdefault(parsed.host, Budget(self._settings.upstream_per_minute, now))
            yield Upstream(parsed, self._tracker(parsed), budget, self._monotonic, self._observer)

    def _tracker(self, url: TrackerUrl) -> OtherTracker:
        timeout = self._settings.upstream_timeout_seconds
        if url.scheme == "udp":
            return UdpTracker(url, timeout, self._monotonic)
        if self._session is None:
            self._session = open_session()
        return HttpTracker(url, self._session, timeout)


def _observer(settings: ScoringSettings, on_peer: OnPeer | None) -> Observer:
    """A new identity at each start. It lacks a byte, because seeders are told of leechers only."""
    peer_id = PeerId(b"-SK0001-" + secrets.token_hex(6).encode())
    key = secrets.token_bytes(4)
    wanted = min(settings.upstream_max_peers, MAX_PEERS_WANTED)

    def announce(info_hash: InfoHash) -> Announce:
        return Announce(
            info_hash,
            peer_id,
            port=0,
            bytes_left=Digits(b"1"),
            event=Event.STOPPED,
            peers_wanted=wanted,
            key=key,
        )

    return Observer(announce, on_peer or (lambda _info_hash, _address: None))
