"""Scrapes: whose figures may be asked for, and the full scrape, which is remembered for a minute."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tracker.bittorrent import Address, Scrape, ScrapeReply
from tracker.errors import ClientError, StoreAway
from tracker.limits import SOFT, Limits, sentence
from tracker.refusals import Failures
from tracker.store.counters import Counters
from tracker.store.swarms import Figures, Refused, Swarms

_FULL_SCRAPE_SECONDS = 60.0
_COUNTED = {size: ("requests", "scrapes", f"scrapes.{family}") for size, family in ((4, "v4"), (16, "v6"))}
"""By the length of an address."""
_Asked = tuple[Address, str, Callable[[ScrapeReply | ClientError], None]]


class Scrapes:
    """Answers scrapes. ``full``: one without an info hash is answered with every torrent."""

    def __init__(
        self,
        swarms: Swarms,
        counters: Counters,
        failures: Failures,
        limits: Limits,
        *,
        full: bool,
        min_interval_seconds: int,
        clock: Callable[[], float],
    ) -> None:
        self._swarms = swarms
        self._counters = counters
        self._failures = failures
        self._limits = limits
        self._full = full
        self._min_interval_seconds = min_interval_seconds
        self._clock = clock
        self._every: tuple[float, Figures] | None = None
        self._every_lock = asyncio.Lock()

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        """The figures of the torrents asked for; raises ClientError when they may not be asked for."""
        answered: asyncio.Future[ScrapeReply | ClientError] = asyncio.get_running_loop().create_future()
        answer = resolving(answered)
        if not self.submit(scrape, passkey, address, answer) and not self._sentenced(
            passkey, address, answer
        ):
            try:
                files = await self._every_file(passkey or "")
            except (ClientError, StoreAway) as error:
                self._limits.note_scrape(address)
                raise self._failures.worded(error, "scrapes") from error
            self._settle((address, passkey or "", answer), files)
        return given(await answered)

    def submit(
        self,
        scrape: Scrape,
        passkey: str | None,
        address: Address,
        answer: Callable[[ScrapeReply | ClientError], None],
    ) -> bool:
        """Reads figures; ``answer`` is called once, perhaps at once. False for a full scrape, which takes its time."""
        if not scrape.info_hashes:
            return False
        if self._sentenced(passkey, address, answer):
            return True
        asked = (address, passkey or "", answer)
        try:
            self._swarms.submit_scrape(scrape.info_hashes, passkey or "", self._settle, asked)
        except StoreAway as error:
            self._settle(asked, error)
        return True

    def _sentenced(
        self, passkey: str | None, address: Address, answer: Callable[[ScrapeReply | ClientError], None]
    ) -> bool:
        """Whether a limit refuses it; then it has its answer."""
        judged = self._limits.judge_scrape(passkey, address) if self._limits.strict else None
        if judged is None or judged.stage == SOFT:
            return False
        self._limits.count(self._counters, judged)
        answer(self._failures.worded(sentence(judged), "scrapes"))
        return True

    def _settle(self, asked: _Asked, files: Figures | Refused | StoreAway) -> None:
        address, passkey, answer = asked
        self._limits.note_scrape(address)
        if isinstance(files, dict):
            self._counters.count(*_COUNTED[len(address)])
            answer(ScrapeReply(files, self._min_interval_seconds))
        else:
            if isinstance(files, Refused) and files.code == "unknown passkey":
                self._limits.guessed(passkey, address)
            answer(self._failures.worded(files, "scrapes"))

    async def _every_file(self, passkey: str) -> Figures | Refused:
        """All torrents, remembered for a minute: asking for them costs as much as thousands of announces."""
        nothing = await self._swarms.scrape((), passkey)
        if isinstance(nothing, Refused):
            return nothing
        if not self._full:
            raise ClientError("a scrape needs an info_hash: full scrapes are switched off", retry_in="never")
        async with self._every_lock:
            now = self._clock()
            if self._every is not None:
                taken_at, files = self._every
                if 0 <= now - taken_at < _FULL_SCRAPE_SECONDS:  # a clock may go back
                    return files
            every = await self._swarms.scrape_all(passkey)
            if isinstance(every, dict):
                self._every = now, every
            return every


_Reply = TypeVar("_Reply")


def resolving(future: "asyncio.Future[_Reply | ClientError]") -> Callable[[_Reply | ClientError], None]:
    """Of a request whose task was cancelled nobody wants to know."""
    return lambda reply: None if future.done() else future.set_result(reply)


def given(reply: _Reply | ClientError) -> _Reply:
    if isinstance(reply, ClientError):
        raise reply
    return reply
