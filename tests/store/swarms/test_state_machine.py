"""T19: random concurrent announces, stops, closed WebSockets, timeouts and repairs against a plain Python model."""

import asyncio
import copy
import hashlib
import uuid
import zlib
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from loadtest.invariants import check_invariants
from tests.examples import examples
from tests.store.harness import START, Store, endpoint, info_hash, running, update
from tracker.bittorrent import Accounts, Address, Digits, Endpoint, InfoHash, PeerId, unmap
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import RuleChange, rule_change, with_end
from tracker.store.swarms.codec import (
    GONE,
    OVER_SOCKET,
    OWN_FAMILY,
    WITH_IDS,
    Admitted,
    JoinedWithMultipliers,
    PeerUpdate,
    Refused,
)
from tracker.store.swarms.rules import SwarmRules
from tracker.wire.endpoint import SOCKET_LENGTH, SocketId, pack_socket

USERS = {"": "", "x" * 20: "", "p" * 20: "7", "q" * 20: "8"}
"""By passkey: no user, no user by an unknown one, and two users."""
PASSKEYS: dict[Accounts, list[str]] = {"off": list(USERS)[:1], "optional": list(USERS), "required": list(USERS)[2:]}
MAX_PER_NETWORK = 4
"""Few: all IPv6 peers here are of one /64."""
MAX_PEERS = 2
"""Peers of a user in a torrent."""
FOR_EVER = 10**10
EXACT = 2**53 - 1
LEVELS = st.sampled_from(["all", "7", "8", "1", "2", "3"])
"""Whose multipliers: of all users, of a user, of a torrent."""


@dataclass
class Entry:
    """The model's state of an active peer."""

    user: str
    endpoints: dict[int, bytes]
    """By their length: over IPv4, IPv6 and a WebSocket."""
    digest: bytes
    seeder: bool
    paused: bool
    last: float = 0
    """When it last announced."""
    joined: int = 0
    """Its place among all joins."""
    left: Digits | None = None


@dataclass
class Counter:
    """A counter of a user's peer, which outlives its stay in the swarm."""

    base: int
    lower: int | None = None

    def moves(self, new: int, event: bytes) -> int:
        """What the announce moves. Lower counters are late, or began anew: the next one tells."""
        start = self.base
        if event != b"s" and new < self.base:
            if self.lower is None or new <= self.lower:
                self.lower = new
                return 0
            start = self.lower
        self.base, self.lower = new, None
        return max(0, new - start)


def known_left(left: Digits | None) -> int | None:
    return None if left is None else int(left)


def derived_id(u: PeerUpdate) -> PeerId:
    """The ID of a client whose peer ID belongs to another; these stores have no secret."""
    owner = u.peer_id + USERS[u.passkey].encode() + b":" + u.key
    return PeerId(hashlib.sha1(owner, usedforsecurity=False).digest())


def address_of(endpoint: bytes) -> Address:
    return unmap(endpoint[:16]) if len(endpoint) == SOCKET_LENGTH else Address(endpoint[:-2])


def network(endpoint: bytes) -> bytes:
    address = address_of(endpoint)
    return address if len(address) == 4 else address[:8]


def packed_endpoints(packed: bytes, size: int) -> list[bytes]:
    return [packed[at : at + size] for at in range(0, len(packed), size)]


