"""Rate limits by address: how much one address may do before it is throttled, rejected and dropped.

A *hit* is a request counted towards a limit, a *subject* an address, or an address with a torrent or a peer. A table of
fixed size counts by a hash of the subject. Hits beyond an eighth of a limit are reported to the store. It adds up the
hits of all processes on all hosts, and returns once a second which subjects exceed a limit (workers/admission.py).
So well-behaved peers cause no store calls and take no memory, and an attacker with many addresses fills neither.
Regular announces count for their address only, once a batch. While the store is unavailable, this process uses its own
hits (request_counts.py).

IPv6 counts by /64: a household has 2^64 addresses. A NAT is one address here, so the limits leave room for hundreds of
peers.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from typing import NamedTuple

from tracker.bittorrent import Accounts, Address, Announce, Event, is_routable
from tracker.core.request_counts import CELLS, LocalCounts, RegularAnnounces, Sketch, network
from tracker.refusals import Refusal, SilentlyDropped
from tracker.settings.model import LiveSettings
from tracker.settings.public import LimitSettings
from tracker.store.access.rate_limits import MAX_STATES, Hit, RateLimitState
from tracker.store.stats.counters import Counters
from tracker.wire.endpoint import format_address, pack_address
from tracker.wire.proxy import Networks

THROTTLE, REJECT, DROP = 1, 2, 3
STAGES = {THROTTLE: "softened", REJECT: "refused", DROP: "dropped"}
"""The stages by their names in counters: a longer interval and fewer peers; a failure; no reply at all."""
PEER, TORRENT, JOINS, ADDRESS, PASSKEYS, WORK = "peer", "torrent", "joins", "address", "passkeys", "work"
THROTTLED_PEERS = 10
"""The maximum number of peers in a throttled reply, which also names a longer interval (intervals.py)."""
MAX_SUBJECTS = 4096
"""Different subjects whose hits wait for the store in one process."""
MAX_SENT = 512
"""This many subjects are sent a second: those with the most hits."""
MAX_NOTED = 4096
"""Answered announces that wait to be counted."""
ABSENT_STOPS_MINUTE = 100
"""The budget of stops a minute that remove no peer, at the second stage: this many, or the number of the address's
endpoints if that is larger. A stop that removes a peer adds one. Beyond the budget stops are rejected."""
_REGULAR_SHARE = 32
"""A process reports a network's regular announces beyond this part of the limit: they spread over all processes."""
_KNOWN_CELLS = 1 << 20
"""Cells for passkeys that were valid recently."""

LIMITED = {
    PEER: "too many announces",
    TORRENT: "too many announces",
    JOINS: "too many new peers",
    ADDRESS: "too many requests",
    PASSKEYS: "too many unknown passkeys",
}
"""The refusal of each limit."""


def _signed_cells() -> "array[int]":
    return array("i", bytes(4 * CELLS))


def _net_of(key: bytes) -> bytes:
    """The address or /64 at the start of a subject's key; an info hash and a peer id may follow."""
    return key[: len(key) % 20]


def _first_of(net: bytes) -> Address:
    """The address, or the first one of the /64."""
    return Address(net if len(net) == 4 else net + bytes(8))


def subject_text(key: bytes) -> str:
    """A subject as text: the address or /64, and the info hash and peer id in hex where the limit counts by them."""
    net = _net_of(key)
    name = format_address(_first_of(net)) + ("" if len(net) == 4 else "/64")
    return " ".join((name, *(key[at : at + 20].hex() for at in range(len(net), len(key), 20))))


@lru_cache(MAX_STATES)
def subject_key(text: str) -> bytes:
    """The reverse; raises ValueError. Cached, because the store lists the same subjects every second."""
    name, _, rest = text.partition(" ")
    address = pack_address(name.removesuffix("/64"))
    if address is None:
        raise ValueError("not an address")
    return address[:8] + bytes.fromhex(rest)


