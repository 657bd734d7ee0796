"""Announces over two families or connections may arrive in the wrong order: nothing counts twice (row T13)."""

from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, Store, endpoint, text, update
from tests.store.sharding.harness import hash_in
from tracker.store.swarms.codec import PeerUpdate

NUMBERS_OF_SHARDS = (1, 4)
TORRENT = hash_in(0, 1)
MB = 10**6
EACH = pytest.mark.parametrize("counter", ["uploaded", "downloaded"])


@pytest.fixture
async def private(private: Store) -> Store:
    await private.torrents.add(TORRENT)
    return private


def said(event: str = "u", **values: Any) -> PeerUpdate:
    """By a leecher that has the metadata late, so only its counters say what it downloaded."""
    values.setdefault("bytes_left", None)
    return update(1, event, info_hash=TORRENT, passkey=ALICE, **values)


async def report(store: Store, counter: str, *numbers: int, **values: Any) -> int:
    """The peer announces these counters, one after another. Returns what its user has then."""
    for number in numbers:
        store.clock.now += 60
        await store.announce(said(**{**values, counter: number}))
    row = await store.redis.hgetall(store.shard(TORRENT).keys.user("7"))
    account = await store.redis.hgetall(store.shard(TORRENT).keys.user_torrent("7", await torrent_id(store)))
    name = counter.encode()
    assert row.get(name, b"0") == account.get(name, b"0"), "without multipliers both are what was reported"
    return int(row.get(name, 0))


async def torrent_id(store: Store) -> str:
    return (await store.torrent(TORRENT))["tid"]


async def stored(store: Store) -> dict[str, str]:
    tid = await torrent_id(store)
    row = await store.redis.hgetall(store.shard(TORRENT).keys.peer(tid, said().peer_id))
    found = text({name: row[name] for name in (b"uploaded", b"downloaded", b"lower") if name in row})
    if "lower" in found:  # without its time
        found["lower"] = found["lower"].rpartition(" ")[0]
    return found


@EACH
async def test_a_late_announce_counts_nothing_twice(private: Store, counter: str) -> None:
    """T13."""
    await private.announce(said("s"))
    assert await report(private, counter, 3 * MB) == 3 * MB
    assert await report(private, counter, 2 * MB) == 3 * MB
    assert await report(private, counter, 4 * MB) == 4 * MB