@dataclass
class Model:
    accounts: Accounts = "off"
    active: dict[tuple[int, PeerId], Entry] = field(default_factory=dict)
    completed: set[tuple[int, str]] = field(default_factory=set)
    remembered: dict[tuple[int, PeerId], tuple[str, bytes, bool]] = field(default_factory=dict)
    snatches: dict[int, int] = field(default_factory=dict)
    derived: set[int] = field(default_factory=set)
    """Torrents that have had entries under derived ids."""
    leeched: set[tuple[int, str]] = field(default_factory=set)
    lately: dict[int, list[tuple[PeerId, bytes, float]]] = field(default_factory=dict)
    now: float = START
    joins: int = 0
    multipliers: dict[tuple[str, str], tuple[float, float, float]] = field(default_factory=dict)
    """By level and name: of upload, of download, and the end of both."""
    tokens: dict[tuple[int, str], float] = field(default_factory=dict)
    """The ends of freeleech tokens."""
    counters: dict[tuple[int, PeerId], tuple[Counter, Counter]] = field(default_factory=dict)
    """Of users' peers: of upload and download."""
    left: dict[tuple[int, str], int] = field(default_factory=dict)
    """By torrent and user: the last bytes left that were reported."""
    moved: tuple[int, int] = (0, 0)
    """What the last announce adds to its user, without multipliers: up and down."""

    def best(self, torrent: int, user: str) -> tuple[float, float]:
        """The multipliers of a user's upload and download."""
        given = {key: (up, down) for key, (up, down, end) in self.multipliers.items() if end > self.now}
        of_torrent = [both for (level, _), both in given.items() if level == str(torrent)]
        if any(not up for up, _ in of_torrent) and any(not down for _, down in of_torrent):
            return 0, 0
        valid = [both for (level, _), both in given.items() if level in ("all", user, str(torrent))]
        valid += [(1, 0)] if self.tokens.get((torrent, user), 0) > self.now else []
        ups, downs = [up for up, _ in valid if up != 1], [down for _, down in valid if down != 1]
        return max(ups, default=1), min(downs, default=1)

    def belongs(self, entry: Entry, u: PeerUpdate) -> bool:
        if entry.user != USERS[u.passkey]:
            return False
        if address_of(u.endpoint) in map(address_of, entry.endpoints.values()):
            return True
        if u.key and entry.digest:
            return entry.digest == u.key
        one = len(entry.endpoints) == 1
        return bool(entry.user) and one and len(u.endpoint) not in entry.endpoints  # the user's other family

    def name(self, torrent: int, u: PeerUpdate) -> tuple[int, PeerId]:
        """The entry of an announce: the owner's, or a derived one for another client."""
        key, derived = (torrent, u.peer_id), (torrent, derived_id(u))
        user = USERS[u.passkey]
        entry = self.active.get(key)
        owner = entry.user if entry else self.remembered.get(key, (user, b"", False))[0]
        if owner != user or (entry and u.key and not self.belongs(entry, u)):
            return derived
        if not entry and torrent in self.derived and (u.key or self.accounts != "off"):
            own = self.active.get(derived)
            if own and self.belongs(own, u):
                return derived
            if not own and derived in self.remembered and key not in self.remembered:
                return derived
        return key

    def move(self, key: tuple[int, PeerId], u: PeerUpdate) -> None:
        """A counter that began anew, and the first of a peer, count as far as `left` fell."""
        user, entry = USERS[u.passkey], self.active.get(key)
        if not user:
            return
        account, left = (key[0], user), known_left(u.bytes_left)
        before = known_left(entry.left) if entry else self.left.get(account)
        fall = 0 if left is None or before is None else max(0, before - left)
        if left is not None and not (entry and left == before):
            self.left[account] = left
        up, down = int(u.uploaded), int(u.downloaded)
        if key not in self.counters:
            self.counters[key] = Counter(up), Counter(down)
            self.moved = 0, min(down, fall)
            return
        of_upload, of_download = self.counters[key]
        low, gained = down < of_download.base, of_upload.moves(up, u.event)
        charged = of_download.moves(down, u.event)
        restarted = low and (u.event == b"s" or of_download.lower is not None)
        self.moved = 0 if u.event == b"s" else gained, charged + (min(down, fall) if restarted else 0)

    def apply(self, torrent: int, u: PeerUpdate) -> str:
        self.moved = 0, 0
        key = self.name(torrent, u)
        entry = self.active.get(key)
        if entry and not self.belongs(entry, u):
            return "absent" if u.event in (b"x", GONE) else "stranger"
        if u.event in (b"x", GONE):
            if not entry:
                self.stop_late(key, u)
                return "absent"
            if u.event == GONE and entry.endpoints != {SOCKET_LENGTH: u.endpoint}:
                if entry.endpoints.get(SOCKET_LENGTH) == u.endpoint:
                    del entry.endpoints[SOCKET_LENGTH]
                return "absent"
            self.move(key, u)
            if u.bytes_left == b"0" and not entry.seeder:
                self.complete(key, u)
            entry.seeder = entry.seeder if u.bytes_left is None else u.bytes_left == b"0"
            self.forget(key)
            return "leave"
        if refused := self.take_endpoint(key, u):
            return refused
        self.move(key, u)
        paused = u.event == b"p" and u.bytes_left != b"0"
        seeder = u.bytes_left == b"0"
        user = USERS[u.passkey]
        known_user, known_digest, had_all = self.remembered.get(key, (None, b"", False))
        leeching = not entry.seeder if entry else known_user == user and not had_all
        remembered_digest = known_digest if known_user == user else b""
        digest = entry.digest if entry else u.key or remembered_digest  # a key is taken at the join
        endpoints = {**(entry.endpoints if entry else {}), len(u.endpoint): u.endpoint}
        if not entry and key[1] != u.peer_id:
            self.derived.add(torrent)
        if entry is None:
            self.joins += 1
            self.make_room(torrent, user)
        joined = entry.joined if entry else self.joins
        self.active[key] = Entry(user, endpoints, digest, seeder, paused, self.now, joined, u.bytes_left)
        if not seeder:
            self.leeched.add((torrent, user))
        if seeder and (leeching or (u.event == b"c" and user and (torrent, user) in self.leeched)):
            self.complete(key, u)
        return "update" if entry else "join"

    def stop_late(self, key: tuple[int, PeerId], u: PeerUpdate) -> None:
        """A stop of a user's peer that was removed before counts what it has moved, if anything."""
        user = USERS[u.passkey]
        if not user or self.remembered.get(key, ("", b""))[0] != user:
            return
        counters, left = copy.deepcopy(self.counters[key]), dict(self.left)
        of_upload, of_download = copy.deepcopy(counters)
        self.move(key, u)
        if not of_upload.moves(int(u.uploaded), u.event) + of_download.moves(int(u.downloaded), u.event):
            self.counters[key], self.left, self.moved = counters, left, (0, 0)

    def make_room(self, torrent: int, user: str) -> None:
        """The user's peers that have been silent longest leave."""
        own = [key for key, entry in self.active.items() if key[0] == torrent and user and entry.user == user]
        own.sort(key=lambda key: (self.active[key].last, self.active[key].joined))
        for key in own[: max(0, len(own) - MAX_PEERS + 1)]:
            self.forget(key)

    def take_endpoint(self, key: tuple[int, PeerId], u: PeerUpdate) -> str:
        """Takes the endpoint from its holder. Returns the reason when the peer may not have it."""
        family = len(u.endpoint)
        old = self.active[key].endpoints.get(family, b"") if key in self.active else b""
        on_socket = family == SOCKET_LENGTH
        if old == u.endpoint or (on_socket and address_of(old) == address_of(u.endpoint)):
            return ""
        others = {k: e for k, e in self.active.items() if k[0] == key[0] and k != key}
        user = USERS[u.passkey]
        holders = {k: e.user for k, e in others.items() if e.endpoints.get(family) == u.endpoint and not on_socket}
        evicted = [k for k, owner in holders.items() if (not owner and user) or (owner == user and u.event == b"s")]
        kept = [owner for k, owner in holders.items() if k not in evicted]
        if user in kept or (kept and not user):
            return "displaced"
        near = network(u.endpoint)
        held = [one for e in others.values() for one in e.endpoints.values()]
        if key in self.active:
            held += [one for size, one in self.active[key].endpoints.items() if size != family]
        before = sum(network(one) == near for one in held)
        moved = int(network(old) == near)
        if before - len(evicted) + 1 > max(MAX_PER_NETWORK, before + moved):
            return "over"
        for k in evicted:
            del self.active[k].endpoints[family]
            if not self.active[k].endpoints:
                self.forget(k)
        return ""

    def complete(self, key: tuple[int, PeerId], u: PeerUpdate) -> None:
        torrent, peer_id = key
        user = USERS[u.passkey]
        by_peer, by_user = (torrent, f"peer {peer_id!r} {user}"), (torrent, f"user {user}")
        if by_peer not in self.completed:
            again = by_user in self.completed if user else self.completed_lately(key, u)
            self.snatches[torrent] = self.snatches.get(torrent, 0) + (not again)
        self.completed |= {by_peer, by_user} if user else {by_peer}

    def completed_lately(self, key: tuple[int, PeerId], u: PeerUpdate) -> bool:
        torrent, peer_id = key
        lately = [one for one in self.lately.get(torrent, []) if one[2] > self.now - 86400]
        again = any(peer_id == known or u.endpoint == where for known, where, _ in lately)
        if not again:
            self.lately[torrent] = [*lately, (peer_id, u.endpoint, self.now)]
        return again

    def forget(self, key: tuple[int, PeerId]) -> None:
        entry = self.active.pop(key)
        torrent, peer_id = key
        if entry.user:  # a user's peer is remembered
            self.remembered[key] = (entry.user, entry.digest, entry.seeder)
        else:
            self.completed.discard((torrent, f"peer {peer_id!r} {entry.user}"))

    def counts(self, torrent: int) -> tuple[int, int]:
        entries = [e for (t, _), e in self.active.items() if t == torrent]
        seeders = sum(e.seeder for e in entries)
        return seeders, len(entries) - seeders


