"""The decisions: may this peer announce, how often should it, and what is it told.

One announce is one part of one call of the store. Whether a torrent or a passkey is known is decided in the store's
script, so a change holds from the very next announce; nothing of it is remembered here.

An announce comes in by ``submit`` and its answer goes out by a callback: at the rates this is made for, a task and a
future for each would cost more than the decisions. ``announce`` is the same for callers with time to wait.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from tracker.bittorrent import (
    Address,
    Announce,
    AnnounceReply,
    Event,
    InfoHash,
    PeerId,
    Scrape,
    ScrapeFile,
    ScrapeReply,
    is_routable,
)
from tracker.errors import ClientError, RetryIn, StoreAway
from tracker.settings import AnnounceSettings, ClientSettings, ReaperSettings, TorrentSettings, UserSettings
from tracker.store.clients import AllowList
from tracker.store.counters import Counters
from tracker.store.swarms import EVENT_CODES, Admitted, PeerUpdate, Refused, SwarmRules, Swarms

TIMEOUT_INTERVALS = 1.5
LONGEST_GAP_INTERVALS = 4
_FULL_SCRAPE_SECONDS = 60.0
_JITTER_STEPS = 10
"""Few, because the store writes one list for all peers of a batch whose timeouts end together."""
_FAMILIES = {4: "v4", 16: "v6"}
"""By the length of an address."""
_LATE_SECONDS = 60
"""A client that obeys its interval may come this much later."""

_AWAY = "the tracker's store is away: your client will try again by itself"
_STOPPED = Event.STOPPED  # reading a member off its class is slow
_PRIVATE_REFUSED = "your address is private: this tracker serves the public network only"
_PRIVATE_ADDRESS = "your address is private: peers outside your network cannot reach you"
_REFUSALS: dict[str, tuple[str, RetryIn]] = {
    "unknown torrent": ("this torrent is not registered with this tracker", 30),
    "denied": ("this torrent is not allowed on this tracker", "never"),
    "disabled": ("this torrent is disabled", 60),
    "unknown passkey": ("unknown passkey: download the .torrent file again", 60),
    "user disabled": ("your account is disabled", 60),
    "may not leech": ("your account may not download", 60),
    "too many torrents": ("this tracker takes no more torrents", 60),
    "too many new torrents": ("too many new torrents from your address: try again in an hour", 60),
    "store full": ("the tracker is full: your client will try again by itself", 5),
    "torrent id in use": ("this torrent has the id of another: tell the people who run this tracker", 15),
    "bad torrent id": ("this torrent is registered wrongly: tell the people who run this tracker", 60),
}


def _counted(event: Event, family: str, *, joined: bool) -> tuple[str, ...]:
    """What an answered announce counts as."""
    names = ["requests", "announces", f"announces.{family}"]
    names += [f"announces.{event}"] if event in (Event.STARTED, Event.COMPLETED, Event.STOPPED) else []
    return (*names, "joins", f"joins.{family}") if joined else tuple(names)


_COUNTED = {
    (event, size, joined): _counted(event, family, joined=joined)
    for event in Event
    for size, family in _FAMILIES.items()
    for joined in (False, True)
}


class _Step(NamedTuple):
    """One of the intervals an answer may name, and the timeout that goes with it (s)."""

    interval: int
    min_interval: int
    timeout: float


Answer = Callable[[AnnounceReply | ClientError], None]
_ordered = tuple.__new__
"""Makes a named tuple of its fields in order, in half the time of the class's own call."""
_Asked = tuple[Announce, Address, _Step, float, Answer]
"""An announce on its way through the store: what was asked, from where, the interval to be told, since when, by whom."""


def swarm_rules(
    announce: AnnounceSettings, torrents: TorrentSettings, users: UserSettings, reaper: ReaperSettings
) -> SwarmRules:
    """The settings as the store's scripts take them."""
    return SwarmRules(
        private=users.private,
        open=torrents.mode == "open",
        peer_memory=users.peer_memory_seconds,
        hnr_min_bytes=users.hnr_min_bytes,
        hnr_threshold=users.hnr_threshold_seconds,
        longest_gap=LONGEST_GAP_INTERVALS * announce.interval_seconds,
        shortest_timeout=max(TIMEOUT_INTERVALS * announce.interval_seconds, reaper.interval_seconds),
        max_credit=users.max_credit_bytes_per_second,
        max_torrents=torrents.max_torrents,
        new_per_address_hour=torrents.new_per_address_hour,
        # After an outage everybody gets the time to announce, however long they were told to wait.
        grace=max(int(reaper.interval_seconds), announce.longest_interval_seconds + _LATE_SECONDS),
        forget_after=torrents.forget_after_seconds,
    )


