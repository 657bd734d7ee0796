"""D5: the peers announced to us: one per address and hash, bounded, and gone after 45 minutes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.node_id import to_id, to_number
from tracker.dht.responder import AnnouncedPeer, AnnouncedPeers

OWN = to_id(0)


def info_hash(number: int) -> InfoHash:
    return InfoHash(to_id(number))


def endpoint(host: int, port: int = 6881) -> Endpoint:
    return Endpoint(host.to_bytes(4, "big") + port.to_bytes(2, "big"))


HASH = info_hash(1 << 159)


def test_the_latest_port_and_kind_of_an_address_count() -> None:
    announced = AnnouncedPeers(OWN)
    assert announced.announce(HASH, endpoint(1, 1), 0, seed=False)
    assert announced.announce(HASH, endpoint(1, 2), 5, seed=True)
    assert announced.peers(HASH, 5) == [AnnouncedPeer(endpoint(1, 2), True, 5)]
    assert announced.peers(info_hash(7), 5) == []
    assert (len(announced), announced.peer_count) == (1, 1)


def test_peers_go_after_45_minutes_and_their_hash_with_the_last() -> None:
    announced = AnnouncedPeers(OWN)
    announced.announce(HASH, endpoint(1), 0, seed=False)
    announced.announce(HASH, endpoint(2), 60, seed=False)
    announced.announce(HASH, endpoint(1), 120, seed=False)
    announced.expire(2759)
    assert announced.peer_count == 2
    announced.expire(2760)
    assert [peer.endpoint for peer in announced.peers(HASH, 2760)] == [endpoint(1)]
    announced.expire(2820)
    assert (len(announced), announced.swarms.added, announced.swarms.dropped, announced.peer_count) == (0, 1, 1, 0)


def test_reading_removes_what_is_too_old() -> None:
    announced = AnnouncedPeers(OWN)
    announced.announce(HASH, endpoint(1), 0, seed=False)
    assert announced.peers(HASH, 2700) == [] and list(announced.hashes()) == []


def test_a_full_hash_takes_only_its_own() -> None:
    announced = AnnouncedPeers(OWN, max_peers_of_hash=3)
    for host in range(3):
        assert announced.announce(HASH, endpoint(host), 0, seed=False)
    assert not announced.has_room(HASH, endpoint(9)[:-2], 1)
    assert not announced.announce(HASH, endpoint(9), 1, seed=False)
    assert announced.has_room(HASH, endpoint(2)[:-2], 1)
    assert announced.announce(HASH, endpoint(2, 7), 1, seed=False)
    assert announced.has_room(HASH, endpoint(9)[:-2], 2700)


def test_all_peers_together_are_bounded() -> None:
    announced = AnnouncedPeers(OWN, max_peers=3)
    assert [announced.announce(info_hash(n + 1), endpoint(n), 0, seed=False) for n in range(5)].count(True) == 3
    assert announced.peer_count == 3


def test_of_too_many_hashes_the_nearest_stay() -> None:
    announced = AnnouncedPeers(OWN, max_hashes=20)
    numbers = [(1 << 159) - 1000 * step for step in range(100)]
    for number in numbers:
        announced.announce(info_hash(number), endpoint(1), 0, seed=False)
    assert {to_number(each) for each in announced.hashes()} == set(numbers[-20:])
    assert (announced.swarms.added, announced.swarms.dropped, announced.peer_count) == (100, 80, 20)


hashes = st.sampled_from([info_hash(number) for number in (1, 2, 3, 1 << 159, (1 << 159) + 1, (1 << 159) + 2)])


class AnnounceMachine(RuleBasedStateMachine):
    """Compares with a dictionary of dictionaries, whatever hashes had room."""

    @initialize(bucket=st.integers(1, 3), per_hash=st.integers(1, 3), most=st.integers(1, 6))
    def start(self, bucket: int, per_hash: int, most: int) -> None:
        self.announced = AnnouncedPeers(OWN, bucket, max_hashes=4, max_peers_of_hash=per_hash, max_peers=most)
        self.model: dict[InfoHash, dict[bytes, AnnouncedPeer]] = {}
        self.now = 0.0

    def expire(self) -> None:
        for key, peers in list(self.model.items()):
            self.model[key] = {at: peer for at, peer in peers.items() if self.now - peer.announced_at < 2700}
        self.drop_missing()

    def drop_missing(self) -> None:
        held = set(self.announced.hashes())
        self.model = {key: peers for key, peers in self.model.items() if key in held}

    @rule(seconds=st.sampled_from((1, 1000, 2700)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.announced.expire(self.now)
        self.expire()

    @rule(key=hashes, host=st.integers(1, 5), port=st.integers(1, 3), seed=st.booleans())
    def announce(self, key: InfoHash, host: int, port: int, seed: bool) -> None:
        room = self.announced.has_room(key, endpoint(host)[:-2], self.now)
        known = endpoint(host)[:-2] in self.model.get(key, {})
        assert self.announced.announce(key, endpoint(host, port), self.now, seed=seed) == room
        assert room or not known
        if room:
            peer = AnnouncedPeer(endpoint(host, port), seed, self.now)
            self.model.setdefault(key, {})[endpoint(host)[:-2]] = peer
        self.drop_missing()

    @rule(key=hashes)
    def forget(self, key: InfoHash) -> None:
        self.announced.forget(key)
        self.model.pop(key, None)

    @rule(number=st.sampled_from((0, 7, 1 << 159, 1 << 158)))
    def change_id(self, number: int) -> None:
        self.announced.change_id(to_id(number))
        self.drop_missing()

    @invariant()
    def agrees_with_the_model(self) -> None:
        announced = self.announced
        assert len(announced) == announced.swarms.added - announced.swarms.dropped == len(self.model) <= 4
        assert announced.peer_count == sum(map(len, self.model.values())) <= announced.max_peers
        for key, peers in self.model.items():
            assert sorted(announced.peers(key, self.now)) == sorted(peers.values())
            assert 0 < len(peers) <= announced.max_peers_of_hash


def test_any_sequence_agrees_with_a_model() -> None:
    run_state_machine_as_test(AnnounceMachine, settings=settings(max_examples=60, deadline=None))