@EACH
async def test_pairs_in_the_wrong_order_credit_what_moved(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    for pair in range(1, 5):
        late, first = (2 * pair - 1) * MB, 2 * pair * MB
        assert await report(private, counter, first, late) == first
    assert await report(private, counter, 9 * MB, 9 * MB) == 9 * MB


@EACH
async def test_pairs_over_two_families_credit_what_moved(private: Store, counter: str) -> None:
    key, v6 = b"8 bytes!", endpoint(1, v6=True)
    await private.announce(said("s", key=key))
    await private.announce(said(key=key, endpoint=v6))
    for pair in range(1, 5):
        await report(private, counter, 2 * pair * MB, key=key, endpoint=v6)
        assert await report(private, counter, (2 * pair - 1) * MB, key=key) == 2 * pair * MB


@EACH
async def test_repeated_announces_count_nothing(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    assert await report(private, counter, *[3 * MB] * 3, *[2 * MB] * 3, *[3 * MB] * 3) == 3 * MB
    assert await report(private, counter, 4 * MB) == 4 * MB


@EACH
async def test_counters_that_began_anew_without_started_count_from_the_lower_one(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    await report(private, counter, 10 * MB)
    assert await report(private, counter, 1 * MB) == 10 * MB
    assert await report(private, counter, 4 * MB) == 13 * MB
    assert await report(private, counter, 6 * MB) == 15 * MB


@EACH
async def test_a_lower_counter_still_falls(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    await report(private, counter, 10 * MB, 5 * MB, 2 * MB)
    assert await report(private, counter, 3 * MB) == 11 * MB


@EACH
async def test_only_a_counter_below_its_base_is_kept_beside_it(private: Store, counter: str) -> None:
    other = {"uploaded": "downloaded", "downloaded": "uploaded"}[counter]
    await private.announce(said("s"))
    await report(private, counter, 9, **{other: 9})
    assert await stored(private) == {"uploaded": "9", "downloaded": "9"}
    await report(private, counter, 5, **{other: 9})
    lower = {"uploaded": "5 ", "downloaded": " 5"}[counter]
    assert await stored(private) == {"uploaded": "9", "downloaded": "9", "lower": lower}
    await report(private, counter, 5, **{other: 7})
    expected = {"uploaded": "5 7", "downloaded": "7 5"}[counter]
    assert await stored(private) == {"uploaded": "9", "downloaded": "9", "lower": expected}
    await report(private, counter, 6, **{other: 7})
    after = {**dict.fromkeys(("uploaded", "downloaded"), "9"), counter: "6"}
    assert await stored(private) == {**after, "lower": {"uploaded": " 7", "downloaded": "7 "}[counter]}
    await report(private, counter, 6, **{other: 9})
    assert await stored(private) == after


@pytest.mark.parametrize("first", ["s", "x"])
async def test_started_sets_both(private: Store, first: str) -> None:
    """Of a peer in the swarm, and of one that comes back."""
    await private.announce(said("s"))
    await report(private, "uploaded", 9 * MB, 5 * MB, downloaded=9 * MB)
    await report(private, "downloaded", 5 * MB, uploaded=5 * MB)
    assert (await stored(private))["lower"] == f"{5 * MB} {5 * MB}"
    if first == "x":
        await private.announce(said("x", uploaded=5 * MB, downloaded=5 * MB))
    await private.announce(said("s", uploaded=1 * MB, downloaded=2 * MB))
    assert await stored(private) == {"uploaded": f"{MB}", "downloaded": f"{2 * MB}"}
    assert await report(private, "uploaded", 3 * MB, downloaded=3 * MB) == 11 * MB


@EACH
async def test_a_peer_that_comes_back_without_started_counts_from_its_base(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    await report(private, counter, 9 * MB)
    await private.announce(said("x", **{counter: 8 * MB}))
    assert (await stored(private))[counter] == f"{9 * MB}"
    assert await report(private, counter, 8 * MB) == 9 * MB, "it joins late"
    assert "lower" in await stored(private)
    assert await report(private, counter, 10 * MB) == 10 * MB
    assert "lower" not in await stored(private)


@EACH
async def test_a_stop_that_is_late_counts_nothing(private: Store, counter: str) -> None:
    await private.announce(said("s"))
    await report(private, counter, 9 * MB)
    await private.announce(said("x", **{counter: 8 * MB}))
    assert await report(private, counter) == 9 * MB


@pytest.mark.parametrize("held", ["", " ", "many", "-1 -1", "1", "1 2 3", "9" * 400 + " 1", "inf nan"])
async def test_invalid_lower_counters_fail_no_announce(private: Store, held: str) -> None:
    await private.announce(said("s"))
    await report(private, "uploaded", 9 * MB)
    tid = await torrent_id(private)
    key = private.shard(TORRENT).keys.peer(tid, said().peer_id)
    await private.redis.hset(key, mapping={"lower": held, "marks": "x"})
    assert await report(private, "uploaded", 10 * MB) == 10 * MB
    assert "lower" not in await stored(private)


async def test_no_decrease_of_left_is_held_against_a_client_whose_announces_are_late(private: Store) -> None:
    await private.announce(said("s", bytes_left=100))
    for downloaded in (20, 10, 40, 30, 60, 50, 100):
        await report(private, "downloaded", downloaded, bytes_left=100 - downloaded)
    row = await private.redis.hgetall(private.shard(TORRENT).keys.user("7"))
    assert (row[b"downloaded"], row.get(b"unreported", b"0")) == (b"100", b"0")


async def test_a_decrease_of_left_beyond_the_reported_download_counts_as_before(private: Store) -> None:
    """Also of a client that reports a little, and less in between."""
    await private.announce(said("s", bytes_left=1000))
    for step in range(1, 11):
        await report(private, "downloaded", step % 2, bytes_left=1000 - 100 * step)
    row = await private.redis.hgetall(private.shard(TORRENT).keys.user("7"))
    assert int(row[b"downloaded"]) + int(row[b"unreported"]) >= 990


@pytest.mark.parametrize("v6", [False, True])
async def test_the_traffic_of_anonymous_peers_counts_once(make_store: MakeStore, shards: int, v6: bool) -> None:
    store = await make_store()

    async def moved(event: str = "u", **values: Any) -> tuple[int, ...]:
        store.clock.now += 60
        one = update(1, event, info_hash=TORRENT, endpoint=endpoint(1, v6=v6), **values)
        _, totals = await store.announce_together(one)
        return totals[2:4] if v6 else totals[:2]

    await moved("s")
    sums = [0, 0]
    for pair in range(1, 5):
        for number in (2 * pair, 2 * pair - 1):
            up, down = await moved(uploaded=number * MB, downloaded=number * MB)
            sums = [sums[0] + up, sums[1] + down]
    assert sums == [8 * MB, 8 * MB]
    assert await moved(uploaded=8 * MB, downloaded=8 * MB) == (0, 0)
    assert await moved(uploaded=9 * MB, downloaded=2 * MB) == (MB, 0)
    assert await moved(uploaded=9 * MB, downloaded=3 * MB) == (0, MB)