class Tracker:
    """Answers announces and scrapes. ``secret`` keys the hash of the clients' ``key``.

    ``tally`` hears of each peer that joins a swarm, and from where; ``software`` of the same, and of each that is
    refused, by peer id with the label of the failure ("" for a join). ``timer`` gives seconds since whenever.
    """

    def __init__(
        self,
        swarms: Swarms,
        counters: Counters,
        allow_list: AllowList,
        tally: Callable[[InfoHash, Address], None],
        *,
        announce: AnnounceSettings,
        torrents: TorrentSettings,
        users: UserSettings,
        clients: ClientSettings,
        reaper: ReaperSettings,
        secret: bytes,
        clock: Callable[[], float],
        software: Callable[[PeerId, str], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._swarms = swarms
        self._counters = counters
        self._tally = tally
        self._software = software
        self._timer = timer
        self._allow_list = allow_list if clients.allow_list else None
        self._announce = announce
        self._torrents = torrents
        self._private = users.private
        self._refuses_private = announce.private_addresses == "refuse"
        self._peers_max = announce.peers_max
        self._peers_default = min(announce.peers_default, announce.peers_max)
        self._steps = _steps(announce, float(reaper.interval_seconds))
        self._digest = hashlib.blake2b(digest_size=8, key=secret[:64])
        self._served: dict[tuple[Event, int, bool], int] = {}
        self._seconds: list[float] = []
        self._clock = clock
        self._full_scrape: tuple[float, dict[InfoHash, ScrapeFile]] | None = None
        self._full_scrape_lock = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """Requests whose turn has not come."""
        return self._swarms.waiting

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        """Applies an announce from ``address``; raises ClientError with what to tell the peer."""
        answered: asyncio.Future[AnnounceReply | ClientError] = asyncio.get_running_loop().create_future()
        answer = _resolving(answered)
        while not self.submit(announce, passkey, address, answer):
            try:
                await cast(AllowList, self._allow_list).allows(announce.peer_id)
            except StoreAway as error:
                answer(self._deny(announce, error))
                break
        return _given(await answered)

    def submit(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> bool:
        """Applies an announce from ``address``; ``answer`` is called once, perhaps at once, with what to tell the peer.

        False when the store has to be asked something first, which ``announce`` does.
        """
        allowed = self._allow_list is None or self._allow_list.known(announce.peer_id)
        if allowed is None:
            return False
        asked = (announce, address, self._steps[int(random.random() * _JITTER_STEPS)], self._timer(), answer)
        if self._refuses_private and not is_routable(address):
            self._settle(asked, ClientError(_PRIVATE_REFUSED, retry_in=60))
        elif not allowed:
            self._settle(asked, ClientError("your client is not allowed on this tracker", retry_in=60))
        else:
            try:
                self._swarms.submit(self._update(asked, passkey or ""), self._settle, asked)
            except StoreAway as error:
                self._settle(asked, error)
        return True

    def _settle(self, asked: _Asked, outcome: Admitted | Refused | StoreAway | ClientError) -> None:
        """Counts an announce whose fate is known, and answers it."""
        announce, address, step, began, answer = asked
        if not isinstance(outcome, Admitted):
            answer(self._deny(announce, _refusal(outcome) if isinstance(outcome, Refused) else outcome))
            return
        joined = outcome.outcome == "join"
        if not self._seconds:
            asyncio.get_running_loop().call_soon(self._count)
        self._seconds.append(self._timer() - began)
        kind = (announce.event, len(address), joined)
        self._served[kind] = self._served.get(kind, 0) + 1
        warning = None
        if joined:
            self._tally(announce.info_hash, address)
            self._software(announce.peer_id, "")
            warning = None if is_routable(address) else _PRIVATE_ADDRESS
        answer(_ordered(AnnounceReply, (step[0], step[1], *outcome[:7], address, warning)))

    def _deny(self, announce: Announce, error: ClientError | StoreAway) -> ClientError:
        refusal = self._refused(error, "announces")
        self._software(announce.peer_id, refusal.label)
        return refusal

    def _count(self) -> None:
        """Counts what was answered since the last time, which is the announces of one batch."""
        served, self._served = self._served, {}
        seconds, self._seconds = self._seconds, []
        for kind, number in served.items():
            self._counters.count(*_COUNTED[kind], by=number)
        self._counters.observe("announce_seconds", *seconds)

    def refused(self, label: str, kind: str = "other") -> None:
        """Counts a request that was refused before it came to a decision."""
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}")

    def _refused(self, error: ClientError | StoreAway, kind: str) -> ClientError:
        """Counts a refusal, and puts it into words. A request that crashes is counted by whoever answers it."""
        if isinstance(error, StoreAway):
            error = ClientError(_AWAY, retry_in=1, label="store away")
        self.refused(error.label, kind)
        return error

    def _update(self, asked: _Asked, passkey: str) -> PeerUpdate:
        announce, address, step, _, _ = asked
        digest = b""
        if announce.key:
            keyed = self._digest.copy()
            keyed.update(announce.key)
            digest = keyed.digest()
        event, wanted = announce.event, announce.peers_wanted
        if event is _STOPPED:
            wanted = 0
        elif wanted is None:
            wanted = self._peers_default
        elif not 0 <= wanted <= self._peers_max:
            wanted = max(0, min(wanted, self._peers_max))
        fields = (
            announce.info_hash,
            announce.peer_id,
            EVENT_CODES[event],
            announce.uploaded,
            announce.downloaded,
            announce.bytes_left,
            address + announce.port.to_bytes(2, "big"),
            wanted,
            digest,
            passkey if self._private else "",
            step[2],
            random.getrandbits(31),
            not (announce.compact or announce.no_peer_id),
        )
        return _ordered(PeerUpdate, fields)

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        """The figures of the torrents asked for; raises ClientError when they may not be asked for."""
        answered: asyncio.Future[ScrapeReply | ClientError] = asyncio.get_running_loop().create_future()
        if not self.submit_scrape(scrape, passkey, address, _resolving(answered)):
            try:
                files = await self._every_file(passkey or "")
            except (ClientError, StoreAway) as error:
                raise self._refused(error, "scrapes") from error
            self._settle_scrape((address, _resolving(answered)), files)
        return _given(await answered)

    def submit_scrape(
        self,
        scrape: Scrape,
        passkey: str | None,
        address: Address,
        answer: Callable[[ScrapeReply | ClientError], None],
    ) -> bool:
        """Reads figures; ``answer`` is called once, perhaps at once. False for a full scrape, which takes its time."""
        if not scrape.info_hashes:
            return False
        asked = (address, answer)
        try:
            self._swarms.submit_scrape(scrape.info_hashes, passkey or "", self._settle_scrape, asked)
        except StoreAway as error:
            self._settle_scrape(asked, error)
        return True

    def _settle_scrape(
        self,
        asked: tuple[Address, Callable[[ScrapeReply | ClientError], None]],
        files: dict[InfoHash, ScrapeFile] | StoreAway | None,
    ) -> None:
        address, answer = asked
        if isinstance(files, dict):
            self._counters.count("requests", "scrapes", f"scrapes.{_FAMILIES[len(address)]}")
            answer(ScrapeReply(files, self._announce.min_interval_seconds))
        else:
            answer(self._refused(files or _refusal(Refused("unknown passkey", "")), "scrapes"))

    async def _every_file(self, passkey: str) -> dict[InfoHash, ScrapeFile] | None:
        """All torrents, remembered for a minute: asking for them costs as much as thousands of announces."""
        if await self._swarms.scrape((), passkey) is None:
            return None
        if not self._torrents.full_scrape:
            raise ClientError("a scrape needs an info_hash: full scrapes are switched off", retry_in="never")
        async with self._full_scrape_lock:
            now = self._clock()
            if self._full_scrape is not None:
                taken_at, files = self._full_scrape
                if 0 <= now - taken_at < _FULL_SCRAPE_SECONDS:  # a clock may go back
                    return files
            files = await self._swarms.scrape_all(passkey) or {}
            self._full_scrape = now, files
            return files


_Reply = TypeVar("_Reply")


def _resolving(future: "asyncio.Future[_Reply | ClientError]") -> Callable[[_Reply | ClientError], None]:
    """Of a request whose task was cancelled nobody wants to know."""
    return lambda reply: None if future.done() else future.set_result(reply)


def _given(reply: _Reply | ClientError) -> _Reply:
    if isinstance(reply, ClientError):
        raise reply
    return reply


def _steps(announce: AnnounceSettings, least_timeout: float) -> list[_Step]:
    """The intervals of answers: jittered, so that peers that came together do not come back together."""
    base, least = announce.interval_seconds, announce.min_interval_seconds
    intervals = [
        base + int(base * announce.interval_jitter * n / _JITTER_STEPS) for n in range(_JITTER_STEPS)
    ]
    return [_Step(n, min(n, least), max(TIMEOUT_INTERVALS * n, least_timeout)) for n in intervals]


def _refusal(refused: Refused) -> ClientError:
    known = _REFUSALS.get(refused.code)
    if known is None:
        return ClientError("internal error", retry_in=5, label="internal error")
    text, retry_in = known
    return ClientError(refused.reason or text, retry_in=retry_in, label=refused.code)
