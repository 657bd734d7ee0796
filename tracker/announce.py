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
from typing import cast

from tracker.bittorrent import Address, Announce, AnnounceReply, Event, InfoHash, PeerId, is_routable
from tracker.errors import ClientError, StoreAway
from tracker.limits import SOFT, SOFT_PEERS, Judgement, Limits, sentence
from tracker.refusals import Failures
from tracker.rules import JITTER_STEPS, Step, steps
from tracker.scrape import Scrapes, given, resolving
from tracker.settings import AnnounceSettings, ClientSettings, ReaperSettings, TorrentSettings, UserSettings
from tracker.store.clients import AllowList
from tracker.store.counters import Counters
from tracker.store.swarms import EVENT_CODES, Admitted, PeerUpdate, Refused, Swarms

_FAMILIES = {4: "v4", 16: "v6"}
"""By the length of an address."""
_STOPPED = Event.STOPPED  # reading a member off its class is slow
_PRIVATE_REFUSED = "your address is private: this tracker serves the public network only"
_PRIVATE_ADDRESS = "your address is private: peers outside your network cannot reach you"


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


Answer = Callable[[AnnounceReply | ClientError], None]
_ordered = tuple.__new__
"""Makes a named tuple of its fields in order, in half the time of the class's own call."""
_Asked = tuple[Announce, Address, Step, float, Answer, str]
"""An announce on its way through the store: what was asked, from where, the interval to be told, since when, by whom, and the
passkey where one is needed."""
_SLOWER = 2
"""How much longer the intervals are of whom a limit tells less."""


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
        limits: Limits,
        software: Callable[[PeerId, str], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._swarms = swarms
        self._counters = counters
        self._tally = tally
        self._software = software
        self._timer = timer
        self._allow_list = allow_list if clients.allow_list else None
        self._private = users.private
        self._refuses_private = announce.private_addresses == "refuse"
        self._peers_max = announce.peers_max
        self._peers_default = min(announce.peers_default, announce.peers_max)
        self._steps = steps(announce, float(reaper.interval_seconds))
        self._slow_steps = steps(announce, float(reaper.interval_seconds), _SLOWER)
        self._limits = limits
        self._digest = hashlib.blake2b(digest_size=8, key=secret[:64])
        self._served: dict[tuple[Event, int, bool], int] = {}
        self._seconds: list[float] = []
        self._failures = Failures(counters)
        self._scrapes = Scrapes(
            swarms,
            counters,
            self._failures,
            limits,
            full=torrents.full_scrape,
            min_interval_seconds=announce.min_interval_seconds,
            clock=clock,
        )
        self.scrape, self.submit_scrape = self._scrapes.scrape, self._scrapes.submit

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        """Applies an announce from ``address``; raises ClientError with what to tell the peer."""
        answered: asyncio.Future[AnnounceReply | ClientError] = asyncio.get_running_loop().create_future()
        answer = resolving(answered)
        while not self.submit(announce, passkey, address, answer):
            try:
                await cast(AllowList, self._allow_list).allows(announce.peer_id)
            except StoreAway as error:
                answer(self._deny(announce, error))
                break
        return given(await answered)

    def submit(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> bool:
        """Applies an announce from ``address``; ``answer`` is called once, perhaps at once, with what to tell the peer.

        False when the store has to be asked something first, which ``announce`` does.
        """
        allowed = self._allow_list is None or self._allow_list.known(announce.peer_id)
        if allowed is None:
            return False
        passkey, intervals = passkey or "" if self._private else "", self._steps
        if self._limits.strict:
            judged = self._limits.judge(announce, passkey, address)
            if judged is not None:
                if judged.stage > SOFT:
                    answer(self._sentenced(judged))
                    return True
                self._limits.count(self._counters, judged)
                announce, intervals = self._told_less(announce), self._slow_steps
        asked = (
            announce,
            address,
            intervals[random.getrandbits(31) % JITTER_STEPS],
            self._timer(),
            answer,
            passkey,
        )
        if self._refuses_private and not is_routable(address):
            self._settle(asked, ClientError(_PRIVATE_REFUSED, retry_in=60))
        elif not allowed:
            self._settle(asked, ClientError("your client is not allowed on this tracker", retry_in=60))
        else:
            try:
                self._swarms.submit(self._update(asked), self._settle, asked)
            except StoreAway as error:
                self._settle(asked, error)
        return True

    def _settle(self, asked: _Asked, outcome: Admitted | Refused | StoreAway | ClientError) -> None:
        """Counts an announce whose fate is known, and answers it."""
        announce, address, step, began, answer, passkey = asked
        if not isinstance(outcome, Admitted):
            self._note_refusal(outcome, announce, passkey, address)
            answer(self._deny(announce, outcome))
            return
        seeders, leechers, completions, peers, peers6, ids, ids6, done = outcome
        joined = done == "join"
        if done != "update":
            self._limits.note(done, announce, address)
        if passkey:
            self._limits.vouch(passkey)
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
        told = (step[0], step[1], seeders, leechers, completions, peers, peers6, ids, ids6, address, warning)
        answer(_ordered(AnnounceReply, told))

    def _told_less(self, announce: Announce) -> Announce:
        wanted = announce.peers_wanted
        return announce._replace(
            peers_wanted=min(self._peers_default if wanted is None else wanted, SOFT_PEERS)
        )

    def _sentenced(self, judged: Judgement) -> ClientError:
        """Counts an announce that a limit refuses, or leaves without an answer."""
        self._limits.count(self._counters, judged)
        return self._failures.worded(sentence(judged), "announces")

    def _note_refusal(
        self, outcome: Refused | StoreAway | ClientError, announce: Announce, passkey: str, address: Address
    ) -> None:
        """What the store cannot do is nobody's offence."""
        if isinstance(outcome, StoreAway):
            return
        self._limits.note("refused", announce, address)
        if isinstance(outcome, Refused) and outcome.code == "unknown passkey":
            self._limits.guessed(passkey, address)

    def _deny(self, announce: Announce, error: Refused | ClientError | StoreAway) -> ClientError:
        refusal = self._failures.worded(error, "announces")
        self._software(announce.peer_id, refusal.label)
        return refusal

    def _count(self) -> None:
        """Counts what was answered since the last time, which is the announces of one batch."""
        served, self._served = self._served, {}
        seconds, self._seconds = self._seconds, []
        for kind, number in served.items():
            self._counters.count(*_COUNTED[kind], by=number)
        self._counters.observe("announce_seconds", *seconds)

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        """Counts requests that were refused before they came to a decision."""
        self._failures.count(label, kind, number)

    def _update(self, asked: _Asked) -> PeerUpdate:
        announce, address, step, _, _, passkey = asked
        info_hash, peer_id, port, uploaded, downloaded, left, event, wanted, key, compact, no_peer_id, _ = (
            announce
        )
        digest = b""
        if key:
            keyed = self._digest.copy()
            keyed.update(key)
            digest = keyed.digest()
        if event is _STOPPED:
            wanted = 0
        elif wanted is None:
            wanted = self._peers_default
        elif not 0 <= wanted <= self._peers_max:
            wanted = max(0, min(wanted, self._peers_max))
        fields = (
            info_hash,
            peer_id,
            EVENT_CODES[event],
            uploaded,
            downloaded,
            left,
            address + port.to_bytes(2, "big"),
            wanted,
            digest,
            passkey,
            step[2],
            random.getrandbits(31),
            not (compact or no_peer_id),
        )
        return _ordered(PeerUpdate, fields)
