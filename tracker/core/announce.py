"""Decides about announces: whether a peer may announce, its next interval, and its reply.

Announces are sent to the store in batches, one script call per batch. The script looks up the torrent and the passkey,
so a change applies from the next announce; this module caches neither.

``submit`` takes an announce, and a callback gets its reply: a task and a future for each announce would cost more than
the decisions. ``announce`` is the same as a coroutine.
"""

import asyncio
import copy
import random
import time
from collections.abc import Callable, Iterable
from functools import partial

from tracker.bittorrent import (
    Address,
    Announce,
    AnnounceOverSocket,
    AnnounceReply,
    AnnounceWithAgent,
    Event,
    InfoHash,
    PeerId,
    Reply,
    is_routable,
)
from tracker.core.clients import ClientRules
from tracker.core.counter_names import HTTP, HTTP_BYTES, UDP_AND_WEBSOCKET_BYTES, WEBSOCKET, Kind, Names
from tracker.core.intervals import JITTER_STEPS, Step, socket_steps, step_after, steps, throttled_steps
from tracker.core.rate_limits import DROP, MAX_NOTED, THROTTLE, THROTTLED_PEERS, Decision, Limits, to_error
from tracker.core.refusals import Failures, RegistrationLimits
from tracker.core.scrape import Scrapes, resolving, result_of
from tracker.core.warning_messages import PRIVATE_ADDRESS, WARNINGS, answer_with_warning, warning_of
from tracker.errors import StoreUnavailable
from tracker.refusals import Refusal
from tracker.settings.model import LiveSettings
from tracker.store.stats.counters import Counters
from tracker.store.swarms.codec import (
    COMPLETED_MEMBER,
    EVENT_CODES,
    GONE,
    OVER_SOCKET,
    OWN_FAMILY,
    Admission,
    Admitted,
    AdmittedAnonymously,
    PeerUpdate,
    Refused,
    TrafficTotals,
    Update,
    with_agent,
)
from tracker.store.swarms.swarms import AllSwarms
from tracker.wire.peer_id import secret_of

_STOPPED = Event.STOPPED  # reading a member off its class is slow


_NOTHING_RARE = (0,) * len(TrafficTotals._fields[4:])
"""What follows the traffic over HTTP in the totals of most batches."""
Answer = Callable[[Reply | Refusal], None]
_Pending = tuple[Announce, Address, Step, float, Answer, str, Decision | None]
"""(announce, address, interval step, start time, reply callback, passkey, the decision of a limit it exceeds)"""
_Failure = Refused | StoreUnavailable | Refusal
_FAILURES = Refused, StoreUnavailable, Refusal
_Outcome = Admission | _Failure
_Settled = Iterable[tuple[_Pending, _Outcome]]
_Batch = tuple[int, TrafficTotals] | None


MAX_TOLD = 10_000
"""Private addresses that are remembered as warned."""


class PrivateAddresses:
    """Warns each private address once, by its first join after one from a public address: in a LAN there is none."""

    def __init__(self) -> None:
        self._told: set[bytes] = set()
        self._public = False

    def warning(self, address: bytes) -> str | None:
        """For a peer that joined from ``address``."""
        if is_routable(address):
            self._public = True
            return None
        if not self._public or address in self._told:
            return None
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told.add(address)
        return PRIVATE_ADDRESS


