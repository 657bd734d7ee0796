"""The interface of a client for another tracker, its result and its error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile


@dataclass(frozen=True, slots=True)
class Counts:
    """One tracker's counts for one torrent. They mean nothing where ``error`` is set."""

    tracker: str
    """The announce URL, with secrets masked."""
    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    error: str | None = None
    """Why there are no counts: a short text without secrets."""
    skipped: bool = False
    """No request was sent: the budget is used up, the tracker is paused, or its URL has no scrape."""

    @property
    def peers(self) -> int:
        return self.seeders + self.leechers


class Unreachable(Exception):
    """A tracker cannot be reached, does not reply in time, or reports an error. The text is our own."""


class OtherTracker(Protocol):
    """A client for one tracker over some protocol. Raises TrackerRefusal, TrackerReplyError and Unreachable."""

    max_scrape: int

    @property
    def scrapes(self) -> bool: ...
    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]: ...
    async def announce(self, announce: Announce) -> AnnounceReply: ...
    async def close(self) -> None: ...
