"""Decides about scrapes, and caches the full scrape for a minute."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from tracker.bittorrent import Address, Scrape, ScrapeReply
from tracker.core.rate_limits import THROTTLE, Limits, to_error
from tracker.core.refusals import Failures
from tracker.errors import StoreUnavailable
from tracker.refusals import Refusal
from tracker.settings.model import LiveSettings
from tracker.store.stats.counters import Counters
from tracker.store.swarms.codec import Refused
from tracker.store.swarms.swarms import AllSwarms, Figures

_FULL_SCRAPE_SECONDS = 60.0
_COUNTERS = {size: ("requests", "scrapes", f"scrapes.{family}") for size, family in ((4, "v4"), (16, "v6"))}
"""By the length of an address."""
_MAX_HITS_FULL_SCRAPE = 1000
Answer = Callable[[ScrapeReply | Refusal], None]
_Pending = tuple[Address, str, Answer, int, bool]
"""(address, passkey, reply callback, hits for the limit of the address, whether each hit must be in the reply)"""
_Outcome = Figures | ScrapeReply | Refused | StoreUnavailable


class Scrapes:
    """Answers scrapes. A scrape without an info hash gets every torrent, if the settings allow it."""

    def __init__(
        self, swarms: AllSwarms, counters: Counters, failures: Failures, limits: Limits, settings: LiveSettings
    ) -> None:
        self._swarms = swarms
        self._counters = counters
        self._failures = failures
        self._limits = limits
        self._settings = settings
        self._reads_passkeys = settings.current.users.private == "required"
        self._all: ScrapeReply | None = None
        self._all_lock = asyncio.Lock()

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        """The counts of the torrents; raises Refusal with the failure to send."""
        future: asyncio.Future[ScrapeReply | Refusal] = asyncio.get_running_loop().create_future()
        answer = resolving(future)
        if not self.submit(scrape, passkey, address, answer) and not self._reject(passkey, address, answer):
            try:
                every = await self._scrape_all(passkey or "")
            except (Refusal, StoreUnavailable) as error:
                self._limits.note_scrape(address, 1)
                raise self._failures.to_error(error, "scrapes") from error
            hits = min(len(every.files), _MAX_HITS_FULL_SCRAPE) if isinstance(every, ScrapeReply) else 1
            self._settle([((address, passkey or "", answer, hits, False), every)], None)
        return result_of(await future)

    def submit(self, scrape: Scrape, passkey: str | None, address: Address, answer: Answer) -> bool:
        """Reads counts; calls ``answer`` once, perhaps at once. Returns False for a full scrape, which takes longer."""
        if not scrape.info_hashes:
            return False
        if self._reject(passkey, address, answer):
            return True
        pending = (address, passkey or "", answer, len(scrape.info_hashes), scrape.complete)
        try:
            self._swarms.submit_scrape(scrape.info_hashes, passkey or "", self._settle, pending)
        except StoreUnavailable as error:
            self._settle([(pending, error)], None)
        return True

    async def check_passkey(self, passkey: str | None, address: Address) -> None:
        """Raises Refusal for a passkey that no user has or whose user is disabled, where one is required. Counts for
        the limits as a scrape. All passkeys pass while the store is unavailable; their announces do not."""
        if not self._reads_passkeys:
            return
        self._reject(passkey, address, result_of)
        self._limits.note_scrape(address, 1)
        try:
            found = await self._swarms.scrape((), passkey or "")
        except StoreUnavailable:
            return
        if isinstance(found, Refused):
            raise self._refuse(found, passkey or "", address)

    def _reject(self, passkey: str | None, address: Address, answer: Callable[[Refusal], object]) -> bool:
        """Whether a limit rejects or drops the scrape; then it is answered."""
        self._limits.apply_settings(self._settings.current.limits)
        if not self._limits.strict:
            return False
        decision = self._limits.check_scrape(passkey if self._reads_passkeys else None, address)
        if decision is None or decision.stage == THROTTLE:
            return False
        self._limits.refused(self._counters, decision)
        answer(self._failures.to_error(to_error(decision), "scrapes"))
        return True

    def _settle(self, settled: Iterable[tuple[_Pending, _Outcome]], batch: tuple[int, None] | None) -> None:
        """Counts and answers scrapes whose outcome is known."""
        del batch
        for (address, passkey, answer, hits, complete), outcome in settled:
            self._limits.note_scrape(address, hits)
            if not isinstance(outcome, dict):
                reply = outcome
            elif complete and len(outcome) < hits:
                reply = StoreUnavailable("a shard of the torrents is unavailable")
            else:
                reply = ScrapeReply(outcome, self._settings.current.announce.min_interval_seconds)
            if isinstance(reply, ScrapeReply):
                self._counters.count(*_COUNTERS[len(address)])
                answer(reply)
                continue
            answer(self._refuse(reply, passkey, address))

    def _refuse(self, reply: Refused | StoreUnavailable, passkey: str, address: Address) -> Refusal:
        if isinstance(reply, Refused) and reply.unknown_passkey:
            self._limits.on_unknown_passkey(passkey, address)
        return self._failures.to_error(reply, "scrapes", passkey)

    async def _scrape_all(self, passkey: str) -> ScrapeReply | Refused:
        """All torrents, cached for a minute: reading them costs as much as thousands of announces."""
        nothing = await self._swarms.scrape((), passkey)
        if isinstance(nothing, Refused):
            return nothing
        if not self._settings.current.torrents.full_scrape:
            raise Refusal("a scrape needs an info_hash: full scrapes are disabled")
        async with self._all_lock:
            if self._all is None:
                files = await self._swarms.scrape_all(passkey)
                if isinstance(files, Refused):
                    return files
                self._all = ScrapeReply(files, self._settings.current.announce.min_interval_seconds)
                asyncio.get_running_loop().call_later(_FULL_SCRAPE_SECONDS, self._forget)
            return self._all

    def _forget(self) -> None:
        """Frees its memory, which may be large, also when no other full scrape follows."""
        self._all = None


_Reply = TypeVar("_Reply")


def resolving(future: "asyncio.Future[_Reply | Refusal]") -> Callable[[_Reply | Refusal], None]:
    """A callback that resolves ``future``, unless its task was cancelled."""
    return lambda reply: None if future.done() else future.set_result(reply)


def result_of(reply: _Reply | Refusal) -> _Reply:
    if isinstance(reply, Refusal):
        raise reply
    return reply
