"""What is known after asking another tracker, and what may go wrong on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tracker.bittorrent import Announce, AnnounceReply, InfoHash, ScrapeFile


@dataclass(frozen=True, slots=True)
class Answer:
    """One tracker about one torrent. Where ``error`` is set the figures say nothing."""

    tracker: str
    """Its URL, without passkeys."""
    seeders: int = 0
    leechers: int = 0
    completions: int = 0
    error: str | None = None
    """Why there are no figures, in a few words without secrets."""
    skipped: bool = False
    """It was not asked at all: its budget is used up, it rests after failures, or its URL names no scrape."""

    @property
    def peers(self) -> int:
        return self.seeders + self.leechers


class Unreachable(Exception):
    """A tracker cannot be reached, does not answer in time or says that it cannot answer. The text is ours."""


class OtherTracker(Protocol):
    """How a tracker is asked, by whatever protocol; raises TrackerRefusal, TrackerReplyError and Unreachable."""

    max_scrape: int

    @property
    def scrapes(self) -> bool: ...
    async def scrape(self, info_hashes: Sequence[InfoHash]) -> dict[InfoHash, ScrapeFile]: ...
    async def announce(self, announce: Announce) -> AnnounceReply: ...
    async def close(self) -> None: ...
