"""What a claimant has: GET mine, extend, the seconds seen, and what is no longer needed."""

import pytest

from tests.frontends.work.conftest import Site
from tests.frontends.work.test_calls import ASK, claimed
from tests.store.harness import ALICE, BOB, START, info_hash
from tracker.core.work import is_needed

HASH = info_hash(1).hex()
ALICES = {"Authorization": f"Bearer {ALICE}"}


async def test_extend_needs_the_token_of_the_claim(site: Site) -> None:
    await site.store.work.projects.edit("proj", {"lease_seconds": 21_600})
    await site.add("one")
    held = await claimed(site)
    site.store.clock.now += 100
    body = {**ASK, "item": "one", "token": held["token"]}
    reply = await site.ask("/proj/extend", body)
    assert (reply.status, reply.json) == (200, {"lease_ends": START + 100 + 21_600})
    for changes in ({"token": "1"}, {"item": "two"}, {"downloader": "stranger"}):
        assert (await site.ask("/proj/extend", {**body, **changes})).status == 410
    assert (await site.ask("/proj/extend", {**ASK, "item": "one"})).status == 400
    await site.ask("/proj/release", {**ASK, "item": "one"})
    assert (await site.ask("/proj/extend", body)).status == 410


async def test_a_blocked_one_can_neither_extend_nor_list_nor_release(site: Site) -> None:
    """W10."""
    await site.add("one")
    held = await claimed(site)
    body = {**ASK, "item": "one", "token": held["token"]}
    for who in ("volunteer_1", "127.0.0.1"):
        await site.store.work.blocks.block(who, "proj")
        for call in ("extend", "release"):
            assert (await site.ask(f"/proj/{call}", body)).status == 403
        assert (await site.ask("/proj/mine?downloader=volunteer_1")).status == 403
        await site.store.work.blocks.unblock(who, "proj")
    assert (await site.ask("/proj/extend", body)).status == 200


async def test_mine_in_a_project_by_names_shows_no_token(site: Site) -> None:
    """Any client can give a name."""
    await site.add("one")
    await claimed(site)
    reply = await site.ask("/proj/mine?downloader=volunteer_1")
    assert reply.json == {
        "items": [{"item_name": "one", "state": "claimed", "claimed_at": START, "lease_ends": START + 604_800}]
    }
    assert (await site.ask("/proj/mine?downloader=volunteer_2")).json == {"items": []}
    assert (await site.ask("/proj/mine")).status == 400


async def seed_time(site: Site, seconds: int, user: str = "7") -> None:
    """What announces of the user have shown."""
    await site.store.redis.hset(site.store.keys.user_torrent(user, "1"), "seed_time", seconds)


@pytest.fixture
async def one_claim(seeding: Site) -> Site:
    """User 7 has a claim of torrent 1, on which it had seeded 1,000 s before."""
    await seeding.store.torrents.add(info_hash(1), {"name": "one", "size": "5000"})
    await seed_time(seeding, 1000)
    await seeding.add(HASH, project="seeds", copies=2)
    assert (await seeding.ask("/seeds/request", {"passkey": ALICE})).text == HASH
    return seeding


async def test_mine_shows_seconds_since_the_claim(one_claim: Site) -> None:
    await seed_time(one_claim, 4600)
    assert (await one_claim.ask("/seeds/mine")).status == 401
    (found,) = (await one_claim.ask("/seeds/mine", headers=ALICES)).json["items"]
    assert found.pop("token")
    assert found == {
        "item_name": HASH,
        "state": "claimed",
        "claimed_at": START,
        "lease_ends": START + 21_600,
        "info_hash": HASH,
        "name": "one",
        "size": 5000,
        "verified_seconds": 3600,
        "seeders": 0,
        "average": None,
        "needed": True,
    }
    reply = await one_claim.ask("/seeds/mine", headers={"Authorization": f"Bearer {BOB}"})
    assert reply.json == {"items": []}


async def test_a_report_asks_for_the_verification_now(one_claim: Site) -> None:
    """It says how much seed time is missing, and finishes the claim when none is."""
    await seed_time(one_claim, 4600)
    body = {"passkey": ALICE, "item": HASH}
    assert (await one_claim.ask("/seeds/done", body)).json == {"missing_seconds": 86_400 - 3600}
    await seed_time(one_claim, 1000 + 86_400)
    assert (await one_claim.ask("/seeds/done", {**body, "token": "1"})).status == 410
    for _ in range(2):
        assert (await one_claim.ask("/seeds/done", body)).text == "OK\n"
    (entry,) = await one_claim.store.work.log.newest("seeds")
    assert (entry.claimant, entry.seconds) == ("7", 86400)


async def test_what_was_finished_is_kept_while_it_is_seeded(one_claim: Site) -> None:
    store = one_claim.store
    await store.work.claims.complete("seeds", "7", HASH, seconds=86_400)
    assert (await one_claim.ask("/seeds/mine", headers=ALICES)).json == {"items": []}
    await store.redis.sadd(store.keys.user_set("7", "complete"), "1")
    await store.redis.set(store.keys.torrent_id("1"), HASH)
    await store.redis.rpush(store.keys.history("1"), *(f"{START - 3600 * n} 40 5 7 1.5" for n in range(60, 0, -1)))
    (found,) = (await one_claim.ask("/seeds/mine", headers=ALICES)).json["items"]
    assert (found["state"], found["verified_seconds"], found["average"]) == ("kept", 0, 40)
    assert found["needed"] is is_needed(40.0, 3, "7", HASH, START)


def test_a_claim_is_needed_unless_the_torrent_has_spare_seeders() -> None:
    """With a target of 3: never below 5 without the claimant."""
    for average in (None, 0.0, 3.0, 5.9):
        assert all(is_needed(average, 3, str(n), HASH, START) for n in range(200))


def test_seeders_do_not_all_leave_on_one_day() -> None:
    """W28: about one a day, drawn again each day and the same all day."""
    claimants = [str(n) for n in range(20)]
    leaving = [
        [who for who in claimants if not is_needed(20.0, 3, who, HASH, START + 86_400 * day)] for day in range(100)
    ]
    assert max(map(len, leaving)) <= 6 and 50 < sum(map(len, leaving)) < 200
    assert len({who for day in leaving for who in day}) == 20
    begin = START - START % 86_400
    assert len({is_needed(20.0, 3, "7", HASH, begin + second) for second in range(0, 86_400, 3600)}) == 1
