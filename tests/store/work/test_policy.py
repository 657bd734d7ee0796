"""Which torrents the policy wants, as often as they miss seeders (rows W21 and W22)."""

import pytest

from tests.store.harness import ALICE, Store, info_hash, update
from tests.store.work.harness import add, check_work, claimed, project
from tests.store.work.policy import DAY, HOUR, completed, fill, queue, seeding, swarm, torrent_keys, wanted
from tracker.store.torrents.scores import Scored, Taken
from tracker.store.work import policy as policies
from tracker.store.work.policy import Rehearsal
from tracker.store.work.records import UnknownProject

NUMBERS_OF_SHARDS = (1, 4)
STEADY = 72
"""Points of three days."""


async def test_torrents_are_wanted_as_often_as_they_miss_seeders(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [1] * STEADY)
    await swarm(store, 2, [2] * STEADY)
    await swarm(store, 3, [2] * STEADY, leechers=7)
    await swarm(store, 4, [3] * STEADY, now=2)
    await swarm(store, 5, [3, 2] * 36, now=1)  # 2.5 is 3
    await swarm(store, 6, [2, 2, 3] * 24, now=2)
    changes = await fill(store, 1, 2, 3, 4, 5, 6)
    assert {n: (c.reason, c.copies, c.queue) for n, c in changes.items()} == {
        1: ("weak", 2, "todo"),
        2: ("below target", 1, "todo:secondary"),
        3: ("weak", 1, "todo"),
        6: ("below target", 1, "todo:secondary"),
    }
    assert await wanted(store) == {1: 2, 2: 1, 3: 1, 6: 1}
    assert await queue(store) == {1: 1000.5, 3: 1993.5}
    assert await queue(store, "todo:secondary") == {2: 2000.5, 6: 2324.5}
    assert await fill(store, 1, 2, 3, 4, 5, 6) == {}


async def test_a_dry_run_tells_the_same_and_writes_nothing(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [1] * STEADY)
    await swarm(store, 2, [0] * 30, ranked=False, leechers=2)
    await completed(store, 2, 7)
    before = await store.dump()
    told = await fill(store, 1, 2, rehearsal=Rehearsal())
    assert await store.dump() == before
    assert told == await fill(store, 1, 2) and told.keys() == {1, 2}


@pytest.mark.parametrize("hour", [0, 9])
async def test_one_bad_or_good_hour_enqueues_nothing(store: Store, hour: int) -> None:
    await seeding(store)
    await swarm(store, 1, [3] * (STEADY - 1) + [hour])
    assert await fill(store, 1) == {}


async def test_a_recovered_torrent_leaves_the_queue(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [1] * STEADY)
    await fill(store, 1)
    await swarm(store, 1, [1] * 12 + [3] * 60)
    assert (await fill(store, 1))[1].reason == "enough"
    assert await wanted(store) == {} == await queue(store)
    assert not await store.redis.exists(store.keys.work_policy("seeds"))


async def test_claims_and_present_seeders_count(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [0] * STEADY, now=1)
    assert (await fill(store, 1))[1].copies == 2
    await claimed(store, "7", "seeds")
    await swarm(store, 1, [0] * STEADY, now=1)  # the claimant seeds, or another does: once is enough to count
    changed = (await fill(store, 1))[1]
    assert (changed.copies_before, changed.copies) == (1, 2)
    assert (await check_work(store, "seeds")).out == 1


@pytest.mark.parametrize(
    ("history", "step", "ranked"),
    [
        ([], HOUR, True),
        ([1] * 5, DAY, True),
        ([1] * 23, HOUR, True),
        ([1] * 72, 60, True),
        ([1] * 8, HOUR, False),
        ([], HOUR, False),
    ],
)
async def test_a_torrent_that_is_not_known_for_a_day_is_left_alone(
    store: Store, history: list[int], step: int, ranked: bool
) -> None:
    await seeding(store)
    await swarm(store, 1, history, step=step, ranked=ranked, now=1)
    assert await fill(store, 1) == {}


async def test_a_torrent_that_left_the_ranking_is_known_after_a_day(store: Store) -> None:
    """Scorings end with the rank, so the policy notes changes of its seeders itself: one point each."""
    await seeding(store)
    ih = await swarm(store, 1, [], ranked=False, now=1)
    for _ in range(5):
        assert await fill(store, 1) == {}
        store.clock.now += 5 * HOUR
    assert (await fill(store, 1))[1].copies == 2
    key = torrent_keys(store).history((await store.torrent(ih))["tid"])
    assert await store.redis.llen(key) == 1 and await store.redis.ttl(key) > 6 * DAY
    for seeders in (4, 4, 3):
        await store.redis.hset(torrent_keys(store).torrent(ih), "seeders", seeders)
        store.clock.now += DAY
        await fill(store, 1)
    assert await store.redis.llen(key) == 3
    assert await wanted(store) == {}


