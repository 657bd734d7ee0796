"""Values for StatHat of four shards."""

from tests.store.harness import Store
from tests.store.sharding.harness import SHARDS, hash_in
from tests.workers.flushing import MINUTE, to_stathat
from tests.workers.stathat_server import StatHatServer
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.unique_users import UniqueRules, UniqueUserEvent, UniqueUsers

HASHES = [hash_in(number % SHARDS, number) for number in range(8)]
LONDON = place_names("GB", "London", "SW1A")


async def count(store: Store, rules: UniqueRules, users: range) -> None:
    """Some users join all torrents."""
    await store.torrents.add_many([(info_hash, {}) for info_hash in HASHES])
    unique_users = UniqueUsers(store.shards, rules)
    for user in users:
        events = [UniqueUserEvent(info_hash, f"192.0.2.{user}", LONDON) for info_hash in HASHES]
        await unique_users.count(events, MINUTE)


async def test_unique_users_by_torrent_are_sent_from_all_shards_once(store: Store) -> None:
    """B12."""
    rules = UniqueRules(max_outbox=1000, export_torrents=True, export_places=False)
    await count(store, rules, range(3))
    assert await store.outbox.waiting() == 1 + 4 * len(HASHES)  # each torrent by place, too
    async with StatHatServer() as server:
        flushing = to_stathat(store, server.url)
        await flushing.flush()
        sent = {name: number for (name, minute), number in server.by_minute.items() if minute == MINUTE}
        assert sent["countries.GB.users"] == 3
        assert [sent[f"torrents.{info_hash.hex()}.users"] for info_hash in HASHES] == [3] * len(HASHES)
        assert len(sent) == 1 + 4 * len(HASHES) == flushing.counts["stathat.sent"] - 1
        before = len(server.requests)
        await flushing.flush()
        assert len(server.requests) == before + 1  # the gauge
    assert await store.outbox.waiting() == 0


async def test_values_that_are_not_sent_return_to_their_shards(store: Store) -> None:
    """B12: an outage of the receiver loses none and sends none twice."""
    await count(store, UniqueRules(max_outbox=1000, export_torrents=True), range(2))
    waiting = await store.outbox.waiting()
    async with StatHatServer() as server:
        flushing = to_stathat(store, server.url)
        server.mode = "503"
        await flushing.flush()
        assert await store.outbox.waiting() == waiting
        server.mode = "ok"
        await flushing.flush()
        assert [server.by_minute[f"torrents.{each.hex()}.users", MINUTE] for each in HASHES] == [2] * 8


async def test_a_batch_is_no_larger_than_asked_over_all_shards(store: Store) -> None:
    await count(store, UniqueRules(max_outbox=1000, export_torrents=True), range(1))
    batches = await store.outbox.take(MINUTE + 60, 10, 30)
    assert sum(len(batch.counts) for batch in batches) == 10
    more = await store.outbox.take(MINUTE + 60, 1000, 30)
    assert not {batch.part for batch in batches} & {batch.part for batch in more}
    await store.outbox.release(batches)
    await store.outbox.drop(await store.outbox.take(MINUTE + 60, 1000, 30))
    await store.outbox.acknowledge(more)
    assert await store.outbox.waiting() == 0
    assert (await store.counters.totals())["outbox_dropped"] > 0


async def test_the_outboxes_of_all_shards_are_bounded(store: Store) -> None:
    await count(store, UniqueRules(max_outbox=SHARDS, export_torrents=True), range(1))
    for shard in store.shards:
        assert await store.redis.hlen(f"{shard.keys.prefix}outbox:{MINUTE}") == 1
