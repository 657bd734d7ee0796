"""The decisions: may this peer announce, how often should it, and what is it told.

One announce is one call of the store. Whether a torrent or a passkey is known is decided in the store's
script, so a change holds from the very next announce; nothing of it is remembered here.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable

from tracker.bittorrent import (
    Address,
    Announce,
    AnnounceReply,
    Endpoint,
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
from tracker.store.swarms import EVENT_CODES, PeerUpdate, Refused, SwarmRules, Swarms

TIMEOUT_INTERVALS = 1.5
LONGEST_GAP_INTERVALS = 4
_FULL_SCRAPE_SECONDS = 60.0
_JITTER_STEPS = 10
_FAMILIES = {4: "v4", 16: "v6"}
"""By the length of an address."""
_LATE_SECONDS = 60
"""A client that obeys its interval may come this much later."""

_AWAY = "the tracker's store is away: your client will try again by itself"
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
    names += [f"announces.{event.value}"] if event in (Event.STARTED, Event.COMPLETED, Event.STOPPED) else []
    return (*names, "joins", f"joins.{family}") if joined else tuple(names)


_COUNTED = {
    (event, size, joined): _counted(event, family, joined=joined)
    for event in Event
    for size, family in _FAMILIES.items()
    for joined in (False, True)
}


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
        self._least_timeout = float(reaper.interval_seconds)
        self._secret = secret[:64]
        self._clock = clock
        self._full_scrape: tuple[float, dict[InfoHash, ScrapeFile]] | None = None
        self._full_scrape_lock = asyncio.Lock()

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        """Applies an announce from ``address``; raises ClientError with what to tell the peer."""
        began = self._timer()
        try:
            reply, joined = await self._decide(announce, passkey, address)
        except (ClientError, StoreAway) as error:
            refusal = self._refused(error, "announces")
            self._software(announce.peer_id, refusal.label)
            raise refusal from error
        self._counters.count(*_COUNTED[announce.event, len(address), joined])
        self._counters.observe("announce_seconds", self._timer() - began)
        if joined:
            self._tally(announce.info_hash, address)
            self._software(announce.peer_id, "")
        return reply

    def refused(self, label: str, kind: str = "other") -> None:
        """Counts a request that was refused before it came to a decision."""
        self._counters.count("requests", f"failures.{label}", f"refused.{kind}")

    def _refused(self, error: ClientError | StoreAway, kind: str) -> ClientError:
        """Counts a refusal, and puts it into words. A request that crashes is counted by whoever answers it."""
        if isinstance(error, StoreAway):
            error = ClientError(_AWAY, retry_in=1, label="store away")
        self.refused(error.label, kind)
        return error

    async def _decide(
        self, announce: Announce, passkey: str | None, address: Address
    ) -> tuple[AnnounceReply, bool]:
        """(the answer, whether the peer has joined the swarm with it)"""
        routable = is_routable(address)
        if not routable and self._announce.private_addresses == "refuse":
            raise ClientError(
                "your address is private: this tracker serves the public network only", retry_in=60
            )
        if self._allow_list is not None and not await self._allow_list.allows(announce.peer_id):
            raise ClientError("your client is not allowed on this tracker", retry_in=60)
        interval = self._interval()
        admitted = await self._swarms.announce(self._update(announce, passkey or "", address, interval))
        if isinstance(admitted, Refused):
            raise _refusal(admitted)
        joined = admitted.outcome == "join"
        reply = AnnounceReply(
            interval_seconds=interval,
            min_interval_seconds=min(interval, self._announce.min_interval_seconds),
            seeders=admitted.seeders,
            leechers=admitted.leechers,
            completions=admitted.completions,
            peers=admitted.peers,
            peers6=admitted.peers6,
            peer_ids=admitted.peer_ids,
            peer_ids6=admitted.peer_ids6,
            external_address=address,
            warning=_PRIVATE_ADDRESS if joined and not routable else None,
        )
        return reply, joined

    def _update(self, announce: Announce, passkey: str, address: Address, interval: int) -> PeerUpdate:
        key = announce.key
        return PeerUpdate(
            info_hash=announce.info_hash,
            peer_id=announce.peer_id,
            event=EVENT_CODES[announce.event.value],
            uploaded=announce.uploaded,
            downloaded=announce.downloaded,
            bytes_left=announce.bytes_left,
            endpoint=Endpoint(address + announce.port.to_bytes(2, "big")),
            peers_wanted=0 if announce.event is Event.STOPPED else self._peers_wanted(announce.peers_wanted),
            key_digest=hashlib.blake2b(key, digest_size=8, key=self._secret).digest() if key else b"",
            passkey=passkey if self._private else "",
            timeout_seconds=max(TIMEOUT_INTERVALS * interval, self._least_timeout),
            random=random.getrandbits(31),
            with_ids=not (announce.compact or announce.no_peer_id),
        )

    def _interval(self) -> int:
        """The interval of this answer: jittered, so that peers that came together do not come back together.

        In ten steps, because the store writes one list for all peers of a batch whose timeouts end together.
        """
        base = self._announce.interval_seconds
        return base + int(
            base * self._announce.interval_jitter * random.randrange(_JITTER_STEPS) / _JITTER_STEPS
        )

    def _peers_wanted(self, wanted: int | None) -> int:
        wanted = self._announce.peers_default if wanted is None else wanted
        return max(0, min(wanted, self._announce.peers_max))

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        """The figures of the torrents asked for; raises ClientError when they may not be asked for."""
        try:
            files = await self._files(scrape, passkey)
        except (ClientError, StoreAway) as error:
            raise self._refused(error, "scrapes") from error
        self._counters.count("requests", "scrapes", f"scrapes.{_FAMILIES[len(address)]}")
        return ScrapeReply(files, self._announce.min_interval_seconds)

    async def _files(self, scrape: Scrape, passkey: str | None) -> dict[InfoHash, ScrapeFile]:
        if self._private and not await self._swarms.may_scrape(passkey or ""):
            text, retry_in = _REFUSALS["unknown passkey"]
            raise ClientError(text, retry_in=retry_in, label="unknown passkey")
        if scrape.info_hashes:
            return await self._swarms.scrape(scrape.info_hashes)
        if not self._torrents.full_scrape:
            raise ClientError("a scrape needs an info_hash: full scrapes are switched off", retry_in="never")
        return await self._every_file()

    async def _every_file(self) -> dict[InfoHash, ScrapeFile]:
        """All torrents, remembered for a minute: asking for them costs as much as thousands of announces."""
        async with self._full_scrape_lock:
            now = self._clock()
            if self._full_scrape is not None:
                taken_at, files = self._full_scrape
                if 0 <= now - taken_at < _FULL_SCRAPE_SECONDS:  # a clock may go back
                    return files
            self._full_scrape = now, await self._swarms.scrape_all()
            return self._full_scrape[1]


def _refusal(refused: Refused) -> ClientError:
    known = _REFUSALS.get(refused.code)
    if known is None:
        return ClientError("internal error", retry_in=5, label="internal error")
    text, retry_in = known
    return ClientError(refused.reason or text, retry_in=retry_in, label=refused.code)