async def test_a_bad_hour_of_an_unranked_torrent_enqueues_nothing(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [5] * 30, ranked=False, now=0)
    assert await fill(store, 1) == {}
    store.clock.now += HOUR
    await store.redis.hset(torrent_keys(store).torrent(info_hash(1)), "seeders", 5)
    assert await fill(store, 1) == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"labels": "x nowork"}, "nowork"),
        ({"enabled": "0"}, "disabled"),
        ({"hybrid_of": "ab" * 20}, "hybrid"),
        ({"enabled": "pending"}, "pending"),
        ({"size": "99"}, "size"),
        ({"size": "1001"}, "size"),
        ({"size": "-"}, "unknown size"),
    ],
)
async def test_excluded_torrents_are_never_wanted(store: Store, change: dict[str, str], reason: str) -> None:
    await seeding(store, min_size=100, max_size=1000)
    ih = await swarm(store, 1, [1] * STEADY, size="500")
    assert (await fill(store, 1))[1].copies == 2
    await store.redis.hset(torrent_keys(store).torrent(ih), mapping=change)
    assert (await fill(store, 1))[1].reason == reason
    assert await wanted(store) == {}
    assert await fill(store, 1) == {}


async def test_denied_and_removed_torrents_leave_the_queue(store: Store) -> None:
    await seeding(store)
    for number in (1, 2):
        await swarm(store, number, [1] * STEADY)
    await fill(store, 1, 2)
    await store.torrents.deny(info_hash(1), "no")
    await store.redis.delete(torrent_keys(store).info_hash(info_hash(2)))
    assert {n: c.reason for n, c in (await fill(store, 1, 2)).items()} == {1: "denied", 2: "unregistered"}
    assert await wanted(store) == {}


async def test_without_a_seeder_three_who_completed_it_are_asked_then_others(store: Store) -> None:
    """W22."""
    await seeding(store)
    await swarm(store, 1, [0] * STEADY, leechers=2)
    await completed(store, 1, 15, 14, 13, 12, 11)
    first = (await fill(store, 1))[1]
    assert (first.reason, first.asked, first.copies, first.queue) == ("reseed request", ("15", "14", "13"), 3, "")
    assert await queue(store) == {} and await queue(store, "todo:d:14") != {}
    claim = await claimed(store, "14", "seeds")
    assert claim.queue == "todo:d:14"
    second = (await fill(store, 1))[1]
    assert (second.asked, second.copies) == (("15", "13"), 2)
    await store.work.claims.release("seeds", "14", claim.item)

    async def after_a_week() -> tuple[str, tuple[str, ...], int, str]:
        store.clock.now += 7 * DAY
        await swarm(store, 1, [0] * STEADY, leechers=2)
        changed = (await fill(store, 1))[1]
        return changed.reason, changed.asked, changed.copies, changed.queue

    assert await after_a_week() == ("reseed request", ("12", "11"), 2, "")
    assert await queue(store, "todo:d:15") == {} == await queue(store, "todo:d:14")
    assert await after_a_week() == ("no seeder", (), 3, "todo")
    await swarm(store, 1, [0] * STEADY)
    changed = (await fill(store, 1))[1]
    assert (changed.reason, changed.copies) == ("no user to ask", 0)
    for _ in range(10):
        store.clock.now += 7 * DAY
    await swarm(store, 1, [0] * STEADY)
    assert (await fill(store, 1))[1].asked == ("15", "14", "13")


async def test_deleted_users_are_not_asked(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [0] * STEADY)
    await completed(store, 1, 15, 14)
    await store.redis.zremrangebyscore(store.keys.users(), 15, 15)
    tid = (await store.torrent(info_hash(1)))["tid"]
    await store.redis.zadd(torrent_keys(store).completed(tid), {"no user": 1, "07": 2})
    assert (await fill(store, 1))[1].asked == ("14",)


async def test_a_dead_torrent_that_no_user_completed_is_wanted_by_leechers_only(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [0] * STEADY)
    assert await fill(store, 1) == {}
    await swarm(store, 1, [0] * STEADY, leechers=1)
    changed = (await fill(store, 1))[1]
    assert (changed.reason, changed.copies, changed.queue) == ("no seeder", 3, "todo")


