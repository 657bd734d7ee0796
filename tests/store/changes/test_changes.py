"""The change feed: what the scripts record, and positions in it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis.stateful import invariant, run_state_machine_as_test

from tests.examples import examples
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, peer_id, running, update
from tests.store.swarms.test_state_machine import SwarmMachine
from tracker.bittorrent import Accounts
from tracker.errors import ClientError, Conflict
from tracker.store.changes.changes import FIRST, Change, check_position
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

USER = attrgetter("user_id")
RULES = SwarmRules(accounts="required", peer_memory=3600, hnr_min_bytes=3, hnr_threshold=600, max_changes=1000)
LEFT = ("stopped", "reaped", "replaced")


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """Accounts are required; ALICE is user 7, BOB user 8."""
    async with running(Store(redis_url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        yield store


async def read(store: Store, position: str = FIRST) -> list[Change]:
    page = await store.changes.after(position, 1000)
    assert not page.gap
    return page.changes


async def test_a_download_is_recorded_from_join_to_stop(store: Store) -> None:
    await store.announce(update(1, "s", passkey=ALICE, bytes_left=1000))
    await store.pass_time(100)
    await store.announce(update(1, "u", passkey=ALICE, uploaded=10, downloaded=600, bytes_left=400))
    await store.pass_time(100)
    await store.announce(update(1, "c", passkey=ALICE, uploaded=20, downloaded=1000, bytes_left=0))
    await store.pass_time(50)
    await store.announce(update(1, "x", passkey=ALICE, uploaded=30, downloaded=1000, bytes_left=0))
    joined, completed, stopped, hit_and_run = await read(store)
    assert (joined.change, completed.change, stopped.change) == ("joined", "completed", "stopped")
    for each in (joined, completed, stopped):
        assert each.info_hash == info_hash(1).hex() and each.torrent_id == "1"
        assert each.user_id == "7" and each.peer_id == peer_id(1).hex()
    assert (joined.uploaded, joined.downloaded, joined.left) == (0, 0, 1000)
    assert (joined.seeders, joined.leechers) == (0, 1)
    assert (completed.uploaded, completed.downloaded, completed.left) == (20, 1000, 0)
    assert (completed.seeders, completed.leechers, completed.seed_time) == (1, 0, 0)
    assert (stopped.uploaded, stopped.downloaded, stopped.seed_time) == (30, 1000, 50)
    assert (stopped.seeders, stopped.leechers) == (0, 0)
    assert hit_and_run.change == "hit_and_run" and hit_and_run.user_id == "7"
    assert (hit_and_run.info_hash, hit_and_run.torrent_id) == (info_hash(1).hex(), "1")
    assert (hit_and_run.downloaded, hit_and_run.peer_id, hit_and_run.seeders) == (1000, None, None)


@pytest.mark.parametrize("passkey", ["", ALICE])
async def test_a_leecher_that_stops_with_all_bytes_completes_as_a_seeder(
    redis_url: str, prefix: str, passkey: str
) -> None:
    """Both changes have the bytes of the stop, and the counts at their moments."""
    async with running(Store(redis_url, Keys(prefix), replace(RULES, accounts="optional"))) as store:
        await store.users.add("7", ALICE)
        await store.announce(update(1, "s", passkey=passkey))
        await store.announce(update(2, "s"))
        await store.pass_time(10)
        await store.announce(update(1, "x", passkey=passkey, downloaded=1000, bytes_left=0))
        completed, stopped = (await read(store))[2:4]
    assert [each.change for each in (completed, stopped)] == ["completed", "stopped"]
    assert (completed.seeders, completed.leechers, completed.downloaded) == (1, 1, 1000)
    assert (stopped.seeders, stopped.leechers, stopped.downloaded) == (0, 1, 1000)


async def test_a_hit_and_run_is_cleared_by_time(store: Store) -> None:
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(10)
    await store.announce(update(1, "x", passkey=ALICE, downloaded=1000, bytes_left=0))
    await store.announce(update(1, "s", passkey=ALICE, bytes_left=0))
    await store.pass_time(600)
    await store.announce(update(1, "u", passkey=ALICE, bytes_left=0))
    kinds = [each.change for each in await read(store)]
    assert kinds == ["joined", "completed", "stopped", "hit_and_run", "joined", "hit_and_run_cleared"]


async def owe(store: Store, *torrents: int) -> None:
    """Makes hit-and-runs of user 7, or pending ones."""
    for torrent in torrents:
        await store.announce(update(1, "s", torrent, passkey=ALICE))
        await store.pass_time(10)
        await store.announce(update(1, "x", torrent, passkey=ALICE, downloaded=1000, bytes_left=0))


async def kinds(store: Store, *, skipped: int) -> list[tuple[str, str | None, str | None, int | None]]:
    """(change, user id, info hash, downloaded) of the changes after the first ``skipped``."""
    found = (await read(store))[skipped:]
    return [(each.change, each.user_id, each.info_hash, each.downloaded) for each in found]


async def test_a_forgiven_hit_and_run_is_recorded(store: Store) -> None:
    """One of them, then all others; one that a site listed has no torrent and no bytes."""
    await owe(store, 1, 2)
    await store.redis.sadd(store.keys.user_set("7", "hnr"), "99")
    before = len(await read(store))
    assert await store.users.forgive("7", "1") == 1
    assert await store.users.forgive("7", "1") == 0
    assert await kinds(store, skipped=before) == [("hit_and_run_forgiven", "7", info_hash(1).hex(), 1000)]
    assert await store.users.forgive("7") == 2
    assert set(await kinds(store, skipped=before + 1)) == {
        ("hit_and_run_forgiven", "7", info_hash(2).hex(), 1000),
        ("hit_and_run_forgiven", "7", None, 0),
    }


async def test_a_forgiven_pending_one_is_recorded(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), replace(RULES, hnr_grace=100))) as store:
        await store.users.add("7", ALICE)
        await owe(store, 1)
        assert (await kinds(store, skipped=3))[0][0] == "hit_and_run_pending"
        assert await store.users.forgive("7", "1") == 1
        assert await kinds(store, skipped=4) == [("hit_and_run_forgiven", "7", info_hash(1).hex(), 1000)]


async def test_an_exemption_clears_hit_and_runs_and_pending_ones(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
        await owe(store, 1)
        store.rules.current = replace(RULES, hnr_grace=100)
        await owe(store, 2)
        before = len(await read(store))
        await store.users.edit(ALICE, {"hnr_exempt": "1"})
        assert await store.hit_and_runs.drop() == 1
        assert await kinds(store, skipped=before) == [("hit_and_run_cleared", "7", info_hash(1).hex(), 1000)]
        await store.pass_time(100)
        assert await store.hit_and_runs.decide() == 0
        assert await kinds(store, skipped=before + 1) == [("hit_and_run_cleared", "7", info_hash(2).hex(), 1000)]


async def test_a_hit_and_run_on_a_removed_torrent_is_cleared(store: Store) -> None:
    await owe(store, 1)
    await store.torrents.remove(info_hash(1))
    assert await store.hit_and_runs.drop() == 1
    assert await kinds(store, skipped=4) == [("hit_and_run_cleared", "7", None, 1000)]


async def test_nothing_is_recorded_of_forgiving_while_the_feed_is_off(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), replace(RULES, max_changes=0))) as store:
        await store.users.add("7", ALICE)
        await owe(store, 1, 2)
        assert await store.users.forgive("7", "1") == 1
        await store.users.edit(ALICE, {"hnr_exempt": "1"})
        assert await store.hit_and_runs.drop() == 1
        assert not await store.redis.exists(store.keys.changes(), store.keys.edits())


async def test_a_reaped_peer_and_a_replaced_one_are_recorded_with_the_sums_of_their_users(store: Store) -> None:
    await store.announce(update(1, "s", passkey=ALICE))
    await store.pass_time(100)
    await store.announce(update(1, "u", passkey=ALICE, uploaded=5, downloaded=2))
    assert await store.silence(update(1)) == 1
    await store.announce(update(2, "s", passkey=BOB, bytes_left=None))
    await store.announce(update(3, "s", passkey=BOB, endpoint=endpoint(2)))
    found = await read(store)
    assert [(each.change, each.user_id, each.peer_id) for each in found] == [
        ("joined", "7", peer_id(1).hex()),
        ("reaped", "7", peer_id(1).hex()),
        ("joined", "8", peer_id(2).hex()),
        ("replaced", "8", peer_id(2).hex()),
        ("joined", "8", peer_id(3).hex()),
    ]
    assert (found[1].uploaded, found[1].downloaded, found[1].left, found[1].leechers) == (5, 2, 1000, 0)
    assert (found[2].left, found[3].left, found[3].leechers, found[4].leechers) == (None, None, 0, 1)


async def test_an_anonymous_peer_has_what_it_reported(redis_url: str, prefix: str) -> None:
    rules = replace(RULES, accounts="off")
    async with running(Store(redis_url, Keys(prefix), rules)) as store:
        await store.announce(update(1, "s", uploaded=7, downloaded=3))
        assert await store.silence(update(1)) == 1
        joined, reaped = await read(store)
    for each in (joined, reaped):
        assert (each.uploaded, each.downloaded, each.seed_time, each.user_id) == (7, 3, 0, None)


async def test_a_repair_records_the_counts(store: Store) -> None:
    await store.announce(update(1, "s", passkey=ALICE))
    await store.redis.hset(store.keys.torrent(info_hash(1)), "leechers", 5)
    step = await store.reaping.sweep(["1"], "", 200)
    assert step.repairs == 1
    _, recounted = await read(store)
    assert (recounted.change, recounted.seeders, recounted.leechers) == ("recounted", 0, 1)
    assert recounted.info_hash == info_hash(1).hex() and recounted.peer_id is None


async def test_nothing_is_recorded_while_it_is_off(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), replace(RULES, max_changes=0))) as store:
        await store.users.add("7", ALICE)
        await store.announce(update(1, "s", passkey=ALICE))
        await store.announce(update(1, "x", passkey=ALICE, downloaded=1000, bytes_left=0))
        assert not await store.redis.exists(store.keys.changes())
        assert await store.torrents_of("7", "hnr")


async def test_a_feed_of_a_wrong_type_fails_no_announce(store: Store) -> None:
    await store.redis.set(store.keys.changes(), "x")
    await store.announce(update(1, "s", passkey=ALICE))
    assert (await store.announce(update(1, "x", passkey=ALICE))).outcome == "leave"


async def test_a_refused_announce_is_no_change(store: Store) -> None:
    assert await store.refused(update(1, "s", passkey="z" * 20)) == "unknown passkey"
    assert (await store.announce(update(1, "x", passkey=ALICE))).outcome == "absent"
    assert await read(store) == []


async def test_a_full_store_records_the_stop_that_it_allows(store: Store) -> None:
    await store.announce(update(1, "s", passkey=ALICE))
    argv: list[Any] = []
    codec = store.swarms.of(info_hash(1))._codec
    argv = codec.encode([update(1, "x", passkey=ALICE)])
    argv[1] = 0
    await store.scripts.announce_when_full(argv)
    assert [each.change for each in await read(store)] == ["joined", "stopped"]


async def fill(store: Store, count: int) -> list[str]:
    """Adds entries without an announce each; returns all ids."""
    for number in range(count):
        await store.redis.xadd(store.keys.changes(), {"change": "joined", "torrent_id": number})
    return [each.id for each in await store.changes.newest(100_000)]


async def test_positions_resume_and_tell_gaps(store: Store) -> None:
    assert (await store.changes.after(FIRST, 10)).next == FIRST
    ids = await fill(store, 10)
    first = await store.changes.after(FIRST, 4)
    assert [each.id for each in first.changes] == ids[:4]
    assert (first.next, first.gap) == (ids[3], False)
    rest = await store.changes.after(first.next, 100)
    assert [each.id for each in rest.changes] == ids[4:]
    assert (rest.next, rest.gap) == (ids[-1], False)
    nothing = await store.changes.after(rest.next, 100)
    assert (nothing.changes, nothing.next, nothing.gap) == ([], ids[-1], False)

    await store.redis.xtrim(store.keys.changes(), minid=ids[6], approximate=False)
    kept = await store.changes.after(ids[6], 100)
    assert [each.id for each in kept.changes] == ids[7:] and not kept.gap
    late = await store.changes.after(ids[3], 2)
    assert [each.id for each in late.changes] == ids[6:8] and late.gap
    assert not (await store.changes.after(late.next, 100)).gap
    fresh = await store.changes.after(FIRST, 100)
    assert [each.id for each in fresh.changes] == ids[6:] and fresh.gap


async def test_a_store_that_lost_its_latest_changes_tells_a_gap_once(store: Store) -> None:
    ids = await fill(store, 5)
    lost = f"{int(ids[-1].partition('-')[0]) + 60_000}-0"
    page = await store.changes.after(lost, 10)
    assert (page.changes, page.next, page.gap) == ([], ids[-1], True)
    assert not (await store.changes.after(page.next, 10)).gap
    await store.changes.delete()
    page = await store.changes.after(lost, 10)
    assert (page.changes, page.next, page.gap) == ([], FIRST, True)


async def test_what_was_updated_is_read_from_the_feed(store: Store) -> None:
    key = store.keys.changes()
    for number, (torrent, user) in enumerate([("a", "7"), ("b", "7"), ("a", ""), ("c", "8"), ("a", "9")]):
        await store.redis.xadd(key, {"info_hash": torrent, "user_id": user}, id=f"{1000 * (100 + number)}-0")

    async def all_of(named: Any, since: int, limit: int) -> list[str]:
        names, cursor, _ = await store.changes.updated(attrgetter(named), str(since), "", limit)
        while cursor:
            more, cursor, _ = await store.changes.updated(attrgetter(named), str(since), cursor, limit)
            names += more
        return names

    assert await all_of("info_hash", 100, 100) == ["a", "b", "c"]
    assert await all_of("info_hash", 101, 100) == ["b", "a", "c"]
    assert await all_of("user_id", 100, 100) == ["7", "8", "9"]
    assert await all_of("user_id", 104, 100) == ["9"]
    assert await all_of("user_id", 105, 100) == []
    assert await all_of("user_id", 100, 2) == ["7", "8", "9"]
    assert await all_of("info_hash", 100, 1) == ["a", "b", "a", "c", "a"]  # a page does not know the earlier ones
    with pytest.raises(Conflict, match="reach back"):
        await store.changes.updated(USER, "99", "", 100)
    await store.redis.xtrim(key, minid="103000-0", approximate=False)
    assert await all_of("user_id", 103, 100) == ["8", "9"]
    for since, cursor in ((102, ""), (100, "102000-0")):
        with pytest.raises(Conflict, match="reach back"):
            await store.changes.updated(USER, str(since), cursor, 100)
    with pytest.raises(ClientError):
        await store.changes.updated(USER, "103", "x", 100)


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "1-x", "1_0", "9" * 20, "1-" + "9" * 20, "²"])
def test_a_malformed_position_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        check_position(text)


def test_positions_have_one_form() -> None:
    assert [check_position(text) for text in ("0", "0-0", "5", "05-01")] == [FIRST, FIRST, "5-0", "5-1"]


async def test_the_feed_is_bounded(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(max_changes=100))) as store:
        for _ in range(10):
            await store.announce_together(*(update(n, "s") for n in range(50)))
            await store.announce_together(*(update(n, "x") for n in range(50)))
        assert 100 <= await store.changes.size() < 300


async def test_an_unreadable_entry_has_no_values(store: Store) -> None:
    await store.redis.xadd(store.keys.changes(), {"other": "x", "uploaded": "many", "left": b"\xff"})
    (change,) = await read(store)
    assert (change.change, change.uploaded, change.left, change.info_hash) == ("", None, None, None)


class FeedMachine(SwarmMachine):
    """Replays the feed after each step: it equals what the scripts did."""

    max_changes = 1_000_000

    @invariant()
    def feed_equals_the_swarms(self) -> None:
        if not getattr(self, "context", None):
            return
        page = self.run(self.store.changes.after(FIRST, 1_000_000))
        assert not page.gap
        active: dict[tuple[int, str], str] = {}
        counts: dict[int, tuple[int | None, int | None]] = {}
        completions: dict[int, int] = {}
        owed: set[tuple[str, str]] = set()
        for each in page.changes:
            assert each.info_hash is not None and each.torrent_id is not None
            torrent = int(each.info_hash, 16)
            peer = (torrent, each.peer_id or "")
            if each.change == "joined":
                assert peer not in active
                active[peer] = each.user_id or ""
            elif each.change in LEFT:
                assert active.pop(peer) == (each.user_id or "")
            elif each.change == "completed":
                completions[torrent] = completions.get(torrent, 0) + 1
            elif each.change == "hit_and_run":
                owed.add((each.user_id or "", each.torrent_id))
            else:
                assert each.change in ("hit_and_run_cleared", "hit_and_run_forgiven")
                owed.discard((each.user_id or "", each.torrent_id))
            if each.peer_id:
                counts[torrent] = (each.seeders, each.leechers)
                assert (each.seeders or 0) + (each.leechers or 0) == sum(t == torrent for t, _ in active)
        model = self.model
        assert active == {(t, p.hex()): entry.user for (t, p), entry in model.active.items()}
        assert completions == {t: n for t, n in model.snatches.items() if n}
        for user in ("7", "8"):
            assert {t for u, t in owed if u == user} == set(self.run(self.store.torrents_of(user, "hnr")))


@pytest.mark.slow
@pytest.mark.parametrize("accounts", [pytest.param("off", marks=pytest.mark.long), "optional", "required"])
def test_the_feed_equals_what_the_scripts_did(redis_url: str, accounts: Accounts) -> None:
    """Joins minus stops, reaps and replacements are the peers, at each moment, under random announces and timeouts."""
    machine = type("Machine", (FeedMachine,), {"redis_url": redis_url, "accounts": accounts})
    run_state_machine_as_test(machine, settings=examples(10, stateful_step_count=30))
