"""Credit of users and peers: bytes, speeds, time, hit and runs (rows T13 to T17)."""

import itertools
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, endpoint, info_hash, timeout_key, update
from tracker.bittorrent import Digits
from tracker.store.swarms.codec import PeerUpdate


def alice(peer: int = 1, event: str = "u", **changes: Any) -> PeerUpdate:
    return update(peer, event, passkey=ALICE, **changes)


async def account(store: Store, user_id: str = "7", torrent_id: str = "1") -> dict[str, int]:
    row = await store.redis.hgetall(store.keys.user_torrent(user_id, torrent_id))
    return {k.decode(): int(v) for k, v in row.items() if k != b"peer_ids"}


async def sets(store: Store, user_id: str = "7") -> set[str]:
    """The user's sets that hold torrent 1."""
    names = ("active", "complete", "incomplete", "hnr")
    return {n for n in names if await store.redis.sismember(store.keys.user_set(user_id, n), "1")}


async def test_the_first_announce_credits_nothing_and_later_ones_the_difference(private: Store) -> None:
    """T13."""
    await private.announce(alice(event="s", uploaded=5000, downloaded=7000))
    private.clock.now += 10
    await private.announce(alice(uploaded=5300, downloaded=7100))
    private.clock.now += 10
    await private.announce(alice(uploaded=5300, downloaded=7150))
    await private.announce_counts.flush()
    user = await private.users.find("7")
    assert (user.uploaded, user.downloaded, user.announces) == (300, 150, 3)


async def test_restarted_counters_credit_nothing(private: Store) -> None:
    """T13: never a negative."""
    await private.announce(alice(event="s", uploaded=500))
    private.clock.now += 10
    await private.announce(alice(uploaded=900))
    private.clock.now += 10
    await private.announce(alice(uploaded=20))
    private.clock.now += 10
    await private.announce(alice(uploaded=30))
    assert (await private.users.find("7")).uploaded == 400 + 0 + 10


@pytest.mark.parametrize(
    ("multiplier", "credited"),
    [
        ("0", 0),
        ("0.5", 500),
        ("2", 2000),
        ("1.25", 1250),
        ("1000", 1_000_000),
        ("-3", 1000),
        ("x", 1000),
        ("nan", 1000),
        ("inf", 1000),
        ("1e300", 1000),
    ],
)
async def test_multipliers_apply_to_credit(private: Store, multiplier: str, credited: int) -> None:
    """T13: an invalid multiplier is none."""
    await private.announce(alice(event="s"))
    await private.redis.hset(private.keys.torrent(info_hash(1)), mapping={"multi_up": multiplier, "multi_dn": "0"})
    private.clock.now += 10
    await private.announce(alice(uploaded=1000, downloaded=1000))
    user = await private.users.find("7")
    assert user.uploaded == credited
    assert user.downloaded == 0
    assert (await account(private))["downloaded"] == 1000