async def test_items_added_by_hand_stay(store: Store) -> None:
    await seeding(store)
    ih = await swarm(store, 1, [9] * STEADY)
    await add(store, ih.hex(), project="seeds", copies=4, queue="redo")
    assert await fill(store, 1) == {}
    assert await wanted(store) == {1: 4}


async def test_a_finished_torrent_that_is_weak_again_is_wanted_again(store: Store) -> None:
    await seeding(store, target=1)
    ih = await swarm(store, 1, [0] * STEADY, leechers=1)
    await fill(store, 1)
    await claimed(store, "7", "seeds")
    assert (await store.work.claims.complete("seeds", "7", ih.hex(), seconds=9)).counted
    await swarm(store, 1, [0] * STEADY, now=1)  # the user goes on seeding
    assert await fill(store, 1) == {}
    await swarm(store, 1, [0] * STEADY, leechers=1)
    assert (await fill(store, 1))[1].copies == 1


async def test_the_policy_manages_a_limited_number_of_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await seeding(store)
    for number in (1, 2, 3):
        await swarm(store, number, [1] * STEADY)
    monkeypatch.setattr(policies, "MAX_MANAGED", 2)
    changes = await store.work.policy.fill("seeds", [info_hash(n) for n in (1, 2, 3)], [0.1, 0.2, 0.3])
    assert [change.copies for change in changes] == [2, 2]


