"""Torrents with a history, for tests of the policy."""

from collections.abc import Sequence
from typing import Any

from tests.store.harness import ALICE, Store, info_hash
from tests.store.work.harness import check_work, project
from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import Keys
from tracker.store.work.policy import Change, Rehearsal

HOUR, DAY = 3600, 86_400


async def swarm(
    store: Store,
    number: int,
    history: Sequence[int],
    *,
    leechers: int = 0,
    now: int | None = None,
    step: int = HOUR,
    ranked: bool = True,
    **fields: str,
) -> InfoHash:
    """A registered torrent with these seeders at its last scorings, one each ``step``, the last a minute ago.

    ``now`` is the number of seeders now: by default the last of the history.
    """
    ih, redis, keys = info_hash(number), store.redis, torrent_keys(store)
    tid, _ = await store.torrents.add(ih, fields)
    seeders = now if now is not None else (history[-1] if history else 0)
    await redis.hset(keys.torrent(ih), mapping={"seeders": seeders, "leechers": leechers})
    await redis.zadd(keys.index("seeders"), {tid: seeders})
    await redis.zadd(keys.index("leechers"), {tid: leechers})
    await redis.delete(keys.history(tid))
    last = int(store.clock.now) - 60
    first = last - step * (len(history) - 1)
    points = [f"{first + n * step} {seen} {leechers} 0 0.5" for n, seen in enumerate(history)]
    if points:
        await redis.rpush(keys.history(tid), *points)
    if not ranked:
        await redis.zrem(keys.index("score"), tid)
    return ih


def torrent_keys(store: Store) -> Keys:
    """The keys of the torrents of these tests: info_hash() gives them small numbers, so they are in the first shard."""
    return store.shards[0].keys


async def some_policy(store: Store) -> None:
    """Writes every key of the policy, for the project and the swarms that exist."""
    tid = (await store.torrent(info_hash(1)))["tid"]
    points = [f"{int(store.clock.now) - n * HOUR} 1 0 0 0.5" for n in range(71, -1, -1)]
    await store.redis.rpush(torrent_keys(store).history(tid), *points)
    await store.redis.hset(store.keys.work_project("other"), "target", 1000)
    assert await store.work.policy.fill("other", [info_hash(1)], [0.5])


async def completed(store: Store, number: int, *users: int) -> None:
    """These users completed the torrent, the first of them last."""
    found = await store.torrents.get(info_hash(number))
    assert found is not None
    for age, user in enumerate(users):
        at = int(store.clock.now) - 10 * age
        await store.redis.zadd(torrent_keys(store).completed(found.torrent_id), {str(user): at})
        await store.redis.zadd(store.keys.users(), {f"{ALICE}{user}": user})


async def fill(
    store: Store, *numbers: int, rehearsal: Rehearsal | None = None, chance: float = 0.5
) -> dict[int, Change]:
    """The changes by number of the torrent. The state afterwards is sound."""
    changes = await store.work.policy.fill(
        "seeds", [info_hash(n) for n in numbers], [chance] * len(numbers), rehearsal=rehearsal
    )
    await check_work(store, "seeds")
    return {int.from_bytes(change.info_hash, "big"): change for change in changes}


async def seeding(store: Store, **fields: Any) -> None:
    await project(
        store, "seeds", kind="seeding", keep_done_days=7, **{"verify": "announce", "order": "weakest", **fields}
    )


async def queue(store: Store, name: str = "todo") -> dict[int, float]:
    """The places of the items of a queue, by number of the torrent."""
    key = f"{store.keys.prefix}w:seeds:{name}"
    rows = await store.redis.zrange(key, 0, -1, withscores=True)
    return {int(item, 16): place for item, place in rows}


async def wanted(store: Store) -> dict[int, int]:
    rows = await store.redis.hgetall(store.keys.work_wanted("seeds"))
    return {int(item, 16): int(copies) for item, copies in rows.items()}
