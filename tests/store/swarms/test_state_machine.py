"""T19: random concurrent announces, stops, silences and repairs against a plain Python model."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.store.harness import Store, endpoint, info_hash, running, update
from tests.store.invariants import check_invariants
from tracker.store.keys import Keys
from tracker.store.swarms import Admitted, PeerUpdate, Refused, SwarmRules

USERS = {"": "", "p" * 20: "7", "q" * 20: "8"}


@dataclass
class Entry:
    """What the model knows of an active peer."""

    user: str
    endpoints: dict[int, bytes]
    digest: bytes
    seeder: bool
    paused: bool


@dataclass
class Model:
    active: dict[tuple[int, int], Entry] = field(default_factory=dict)
    completed: set[tuple[int, str]] = field(default_factory=set)
    remembered: dict[tuple[int, int], tuple[str, bytes]] = field(default_factory=dict)
    snatches: dict[int, int] = field(default_factory=dict)

    def belongs(self, entry: Entry, u: PeerUpdate) -> bool:
        same_address = entry.endpoints.get(len(u.endpoint), b"")[:-2] == u.endpoint[:-2]
        return entry.user == USERS[u.passkey] and (
            same_address or (u.key_digest != b"" and entry.digest == u.key_digest)
        )

    def apply(self, torrent: int, peer: int, u: PeerUpdate) -> str:
        entry = self.active.get((torrent, peer))
        if entry and not self.belongs(entry, u):
            return "stranger"
        if u.event == b"x":
            if entry:
                self.forget(torrent, peer)
            return "leave"
        paused = u.event == b"p" and u.bytes_left != b"0"
        seeder = u.bytes_left == b"0"
        was_idle_seeder = bool(entry and entry.seeder and u.downloaded == b"0")
        known_user, known_digest = self.remembered.get((torrent, peer), (None, b""))
        remembered_digest = known_digest if known_user == USERS[u.passkey] else b""
        digest = entry.digest if entry else u.key_digest or remembered_digest  # a key is taken at the join
        endpoints = {**(entry.endpoints if entry else {}), len(u.endpoint): u.endpoint}
        self.active[torrent, peer] = Entry(USERS[u.passkey], endpoints, digest, seeder, paused)
        if u.event == b"c" and u.bytes_left == b"0" and not was_idle_seeder:
            self.complete(torrent, peer, u)
        return "update" if entry else "join"

    def complete(self, torrent: int, peer: int, u: PeerUpdate) -> None:
        user = USERS[u.passkey]
        by_peer, by_user = (torrent, f"peer {peer} {user}"), (torrent, f"user {user}")
        if by_peer not in self.completed and not (user and by_user in self.completed):
            self.snatches[torrent] = self.snatches.get(torrent, 0) + 1
        self.completed |= {by_peer, by_user} if user else {by_peer}

    def forget(self, torrent: int, peer: int) -> None:
        entry = self.active.pop((torrent, peer))
        user = entry.user
        if user:  # private mode remembers the peer
            self.remembered[torrent, peer] = (user, entry.digest)
        else:
            self.completed.discard((torrent, f"peer {peer} {user}"))

    def counts(self, torrent: int) -> tuple[int, int]:
        entries = [e for (t, _), e in self.active.items() if t == torrent]
        seeders = sum(e.seeder for e in entries)
        return seeders, len(entries) - seeders


torrents = st.integers(1, 3)
peers = st.integers(1, 5)
updates = st.fixed_dictionaries(
    {
        "event": st.sampled_from("uuuscccxp"),
        "bytes_left": st.sampled_from([0, 0, 1, 1000, None]),
        "uploaded": st.sampled_from([0, 10, 2**53 - 1]),
        "downloaded": st.sampled_from([0, 5, 2**53 - 1]),
        "key_digest": st.sampled_from([b"", b"digest_1", b"digest_1", b"digest_2"]),
        "peers_wanted": st.sampled_from([0, 1, 2, 50]),
        "random": st.integers(0, 2**31 - 1),
        "with_ids": st.booleans(),
    }
)
places = st.tuples(st.booleans(), st.sampled_from([6881, 6881, 7000]), st.sampled_from([0, 0, 0, 100]))


class SwarmMachine(RuleBasedStateMachine):
    redis_url = ""
    private = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    @initialize()
    def open_store(self) -> None:
        rules = SwarmRules(private=self.private, peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600)
        self.keys = Keys(f"machine{uuid.uuid4().hex[:8]}:")
        self.context = None

        async def start() -> None:
            self.context = running(Store(self.redis_url, self.keys, rules))
            self.store = await self.context.__aenter__()
            for passkey, user in USERS.items():
                if user and self.private:
                    await self.store.users.add(user, passkey)

        self.run(start())

    def make(self, torrent: int, peer: int, values: dict[str, Any], place: Any, user: int) -> PeerUpdate:
        v6, port, shift = place
        passkey = list(USERS)[user] if self.private else ""
        where = endpoint(peer + shift, v6=v6, port=port)
        return update(peer, torrent=torrent, endpoint=where, passkey=passkey, **values)

    @rule(torrent=torrents, peer=peers, values=updates, place=places, user=st.integers(1, 2))
    def announce(self, torrent: int, peer: int, values: dict[str, Any], place: Any, user: int) -> None:
        u = self.make(torrent, peer, values, place, user)
        before = self.model.active.get((torrent, peer))
        reply = self.run(self.store.swarms.announce(u))
        assert isinstance(reply, Admitted)
        assert reply.outcome == self.model.apply(torrent, peer, u)
        assert (reply.seeders, reply.leechers) == self.model.counts(torrent)
        assert reply.completions == self.model.snatches.get(torrent, 0)
        self.check_picked(torrent, peer, u, reply, before)

    def check_picked(
        self, torrent: int, peer: int, u: PeerUpdate, reply: Admitted, before: Entry | None
    ) -> None:
        everyone = {
            e for (t, _), entry in self.model.active.items() if t == torrent for e in entry.endpoints.values()
        }
        got = [reply.peers[i : i + 6] for i in range(0, len(reply.peers), 6)]
        got += [reply.peers6[i : i + 18] for i in range(0, len(reply.peers6), 18)]
        assert len(got) <= u.peers_wanted and len(set(got)) == len(got)
        assert set(got) <= everyone
        assert u.endpoint not in got
        own = self.model.active.get((torrent, peer))
        if reply.outcome in ("join", "update") and own:
            assert not set(got) & set(own.endpoints.values())
            others = [e for (t, p), e in self.model.active.items() if t == torrent and p != peer]
            wanted = [e for e in others if not (e.seeder and (own.seeder or own.paused))]
            available = sum(len(e.endpoints) for e in wanted)
            same = sum(u.endpoint in e.endpoints.values() for e in wanted)
            assert len(got) >= min(u.peers_wanted, available - same) - (1 if same else 0)
        if u.with_ids and u.event != b"x":
            assert len(reply.peer_ids) == len(reply.peers) // 6 * 20
            assert len(reply.peer_ids6) == len(reply.peers6) // 18 * 20

    @rule(
        batch=st.lists(
            st.tuples(torrents, peers, updates, places, st.integers(1, 2)), min_size=2, max_size=30
        )
    )
    def announce_together(self, batch: list[Any]) -> None:
        """Concurrent announces are applied one after the other, in the order they came."""
        calls = [(t, p, self.make(t, p, values, place, user)) for t, p, values, place, user in batch]

        async def together() -> list[Admitted | Refused]:
            return await asyncio.gather(*(self.store.swarms.announce(u) for _, _, u in calls))

        for (t, p, u), reply in zip(calls, self.run(together()), strict=True):
            assert isinstance(reply, Admitted)
            assert reply.outcome == self.model.apply(t, p, u)
            assert (reply.seeders, reply.leechers) == self.model.counts(t)

    @precondition(lambda self: self.model.active)
    @rule(data=st.data(), twice=st.booleans())
    def fall_silent(self, data: st.DataObject, twice: bool) -> None:
        torrent, peer = data.draw(st.sampled_from(sorted(self.model.active)))
        torrent_id = self.run(self.store.torrent(info_hash(torrent)))["tid"]
        assert self.run(self.store.silence(update(peer), torrent_id)) == 1
        if twice:
            assert self.run(self.store.silence(update(peer), torrent_id)) == 0
        self.model.forget(torrent, peer)

    @precondition(lambda self: self.model.active)
    @rule(data=st.data())
    def come_back_before_the_reaper(self, data: st.DataObject) -> None:
        torrent, peer = data.draw(st.sampled_from(sorted(self.model.active)))
        torrent_id = self.run(self.store.torrent(info_hash(torrent)))["tid"]
        assert self.run(self.store.reaping.reap([(torrent_id, update(peer).peer_id.hex())])) == 0

    @rule(budget=st.sampled_from([1, 2, 200]))
    def sweep(self, budget: int) -> None:
        """The sweep finds nothing to repair, in one call or in slices."""
        _, ids = self.run(self.store.reaping.page(0, 100))
        position = ""
        while ids:
            step = self.run(self.store.reaping.sweep(ids, position, budget))
            assert (step.reaped, step.repairs, step.forgotten) == (0, 0, 0)
            ids, position = ids[step.done :], step.position
        assert self.run(self.store.reaping.check_totals()) == 0

    @rule(user=st.sampled_from(["7", "8"]), torrent=st.none() | torrents)
    def forgive(self, user: str, torrent: int | None) -> None:
        owed = self.run(self.store.users.torrents(user, "hnr"))
        torrent_id = None if torrent is None else str(torrent)
        forgiven = self.run(self.store.users.forgive(user, torrent_id))
        assert forgiven == (len(owed) if torrent_id is None else torrent_id in owed)

    @rule(seconds=st.integers(1, 4000))
    def time_passes(self, seconds: int) -> None:
        self.store.clock.now += seconds

    @invariant()
    def store_agrees_with_itself_and_the_model(self) -> None:
        if getattr(self, "context", None):
            assert self.run(check_invariants(self.store.redis, self.keys)) == len(self.model.active)

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
@pytest.mark.parametrize("private", [False, True], ids=["public", "private"])
def test_swarms_agree_with_the_model(redis_url: str, private: bool) -> None:
    """T19, T7, T8 and T17 under random concurrent announces, stops and reaps."""
    machine = type("Machine", (SwarmMachine,), {"redis_url": redis_url, "private": private})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