class Decision(NamedTuple):
    """The stage in force for a subject; ``until`` (epoch s) is when it ends."""

    stage: int
    limit: str
    key: bytes
    until: float


class Limits:
    """The limits of one process. ``strict``: some subject exceeds a limit, so every request must be checked.
    ``alone``: the store is unavailable, and this process uses its own counts."""

    max_sent = MAX_SENT

    def __init__(self, settings: LimitSettings, *, accounts: Accounts) -> None:
        self.strict = self.alone = False
        self._counts_guesses = accounts != "off"
        self._guesses = bytearray(CELLS)
        self.valid_passkeys = bytearray(_KNOWN_CELLS if self._counts_guesses else 1)
        """Passkeys that were valid recently: ``core/announce.py`` sets the cell ``hash(passkey) % len`` to 1. They pass
        when others from their address are rejected as guesses."""
        if accounts == "optional":
            self.valid_passkeys[hash("") % _KNOWN_CELLS] = 1  # an announce without a passkey is no guess
        self._entries: dict[bytes, int] = {}
        self._absent_stops, self._regular = _signed_cells(), RegularAnnounces()
        self.regular: list[Address] = []
        """The addresses of answered regular announces, not counted yet."""
        self.noted: list[tuple[str, Announce, Address]] = []
        """(outcome, announce, address) of other answered announces, not counted yet."""
        self._hits: dict[tuple[str, bytes], int] = {}
        self._local = LocalCounts()
        self._settings: LimitSettings | None = None
        self.apply_settings(settings)
        self.learn(())

    def apply_settings(self, settings: LimitSettings) -> None:
        """Applies changed settings. The counts of this minute start again; stages in force stay until their time is
        over, unless limits are disabled."""
        if settings is self._settings:
            return
        self._settings = settings
        self.enabled = settings.enabled
        self._exempt = Networks(  # IPv6 is counted by /64, so a smaller network cannot be exempt alone
            each.supernet(new_prefix=64) if each.version == 6 and each.prefixlen > 64 else each
            for each in settings.exempt
        )
        self.exempts = bool(self._exempt)
        self._all_addresses = settings.private_addresses
        self.max = self._allowed(settings)
        self._sketches = {limit: Sketch(allowed) for limit, allowed in self.max.items()} if self.enabled else {}
        if not self.enabled:
            self._hits.clear()
            self._local = LocalCounts()
            self.learn(())

    def _allowed(self, settings: LimitSettings) -> dict[str, int]:
        """Maximum hits a minute, by limit."""
        guesses = {PASSKEYS: settings.unknown_passkeys_minute} if self._counts_guesses else {}
        return guesses | {
            PEER: settings.peer_announces_minute,
            TORRENT: settings.torrent_announces_minute,
            JOINS: settings.joins_minute,
            ADDRESS: settings.address_requests_minute,
        }

    # Counting

    def note(self, outcome: str, announce: Announce, address: Address) -> None:
        """Counts an announce that was refused, or that was more than a peer's regular one."""
        if not self._counts(address):
            return
        net = network(address)
        swarm = net + announce.info_hash
        if outcome == "early":
            self._hit(PEER, swarm + announce.peer_id)
        elif outcome == "join":
            self._hit(JOINS, net)
        self._hit(TORRENT, swarm)
        if outcome != "update":  # which counts for its address as a regular announce
            self._hit(ADDRESS, net)

    def note_unserved(self, address: Address) -> None:
        """Counts an announce that the store could not serve, only while this process uses its own counts. It is not the
        client's fault, but a flood of such announces must not overload the process."""
        if self.alone and self._counts(address):
            self._hit(ADDRESS, network(address))

    def count_noted(self) -> None:
        """Counts the answered announces in ``regular`` and ``noted``. No announce waits for this."""
        regular, self.regular = self.regular, []
        noted, self.noted = self.noted, []
        if self.enabled:
            self._regular.add(regular)
        for outcome, announce, address in noted:
            self.note(outcome, announce, address)

    def note_scrape(self, address: Address, torrents: int) -> None:
        if self._counts(address):
            self._hit(ADDRESS, network(address), max(1, torrents))

    def on_unknown_passkey(self, passkey: str, address: Address) -> None:
        """Counts a passkey as a guess, once: clients go on sending one that was rotated."""
        if not self._counts(address):
            return
        net = network(address)
        cell = hash((net, passkey)) & (CELLS - 1)
        if not self._guesses[cell]:
            self._guesses[cell] = 1
            self._hit(PASSKEYS, net)

    def note_passed(self, decision: Decision, outcome: str, event: Event, address: Address) -> None:
        """Counts an announce that passed the second stage: for its limit, if that is by joins or by peer, and a stop by
        whether it removed a peer. A stop adds nothing to the joins limit, but keeps its stage in force. So a seedbox
        can stop all its torrents without reaching the third stage."""
        if decision.limit == JOINS or (decision.limit == PEER and outcome != "early"):
            number = 0 if decision.limit == JOINS and event is Event.STOPPED else 1
            self._add(decision.limit, decision.key, number)
        if event is Event.STOPPED:
            self._absent_stops[hash(network(address)) & (CELLS - 1)] += -1 if outcome == "leave" else 1

    def _counts(self, address: Address) -> bool:
        return self.enabled and (self._all_addresses or is_routable(address))

    def _hit(self, limit: str, key: bytes, number: int = 1) -> None:
        by = self._sketches[limit].add(key, number)
        if by:
            self._add(limit, key, by)

    def _add(self, limit: str, key: bytes, by: int = 1) -> None:
        subject = (limit, key)
        if subject in self._hits or len(self._hits) < MAX_SUBJECTS:
            self._hits[subject] = self._hits.get(subject, 0) + by

    # Checking

    def check(self, announce: Announce, passkey: str | None, address: Address) -> Decision | None:
        """The highest stage in force for the announce's peer, torrent or address; None when there is none."""
        net = address[:8]
        if net not in self._nets:
            return None
        swarm = net + announce.info_hash
        decisions = self._decisions
        found = (decisions.get(net), decisions.get(swarm), decisions.get(swarm + announce.peer_id))
        return self._highest(*found, self._guesser(passkey, net))

    def passes(self, event: Event, address: Address) -> bool:
        """Whether an announce passes the second stage: stops free memory, and clients do not repeat them."""
        if event is Event.STOPPED:
            net = network(address)
            allowed = max(ABSENT_STOPS_MINUTE, self._entries.get(net, 0))
            return self._absent_stops[hash(net) & (CELLS - 1)] < allowed
        return event is Event.COMPLETED

    def check_scrape(self, passkey: str | None, address: Address) -> Decision | None:
        net = network(address)
        return self._highest(self._decisions.get(net), self._guesser(passkey, net))

    def _guesser(self, passkey: str | None, net: bytes) -> Decision | None:
        found = self._guessing.get(net)
        if found is None or self.valid_passkeys[hash(passkey or "") % len(self.valid_passkeys)]:
            return None
        return found

    @staticmethod
    def _highest(*found: Decision | None) -> Decision | None:
        return max(filter(None, found), default=None, key=lambda decision: decision.stage)

    def networks_to_count(self) -> list[bytes]:
        """Networks at the second stage whose entries in swarms are not known in this minute."""
        decisions = (*self._decisions.values(), *self._guessing.values())
        networks = {_net_of(found.key) for found in decisions if found.stage == REJECT}
        return list(networks - self._entries.keys())

    def know_entries(self, entries: Mapping[bytes, int]) -> None:
        self._entries = {net: n for net, n in self._entries.items() if net in self._nets} | {**entries}

    # Sharing with all processes

    def take(self) -> list[Hit]:
        """The hits since the last call, without exempt networks."""
        self.count_noted()
        for net, number in self._regular.take(self.max.get(ADDRESS, 0) // _REGULAR_SHARE):
            if self._counts(_first_of(net)):
                self._add(ADDRESS, net, number)
        taken, self._hits = self._hits, {}
        largest = nlargest(self.max_sent, taken.items(), key=lambda item: item[1])
        hits = [
            Hit(limit, subject_text(key), number)
            for (limit, key), number in largest
            if not self.is_exempt(_first_of(_net_of(key)))
        ]
        self._local.add(hits)
        return hits

    def is_exempt(self, address: Address) -> bool:
        return address in self._exempt

    def learn(self, states: Sequence[RateLimitState]) -> None:
        """Replaces the stages in force by those of the store, which has the hits of all processes."""
        self.alone, self._shared = False, states
        self._take_over(states)

    def decide_alone(self, hits: Sequence[Hit], now: float) -> None:
        """Used when the store did not accept these ``hits``. Stages from the store stay until they end; this process's
        own counts add to them."""
        self.alone = True
        shared = [state for state in self._shared if state.until > now]
        self._take_over([*shared, *self._local.decide(hits, self.max, now)])

    def _take_over(self, states: Iterable[RateLimitState]) -> None:
        if not self.enabled:  # limits were disabled during the call of the store
            states = ()
        decisions: dict[bytes, Decision] = {}
        guessing: dict[bytes, Decision] = {}
        for state in states:
            try:
                key = subject_key(state.subject)
            except ValueError:  # not written by a tracker
                continue
            found = Decision(state.stage, state.limit, key, state.until)
            into = guessing if state.limit == PASSKEYS else decisions
            if state.limit == PASSKEYS and found.stage == THROTTLE:
                found = found._replace(stage=REJECT)  # a guess cannot be throttled
            known = into.get(key)
            if state.limit in self.max and (known is None or known.stage < found.stage):
                into[key] = found
        self._decisions, self._guessing = decisions, guessing
        self._nets = {_net_of(key) for key in (*decisions, *guessing)}
        self.strict = bool(self._nets)

    def begin_window(self) -> None:
        """Starts the next minute: counts that were not reported are dropped."""
        self.count_noted()
        for sketch in self._sketches.values():
            sketch.clear()
        self._guesses = bytearray(CELLS)
        self._absent_stops = _signed_cells()
        self._entries = {}
        self._regular.clear()
        self._local.begin_window()

    def refused(self, counters: Counters, decision: Decision) -> None:
        """Counts a refused request, also for its limit: the stage stays in force while such requests arrive."""
        self._add(decision.limit, decision.key)
        self.count(counters, decision)

    def count(self, counters: Counters, decision: Decision) -> None:
        """Counts a request whose reply a limit has changed."""
        counters.count(f"limited.{decision.limit}.{STAGES[decision.stage]}")


class WorkLimits(Limits):
    """The limit on requests of one address to the listener of work distribution."""

    max_sent = MAX_SUBJECTS

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        super().__init__(live.current.limits, accounts="off")

    def _allowed(self, settings: LimitSettings) -> dict[str, int]:
        return {WORK: settings.work_requests_minute}

    def wait_seconds(self, address: Address, now: float) -> float:
        """Counts a request at ``now`` (epoch s). Returns for how long its address gets nothing; 0: it is answered."""
        self.apply_settings(self._live.current.limits)
        if not address or not self._counts(address):
            return 0.0
        net = network(address)
        self._hit(WORK, net)
        found = self._decisions.get(net)
        return 0.0 if found is None else max(0.0, found.until - now)

    def networks_to_count(self) -> list[bytes]:
        """None: the limit does not depend on an address's peers."""
        return []


def to_error(decision: Decision) -> Refusal:
    """The failure of a request that a limit rejects or drops."""
    refused = SilentlyDropped if decision.stage == DROP else Refusal
    return refused(LIMITED[decision.limit])
