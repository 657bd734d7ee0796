"""Further rules of hit and runs: seed time, share of the size, ratio, exemption, grace period (row T29)."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, info_hash, update
from tracker.store.users.hit_and_runs import Pending

GRACE = 600


async def open_with(make_store: MakeStore, **rules: Any) -> Store:
    """100 bytes and 1000 s make a hit and run, with further rules."""
    given = {"accounts": "required", "peer_memory": 3600, "hnr_min_bytes": 100, "hnr_threshold": 1000, **rules}
    store = await make_store(**given)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.torrents.add(info_hash(1), {"size": "10000"})
    return store


async def leave(
    store: Store,
    *,
    downloaded: int = 500,
    uploaded: int = 0,
    leeching: int = 10,
    seeding: int = 0,
    passkey: str = ALICE,
    torrent: int = 1,
    reap: bool = False,
) -> None:
    """A user downloads for a while, seeds for a while, and leaves."""
    peer = torrent + (100 if passkey == BOB else 0)

    def announce(event: str, left: int, **changes: Any) -> Any:
        return store.announce(update(peer, event, torrent, passkey=passkey, bytes_left=left, **changes))

    counts = {"downloaded": downloaded, "uploaded": uploaded}
    await announce("s", 1000)
    store.clock.now += leeching
    await announce("c", 0, **counts)
    store.clock.now += seeding
    if reap:
        await announce("u", 0, **counts)
        torrent_id = (await store.torrent(info_hash(torrent)))["tid"]
        assert await store.silence(update(peer, torrent=torrent), torrent_id) == 1
    else:
        await announce("x", 0, **counts)


async def owed(store: Store, user_id: str = "7") -> list[str]:
    await check_invariants(store.redis, store.keys)
    return await store.torrents_of(user_id, "hnr")


async def pending(store: Store) -> list[Pending]:
    found = await store.hit_and_runs.pending()
    assert await store.hit_and_runs.pending_count() == len(found)
    return found


@pytest.mark.parametrize("reap", [False, True])
@pytest.mark.parametrize(
    ("rules", "history", "expected"),
    [
        ({}, {"leeching": 600, "seeding": 400}, False),
        ({"hnr_by_seed_time": True}, {"leeching": 600, "seeding": 400}, True),
        ({"hnr_by_seed_time": True}, {"leeching": 600, "seeding": 999}, True),
        ({"hnr_by_seed_time": True}, {"leeching": 600, "seeding": 1000}, False),
        ({"hnr_min_share": 0.05}, {"downloaded": 500}, False),
        ({"hnr_min_share": 0.05}, {"downloaded": 501}, True),
        ({"hnr_min_share": 0.0001}, {"downloaded": 100}, False),
        ({"hnr_ratio": 0.5}, {"uploaded": 249}, True),
        ({"hnr_ratio": 0.5}, {"uploaded": 250}, False),
        ({"hnr_ratio": 2}, {"uploaded": 999}, True),
        ({"hnr_ratio": 2}, {"uploaded": 999, "seeding": 1000}, False),
    ],
)
async def test_rules_decide_about_a_hit_and_run(
    make_store: MakeStore, rules: dict[str, Any], history: dict[str, Any], expected: bool, reap: bool
) -> None:
    """T29, after a stop and after a reap."""
    store = await open_with(make_store, **rules)
    await leave(store, **history, reap=reap)
    assert bool(await owed(store)) == expected


@pytest.mark.parametrize("size", ["", "x", "-5", "nan"])
async def test_a_torrent_of_unknown_size_has_no_share(make_store: MakeStore, size: str) -> None:
    store = await open_with(make_store, hnr_min_share=0.5)
    await store.redis.hset(store.keys.torrent(info_hash(1)), "size", size)
    await leave(store)
    assert await owed(store) == ["1"]


async def test_an_exempt_user_gets_none(make_store: MakeStore) -> None:
    store = await open_with(make_store)
    await store.users.edit(ALICE, {"hnr_exempt": "1"})
    await leave(store)
    await leave(store, passkey=BOB)
    assert (await owed(store), await owed(store, "8")) == ([], ["1"])
    await store.users.edit(ALICE, {"hnr_exempt": "0"})
    await leave(store)
    assert await owed(store) == ["1"]


async def test_seed_time_or_the_ratio_clears_one(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_by_seed_time=True, hnr_ratio=1)
    for torrent in (1, 2):
        await leave(store, torrent=torrent)
    assert await owed(store) == ["1", "2"]
    await store.announce(update(9, "s", 1, passkey=ALICE, bytes_left=0))
    await store.announce(update(9, "s", 2, passkey=ALICE, bytes_left=0))
    store.clock.now += 999
    await store.announce(update(9, "u", 1, passkey=ALICE, bytes_left=0))
    await store.announce(update(9, "u", 2, passkey=ALICE, bytes_left=0, uploaded=500))
    assert await owed(store) == ["1"]
    store.clock.now += 1
    await store.announce(update(9, "u", 1, passkey=ALICE, bytes_left=0))
    assert await owed(store) == []


@pytest.mark.parametrize("reap", [False, True])
async def test_a_grace_period_ends_with_a_hit_and_run(make_store: MakeStore, reap: bool) -> None:
    """T29: it is listed as pending until then."""
    store = await open_with(make_store, hnr_grace=GRACE)
    await leave(store, reap=reap)
    end = int(store.clock.now) + GRACE
    assert (await owed(store), await pending(store)) == ([], [("7", "1", end)])
    store.clock.now += GRACE - 1
    assert await store.hit_and_runs.decide() == 0
    store.clock.now += 1
    assert await store.hit_and_runs.decide() == 1
    assert (await owed(store), await pending(store)) == (["1"], [])
    await leave(store)
    assert await pending(store) == []  # it is one already


async def test_who_comes_back_in_time_gets_none(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_grace=GRACE)
    await leave(store)
    store.clock.now += GRACE - 1
    await store.announce(update(2, "s", passkey=ALICE, bytes_left=0))
    assert await pending(store) == []
    store.clock.now += 100
    await store.announce(update(2, "x", passkey=ALICE, bytes_left=0))
    assert await pending(store) == [("7", "1", int(store.clock.now) + GRACE)]
    store.clock.now += GRACE
    assert await store.hit_and_runs.decide() == 1


async def test_a_user_who_is_back_when_the_grace_period_ends_is_left_alone(make_store: MakeStore) -> None:
    """The rules changed while the user was absent, so that coming back ended no grace period."""
    store = await open_with(make_store, hnr_grace=GRACE, max_changes=100)
    await leave(store)
    rules = store.rules.current
    store.rules.current = replace(rules, hnr_min_bytes=10_000)
    await store.announce(update(2, "s", passkey=ALICE, bytes_left=0))
    store.clock.now += GRACE
    assert await store.hit_and_runs.decide() == 0
    assert (await owed(store), await pending(store)) == ([], [])
    changes = await store.changes.newest(100)
    assert {"hit_and_run", "hit_and_run_cleared"}.isdisjoint(each.change for each in changes)


async def test_forgiving_all_clears_pending_ones_too(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_grace=GRACE)
    for torrent in (1, 2):
        await leave(store, torrent=torrent)
        store.clock.now += 100
    both = await store.hit_and_runs.pending_of("7", ["2", "1", "3"])
    assert [each[:2] for each in both] == [("7", "1"), ("7", "2")]
    assert both == await store.hit_and_runs.pending()
    assert await store.hit_and_runs.pending_of("7", []) == []
    await leave(store, passkey=BOB)
    assert await store.users.forgive("7") == 2
    assert [each.user_id for each in await store.hit_and_runs.pending()] == ["8"]


async def test_what_changed_meanwhile_decides(make_store: MakeStore) -> None:
    """The user became exempt, was deleted, or was forgiven; or a site wrote nonsense."""
    store = await open_with(make_store, hnr_grace=GRACE)
    for torrent in (1, 2):
        await leave(store, torrent=torrent)
    await leave(store, passkey=BOB)
    assert await store.users.forgive("7", "1") == 1
    assert await store.users.forgive("7", "1") == 0
    await store.redis.zadd(store.keys.pending_hit_and_runs(), {"x": 1, "9:": 2, "9:9": 3})
    await store.redis.set(store.keys.user_torrent("9", "9"), "not a hash")
    await store.users.edit(ALICE, {"hnr_exempt": "1"})
    await store.users.delete("8")
    assert [each[:2] for each in await store.hit_and_runs.pending()] == [("9", "9"), ("7", "2")]
    store.clock.now += GRACE
    assert await store.hit_and_runs.decide() == 0
    assert await store.redis.exists(store.keys.pending_hit_and_runs()) == 0
    assert await owed(store) == []


async def test_an_outage_delays_the_decision(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_grace=GRACE, grace=2700)
    await store.reaping.heartbeat()
    await leave(store)
    store.clock.now += GRACE + 1
    assert await store.hit_and_runs.decide() == 0  # no tracker ran
    await store.reaping.heartbeat()
    await store.pass_time(2699)
    assert await store.hit_and_runs.decide() == 0
    await store.pass_time(1)
    assert await store.hit_and_runs.decide() == 1


async def test_many_are_decided_in_one_run(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_grace=GRACE)
    await leave(store)
    fields = {"downloaded": "500", "peers": "0"}
    for torrent_id in range(10, 460):
        await store.redis.hset(store.keys.user_torrent("7", torrent_id), mapping=fields)
        await store.redis.zadd(store.keys.pending_hit_and_runs(), {f"7:{torrent_id}": store.clock.now})
    store.clock.now += GRACE
    assert await store.hit_and_runs.decide() == 451
    assert await store.users.hit_and_runs() == [("7", 451)]


async def test_changed_rules_drop_hit_and_runs(make_store: MakeStore) -> None:
    """A torrent on which the user never was stays: a site listed it."""
    store = await open_with(make_store)
    for torrent, downloaded in ((1, 500), (2, 5000)):
        await leave(store, torrent=torrent, downloaded=downloaded)
    await store.torrents.add(info_hash(3))
    await store.redis.sadd(store.keys.user_set("7", "hnr"), "3")
    await store.users.reindex_hit_and_runs()
    assert await store.hit_and_runs.drop() == 0
    store.rules.current = replace(store.rules.current, hnr_min_bytes=1000)
    assert await store.hit_and_runs.drop() == 1
    assert await owed(store) == ["2", "3"]


async def test_keys_of_another_type_fail_no_announce(make_store: MakeStore) -> None:
    store = await open_with(make_store, hnr_grace=GRACE, hnr_min_share=0.01)
    await store.redis.set(store.keys.pending_hit_and_runs(), "x")
    await leave(store)
    await store.announce(update(2, "s", passkey=ALICE))
    await check_invariants(store.redis, store.keys)
