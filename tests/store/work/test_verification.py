"""Verification of claims by the accounts of users (rows W12, W13, W23, W24)."""

import pytest

from tests.store.harness import Store, info_hash, update
from tests.store.work.harness import check_sums, check_work, claimed, project, refusal, register, text, trusted
from tests.store.work.policy import torrent_keys
from tests.store.work.volunteers import INTERVAL, ITEM, announce, seed, seeding_project, state, verify, wait
from tracker.store.work.records import NewItem, UnknownProject

NUMBERS_OF_SHARDS = (1, 4)
HOUR, DAY = 3600, 86_400


async def torrent_id(store: Store) -> str:
    return (await store.torrent(info_hash(1)))["tid"]


async def logged(store: Store) -> list[dict[str, str]]:
    return [text(row) for _, row in await store.redis.xrange(store.keys.work_log("proj"))]


async def test_a_seeder_is_done_by_itself_after_the_time(private: Store) -> None:
    """W23: without any report of the claimant."""
    await seeding_project(private)
    await claimed(private, "7")
    assert await state(private) == "claimed"
    await announce(private, event="s")
    await verify(private)
    await seed(private, 3)
    assert await state(private) == "seeding"
    await seed(private, 1)
    assert await state(private) == "done"
    [entry] = await logged(private)
    assert entry["by"] == "7"
    assert 2 * HOUR <= int(entry["seconds"]) <= 2 * HOUR + 120
    assert await trusted(private, "proj", "7") == 3
    await check_work(private)
    await check_sums(private)


async def test_time_before_the_claim_does_not_count(private: Store) -> None:
    await seeding_project(private)
    await announce(private, event="s")
    await seed(private, 10)
    await announce(private, event="x")
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 3)
    assert await state(private) == "seeding"


async def test_a_restart_with_a_new_peer_id_goes_on(private: Store) -> None:
    """W23: the account counts, whatever the peer id."""
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 2)
    await announce(private, event="x")
    await wait(private, 600)
    assert await state(private) == "seen"
    await announce(private, peer=2, event="s")
    await seed(private, 2, peer=2)
    assert await state(private) == "done"


@pytest.mark.parametrize(("user", "bytes_left"), [("8", 0), ("7", 1000), ("", 0)])
async def test_others_leechers_and_strangers_do_not_count(private: Store, user: str, bytes_left: int) -> None:
    """W23: another user's seeding, a leecher, and an announce without a passkey."""
    await seeding_project(private)
    await claimed(private, "7")
    join = update(1, "s", passkey={"7": "a" * 20, "8": "b" * 20, "": ""}[user], bytes_left=bytes_left)
    if not user:
        assert await private.refused(join) == "unknown passkey"
    for _ in range(12):
        if user:
            await private.swarms.announce(join._replace(event=b"u"))
        await wait(private, HOUR / 2)
    assert await logged(private) == []
    assert await state(private) != "done"


async def test_an_outage_of_the_tracker_extends_the_lease(private: Store) -> None:
    """W23: no client can announce while no tracker runs."""
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 2)
    private.clock.now += 2 * DAY  # without a heartbeat
    await verify(private)
    assert await state(private) == "seeding"
    await announce(private)
    await seed(private, 3)
    assert await state(private) == "done"


async def test_who_never_comes_lapses_after_six_hours(private: Store) -> None:
    """W24, W13: and trust falls."""
    await seeding_project(private)
    await claimed(private, "7")
    await wait(private, 6 * HOUR - 60)
    assert await state(private) == "claimed"
    await wait(private, 60)
    assert await state(private) == "gone"
    assert await trusted(private, "proj", "7") == 1
    assert await private.redis.zrange(private.keys.work_queue("proj", "todo"), 0, -1) == [ITEM.encode()]
    assert (await refusal(private, "7")).reason == "empty"


async def test_who_stops_half_way_lapses_three_intervals_later(private: Store) -> None:
    """W24: also one who leaves without a word, once the peer has timed out."""
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s", bytes_left=1000)
    await wait(private, HOUR)
    await announce(private, event="x", bytes_left=500)
    await wait(private, 90 * 60 - 60)
    assert await state(private) == "seen"
    await wait(private, 120)
    assert await state(private) == "gone"


async def test_a_silent_seeder_lapses_three_intervals_after_its_last_announce(private: Store) -> None:
    """Also while its peer is still in the swarm: how long that lasts is another setting."""
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 2)
    await wait(private, 3 * INTERVAL - 180)
    assert await state(private) == "seeding"
    await wait(private, 180)
    assert await state(private) == "gone"


async def test_who_times_out_lapses(private: Store) -> None:
    await seeding_project(private)
    await claimed(private, "7")
    peer = update(1, "s", passkey="a" * 20, bytes_left=0)
    await private.announce(peer)
    await wait(private, HOUR)
    assert await private.silence(peer, await torrent_id(private)) == 1
    await wait(private, 92 * 60)
    assert await state(private) == "gone"


async def test_a_slow_download_keeps_its_claim_and_a_stalled_one_does_not(private: Store) -> None:
    """W24: progress within 24 hours is enough."""
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s", bytes_left=1000)
    for left in (900, 800, 700):
        for _ in range(46):  # 23 hours without progress
            await wait(private, HOUR / 2, every=600)
            await announce(private, bytes_left=left)
        assert await state(private) == "seen"
    for _ in range(56):
        await wait(private, HOUR / 2, every=600)
        await announce(private, bytes_left=700)
    assert await state(private) == "gone"


@pytest.mark.slow
async def test_a_claim_ends_for_good(private: Store) -> None:
    """After ``claim_days`` and the time of the download at 100 kB/s: here 24 hours and 1 hour."""
    await seeding_project(private, claim_days=1, seed_hours=100)
    await private.torrents.edit(info_hash(1), {"size": str(100_000 * HOUR)})
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 49)
    assert await state(private) == "seeding"
    await seed(private, 1)
    assert await state(private) == "gone"


