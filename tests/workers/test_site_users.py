"""What a site writes into users' rows under the main prefix of several shards reaches the shards (row S3)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loadtest.cluster import cluster
from tests.fake_time import FakeTime
from tests.store.harness import ALICE, BOB, Store, running, update
from tests.store.sharding.harness import SHARDS, hash_in, on_cluster
from tests.waiting import SECONDS, eventually, in_background
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard
from tracker.store.swarms.codec import Refused
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.users import UserCopiesWorker

WRITTEN = "w" * 20


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    rules = SwarmRules(accounts="required")
    async with running(Store(redis_url, Keys(prefix), rules, shards=SHARDS)) as store:
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        yield store


async def answers(store: Store, passkey: str, peer: int = 3) -> set[str]:
    """What a first announce in each shard is answered."""
    found = set()
    for shard in range(SHARDS):
        reply = await store.swarms.announce(update(peer, "s", info_hash=hash_in(shard), passkey=passkey))
        found.add(reply.code if isinstance(reply, Refused) else "served")
    return found


@asynccontextmanager
async def following(store: Store, held: list[int]) -> AsyncIterator[FakeTime]:
    """The worker has walked once, and listens. Later walks need time to pass."""
    time = FakeTime()
    worker = UserCopiesWorker(store, lambda: held, time)
    async with in_background(worker.run()):

        async def listens() -> bool:
            return bool((await store.redis.pubsub_numsub(store.keys.channel("users")))[0][1])

        async def has_walked() -> bool:
            return 0 not in held or await store.redis.hlen(store.keys.compared_rows()) == 2

        await eventually(listens)
        await eventually(has_walked)
        yield time


async def publish(store: Store, named: str | bytes) -> None:
    await store.redis.publish(store.keys.channel("users"), named)


@pytest.mark.parametrize("named", [ALICE, "7"])
async def test_a_published_change_reaches_all_shards_at_once(store: Store, named: str) -> None:
    """By passkey or id."""
    async with following(store, list(range(SHARDS))):
        row = store.keys.passkey(ALICE)
        assert await answers(store, ALICE) == {"served"}
        await store.redis.hset(row, mapping={"enabled": "0", "reason": "unpaid"})
        await publish(store, named)
        await eventually(lambda: agrees(store, ALICE, "user disabled"))
        await store.redis.hset(row, "enabled", "1")
        await publish(store, named)
        await eventually(lambda: agrees(store, ALICE, "served"))


async def agrees(store: Store, passkey: str, answer: str) -> bool:
    return await answers(store, passkey) == {answer}


async def test_a_user_whom_a_site_writes_and_publishes_may_announce_and_is_listed(store: Store) -> None:
    async with following(store, [0]):
        await store.redis.hset(store.keys.passkey(WRITTEN), mapping={"user_id": "77"})
        await publish(store, WRITTEN)
        await eventually(lambda: agrees(store, WRITTEN, "served"))
        assert (await store.users.find("77")).passkey == WRITTEN
        await store.redis.rename(store.keys.passkey(WRITTEN), store.keys.passkey("n" * 20))
        await publish(store, WRITTEN)
        await publish(store, "n" * 20)
        await eventually(lambda: agrees(store, "n" * 20, "served"))
        assert await answers(store, WRITTEN) == {"unknown passkey"}


async def test_unpublished_changes_are_found_by_a_walk(store: Store) -> None:
    assert await answers(store, ALICE) == await answers(store, BOB) == {"served"}
    async with following(store, [0]) as time:
        await store.redis.hset(store.keys.passkey(ALICE), "enabled", "0")
        await store.redis.delete(store.keys.passkey(BOB))
        await time.pass_until(lambda: agrees(store, ALICE, "user disabled"))
        await time.pass_until(lambda: agrees(store, BOB, "unknown passkey"))


async def test_only_one_tracker_compares(store: Store) -> None:
    assert await answers(store, ALICE) == {"served"}
    async with following(store, [1, 2, 3]) as time:
        await store.redis.hset(store.keys.passkey(ALICE), "enabled", "0")
        await publish(store, ALICE)
        await time.pass_by(10)
        assert await answers(store, ALICE) == {"served"}


async def test_an_id_of_two_passkeys_stays_with_the_first_in_every_shard(store: Store) -> None:
    async with following(store, [0]):
        assert await answers(store, ALICE) == {"served"}
        await store.redis.hset(store.keys.passkey(WRITTEN), mapping={"user_id": "7"})
        await publish(store, WRITTEN)
        assert await answers(store, WRITTEN, peer=4) == {"user id in use"}
        assert await answers(store, ALICE) == {"served"}


async def test_anything_may_be_published_and_nothing_is_written_without_a_change(store: Store) -> None:
    assert await answers(store, BOB) == {"served"}
    async with following(store, [0]):
        version = await store.redis.get(store.keys.copies_version())
        for named in (b"\xff\x00", b"", b"9" * 400, b"7", ALICE.encode(), b"no such passkey at all", b"-1"):
            await publish(store, named)
        await store.redis.hset(store.keys.passkey(BOB), "can_leech", "0")
        await publish(store, BOB)

        async def is_written() -> bool:  # after the copies
            return bool(await store.redis.get(store.keys.copies_version()) != version)

        await eventually(is_written)
        assert int(await store.redis.get(store.keys.copies_version())) == int(version) + 1
        assert await store.redis.hget(store.shards[3].keys.passkey(BOB), "can_leech") == b"0"


@pytest.mark.slow
async def test_a_change_reaches_the_others_while_a_shard_is_unavailable_and_that_one_when_it_is_back() -> None:
    with cluster(options=("--appendonly", "yes", "--appendfsync", "always")) as group:
        group.be_patient()
        keys = Keys("t:")
        async with on_cluster(group.url, keys, SwarmRules(accounts="required")) as store:
            await store.users.add("7", ALICE)
            assert await answers(store, ALICE) == {"served"}
            node = group.primary(store.shards[1].keys.prefix)
            assert node is not group.primary(store.keys.prefix)
            lost = [shard for shard in store.shards if group.primary(shard.keys.prefix) is node]
            others = [shard for shard in store.shards if shard not in lost]
            assert others

            async def is_disabled(*shards: Shard) -> bool:
                copies = await store.shards.ask(
                    [(shard, ("HGET", shard.keys.passkey(ALICE), "enabled")) for shard in shards]
                )
                return copies == [b"0"] * len(shards)

            time = FakeTime()
            worker = UserCopiesWorker(store, lambda: [0], time)
            async with in_background(worker.run()), in_background(store.connection.watch()):
                node.kill()
                await store.connection.command("HSET", store.keys.passkey(ALICE), "enabled", "0")
                await time.pass_until(lambda: is_disabled(*others))
                node.start()
                for shard in lost:
                    async with asyncio.timeout(SECONDS):
                        await shard.connection.until_available()
                    await store.user_copies.copy_before_serving(shard)
                assert await is_disabled(*store.shards)


async def test_it_survives_keys_of_a_wrong_type_and_a_store_that_is_unavailable(store: Store) -> None:
    listed = store.keys.users()
    kept = await store.redis.dump(listed)
    assert await answers(store, ALICE) == {"served"}
    async with following(store, [0]) as time:
        await store.redis.set(listed, "text")
        await publish(store, "7")
        await time.pass_by(10)
        await store.redis.restore(listed, 0, kept, replace=True)
        await store.redis.set(store.shards[0].keys.passkey(ALICE), "text")
        await store.redis.hset(store.keys.passkey(ALICE), "enabled", "0")
        await time.pass_until(lambda: agrees(store, ALICE, "user disabled"))