async def test_credit_is_capped_by_the_rate_and_the_rest_is_counted(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", peer_memory=3600, max_credit=100)
    await store.users.add("7", ALICE)
    await store.announce(alice(event="s"))
    store.clock.now += 10
    await store.announce(alice(uploaded=5000, downloaded=1000))
    user = await store.users.find("7")
    assert (user.uploaded, user.downloaded) == (1000, 1000)
    assert await store.redis.get(store.keys.stat("credit_cut")) == b"4000"


async def test_speeds_are_bytes_per_second(store: Store) -> None:
    """T14: with two decimals; 0 within the same second and after a step back of the clock."""
    await store.announce(update(1, "s", uploaded=100))
    for seconds, uploaded, expected in (
        (3, 110, "3.33"),
        (0, 200, "0"),
        (-5, 300, "0"),
        (10, 300, "0"),
        (8, 1100, "100.00"),
    ):
        store.clock.now += seconds
        await store.announce(update(1, uploaded=uploaded))
        assert (await store.peer(update(1))).get("speed_up", "0") == expected


async def test_total_time_adds_up_over_restarts_and_gaps_add_nothing(private: Store) -> None:
    """T15: gaps of 4 intervals or more add 0; first_announce never changes."""
    await private.announce(alice(event="s"))
    for seconds in (100, 200, 7200, 7199):
        private.clock.now += seconds
        await private.announce(alice())
    private.clock.now += 50
    await private.announce(alice(event="x"))
    private.clock.now += 500
    await private.announce(alice(event="s"))
    private.clock.now += 7
    await private.announce(alice())
    row = await private.peer(alice())
    assert int(row["total_time"]) == 100 + 200 + 7199 + 50 + 7
    assert row["first_announce"] == str(START)
    assert (await account(private))["total_time"] == 100 + 200 + 7199 + 50 + 7


async def test_time_adds_up_over_new_peer_ids(private: Store) -> None:
    """T15: a client invents a new id at each start."""
    for peer in (1, 2, 3):
        await private.announce(alice(peer, "s"))
        private.clock.now += 100
        await private.announce(alice(peer, "x"))
        private.clock.now += 900
    assert (await account(private))["total_time"] == 300


async def test_overlapping_peers_count_time_once(private: Store) -> None:
    """T15: two clients of a user at the same time count as one period."""
    await private.announce(alice(1, "s"))  # 1: 0 .. 3000
    private.clock.now = START + 1000
    await private.announce(alice(2, "s"))  # 2: 1000 .. 2800
    private.clock.now = START + 2800
    await private.announce(alice(2))
    assert (await account(private))["total_time"] == 1800
    private.clock.now = START + 3000
    await private.announce(alice(1))
    assert (await account(private))["total_time"] == 3000
    private.clock.now = START + 3100
    await private.announce(alice(2, "x"))
    private.clock.now = START + 3200
    await private.announce(alice(1, "x"))
    assert (await account(private))["total_time"] == 3200


@pytest.mark.parametrize(
    ("announces", "seconds"),
    [
        pytest.param([(100, 2, "s"), (300, 2, ""), (400, 1, "")], 400, id="one began earlier and ends later"),
        pytest.param([(50, 2, "s"), (100, 1, ""), (200, 1, ""), (250, 2, "")], 250, id="one follows itself"),
        pytest.param([(100, 2, "s"), (300, 2, ""), (295, 1, "")], 300, id="clocks differ by five seconds"),
        pytest.param([(100, 2, "s"), (150, 1, "x"), (160, 2, "")], 160, id="one ends first"),
        pytest.param([(100, 2, "s"), (150, 2, "x"), (200, 1, ""), (300, 1, "")], 300, id="one stays"),
        pytest.param([(20, 2, "s"), (20, 3, "s"), (30, 2, "x"), (40, 3, "x"), (90, 1, "")], 90, id="two left"),
    ],
)
async def test_overlapping_seeders_count_seed_time_once(
    private: Store, announces: list[tuple[int, int, str]], seconds: int
) -> None:
    """T15: (second, peer, event) of two clients of a user; the first one starts at 0."""
    await private.announce(alice(1, "s", bytes_left=0))
    for second, peer, event in announces:
        private.clock.now = START + second
        await private.announce(alice(peer, event or "u", bytes_left=0))
    found = await account(private)
    assert (found["total_time"], found["seed_time"]) == (seconds, seconds)


async def marks(store: Store, *peers: int) -> list[bytes | None]:
    return [await store.redis.hget(store.keys.peer("1", alice(peer).peer_id), "marks") for peer in peers]


@pytest.mark.parametrize("uploaded", [0, 5])
@pytest.mark.parametrize("max_peers", [0, 5])
async def test_peers_of_a_user_are_marked_while_their_time_overlaps(
    make_store: MakeStore, max_peers: int, uploaded: int
) -> None:
    """T15: until the last one of them announces. A peer that is replaced by a new one of its client leaves none."""
    store = await make_store(accounts="required", peer_memory=3600, max_peers=max_peers)
    await store.users.add("7", ALICE)
    await store.announce(alice(1, "s"))
    assert await marks(store, 1) == [None]
    await store.announce(alice(2, "s"))
    await store.announce(alice(3, "s"))
    assert await marks(store, 1, 2, 3) == [b"x"] * 3
    store.clock.now += 50
    await store.announce(alice(2, "x"))
    await store.announce(alice(3, "x"))
    assert await marks(store, 1) == [b"x"]
    store.clock.now += 50
    await store.announce(alice(1, uploaded=uploaded))
    assert (await marks(store, 1), (await account(store))["total_time"]) == ([b"s" if uploaded else None], 100)
    await store.announce(alice(4, "s", endpoint=alice(1).endpoint))
    assert await marks(store, 4) == [None]
    await store.announce(alice(5, "s"))
    assert await marks(store, 4, 5) == [b"x"] * 2


async def test_of_many_peers_of_a_user_each_is_marked(private: Store) -> None:
    """Also those that the account does not list any more, and the last one that is left."""
    for peer in range(1, 13):
        await private.announce(alice(peer, "s"))
    assert await marks(private, *range(1, 13)) == [b"x"] * 12
    private.clock.now += 50
    for peer in range(2, 13):
        await private.announce(alice(peer, "x"))
    private.clock.now += 50
    await private.announce(alice(1))
    assert (await marks(private, 1), (await account(private))["total_time"]) == ([None], 100)
    await private.announce(alice(2, "s"))
    assert await marks(private, 1, 2) == [b"x"] * 2


async def test_peers_that_announced_while_accounts_were_off_overlap_afterwards(make_store: MakeStore) -> None:
    on, off = [await make_store(accounts=mode, peer_memory=3600, max_gap=7200) for mode in ("required", "off")]
    await on.users.add("7", ALICE)
    for peer in (1, 2):
        await on.announce(alice(peer, "s", bytes_left=0))
    off.clock.now = on.clock.now = START + 100
    for peer in (1, 2):
        await off.announce(update(peer, bytes_left=0))
    for _ in range(3):
        on.clock.now += 100
        for peer in (1, 2):
            await on.announce(alice(peer, bytes_left=0))
    assert (await account(on))["total_time"] == 300


@pytest.mark.parametrize("max_peers", [0, 3])
async def test_a_list_of_peers_that_another_program_wrote_costs_no_time(make_store: MakeStore, max_peers: int) -> None:
    """Its last ids count."""
    store = await make_store(accounts="required", peer_memory=3600, max_peers=max_peers)
    await store.users.add("7", ALICE)
    await store.announce(alice(1, "s"))
    await store.redis.hset(store.keys.user_torrent("7", "1"), "peer_ids", bytes(20_000_000) + alice(1).peer_id)
    await store.announce(alice(2, "s"))
    assert await marks(store, 1, 2) == [b"x"] * 2
    assert await store.redis.hstrlen(store.keys.user_torrent("7", "1"), "peer_ids") <= 160


async def test_seed_time_is_counted_separately(private: Store) -> None:
    await private.announce(alice(event="s"))
    private.clock.now += 60
    await private.announce(alice(event="c", bytes_left=0, downloaded=10))
    private.clock.now += 40
    await private.announce(alice(bytes_left=0, downloaded=10))
    found = await account(private)
    assert (found["total_time"], found["seed_time"], found["completed_at"]) == (100, 40, START + 60)


async def test_the_sets_of_a_user_follow_its_announces(private: Store) -> None:
    """T5, T6, T7: started, completed, stopped."""
    await private.announce(alice(event="s"))
    assert await sets(private) == {"active", "incomplete"}
    await private.announce(alice(event="c", bytes_left=0, downloaded=10))
    assert await sets(private) == {"active", "complete"}
    await private.announce(alice(event="x", bytes_left=0, downloaded=10))
    assert await sets(private) == {"complete"}
    await private.announce(alice(2, "s"))
    assert await sets(private) == {"active", "complete"}


async def test_a_seeder_from_the_start_has_the_torrent_complete(private: Store) -> None:
    await private.announce(alice(event="s", bytes_left=0))
    assert await sets(private) == {"active", "complete"}


async def test_completed_counts_once_per_user_and_torrent(private: Store) -> None:
    """T7: over several peer ids of the user; another user counts."""
    for peer in (1, 2, 3):
        await private.announce(alice(peer, "s"))
        await private.announce(alice(peer, "c", bytes_left=0, downloaded=10))
        await private.announce(alice(peer, "x", bytes_left=0))
    assert (await private.torrent(info_hash(1)))["snatches"] == "1"
    assert (await private.users.find("7")).snatches == 1
    await private.announce(update(9, "s", passkey=BOB))
    reply = await private.announce(update(9, "c", bytes_left=0, downloaded=1, passkey=BOB))
    assert reply.completions == 2


@pytest.mark.parametrize("ending", ["stop", "reap"])
async def test_two_peers_of_a_user_keep_the_torrent_active(private: Store, ending: str) -> None:
    """T17, and T9 for the user's set."""

    async def end(peer: int) -> None:
        if ending == "stop":
            await private.announce(alice(peer, "x"))
        else:
            assert await private.silence(alice(peer)) == 1

    await private.announce(alice(1, "s"))
    await private.announce(alice(2, "s"))
    await end(1)
    assert "active" in await sets(private)
    await end(2)
    assert "active" not in await sets(private)
    assert (await private.peer(alice(1)))["active"] == "0"
    assert 0 < await private.redis.ttl(private.keys.peer(1, alice(1).peer_id)) <= 3600


@pytest.mark.parametrize(
    ("downloaded", "seconds", "left", "ending", "restarts"),
    list(itertools.product([100, 101], [999, 1000], [0, 5], ["stop", "reap"], [1, 3])),
)
async def test_leaving_early_after_a_download_is_a_hit_and_run(
    private: Store, downloaded: int, seconds: int, left: int, ending: str, restarts: int
) -> None:
    """T16: more than hnr_min_bytes (100) downloaded, less than hnr_threshold (1000 s) present, in one start or in three
    with new peer IDs. The bytes left do not matter; a reap counts as leaving."""
    for restart in range(restarts):
        peer = restart + 1
        share = downloaded // restarts + (downloaded % restarts if restart == 0 else 0)
        stay = seconds // restarts + (seconds % restarts if restart == 0 else 0)
        await private.announce(alice(peer, "s"))
        private.clock.now += stay
        await private.announce(alice(peer, downloaded=share, bytes_left=left))
        if ending == "stop":
            await private.announce(alice(peer, "x", downloaded=share, bytes_left=left))
        else:
            assert await private.silence(alice(peer)) == 1
        private.clock.now += 5000
    assert ("hnr" in await sets(private)) == (downloaded > 100 and seconds < 1000)


async def test_seeding_time_and_not_a_start_clears_a_hit_and_run(private: Store) -> None:
    """T16."""
    await private.announce(alice(event="s"))
    private.clock.now += 10
    await private.announce(alice(event="x", downloaded=500))
    assert await sets(private) == {"incomplete", "hnr"}
    await private.announce(alice(2, "s", bytes_left=0))
    assert "hnr" in await sets(private)
    private.clock.now += 989
    await private.announce(alice(2, bytes_left=0))
    assert "hnr" in await sets(private)
    private.clock.now += 1
    await private.announce(alice(2, bytes_left=0))
    assert "hnr" not in await sets(private)


async def test_an_outage_adds_no_time_and_no_hit_and_run(private: Store) -> None:
    """While no peer could announce, total_time gains nothing and silence proves nothing."""
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    private.clock.now += 10
    await private.announce(alice(downloaded=500))
    private.clock.now += 300
    assert await private.reaping.heartbeat() == START + 310
    assert await private.silence(alice()) == 0, "reaping waits one reap interval after an outage"
    await private.redis.set(timeout_key(private.keys, 1, alice().peer_id), "1")
    private.clock.now += 20
    await private.announce(alice(downloaded=500))
    # the gap is 0..310: 20 of the 320 s since the announce at 10 remain
    assert (await account(private))["total_time"] == 10 + 20


async def test_silent_peers_are_reaped_after_an_outage_without_a_hit_and_run(private: Store) -> None:
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    await private.announce(alice(downloaded=500))
    private.clock.now += 300
    await private.reaping.heartbeat()
    await private.pass_time(private.rules.current.grace)
    assert await private.silence(alice()) == 1
    assert await sets(private) == {"incomplete"}


async def test_an_outage_is_known_before_the_heartbeat(private: Store) -> None:
    """A machine that was suspended: whichever part runs first, no peer that could not announce is reaped or gets a hit
    and run."""
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    await private.announce(alice(downloaded=500))
    private.clock.now += 5000
    assert await private.silence(alice()) == 0
    await private.announce(alice(event="x", downloaded=500))
    assert (await account(private))["total_time"] == 0


@pytest.mark.parametrize(("seconds", "counted"), [(60, 60), (61, 0)])
async def test_an_outage_begins_after_a_minute_without_a_heartbeat(private: Store, seconds: int, counted: int) -> None:
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    private.clock.now += seconds
    await private.announce(alice())
    assert (await account(private))["total_time"] == counted


@pytest.mark.parametrize(("seconds", "reaped"), [(5, 1), (6, 0)])
async def test_a_clock_that_is_set_back_by_more_than_five_seconds_is_an_interruption(
    private: Store, seconds: int, reaped: int
) -> None:
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    private.clock.now -= seconds
    assert await private.silence(alice()) == reaped


async def test_trackers_whose_clocks_differ_by_five_seconds_know_the_same_outage(private: Store) -> None:
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    private.clock.now += 300
    await private.reaping.heartbeat()
    private.clock.now -= 5
    assert await private.silence(alice()) == 0


async def test_a_clock_that_was_ahead_leaves_no_outage_behind(private: Store) -> None:
    """Peers get time to announce again when it is set right, and no longer."""
    await private.reaping.heartbeat()
    await private.announce(alice(event="s"))
    private.clock.now += 86_400
    await private.reaping.heartbeat()
    private.clock.now -= 86_300
    assert await private.reaping.heartbeat() == START + 100
    assert await private.redis.get(private.keys.heartbeat()) == str(START + 100).encode()
    assert await private.silence(alice()) == 0
    await private.pass_time(private.rules.current.grace)
    assert await private.silence(alice()) == 1


async def test_a_recreated_user_whose_peer_was_removed_is_active_again(private: Store) -> None:
    """T5, T17."""
    await private.announce(alice(event="s"))
    await private.users.delete(ALICE)
    await private.users.add("7", ALICE)
    assert (await private.announce(alice())).outcome == "join"
    assert "active" in await sets(private)
    await private.announce(alice(event="x"))
    assert "active" not in await sets(private)


async def test_another_user_with_a_remembered_peer_id_has_its_own_entry(private: Store) -> None:
    await private.announce(alice(event="s", uploaded=100))
    await private.announce(alice(event="x", uploaded=100))
    remembered = await private.peer(alice())
    private.clock.now += 50
    bob = update(1, "s", uploaded=5000, passkey=BOB)
    assert (await private.announce(bob)).outcome == "join"
    assert await private.peer(alice()) == remembered
    assert (await private.users.find("8")).uploaded == 0
    assert await check_invariants(private.redis, private.keys) == 1
    private.clock.now += 50
    assert (await private.announce(bob._replace(event=b"u", uploaded=Digits(b"5400")))).outcome == "update"
    assert (await private.users.find("8")).uploaded == 400


async def test_another_user_cannot_change_a_peer_even_from_its_address(private: Store) -> None:
    await private.announce(alice(event="s", key=b"k" * 8))
    before = await private.dump()
    forged = update(1, "x", passkey=BOB, key=b"k" * 8, endpoint=endpoint(1))
    assert (await private.announce(forged)).outcome == "absent"
    assert await private.dump() == before


async def test_public_mode_forgets_a_peer_with_its_swarm(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(1, "x"))
    assert not await store.redis.exists(store.keys.peer(1, update(1).peer_id))
    assert [key async for key in store.redis.scan_iter(f"{store.keys.prefix}u:*")] == []
