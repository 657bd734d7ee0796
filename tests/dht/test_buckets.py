"""D1, D2: entries by distance: what full buckets keep, and the nearest entries of any target."""

import random
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tracker.dht.buckets import Buckets
from tracker.dht.node_id import ID_BITS, shared_bits

SHIFT = ID_BITS - 16
OWN = 0b0000111100000000 << SHIFT
OFFSETS = [
    *(0b0000000001001000, 0b0000000001001100, 0b0000000001001110, 0b0000000001001111),
    *(0b0000000000110000, 0b0000000000110001, 0b0000000000110010, 0b0000000000110011),
    *(0b1000000000001000, 0b1000000000001001, 0b1000000000001010, 0b1000000000001011),
    *(0b0000000000100100, 0b0000000000100101, 0b0000000000100110, 0b0000000000100111),
    *(0b0000000000110100, 0b0000000000111000, 0b1010000000001000, 0b1010000000001001),
]
KEYS = [OWN ^ offset << SHIFT for offset in OFFSETS]
"""Ids of 16 bits, followed by zeros: four or more in each of a few buckets."""

ids = st.integers(0, 2**ID_BITS - 1)
near_ids = st.tuples(st.integers(0, ID_BITS - 1), st.integers(0, 7)).map(lambda at: 1 << at[0] ^ at[1])


def filled() -> Buckets[int]:
    buckets: Buckets[int] = Buckets(OWN, 4)
    assert not buckets.put(OWN, -1)
    for number, key in enumerate(KEYS):
        buckets.put(key, number)
    return buckets


class TestFourPerBucket:
    def test_the_nearest_are_accepted_in_a_full_bucket(self) -> None:
        buckets = filled()
        assert sorted(buckets) == list(range(16))
        assert (len(buckets), buckets.added, buckets.dropped) == (16, 16, 0)

    @pytest.mark.parametrize(
        ("target", "order"),
        [
            (KEYS[18], [8, 9, 10, 11, 12, 13, 14, 15, 4, 5, 6, 7, 0, 1, 2, 3]),
            (KEYS[16], [4, 5, 6, 7, 12, 13, 14, 15, 1, 2, 3, 0, 8, 9, 10, 11]),
            (OWN, [12, 13, 14, 15, 4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11]),
        ],
    )
    def test_the_nearest_come_first(self, target: int, order: list[int]) -> None:
        assert list(filled().nearest(target)) == order


def test_ids_each_nearer_than_the_last_do_not_grow_a_bucket_without_bound() -> None:
    buckets: Buckets[int] = Buckets(0, 80)
    offered: list[int] = []
    for number in range(2000):
        key = (1 << 159) + 2000 - number
        offered.append(key)
        buckets.put(key, key)
        assert max(buckets.sizes()) <= 160
        assert set(sorted(offered)[:80]) <= set(buckets)
    assert buckets.added - buckets.dropped == len(buckets) == 160


@given(st.integers(1, 8), st.randoms(use_true_random=False), st.integers(1, 150))
def test_the_nearest_ever_offered_are_kept(capacity: int, rng: random.Random, count: int) -> None:
    own = rng.getrandbits(160)
    buckets: Buckets[int] = Buckets(own, capacity)
    offered = {own ^ rng.getrandbits(160 - rng.randrange(8)) for _ in range(count)} - {own}
    for key in sorted(offered, key=lambda _: rng.random()):
        buckets.put(key, key)
    assert set(sorted(offered, key=own.__xor__)[:capacity]) <= set(buckets)
    assert max(buckets.sizes()) <= 2 * capacity


@given(ids, st.sets(ids | near_ids, max_size=60), st.lists(ids | near_ids, max_size=5))
def test_nearest_equals_sorting_all(own: int, keys: set[int], targets: list[int]) -> None:
    buckets: Buckets[int] = Buckets(own, 80)
    for key in keys:
        buckets.put(key, key)
    held = list(buckets)
    assert sorted(held) == sorted(keys - {own})
    for target in (own, *targets, *held[:2]):
        assert list(buckets.nearest(target)) == sorted(held, key=target.__xor__)


def test_nearest_equals_sorting_all_in_a_large_table() -> None:
    rng = random.Random(3)
    own = rng.getrandbits(160)
    buckets: Buckets[int] = Buckets(own, 80)
    for _ in range(4000):
        key = own ^ rng.getrandbits(160) >> rng.randrange(30)
        buckets.put(key, key)
    held = list(buckets)
    assert len(held) > 1500
    for _ in range(300):
        target = own ^ rng.getrandbits(160) >> rng.randrange(40)
        assert list(islice(buckets.nearest(target), 8)) == sorted(held, key=target.__xor__)[:8]


class BucketsMachine(RuleBasedStateMachine):
    """Compares the structure with a plain dictionary."""

    @initialize(own=st.integers(0, 255), capacity=st.integers(1, 4), most=st.none() | st.integers(1, 12))
    def start(self, own: int, capacity: int, most: int | None) -> None:
        self.buckets: Buckets[str] = Buckets(own, capacity, max_entries=most)
        self.most = most
        self.model: dict[int, str] = {}

    @rule(key=st.integers(0, 255), value=st.text(max_size=2))
    def put(self, key: int, value: str) -> None:
        own, capacity = self.buckets.own, self.buckets.capacity
        known, room = key in self.model, self.buckets.has_room(key)
        peers = [each for each in self.model if shared_bits(each ^ own) == shared_bits(key ^ own)]
        full = self.most is not None and len(self.model) >= self.most
        assert self.buckets.put(key, value) == room
        if known:
            assert room
        elif key == own:
            assert not room
        elif len(peers) < capacity and not full:
            assert room
        if not room:
            return
        dropped = [] if known else [each for each in self.model if each not in self.buckets]
        assert len(dropped) <= 1
        for each in dropped:
            assert each ^ own == max(other ^ own for other in (self.model if full else peers)) or each in peers
            del self.model[each]
        self.model[key] = value

    @rule(key=st.integers(0, 255))
    def drop(self, key: int) -> None:
        assert self.buckets.drop(key) == self.model.pop(key, None)

    @rule(own=st.integers(0, 255))
    def rebase(self, own: int) -> None:
        """In the order of distance, so that nothing is dropped for a later one."""
        added, before = self.buckets.added, list(self.model)
        self.buckets.rebase(own)
        expected: Buckets[int] = Buckets(own, self.buckets.capacity, max_entries=self.most)
        for key in sorted(before, key=own.__xor__):
            expected.put(key, key)
        self.model = {key: self.model[key] for key in expected}
        assert self.buckets.added == added

    @invariant()
    def agrees_with_the_model(self) -> None:
        buckets = self.buckets
        assert len(buckets) == len(self.model) == buckets.added - buckets.dropped == sum(buckets.sizes())
        assert sorted(buckets) == sorted(self.model.values())
        assert all(buckets.get(key) == self.model.get(key) for key in range(256))
        assert all((key in buckets) == (key in self.model) for key in range(256))
        assert max(buckets.sizes()) <= 2 * buckets.capacity
        assert self.most is None or len(buckets) <= self.most


def test_a_structure_agrees_with_a_dictionary() -> None:
    run_state_machine_as_test(BucketsMachine, settings=settings(max_examples=60, deadline=None))