@pytest.mark.slow
async def test_a_claim_that_lapsed_is_counted_late_and_once(private: Store) -> None:
    """W12: what was missing meanwhile becomes less."""
    await seeding_project(private)
    await claimed(private, "7")
    await wait(private, 6 * HOUR)
    assert (await check_work(private)).wanted == 1
    await announce(private, event="s")
    await seed(private, 4)
    [entry] = await logged(private)
    assert (entry["by"], entry["late"]) == ("7", "1")
    assert (await check_work(private)).wanted == 0
    await seed(private, 8)
    assert len(await logged(private)) == 1
    assert await private.work.verification.count("proj") == 0


async def test_a_claim_given_back_is_not_counted(private: Store) -> None:
    await seeding_project(private)
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 3)
    assert await private.work.claims.release("proj", "7", ITEM)
    await seed(private, 3)
    assert await logged(private) == []


async def test_bytes_are_at_most_what_others_downloaded(private: Store) -> None:
    """A user who reports any number of bytes gets those that other users downloaded since the claim."""
    await seeding_project(private)
    await announce(private, "8", 2, "s", bytes_left=5000)
    await announce(private, event="s", uploaded=10)
    await announce(private, event="x", uploaded=50)
    await claimed(private, "7")
    await announce(private, event="s", uploaded=50)
    for step in range(1, 5):
        await wait(private, HOUR / 2)
        await announce(private, "8", 2, bytes_left=5000 - 100 * step, downloaded=100 * step)
        await announce(private, uploaded=50 + 10**6 * step, downloaded=7 * step)
    await wait(private, 60)
    [entry] = await logged(private)
    assert int(entry["total"]) == 400


async def test_asking_says_what_is_missing_and_counts_when_nothing_is(private: Store) -> None:
    await seeding_project(private)
    verification = private.work.verification
    assert (await verification.ask("proj", "7", ITEM)).outcome == "stranger"
    await claimed(private, "7")
    await announce(private, event="s")
    await seed(private, 1)
    asked = await verification.ask("proj", "7", ITEM)
    assert (asked.outcome, asked.missing_seconds) == ("unverified", 2 * HOUR - HOUR / 2)
    for _ in range(3):  # the job does not run
        await private.pass_time(HOUR / 2)
        await announce(private)
    assert (await verification.ask("proj", "7", ITEM)).counted
    assert (await verification.ask("proj", "7", ITEM)).outcome == "duplicate"
    with pytest.raises(UnknownProject):
        await verification.ask("none", "7", ITEM)


async def test_no_hours_still_ask_for_a_seeder(private: Store) -> None:
    await seeding_project(private, seed_hours=0)
    await claimed(private, "7")
    await announce(private, event="s", bytes_left=1000)
    await seed(private, 2, bytes_left=1000)
    assert await logged(private) == []
    await announce(private, event="c")
    await seed(private, 1)
    assert len(await logged(private)) == 1


async def test_keys_of_a_wrong_type_do_not_keep_other_claims_from_being_looked_at(private: Store) -> None:
    await seeding_project(private)
    await private.torrents.add(info_hash(2))
    await private.work.items.add("proj", [NewItem(info_hash(2).hex())])
    for _ in range(2):
        await claimed(private, "7")
    await private.redis.set(torrent_keys(private).user_torrent("7", await torrent_id(private)), "x")
    await private.redis.hset(private.keys.work_claims("proj"), f"{info_hash(3).hex()} 7", "no JSON")
    await private.redis.zadd(private.keys.work_checks("proj"), {f"{info_hash(3).hex()} 7": 0})
    await announce(private, event="s", torrent=2)
    for _ in range(4):
        await wait(private, HOUR / 2)
        await announce(private, torrent=2)
    await wait(private, 60)
    assert [entry["item"] for entry in await logged(private)] == [info_hash(2).hex()]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "-1e300", "9" * 400, "x", "0x1p1023"])
async def test_numbers_that_a_site_has_written_do_not_end_a_round(private: Store, value: str) -> None:
    fields = ("seed_time", "uploaded", "downloaded", "left", "until", "peers")
    await seeding_project(private, seed_hours=1)
    keys = torrent_keys(private)
    account, torrent = keys.user_torrent("7", await torrent_id(private)), keys.torrent(info_hash(1))
    await private.redis.hset(account, mapping=dict.fromkeys(fields, value))
    await private.redis.hset(torrent, mapping={"user_downloaded": value, "size": value})
    await claimed(private, "7")
    for written in ({}, dict.fromkeys(fields, "7"), dict.fromkeys(fields, value)):
        if written:
            await private.redis.hset(account, mapping=written)
        [checked] = await private.work.verification.check("proj", private.clock.now)
        assert min(checked.seconds, checked.missing_seconds, checked.uploaded) >= 0
        await wait(private, 120)
    await check_sums(private)


@pytest.mark.slow
async def test_more_claims_than_a_batch_are_looked_at_within_ten_minutes(private: Store) -> None:
    await project(private, kind="seeding", verify="announce", keep_done_days=1, budget=3000, start_budget=3000)
    await private.pass_time(0)
    names = [info_hash(n).hex() for n in range(1, 2501)]
    await register(private, *names)
    await private.work.items.add("proj", [NewItem(name) for name in names])
    for _ in range(2500):
        await claimed(private, "7")
    await wait(private, 600)
    oldest = await private.redis.zrange(private.keys.work_checks("proj"), 0, 0, withscores=True)
    assert oldest[0][1] > 1000 * (private.clock.now - 600)
