"""One other tracker: whether it may be asked now, what it says, and when it has failed too often."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from tracker.bittorrent import Address, Announce, AnnounceReply, InfoHash, is_routable, unmap
from tracker.errors import TrackerRefusal, TrackerReplyError
from tracker.tracker_url import TrackerUrl
from tracker.wire.compact import ENDPOINT6_LENGTH, ENDPOINT_LENGTH, split_endpoints
from tracker.workers.upstreams.answers import Answer, OtherTracker, Unreachable
from tracker.workers.upstreams.budget import Budget, Rest

AT_ONCE = 4
"""Requests in flight to one tracker."""
FAILURES = 3
REFUSED_SCRAPES = 10
REFUSED_ANNOUNCES = 3
"""Outcomes of a kind in a row after which it rests. Who refuses one observer refuses the next."""
_TRIAL_SECONDS = 120.0
_LONGEST_TEXT = 120

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

log = structlog.get_logger("tracker.upstreams")


@dataclass(frozen=True, slots=True)
class Observer:
    """How peers are asked for, and who hears of them."""

    announce: Callable[[InfoHash], Announce]
    on_peer: Callable[[InfoHash, Address], None]


class _NoAnswer(Exception):
    """``skipped``: it was not asked. ``refused``: it answered, and said no."""

    def __init__(self, text: str, *, skipped: bool = False, refused: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.skipped = skipped
        self.refused = refused


class Upstream:
    """``budget`` may be shared with other trackers of the same host; without ``observer`` it is scraped only."""

    def __init__(
        self,
        url: TrackerUrl,
        tracker: OtherTracker,
        budget: Budget,
        monotonic: Callable[[], float],
        observer: Observer | None,
    ) -> None:
        self.name = url.masked
        self._url = url
        self._tracker = tracker
        self._budget = budget
        self._monotonic = monotonic
        self._observer = observer
        self._scrapes = Rest()
        self._announces = Rest()
        self._turns = asyncio.Semaphore(AT_ONCE)

    @property
    def can_be_asked(self) -> bool:
        return self._tracker.scrapes or self._observer is not None

    async def close(self) -> None:
        await self._tracker.close()

    async def ask(self, info_hashes: Sequence[InfoHash], answers: dict[InfoHash, Answer]) -> None:
        """Enters what it says of each torrent as it says it; figures of an announce count where a scrape gave none."""
        if self._tracker.scrapes:
            observable = await self._scrape(info_hashes, answers)
        else:
            observable = list(info_hashes)
            text = "its URL names no scrape"
            answers |= dict.fromkeys(info_hashes, Answer(self.name, error=text, skipped=True))
        if self._observer is not None:
            async with asyncio.TaskGroup() as tasks:
                for info_hash in observable:
                    tasks.create_task(self._observe(self._observer, info_hash, answers))

    async def _scrape(
        self, info_hashes: Sequence[InfoHash], answers: dict[InfoHash, Answer]
    ) -> list[InfoHash]:
        """Enters an answer for each torrent; gives those that the tracker may have peers of."""
        observable: list[InfoHash] = []
        at = 0
        while batch := info_hashes[at : at + self._tracker.max_scrape]:
            try:
                files = await self._attempt(self._scrapes, REFUSED_SCRAPES, self._tracker.scrape, batch)
            except _NoAnswer as why:
                answers |= dict.fromkeys(batch, self._unanswered(why))
                observable += batch if why.refused else ()
                at += len(batch)
            else:
                for info_hash, file in files.items():
                    answers[info_hash] = Answer(self.name, file.seeders, file.leechers, file.completions)
                observable += (info_hash for info_hash in files if answers[info_hash].peers)
                at += len(files)
        return observable

    async def _observe(
        self, observer: Observer, info_hash: InfoHash, answers: dict[InfoHash, Answer]
    ) -> None:
        announce = observer.announce(info_hash)
        request = self._tracker.announce if answers[info_hash].error is not None else self._ask_for_peers
        try:
            reply = await self._attempt(self._announces, REFUSED_ANNOUNCES, request, announce)
        except _NoAnswer as why:
            if not self._tracker.scrapes:
                answers[info_hash] = self._unanswered(why)
            return
        addresses = _addresses(reply)
        if answers[info_hash].error is not None:
            # Figures are optional in an announce's answer; then the peers that it names are there at least.
            leechers = max(reply.leechers, len(addresses) - reply.seeders)
            answers[info_hash] = Answer(self.name, reply.seeders, leechers, reply.completions)
        for address in addresses:
            if is_routable(address):
                observer.on_peer(info_hash, address)

    async def _ask_for_peers(self, announce: Announce) -> AnnounceReply:
        """Many trackers name no peers to one who stops: they need not be bothered with every torrent."""
        reply = await self._tracker.announce(announce)
        if reply.seeders + reply.leechers and not (reply.peers or reply.peers6):
            raise TrackerRefusal("no peers for an observer")
        return reply

    def _unanswered(self, why: _NoAnswer) -> Answer:
        return Answer(self.name, error=why.text, skipped=why.skipped)

    async def _attempt(
        self,
        rest: Rest,
        refusals: int,
        request: Callable[[Asked], Awaitable[Answered]],
        what: Asked,
    ) -> Answered:
        """One request, where it may be made at all. Raises _NoAnswer."""
        async with self._turns:
            now = self._monotonic()
            if not rest.admits(now, _TRIAL_SECONDS):
                raise _NoAnswer("it rests after failures", skipped=True)
            if not self._budget.take(now):
                raise _NoAnswer("its host was asked often enough for now", skipped=True)
            try:
                answered = await request(what)
            except TrackerRefusal as refusal:
                text = f"it refused: {self._readable(refusal.text)}"
                self._failed(rest, refusals, text)
                raise _NoAnswer(text, refused=True) from None
            except (TrackerReplyError, Unreachable) as error:
                self._failed(rest, FAILURES, str(error))
                raise _NoAnswer(str(error)) from None
            if rest.succeeded():
                log.info("another tracker answers again", tracker=self.name, asked=self._kind(rest))
            return answered

    def _failed(self, rest: Rest, limit: int, text: str) -> None:
        seconds = rest.failed(self._monotonic(), limit)
        if seconds is not None:
            log.warning(
                "another tracker rests after failures",
                tracker=self.name,
                asked=self._kind(rest),
                last=text,
                seconds=round(seconds),
            )

    def _kind(self, rest: Rest) -> str:
        return "scrape" if rest is self._scrapes else "announce"

    def _readable(self, text: str) -> str:
        """What a stranger wrote, fit for one line of ours. It may repeat the passkey that it was sent."""
        text = "".join(character if character.isprintable() else " " for character in self._url.hide(text))
        return text[:_LONGEST_TEXT] or "without a reason"


def _addresses(reply: AnnounceReply) -> list[Address]:
    """The peers' addresses, each once."""
    packed = ((reply.peers, ENDPOINT_LENGTH), (reply.peers6, ENDPOINT6_LENGTH))
    return list(
        dict.fromkeys(unmap(address) for peers, size in packed for address, _ in split_endpoints(peers, size))
    )