async def test_the_neediest_torrents_win_the_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they are given out. A torrent shorter of seeders replaces the one least short of them."""
    await seeding(store)
    for number, average in enumerate((2, 2, 1, 1, 0), start=1):
        await swarm(store, number, [average] * STEADY, leechers=0 if average else 1)
    monkeypatch.setattr(policies, "MAX_MANAGED", 2)

    async def filled(*numbers: int) -> dict[int, tuple[str, int]]:
        chances = [number / 10 for number in numbers]
        changes = await store.work.policy.fill("seeds", [info_hash(n) for n in numbers], chances)
        await check_work(store, "seeds")
        return {int.from_bytes(each.info_hash, "big"): (each.reason, each.copies) for each in changes}

    assert (await filled(1, 2)).keys() == {1, 2} == (await wanted(store)).keys()
    assert await filled(4) == {2: ("no room", 0), 4: ("weak", 2)}
    assert await filled(1, 2, 3, 4) == {1: ("no room", 0), 3: ("weak", 2)}
    assert await filled(5) == {4: ("no room", 0), 5: ("no seeder", 3)}
    assert (await wanted(store)).keys() == {3, 5}
    assert await filled(1, 2, 3, 4, 5) == {}
    await swarm(store, 3, [9] * STEADY)
    assert await filled(3, 2) == {3: ("enough", 0), 2: ("below target", 1)}
    needs = {member.decode() for member in await store.redis.zrange(store.keys.work_needs("seeds"), 0, -1)}
    assert needs == {info_hash(number).hex() for number in await wanted(store)}


async def test_a_dry_run_makes_room_like_a_real_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await seeding(store)
    for number, leechers in enumerate((0, 1, 2, 3, 4, 5), start=1):
        await swarm(store, number, [1] * STEADY, leechers=leechers)
    monkeypatch.setattr(policies, "MAX_MANAGED", 3)
    await store.work.policy.fill("seeds", [info_hash(n) for n in (1, 2)], [0.5] * 2)
    others = [info_hash(n) for n in (6, 5, 4, 3)]
    shown = await store.work.policy.fill("seeds", others, [0.5] * 4, rehearsal=Rehearsal())
    assert {int.from_bytes(each.info_hash, "big") for each in shown if not each.copies} == {1, 2}
    assert shown == await store.work.policy.fill("seeds", others, [0.5] * 4)
    assert (await wanted(store)).keys() == {4, 5, 6}


async def test_items_of_a_store_without_needs_get_theirs(store: Store) -> None:
    """Earlier stores do not have the index."""
    await seeding(store)
    await swarm(store, 1, [1] * STEADY)
    await fill(store, 1)
    needs = store.keys.work_needs("seeds")
    before = await store.redis.zrange(needs, 0, -1, withscores=True)
    await store.redis.delete(needs)
    assert await fill(store, 1) == {}
    assert await store.redis.zrange(needs, 0, -1, withscores=True) == before == [(info_hash(1).hex().encode(), 1000.5)]


async def test_a_claim_made_meanwhile_is_not_counted_twice(store: Store) -> None:
    """The demand is found before it is written. What was claimed in between stays as it is until the next visit."""
    await seeding(store)
    ih = (await swarm(store, 1, [1] * STEADY)).hex()
    argv: list[str | int] = ["seeds", 9, "", 0, 0, 0, ih, "0.5", "", 2, 1000, 1000, "todo", ""]
    assert len(await store.scripts.work_policy(argv)) == 1
    await claimed(store, "7", "seeds")
    assert await store.scripts.work_policy(argv) == []
    assert (await check_work(store, "seeds")).wanted == 1


async def test_a_history_gets_a_point_when_the_last_one_is_old(store: Store) -> None:
    """A history is deleted a week after its last point. Histories of another type do not stop the others."""
    await seeding(store)
    ih = await swarm(store, 1, [1], ranked=False)
    key = torrent_keys(store).history((await store.torrent(ih))["tid"])
    for days, points in ((2, 1), (2, 2), (2, 2)):
        store.clock.now += days * DAY
        await fill(store, 1)
        assert await store.redis.llen(key) == points
    other = await swarm(store, 2, [1], ranked=False, now=2)
    await store.redis.delete(key)
    await store.redis.set(key, "wrong type")
    await fill(store, 1, 2)
    assert await store.redis.llen(torrent_keys(store).history((await store.torrent(other))["tid"])) == 2


async def test_a_place_keeps_its_chance_while_the_torrent_is_as_weak(store: Store) -> None:
    await seeding(store)
    await swarm(store, 1, [1] * STEADY)
    await fill(store, 1, chance=0.25)
    assert await fill(store, 1, chance=0.75) == {}
    assert await queue(store) == {1: 1000.25}
    await swarm(store, 1, [1] * STEADY, leechers=2000)
    await fill(store, 1, chance=1.0)
    assert await queue(store) == {1: 1.999999}


async def test_in_random_order_the_place_is_the_chance(store: Store) -> None:
    await seeding(store, order="random")
    await swarm(store, 1, [1] * STEADY)
    await fill(store, 1, chance=0.25)
    assert await queue(store) == {1: 0.25}
    assert await fill(store, 1, chance=0.5) == {}


async def test_only_seeding_projects_have_a_policy(store: Store) -> None:
    await project(store, "proj")
    for name in ("proj", "none"):
        with pytest.raises(UnknownProject):
            await store.work.policy.fill(name, [info_hash(1)], [0.0])


@pytest.mark.parametrize("entry", ["", "x", "1 2", "-5 1 0 0 0", "9" * 400 + " 1 0 0 0", "1e3 1 0 0 0"])
async def test_invalid_points_and_counts_of_a_site_stop_nothing(store: Store, entry: str) -> None:
    await seeding(store)
    ih = await swarm(store, 1, [1] * STEADY)
    tid = (await store.torrent(ih))["tid"]
    await store.redis.lset(torrent_keys(store).history(tid), 5, entry)
    await store.redis.set(torrent_keys(store).completed(tid), "wrong type")
    await store.redis.hset(torrent_keys(store).torrent(ih), mapping={"leechers": "nan", "snatches": "x"})
    assert (await fill(store, 1))[1].copies == 2
    await store.redis.delete(torrent_keys(store).history(tid))
    await store.redis.set(torrent_keys(store).history(tid), "wrong type")
    assert await fill(store, 1) == {}


async def test_a_real_swarm_is_wanted(private: Store) -> None:
    """Announces, scorings and the policy together."""
    await seeding(private)
    await private.announce(update(1, "s", passkey=ALICE, bytes_left=0))
    for _ in range(30):
        taken = await private.scores.take(5)
        await private.scores.finish([_scored(each) for each in taken])
        await private.pass_time(HOUR)
        await private.announce(update(1, passkey=ALICE, bytes_left=0))
    changed = (await fill(private, 1))[1]
    assert (changed.reason, changed.copies, changed.average, changed.seeders) == ("weak", 2, 1.0, 1)


def _scored(taken: Taken) -> Scored:
    return Scored(taken, taken.score)


async def test_a_project_that_verifies_addresses_asks_no_users_and_wants_no_private_torrents(store: Store) -> None:
    """W30. Its claimants are names, and a name can read like a user id."""
    await seeding(store, verify="address")
    await swarm(store, 1, [0] * 30, leechers=2)
    await swarm(store, 2, [1] * 30, private="1")
    await completed(store, 1, 777, 888)
    changes = await fill(store, 1, 2)
    assert {number: change.reason for number, change in changes.items()} == {1: "no seeder"}
    assert set(await queue(store)) == {1}
