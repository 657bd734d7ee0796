"""The log and its drain (row W15), leaderboards and charts (row W14)."""

from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from tests.store.harness import START, Store
from tests.store.users.test_deletion import Dying
from tests.store.work.harness import add, check_sums, claimed, project, rank
from tracker.errors import StoreUnavailable
from tracker.store.client.scripts import Scripts
from tracker.store.sharding.shards import Shard
from tracker.store.work import periods, projects
from tracker.store.work.log import GROUP
from tracker.store.work.statistics import Leaderboard


async def finish(store: Store, claimant: str, count: int, **reported: int) -> None:
    await add(store, *(f"{claimant} {store.clock.now} {number}" for number in range(count)))
    for _ in range(count):
        claim = await claimed(store, claimant)
        await store.work.claims.done("proj", claimant, claim.item, reported=reported, version="1.0")


async def test_sums_follow_the_log_over_weeks_and_months(store: Store) -> None:
    await project(store)
    await store.reaping.heartbeat()
    for claimant, count in (("alice", 3), ("bob", 2), ("alice", 1)):
        await finish(store, claimant, count, data=2**40, other=0)
        await store.pass_time(20 * 86_400)
    await check_sums(store)
    top = await store.work.leaderboard.top("proj")
    assert top == [("alice", 4), ("bob", 2)]
    assert [value for _, value in await store.work.leaderboard.top("proj", "bytes")] == [4 * 2**40, 2 * 2**40]
    month = (await store.work.leaderboard.top("proj", span="2027-02"))[0]
    assert month == ("bob", 2)
    assert await store.work.leaderboard.top("proj", span=periods.week_of(START)) == [("alice", 3)]
    points, total = await store.work.leaderboard.charts("proj", ["alice", ""])
    assert [(point.items, point.bytes) for point in points] == [(3, 3 * 2**40), (4, 4 * 2**40)]
    assert (total[-1].items, total[-1].bytes) == (6, 6 * 2**40)
    assert await store.work.leaderboard.versions("proj") == {"alice": "1.0", "bob": "1.0"}


async def test_counters_equal_the_sums_of_the_log(store: Store) -> None:
    await project(store)
    for _ in range(2):
        await finish(store, "alice", 3, data=5)
        await rank(store)
        await store.work.claims.lapse("proj")
        await store.work.claims.lapse("proj")
        await store.pass_time(1)
    for what, expected in (("done", 6), ("claimed", 6), ("bytes", 30)):
        for precision in (1, 86_400):
            slices = await store.redis.hvals(store.keys.counter(precision, f"work.proj.{what}"))
            assert sum(map(int, slices)) == expected


async def test_a_drain_that_dies_loses_no_line(store: Store) -> None:
    """It dies after reading, or after writing: what it did not acknowledge comes again."""
    await project(store)
    await finish(store, "alice", 7)
    log, written = store.work.log, list[str]()
    with pytest.raises(ResponseError, match="NOGROUP"):
        await log.read_drain("proj")
    for _ in range(2):
        await log.open_drain("proj")
    assert len(await log.read_drain("proj", 3)) == 3
    step = 0
    while batch := await log.read_drain("proj", 3):
        written += [entry.item for entry in batch]
        step += 1
        if step % 2 == 0:
            await log.acknowledge("proj", batch)
    everything = [entry.item for entry in reversed(await log.newest("proj", 100))]
    assert len(everything) == 7 and set(written) == set(everything) and len(written) == 14


