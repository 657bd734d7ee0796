"""Projects beside each other (row W20), lists of items and claims, and what is no longer kept."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import ResponseError

from loadtest.servers import Server
from tests.store.harness import START, Store, info_hash, running
from tests.store.users.test_deletion import Dying
from tests.store.work.harness import CLAIMANTS, add, check_sums, check_work, claimed, project, rank, register, some_work
from tracker.errors import ClientError, Conflict, StoreUnavailable
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.periods import week_of
from tracker.store.work.projects import Projects
from tracker.store.work.records import Claim, NewItem, Project, UnknownProject

WEEK = week_of(START)


async def test_a_project_is_stored_as_it_was_given(store: Store) -> None:
    given = Project("p-1_X", title='Ä "b"', domains=("a", "b"), per_minute=60, passkeys=True, order="weakest")
    assert await store.work.projects.create(given) == await store.work.projects.get("p-1_X") == given
    with pytest.raises(Conflict):
        await store.work.projects.create(given)
    changed = await store.work.projects.edit("p-1_X", {"title": "", "domains": (), "passkeys": False})
    assert await store.work.projects.all() == [changed] == [replace(given, title="", domains=(), passkeys=False)]
    with pytest.raises(ClientError, match="no such field"):
        await store.work.projects.edit("p-1_X", {"kind": "seeding"})
    with pytest.raises(UnknownProject):
        await store.work.projects.edit("other", {"title": ""})


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "blocked"}, {"name": "a b"}, {"name": "x" * 31}, {"name": "a:b"}, {"kind": "x"}, {"budget": 0},
        {"per_minute": -1}, {"title": "a\nb"}, {"domains": ("",)}, {"kind": "seeding"}, {"verify": "announce"},
    ],
)  # fmt: skip
async def test_an_invalid_project_is_an_error(store: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        await store.work.projects.create(Project(**{"name": "proj", **fields}))
    assert await store.work.projects.all() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"per_minute": "5"}, {"per_minute": 1.5}, {"per_minute": None}, {"per_minute": True}, {"public": 1},
        {"public": "0"}, {"domains": "abc"}, {"domains": ("a", 5)}, {"domains": ["a"]}, {"title": None},
        {"title": b"x"}, {"verify": None}, {"order": []}, {"max_size": float("nan")},
    ],
)  # fmt: skip
async def test_a_field_of_a_wrong_type_is_an_error(store: Store, fields: dict[str, Any]) -> None:
    made = await project(store)
    with pytest.raises(ClientError):
        await store.work.projects.edit("proj", fields)
    with pytest.raises(ClientError):
        await store.work.projects.create(replace(made, name="other", **fields))
    with pytest.raises(ClientError):
        await store.work.projects.create(replace(made, name=5))  # type: ignore[arg-type]
    assert await store.work.projects.all() == [made]


async def test_only_what_is_still_there_is_removed(store: Store) -> None:
    """Between the page that names an item and its removal, the item may be added again, claimed or finished."""
    await project(store)
    items = store.work.items
    await add(store, "todo")
    await add(store, "secondary", queue="secondary")
    await add(store, "asked", claimants=("alice",))
    await add(store, "out", "done", claimants=("bob",))
    for _ in range(2):
        await claimed(store, "bob")
    await store.work.claims.done("proj", "bob", "done")
    done_at = store.clock.now
    names = ["todo", "secondary", "asked", "out", "done", "none"]
    before = await store.dump()
    assert await items.purge("proj", names, "redo") == 0
    assert await items.purge("proj", names, "done", done_at) == 0
    assert await store.dump() == before
    assert await items.purge("proj", names, "secondary") == 1
    assert (await items.status("proj", "secondary")).status is None
    assert await items.purge("proj", names, "done", done_at + 1) == 1
    assert await items.purge("proj", names, "done") == 0
    assert (await items.status("proj", "todo")).status == "todo"
    assert await items.purge("proj", names) == 2
    found = await check_work(store)
    assert (found.wanted, found.out, found.done) == (0, 1, 1)


@pytest.mark.parametrize("call", ["add", "claim", "release", "lapse", "done late", "purge", "fill"])
async def test_an_own_queue_of_a_wrong_type_fails_before_the_first_write(store: Store, call: str) -> None:
    work, names, hashes = store.work, ["1" * 40, "2" * 40], [info_hash(1).hex(), info_hash(2).hex()]
    await project(store, kind="seeding", verify="announce", keep_done_days=1, lease_seconds=60)
    await store.pass_time(0)
    await register(store, *names, *hashes)
    await add(store, *names, claimants=("7", "8"))
    for _ in range(2 if call in ("release", "lapse", "done late") else 0):
        await claimed(store, "7")
    if call in ("lapse", "done late"):
        await store.pass_time(100)
    if call == "done late":
        await work.claims.lapse("proj")
    if call == "fill":
        await store.redis.hset(f"{store.keys.prefix}w:proj:policy", hashes[0], 0)
        await add(store, hashes[0], claimants=("8",))
    await store.redis.set(store.keys.work_own_queue("proj", "8"), "x")
    before = await store.dump()
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: add(store, *hashes, claimants=("7", "8")),
        "claim": lambda: work.claims.claim("proj", "7"),
        "release": lambda: work.claims.release_all("proj"),
        "lapse": lambda: work.claims.lapse("proj"),
        "done late": lambda: work.claims.complete("proj", "7", names[0], seconds=9),
        "purge": lambda: work.items.purge("proj", names),
        "fill": lambda: work.policy.fill("proj", [info_hash(2), info_hash(1)], [0.5, 0.5]),
    }
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await calls[call]()
    assert await store.dump() == before


async def test_deleting_a_project_deletes_its_keys_alone(store: Store) -> None:
    """W20: also when it is interrupted after each of its commands; until then the project is gone for all others."""
    await store.reaping.heartbeat()
    await project(store, "proj2")
    await add(store, "a", project="proj2")
    for name in ("1" * 40, "2" * 40):
        await register(store, name)
        await store.redis.hset(f"{store.keys.prefix}t:{name}", "user_downloaded", 0)  # as the first claim does
    before = await store.dump()
    for commands in range(9):
        await some_work(store)
        await store.work.projects.delete("other")
        await add(store, *(f"more {number}" for number in range(300)))
        await store.work.claims.lapse("proj")
        await store.redis.hset(store.keys.counter(60, "work.proj.refused"), START, 1)  # as the counters do
        await store.redis.zadd(f"{store.keys.prefix}known:", {"60:work.proj.refused": START})
        dying = Dying(store.url, commands)
        projects = Projects(Shard(0, dying, Scripts(dying, store.keys.prefix), store.keys), store.clock)
        try:
            await projects.delete("proj")
            ended = True
        except StoreUnavailable:
            ended = False
        finally:
            await dying.close()
        if not ended and await store.work.projects.finish_deletions() == 0:
            await store.work.projects.delete("proj")
        await store.work.blocks.unblock("192.0.2.2")
        after = await store.dump()
        for key in (f"{store.keys.prefix}{name}" for name in ("heartbeat", "lease", "gap", "work_bytes")):
            before.pop(key.encode(), None), after.pop(key.encode(), None)
        assert after == before
        if ended:
            return
    pytest.fail("the deletion never ended")


async def test_a_project_that_is_being_deleted_is_gone(store: Store) -> None:
    await project(store)
    await store.redis.hset(store.keys.work_project("proj"), "deleting", "1")
    work = store.work
    for call in (work.claims.claim("proj", "alice"), work.claims.lapse("proj"), work.projects.trim("proj")):
        with pytest.raises(UnknownProject):
            await call
    with pytest.raises(Conflict):
        await project(store)
    assert await work.projects.all() == []
    assert await work.projects.finish_deletions() == 1
    await project(store)


async def test_lists_go_on_at_their_cursor(store: Store) -> None:
    await project(store, start_budget=50, budget=50, order="weakest")
    items = [NewItem(f"item {number}", place=float(number // 3)) for number in range(25)]
    await store.work.items.add("proj", items)
    found, cursor = list[str](), ""
    while True:
        page = await store.work.items.page("proj", "todo", cursor=cursor, count=4)
        found += [name for name, _ in page.entries]
        if not (cursor := page.cursor):
            break
    assert sorted(found) == sorted(item.name for item in items) and len(found) == 25
    for number in range(12):
        await claimed(store, CLAIMANTS[number % 2])
        await store.pass_time(10)
    claims, cursor = list[str](), ""
    while True:
        part = await store.work.claims.page("proj", claimant="bob", cursor=cursor, count=5)
        claims += [claim.item for claim in part.entries]
        if not (cursor := part.cursor):
            break
    assert claims == [claim.item for claim in await store.work.claims.of_claimant("proj", "bob")]
    for bad in ("x", "nan y", "1e999 \ud800"):
        with pytest.raises(ClientError, match="cursor"):
            await store.work.claims.page("proj", cursor=bad)
    assert await store.work.claims.release_all("proj", older_than=100) == 3
    assert await store.work.claims.release_all("proj", prefix="item 1") == 2
    (stats,) = await store.work.statistics.read(["proj"])
    assert (stats.wanted, stats.out, stats.totals["released"], stats.totals["added"]) == (18, 7, 5, 25)


async def test_old_entries_are_deleted(store: Store) -> None:
    await project(store, keep_done_days=2)
    await store.reaping.heartbeat()
    for claimant in ("alice", "bob"):
        await add(store, claimant)
        await claimed(store, claimant)
        await store.work.claims.done("proj", claimant, claimant)
        await rank(store)
        await store.pass_time(86_400 * 1.5)
    await store.work.projects.trim("proj")
    assert [name for name, _ in (await store.work.items.page("proj", "done")).entries] == ["bob"]
    month, week = (store.keys.work_ranking_in("proj", "downloader_count", each) for each in ("2027-01", WEEK))
    await store.pass_time(604_800 * 12)
    await store.work.projects.trim("proj")
    assert await store.redis.exists(month, week) == 2
    await store.pass_time(604_800 * 2)
    await store.work.projects.trim("proj")
    assert await store.redis.exists(month) and not await store.redis.exists(week)
    await store.pass_time(86_400 * 31 * 11)
    await store.work.projects.trim("proj")
    assert not await store.redis.exists(month)
    assert (await store.work.leaderboard.top("proj"))[0][1] == 1


async def test_nothing_is_lost_when_the_server_is_killed(start_server: Callable[..., Server]) -> None:
    """W1: killed amid calls of eight claimants, again and again."""
    server, chance = start_server(), random.Random(7)
    for number in range(4):
        async with running(Store(server.url, Keys("x:"), SwarmRules())) as store:
            if number == 0:
                await project(store, start_budget=9, budget=9, lease_seconds=60)
            else:
                await check_work(store)
                await check_sums(store)
            store.clock.now += 40 * number
            await store.reaping.heartbeat()

            async def work(who: str, store: Store = store) -> None:
                claims = store.work.claims
                while True:
                    await add(store, *(f"item {chance.randrange(500)}" for _ in range(5)), copies=2)
                    claim = await claims.claim("proj", who)
                    if isinstance(claim, Claim) and chance.random() < 0.5:
                        await claims.done("proj", who, claim.item, token=claim.token, reported={"data": 3})
                    elif chance.random() < 0.3:
                        await claims.release_all("proj", claimant=who)

            async def kill(store: Store = store) -> None:
                while await store.redis.hget(store.keys.work_totals("proj"), "claimed") is None:
                    await asyncio.sleep(0)
                for _ in range(chance.randrange(50, 200)):
                    await store.redis.ping()
                server.kill()

            calls = (*(work(who) for who in (*CLAIMANTS, "alice", "bob")), kill())
            *results, killed = await asyncio.gather(*calls, return_exceptions=True)
            assert killed is None
            assert all(isinstance(result, StoreUnavailable) for result in results), results
        server.start()
    async with running(Store(server.url, Keys("x:"), SwarmRules())) as store:
        assert (await check_work(store)).done > 0
        await check_sums(store)