class Tracker:
    """Answers announces and scrapes. ``on_join`` is called for each peer that joins a swarm; ``on_refused`` for each
    refused announce but those over a limit, with the label of the failure and the passkey (empty without one).
    ``clock`` gives epoch seconds, ``timer`` seconds from any start."""

    def __init__(
        self,
        swarms: AllSwarms,
        counters: Counters,
        clients: ClientRules,
        settings: LiveSettings,
        *,
        clock: Callable[[], float],
        limits: Limits,
        on_join: Callable[[InfoHash, PeerId, Address], None],
        on_refused: Callable[[InfoHash, PeerId, str, str, Address], None],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._submits = swarms.submits
        self._counters = counters
        self.count = counters.count
        self._counter_names = HTTP
        self._on_join = on_join
        self._on_refused = on_refused
        self._timer = timer
        self._clients = clients
        self._limits = limits
        self._live = settings
        self._apply_settings()
        self._registrations = RegistrationLimits(counters.count, clock)
        self._failures = Failures(counters)
        self.refused = self._failures.count
        self._private_addresses = PrivateAddresses()
        scrapes = Scrapes(swarms, counters, self._failures, limits, settings)
        self.scrape, self.submit_scrape, self.check_passkey = scrapes.scrape, scrapes.submit, scrapes.check_passkey

    def _apply_settings(self) -> None:
        """Derives the values that an announce needs from the settings: at the start, and after each reload."""
        self._settings = settings = self._live.current
        announce, reap_seconds = settings.announce, float(settings.reaper.interval_seconds)
        self._is_allowed = self._clients.apply_settings(settings.clients)
        self._reads_passkeys = settings.users.private != "off"
        self._min_credit_interval = settings.users.min_credit_interval_seconds
        self._refuses_private = announce.private_addresses == "refuse"
        self._to_update = self._with_agent if settings.http.keep_user_agents else self._update
        self._peers_max = announce.peers_max
        self._peers_default = min(announce.peers_default, announce.peers_max)
        self._steps = steps(announce, reap_seconds)
        self._throttled_steps = throttled_steps(announce, reap_seconds)
        if self._counter_names is WEBSOCKET:
            interval, jitter = settings.webtorrent.interval_seconds, announce.interval_jitter
            self._to_update = self._over_socket
            self._steps = socket_steps(interval, jitter)
            self._throttled_steps = socket_steps(interval, jitter, stretch=2)
        self._limits.apply_settings(settings.limits)

    def over(self, counter_names: Names) -> "Tracker":
        """The same tracker for UDP or WEBSOCKET, which have counters of their own, WebSockets also intervals."""
        other = copy.copy(self)
        other._counter_names = counter_names
        other._apply_settings()
        return other

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        """Applies an announce from ``address``; raises Refusal with the failure to send."""
        future: asyncio.Future[Reply | Refusal] = asyncio.get_running_loop().create_future()
        await self.submit_later(announce, passkey, address, resolving(future))
        return AnnounceReply(*result_of(await future))

    async def submit_later(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> None:
        """As ``submit``, but reads the store first where it must be."""
        while not self.submit(announce, passkey, address, answer):
            try:
                await self._clients.ask(announce.peer_id)
            except StoreUnavailable as error:
                answer(self._deny(announce, error, passkey or "" if self._reads_passkeys else "", address))
                break

    def submit(self, announce: Announce, passkey: str | None, address: Address, answer: Answer) -> bool:
        """Applies an announce from ``address``; calls ``answer`` once, perhaps at once, with the reply. Returns False,
        and does nothing, when the store must be read first; ``submit_later`` does that."""
        if self._live.current is not self._settings:
            self._apply_settings()
        refusal = None
        if announce.event is not _STOPPED:  # the store checks that a peer that stops is the client's own
            allowed = self._is_allowed is None or self._is_allowed(announce.peer_id)
            if allowed is None:
                return False
            if self._refuses_private and not is_routable(address):
                refusal = Refusal("your address is private: this tracker serves the public network only")
            elif not allowed:
                refusal = self._clients.refusal(announce.peer_id)
        passkey, intervals = passkey or "" if self._reads_passkeys else "", self._steps
        if self._limits.strict:
            decision = self._limits.check(announce, passkey, address)
            if decision is not None:
                if decision.stage > THROTTLE:
                    self._submit_over_limit(decision, announce, passkey, address, answer, may_join=refusal is None)
                    return True
                self._limits.count(self._counters, decision)
                announce, intervals = self._throttle(announce), self._throttled_steps
        pending = (
            announce,
            address,
            intervals[random.getrandbits(31) % JITTER_STEPS],
            self._timer(),
            answer,
            passkey,
            None,
        )
        if refusal is not None:
            self._settle([(pending, refusal)], None)
        else:
            try:
                update = self._to_update(pending)
                self._submits[update[0][0]](update, self._settle, pending)
            except StoreUnavailable as error:
                self._settle([(pending, error)], None)
        return True

    def _submit_over_limit(
        self, decision: Decision, announce: Announce, passkey: str, address: Address, answer: Answer, *, may_join: bool
    ) -> None:
        """Rejects or drops an announce, in any case if the peer may not announce otherwise. At the second stage the
        store still gets ``stopped``, and ``completed`` of a peer in the swarm: clients repeat neither."""
        if decision.stage == DROP or not may_join or not self._limits.passes(announce.event, address):
            answer(self._reject(decision))
            return
        step = random.choice(self._throttled_steps)
        pending = (self._throttle(announce), address, step, self._timer(), answer, passkey, decision)
        update = self._to_update(pending)
        if announce.event is Event.COMPLETED:
            update = PeerUpdate(*update)._replace(event=COMPLETED_MEMBER)
        try:
            self._submits[announce.info_hash[0]](update, self._settle, pending)
        except StoreUnavailable as error:
            self._settle([(pending, error)], None)

    def _settle(self, settled: _Settled, batch: _Batch) -> None:
        """Answers and counts announces whose outcome is known. ``batch``: the number of announces in their call,
        also over the other protocol, and the traffic."""
        limits, now = self._limits, self._timer()
        regular, noted, valid_passkeys = limits.regular, limits.noted, limits.valid_passkeys
        served: list[Kind] = []
        seconds: list[float] = []
        for pending, outcome in settled:
            announce, address, step, began, answer, passkey, decision = pending
            if decision is not None and not self._passes_limit(decision, announce, address, outcome):
                self._note_guess(outcome, passkey, address)
                answer(self._reject(decision))
                continue
            if type(outcome) is not tuple:
                if isinstance(outcome, _FAILURES):
                    self._note_refusal(outcome, announce, passkey, address)
                    answer(self._deny(announce, outcome, passkey, address))
                    continue
                assert isinstance(outcome, Admitted)
                answer, step = (
                    partial(answer_with_warning, warning_of(outcome), answer),
                    step_after(outcome, step, self._min_credit_interval),
                )
                if isinstance(outcome, AdmittedAnonymously):
                    limits.on_unknown_passkey(passkey, address)
                    passkey = ""
            # Refused is no plain tuple.
            seeders, leechers, completions, peers, peers6, ids, ids6, done = outcome  # type: ignore[misc]
            joined, warning = False, None
            if done == "update":
                regular.append(address)
            else:
                noted.append((done, announce, address))
                warning, joined = WARNINGS.get(done), done == "join"
                if joined:
                    self._on_join(announce.info_hash, announce.peer_id, address)
                    warning = self._private_addresses.warning(address)
            if passkey:
                valid_passkeys[hash(passkey) % len(valid_passkeys)] = 1
            seconds.append(now - began)
            served.append((announce.event, len(address), joined))
            answer((step[0], step[1], seeders, leechers, completions, peers, peers6, ids, ids6, address, warning))
        self._count(served, seconds)
        if batch is not None:
            self._count_batch(*batch)

    def _count(self, served: list[Kind], seconds: list[float]) -> None:
        if len(self._limits.regular) + len(self._limits.noted) >= MAX_NOTED:
            self._limits.count_noted()
        for kind in set(served):  # of a batch they are few; a Counter would cost as much as an announce
            self._counters.count(*self._counter_names[kind], by=served.count(kind))
        if seconds:
            self._counters.observe("announce_seconds", *seconds)

    def _count_batch(self, announces: int, totals: TrafficTotals) -> None:
        self._counters.observe("announce_batch", announces)
        for names, number in zip(HTTP_BYTES, totals, strict=False):
            if number:
                self._counters.count(*names, by=number)
        if totals[4:] != _NOTHING_RARE:
            self._count_rare(totals)

    def _count_rare(self, totals: TrafficTotals) -> None:
        """Counts what most batches do not have."""
        if totals.forgotten or totals.refused:
            self._registrations.note(totals.forgotten, totals.refused)
        if totals.given:
            self._counters.count("dht_given", by=totals.given)
        for names, number in zip(UDP_AND_WEBSOCKET_BYTES, totals.udp_and_ws, strict=True):
            if number:
                self._counters.count(*names, by=number)

    def _passes_limit(self, decision: Decision, announce: Announce, address: Address, outcome: _Outcome) -> bool:
        """Notes what the store did with an announce over a limit; False when the limit holds."""
        if isinstance(outcome, Refused) and outcome.code == "may not join":
            return False
        done = "" if isinstance(outcome, _FAILURES) else outcome[-1]
        if not isinstance(outcome, StoreUnavailable):
            self._limits.note_passed(decision, done, announce.event, address)
        if done == "update":
            self._limits.note(done, announce, address)
        return True

    def _throttle(self, announce: Announce) -> Announce:
        wanted = announce.peers_wanted
        if isinstance(announce, AnnounceOverSocket):
            return announce  # its offers are few
        return announce._replace(peers_wanted=min(self._peers_default if wanted is None else wanted, THROTTLED_PEERS))

    def _reject(self, decision: Decision) -> Refusal:
        self._limits.refused(self._counters, decision)
        return self._failures.to_error(to_error(decision), "announces")

    def _note_refusal(self, outcome: _Failure, announce: Announce, passkey: str, address: Address) -> None:
        """Charges a refused announce. A store that is unavailable is not the client's fault."""
        if isinstance(outcome, StoreUnavailable):
            self._limits.note_unserved(address)
            return
        self._limits.note("refused", announce, address)
        self._note_guess(outcome, passkey, address)

    def _note_guess(self, outcome: _Outcome, passkey: str, address: Address) -> None:
        """Counts the unknown passkey of a refused announce."""
        if isinstance(outcome, Refused) and outcome.unknown_passkey:
            self._limits.on_unknown_passkey(passkey, address)

    def _deny(self, announce: Announce, error: _Failure, passkey: str, address: Address) -> Refusal:
        failure = self._failures.to_error(error, "announces", passkey)
        self._on_refused(announce.info_hash, announce.peer_id, failure.label, passkey, address)
        return failure

    def submit_gone(
        self, announce: AnnounceOverSocket, passkey: str | None, address: Address, done: Callable[[], None]
    ) -> None:
        """The WebSocket of a peer was closed, which is no stop: the peer stays if it has another endpoint. Calls
        ``done`` when the store has been told, or cannot be: then the peer times out."""
        pending: _Pending = announce, address, self._steps[0], 0.0, lambda _: None, passkey or "", None
        update = self._over_socket(pending)._replace(event=GONE, peers_wanted=0)

        def settle(_: object, batch: _Batch) -> _Batch:
            done()
            return batch  # for the announces of the same call

        try:
            self._submits[announce.info_hash[0]](update, settle, None)
        except StoreUnavailable:
            done()

    def _over_socket(self, pending: _Pending) -> PeerUpdate:
        announce = pending[0]
        assert isinstance(announce, AnnounceOverSocket)
        return PeerUpdate(*self._update(pending))._replace(endpoint=announce.endpoint, form=OVER_SOCKET)

    def _with_agent(self, pending: _Pending) -> Update:
        announce, update = pending[0], self._update(pending)
        return with_agent(update, announce.user_agent) if isinstance(announce, AnnounceWithAgent) else update

    def _update(self, pending: _Pending) -> Update:
        announce, address, step, _, _, passkey, _ = pending
        (
            info_hash,
            peer_id,
            port,
            uploaded,
            downloaded,
            left,
            key,
            event,
            wanted,
            compact,
            no_peer_id,
            _,
            own_family,
        ) = announce
        if key:
            key = secret_of(key, peer_id)
        if event is _STOPPED:
            wanted = 0
        elif wanted is None:
            wanted = self._peers_default
        elif not 0 <= wanted <= self._peers_max:
            wanted = max(0, min(wanted, self._peers_max))
        return (  # type: ignore[return-value]  # Endpoint() would be a call
            info_hash,
            peer_id,
            EVENT_CODES[event],
            uploaded,
            downloaded,
            left,
            address + port.to_bytes(2, "big"),
            wanted,
            key,
            passkey,
            step[2],
            random.getrandbits(31),
            OWN_FAMILY if own_family else not (compact or no_peer_id),
            self._limits.exempts and self._limits.is_exempt(address),
        )