async def test_trimming_never_passes_what_is_not_drained(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await project(store)
    await finish(store, "alice", 6)
    await rank(store)
    log = store.work.log
    monkeypatch.setattr(projects, "KEPT_LOG", 2)
    await log.open_drain("proj")
    await store.work.projects.trim("proj")
    assert await store.redis.xlen(store.keys.work_log("proj")) == 6
    first = await log.read_drain("proj", 2)
    await store.work.projects.trim("proj")
    assert await store.redis.xlen(store.keys.work_log("proj")) == 6
    await log.acknowledge("proj", first)
    await log.read_drain("proj", 2)
    await store.work.projects.trim("proj")
    left = await log.newest("proj", 10)
    assert len(left) in (4, 5) and not {entry.id for entry in left} & {first[0].id}
    await store.redis.xgroup_destroy(store.keys.work_log("proj"), GROUP)
    await store.work.projects.trim("proj")
    assert [entry.id for entry in await log.newest("proj", 10)] == [entry.id for entry in left[:2]]


async def test_an_update_that_dies_counts_nothing_twice(store: Store) -> None:
    """After each command another tracker goes on."""
    await project(store)
    await finish(store, "alice", 7, data=5)
    for commands in range(6):
        dying = Dying(store.url, commands)
        board = Leaderboard(Shard(0, dying, Scripts(dying, store.keys.prefix), store.keys))
        with suppress(StoreUnavailable):
            while await board.update("proj", 1):
                pass
        await dying.close()
        await store.work.leaderboard.update("proj", 1)
    assert [value for _, value in await store.work.leaderboard.top("proj")] == [7]
    await check_sums(store)


async def test_entries_of_a_site_hold_up_no_leaderboard(store: Store) -> None:
    await project(store)
    for entry in (
        {"x": "y"},
        {"by": "mallory", "at": "1e999", "total": "nan", "seconds": "-1", "bytes": "[[", "claimed": "1e999"},
        {"by": "mallory", "at": "-5", "total": "1e999", "seconds": "x", "bytes": '{"a": "b", "c": [1]}'},
    ):
        await store.redis.xadd(store.keys.work_log("proj"), entry)
    await finish(store, "alice", 1, data=5)
    await rank(store)
    top = await store.work.leaderboard.top("proj")
    assert dict(top) == {"mallory": 2, "alice": 1}
    assert await store.work.statistics.domain_bytes("proj") == {"data": 5}


async def test_trimming_never_passes_what_is_in_no_leaderboard(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await project(store)
    await finish(store, "alice", 6)
    monkeypatch.setattr(projects, "KEPT_LOG", 2)
    for ranked, kept in ((0, 6), (3, 4), (3, 2)):
        if ranked:
            assert await store.work.leaderboard.update("proj", ranked) == ranked
        await store.work.projects.trim("proj")
        assert await store.redis.xlen(store.keys.work_log("proj")) == kept
    assert (await store.work.leaderboard.top("proj"))[0][1] == 6
    assert await store.work.leaderboard.update("proj") == 0


async def test_what_is_not_acknowledged_is_not_drained(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read or not; trimming changes nothing. Without a drain there is no number."""
    await project(store)
    await project(store, "other")
    log = store.work.log
    assert await log.undrained([]) == await log.undrained(["proj", "other"]) == {}
    await finish(store, "alice", 6)
    assert await log.undrained(["proj", "other"]) == {}
    await log.open_drain("proj")
    assert await log.undrained(["proj", "other"]) == {"proj": 6}
    first = await log.read_drain("proj", 4)
    assert await log.undrained(["proj"]) == {"proj": 6}
    await log.acknowledge("proj", first)
    assert await log.undrained(["proj"]) == {"proj": 2}
    await rank(store)
    monkeypatch.setattr(projects, "KEPT_LOG", 2)
    await store.work.projects.trim("proj")
    assert await log.undrained(["proj"]) == {"proj": 2}
    await store.redis.xdel(store.keys.work_log("proj"), (await log.newest("proj", 1))[0].id)
    assert await log.undrained(["proj"]) in ({"proj": 1}, {"proj": 2})  # the log's length, where lag is unknown


async def test_the_log_is_read_on_from_an_id(store: Store) -> None:
    await project(store)
    await finish(store, "alice", 5)
    newest = await store.work.log.newest("proj", 2)
    older = await store.work.log.newest("proj", 10, before=newest[-1].id)
    assert len(newest) + len(older) == 5
    assert [entry.id for entry in await store.work.log.after("proj", older[0].id)] == [
        entry.id for entry in reversed(newest)
    ]