torrents = st.integers(1, 3)
peers = st.integers(1, 5)
few_bytes = st.sampled_from(range(0, 100, 10))
"""Even numbers, so that half of what moves is whole; in any order, so that some are late, repeated or begin anew."""
counters = st.sampled_from([*range(0, 100, 10)] * 8 + [EXACT])
"""The credit of a user who reports the last one is not compared to the byte any more."""
updates = st.fixed_dictionaries(
    {
        "event": st.sampled_from("uuuscccxp"),
        "bytes_left": st.sampled_from([0, 0, 1, 1000, None]),
        "uploaded": counters,
        "downloaded": counters,
        "key": st.sampled_from([b"", b"digest_1", b"digest_1", b"digest_2"]),
        "peers_wanted": st.sampled_from([0, 1, 2, 50]),
        "random": st.integers(0, 2**31 - 1),
        "form": st.sampled_from([0, 1, 2]),
    }
)
places = st.tuples(
    st.booleans(), st.sampled_from([6881, 6881, 7000]), st.sampled_from([0, 0, 0, 100]), st.sampled_from([0, 0, 1, 2])
)
"""IPv6, port, shift of the address, and the process of a WebSocket; 0: none."""


class SwarmMachine(RuleBasedStateMachine):
    redis_url = ""
    accounts: Accounts = "off"
    max_changes = 0
    shards = 1

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model(self.accounts)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def hash_of(self, torrent: int) -> InfoHash:
        return info_hash(torrent)

    def id_of(self, torrent: int) -> str:
        return str(torrent)

    def opened(self, rules: SwarmRules) -> AbstractAsyncContextManager[Store]:
        return running(Store(self.redis_url, self.keys, rules, shards=self.shards, timer=lambda: 0.0))

    @initialize()
    def open_store(self) -> None:
        rules = SwarmRules(accounts=self.accounts, peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600)
        rules = replace(rules, max_per_network_in_swarm=MAX_PER_NETWORK, max_changes=self.max_changes)
        rules = replace(rules, max_peers=MAX_PEERS)
        self.keys = Keys(f"machine{uuid.uuid4().hex[:8]}:")
        self.context: AbstractAsyncContextManager[Store] | None = None

        async def start() -> None:
            self.context = self.opened(rules)
            self.store = await self.context.__aenter__()
            await self.store.upgrade()
            for torrent in range(1, 4):  # torrents that registered themselves would be forgotten
                await self.store.torrents.add(self.hash_of(torrent))
            for passkey, user in USERS.items():
                if user and self.accounts != "off":
                    await self.store.users.add(user, passkey)

        self.run(start())

    def make(self, torrent: int, peer: int, values: dict[str, Any], place: Any, user: int) -> PeerUpdate:
        v6, port, shift, process = place
        passkeys = PASSKEYS[self.accounts]
        passkey = passkeys[user % len(passkeys)]
        where = endpoint(peer + shift, v6=v6, port=port)
        if process:
            number = zlib.crc32(repr((port, USERS[passkey], values["key"])).encode())  # of one client only
            where = pack_socket(Address(where[:-2]), SocketId(process, number))
            values = {**values, "form": OVER_SOCKET}
        return update(peer, info_hash=self.hash_of(torrent), endpoint=where, passkey=passkey, **values)

    @rule(torrent=torrents, peer=peers, values=updates, place=places, user=st.integers(0, 3))
    def announce(self, torrent: int, peer: int, values: dict[str, Any], place: Any, user: int) -> None:
        self.announce_one(torrent, self.make(torrent, peer, values, place, user))

    @precondition(lambda self: any(entry.user for entry in self.model.active.values()))
    @rule(data=st.data(), numbers=st.lists(st.tuples(few_bytes, few_bytes), min_size=3, max_size=6))
    def announce_out_of_order(self, data: st.DataObject, numbers: list[tuple[int, int]]) -> None:
        """One peer of a user: counters that are late, are repeated or begin anew."""
        of_users = sorted(key for key, entry in self.model.active.items() if entry.user)
        torrent, peer_id = key = data.draw(st.sampled_from(of_users))
        entry = self.model.active[key]
        place = Endpoint(next(iter(entry.endpoints.values())))
        passkey = next(passkey for passkey, user in USERS.items() if user == entry.user)
        for uploaded, downloaded in numbers:
            form = OVER_SOCKET if len(place) == SOCKET_LENGTH else 0
            u = update(0, info_hash=self.hash_of(torrent), uploaded=uploaded, downloaded=downloaded, form=form)
            u = u._replace(peer_id=peer_id, endpoint=place, passkey=passkey, key=entry.digest)
            self.announce_one(torrent, u._replace(bytes_left=entry.left))

    def announce_one(self, torrent: int, u: PeerUpdate) -> None:
        before = self.totals(u)
        reply = self.run(self.store.swarms.announce(u))
        assert isinstance(reply, Admitted)
        assert reply.outcome == self.model.apply(torrent, u)
        self.check_credit(torrent, u, before, reply)
        assert (reply.seeders, reply.leechers) == self.model.counts(torrent)
        assert reply.completions == self.model.snatches.get(torrent, 0)
        self.check_picked(torrent, u, reply)

    def totals(self, u: PeerUpdate) -> tuple[int, ...]:
        """What is credited to the user of an announce in its shard: up, down, and what was cut."""
        if not USERS[u.passkey]:
            return 0, 0, 0
        key = self.store.shard(u.info_hash).keys.user(USERS[u.passkey])
        held = self.run(self.store.redis.hmget(key, "uploaded", "downloaded", "credit_cut"))
        return tuple(int(number or 0) for number in held)

    def check_credit(self, torrent: int, u: PeerUpdate, before: tuple[int, ...], reply: Admitted) -> None:
        """T13, T26: what has moved is credited or cut, times the best multipliers; a join is told those."""
        user, after = USERS[u.passkey], self.totals(u)
        up, down = self.model.best(torrent, user) if user else (1, 1)
        most = [int(up * self.model.moved[0]), int(down * self.model.moved[1])]
        added = [new - old for new, old in zip(after, before, strict=True)]
        assert 0 <= added[0] <= most[0] and 0 <= added[1] <= most[1] and added[2] >= 0
        if max(*after, *most) < EXACT // 4:
            assert sum(added) == sum(most)
        if isinstance(reply, JoinedWithMultipliers):
            assert (float(reply.upload_multiplier), float(reply.download_multiplier)) == (up, down)
        else:
            assert reply.outcome != "join" or (up, down) == (1, 1)

    def check_picked(self, torrent: int, u: PeerUpdate, reply: Admitted) -> None:
        everyone = {e for (t, _), entry in self.model.active.items() if t == torrent for e in entry.endpoints.values()}
        size = SOCKET_LENGTH if u.form == OVER_SOCKET else 6
        got = packed_endpoints(reply.peers, size) + packed_endpoints(reply.peers6, 18)
        assert len(got) <= u.peers_wanted and len(set(got)) == len(got)
        assert set(got) <= everyone
        assert u.endpoint not in got
        key = self.model.name(torrent, u)
        own = self.model.active.get(key)
        if reply.outcome in ("join", "update") and own:
            mine = set(own.endpoints.values())
            assert not set(got) & mine
            others = [
                e
                for k, e in self.model.active.items()
                if k[0] == torrent and k != key and (not own.user or e.user != own.user)
            ]
            wanted = [e for e in others if not (e.seeder and (own.seeder or own.paused))]
            available = {endpoint for e in wanted for endpoint in e.endpoints.values()} - mine
            sizes = {len(u.endpoint)} if u.form in (OWN_FAMILY, OVER_SOCKET) else {6, 18}
            available = {endpoint for endpoint in available if len(endpoint) in sizes}
            if own.user:  # replies without own peers are not filled up, and users may share an endpoint
                of_user = {
                    endpoint
                    for k, e in self.model.active.items()
                    if k[0] == torrent and e.user == own.user
                    for endpoint in e.endpoints.values()
                }
                assert set(got) <= available and (u.peers_wanted < 50 or set(got) >= available - of_user)
            else:
                assert len(got) == min(u.peers_wanted, len(available))
        if u.form == WITH_IDS and u.event != b"x":
            assert len(reply.peer_ids) == len(reply.peers) // 6 * 20
            assert len(reply.peer_ids6) == len(reply.peers6) // 18 * 20
        if u.form == OWN_FAMILY:
            assert not (reply.peers6 if len(u.endpoint) == 6 else reply.peers)

    @rule(batch=st.lists(st.tuples(torrents, peers, updates, places, st.integers(0, 3)), min_size=2, max_size=30))
    def announce_together(self, batch: list[Any]) -> None:
        """Concurrent announces are applied one after another, in the order of arrival; in a shard beside the main one
        those of unknown passkeys after the others, as the main one is asked for their users."""
        calls = [(t, self.make(t, p, values, place, user)) for t, p, values, place, user in batch]

        async def together() -> list[Admitted | Refused]:
            for shard in self.store.shards.others if self.accounts != "off" else ():
                await self.store.user_copies.bring_users(shard, ["7", "8"])
            return await asyncio.gather(*(self.store.swarms.announce(u) for _, u in calls))

        def is_asked_for(call: tuple[tuple[int, PeerUpdate], Admitted | Refused]) -> bool:
            (_, u), _ = call
            return self.store.shard(u.info_hash) is not self.store.shards.main and u.passkey == "x" * 20

        for (t, u), reply in sorted(zip(calls, self.run(together()), strict=True), key=is_asked_for):
            assert isinstance(reply, Admitted)
            assert reply.outcome == self.model.apply(t, u)
            assert (reply.seeders, reply.leechers) == self.model.counts(t)

    @precondition(lambda self: self.model.active)
    @rule(data=st.data(), twice=st.booleans())
    def fall_silent(self, data: st.DataObject, twice: bool) -> None:
        torrent, peer_id = data.draw(st.sampled_from(sorted(self.model.active)))
        torrent_id = self.run(self.store.torrent(self.hash_of(torrent)))["tid"]
        silent = update(0, info_hash=self.hash_of(torrent), peer_id=peer_id)
        assert self.run(self.store.silence(silent, torrent_id)) == 1
        if twice:
            assert self.run(self.store.silence(silent, torrent_id)) == 0
        self.model.forget((torrent, peer_id))

    @precondition(lambda self: self.model.active)
    @rule(data=st.data())
    def come_back_before_the_reaper(self, data: st.DataObject) -> None:
        torrent, peer_id = data.draw(st.sampled_from(sorted(self.model.active)))
        torrent_id = self.run(self.store.torrent(self.hash_of(torrent)))["tid"]
        shard = self.store.shard(self.hash_of(torrent))
        assert self.run(self.store.reapings[shard].reap([(torrent_id, peer_id.hex())])) == 0

    @rule(budget=st.sampled_from([1, 2, 200]))
    def sweep(self, budget: int) -> None:
        """The sweep finds nothing to repair, in one call or in slices."""
        for shard in self.store.shards:
            _, ids = self.run(self.store.reapings[shard].page(0, 100))
            position = ""
            while ids:
                step = self.run(self.store.reapings[shard].sweep(ids, position, budget))
                assert (step.reaped, step.repairs, step.forgotten) == (0, 0, 0)
                ids, position = ids[step.done :], step.position
            assert self.run(self.store.reapings[shard].check_totals()) == 0

    @precondition(lambda self: self.on_sockets())
    @rule(data=st.data(), values=updates, older=st.booleans())
    def close_socket(self, data: st.DataObject, values: dict[str, Any], older: bool) -> None:
        """A peer with another endpoint stays, and one that came back over another WebSocket (``older``)."""
        torrent, peer_id = key = data.draw(st.sampled_from(self.on_sockets()))
        entry = self.model.active[key]
        at = Endpoint(entry.endpoints[SOCKET_LENGTH])
        if older:
            at = pack_socket(address_of(at), SocketId(3, 1))
        passkey = next(passkey for passkey, user in USERS.items() if user == entry.user)
        said = {**values, "event": GONE.decode(), "form": OVER_SOCKET, "peers_wanted": 0}
        u = update(0, info_hash=self.hash_of(torrent), endpoint=at, passkey=passkey, **said)
        self.announce_one(torrent, u._replace(peer_id=peer_id, key=entry.digest))

    def on_sockets(self) -> list[tuple[int, PeerId]]:
        return sorted(key for key, entry in self.model.active.items() if SOCKET_LENGTH in entry.endpoints)

    @precondition(lambda self: self.on_sockets())
    @rule(process=st.sampled_from([1, 2]), budget=st.sampled_from([1, 2, 200]))
    def kill_process(self, process: int, budget: int) -> None:
        """The sweep takes its WebSockets from peers that have other endpoints."""
        beats = {str(each): int(self.model.now) - 100 * (each == process) for each in (1, 2)}
        names = [f"{shard.keys.prefix}ws:processes" for shard in self.store.shards]
        for name in names:
            self.run(self.store.redis.hset(name, mapping=beats))
        self.sweep(budget)
        for name in names:
            self.run(self.store.redis.delete(name))
        for key in self.on_sockets():
            endpoints = self.model.active[key].endpoints
            if len(endpoints) > 1 and int.from_bytes(endpoints[SOCKET_LENGTH][16:20], "big") == process:
                del endpoints[SOCKET_LENGTH]

    @rule()
    def maintain(self) -> None:
        """Reindexing lists nothing anew, and cleaning up finds no key that is unknown or stale."""
        assert self.run(self.store.maintenance.reindex()) == []
        assert self.run(self.store.maintenance.cleanup()) == []

    @rule(user=st.sampled_from(["7", "8"]), torrent=st.none() | torrents)
    def forgive(self, user: str, torrent: int | None) -> None:
        owed = self.run(self.store.torrents_of(user, "hnr"))
        torrent_id = None if torrent is None else self.id_of(torrent)
        forgiven = self.run(self.store.users.forgive(user, torrent_id))
        assert forgiven == (len(owed) if torrent_id is None else torrent_id in owed)

    @rule(
        level=LEVELS,
        up=st.sampled_from([0, 0.5, 1, 2, 3]),
        down=st.sampled_from([0, 0.5, 1, 2]),
        seconds=st.sampled_from([1, 3000, FOR_EVER]),
    )
    def set_multipliers(self, level: str, up: float, down: float, seconds: int) -> None:
        end = self.model.now + seconds
        for key in [key for key in self.model.multipliers if key[0] == level]:
            del self.model.multipliers[key]
        self.model.multipliers[level, ""] = (up, down, end)
        until = None if seconds == FOR_EVER else int(end)
        texts = with_end(up, until), with_end(down, until)
        if level == "all":
            self.run(self.store.multipliers.set(*texts))
        elif level in USERS.values():
            fields = dict(zip(("upload_multiplier", "download_multiplier"), texts, strict=True))
            if self.accounts != "off":
                passkey = next(passkey for passkey, user in USERS.items() if user == level)
                self.run(self.store.users.edit(passkey, fields))
        else:
            fields = dict(zip(("multi_up", "multi_dn"), texts, strict=True))
            self.run(self.store.torrents.edit(self.hash_of(int(level)), fields))

    @rule(
        level=LEVELS,
        name=st.sampled_from(["donor", "group"]),
        up=st.sampled_from([None, 0, 2, 3]),
        down=st.sampled_from([0, 0.5, 2]),
        seconds=st.sampled_from([1, 3000, FOR_EVER]),
    )
    def set_rule(self, level: str, name: str, up: float | None, down: float, seconds: int) -> None:
        end = self.model.now + seconds
        if self.change_rule(level, rule_change(self.model.now, name, up, down, int(end))):
            self.model.multipliers[level, name] = (1 if up is None else up, down, end)

    @rule(level=LEVELS, name=st.sampled_from(["donor", "group"]))
    def remove_rule(self, level: str, name: str) -> None:
        if self.change_rule(level, RuleChange(int(self.model.now), name)):
            del self.model.multipliers[level, name]

    def change_rule(self, level: str, change: RuleChange) -> Any:
        if level == "all":
            return self.run(self.store.multipliers.change_rule(change))
        if level not in USERS.values():
            return self.run(self.store.torrents.change_rule(self.hash_of(int(level)), change))
        passkey = next(passkey for passkey, user in USERS.items() if user == level)
        return self.accounts != "off" and self.run(self.store.users.change_rule(passkey, change))

    @precondition(lambda self: self.accounts != "off")
    @rule(user=st.sampled_from(["7", "8"]), torrent=torrents, seconds=st.sampled_from([0, 1, 3000, FOR_EVER]))
    def give_token(self, user: str, torrent: int, seconds: int) -> None:
        """For 0 seconds it is taken back."""
        had = self.model.tokens.pop((torrent, user), 0) > self.model.now
        if not seconds:
            assert self.run(self.store.freeleech.take_back(user, self.id_of(torrent))) == had
            return
        end = int(self.model.now) + seconds
        self.model.tokens[torrent, user] = end
        self.run(self.store.freeleech.give(user, self.id_of(torrent), end))

    @rule(seconds=st.integers(1, 4000))
    def time_passes(self, seconds: int) -> None:
        self.store.clock.now += seconds
        self.model.now = self.store.clock.now

    @invariant()
    def store_agrees_with_itself_and_the_model(self) -> None:
        if getattr(self, "context", None):
            active = [self.run(check_invariants(self.store.redis, shard.keys)) for shard in self.store.shards]
            assert sum(active) == len(self.model.active)

    def teardown(self) -> None:
        async def stop() -> None:
            if self.context:
                async for key in self.store.redis.scan_iter(f"{self.keys.prefix}*", 1000):
                    await self.store.redis.unlink(key)
                await self.context.__aexit__(None, None, None)

        if hasattr(self, "context"):
            self.run(stop())
        self.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize("accounts", ["off", "required", pytest.param("optional", marks=pytest.mark.long)])
def test_swarms_agree_with_the_model(redis_url: str, accounts: Accounts) -> None:
    """T19, T7, T8, T17, T26 and T27 under random concurrent announces, stops and reaps."""
    machine = type("Machine", (SwarmMachine,), {"redis_url": redis_url, "accounts": accounts})
    run_state_machine_as_test(machine, settings=examples(20, stateful_step_count=30))
