"""Pages of the sorted sets of all shards together, from any offset."""

import random

import pytest

from tests.store.harness import Store
from tracker.store.sharding import ranking
from tracker.store.sharding.ranking import top_of
from tracker.store.sharding.shards import Shard

Pairs = list[tuple[str, float]]


def key_of(shard: Shard) -> str:
    return shard.keys.index("score")


async def fill(store: Store, kind: str, entries: int) -> list[tuple[float, bytes]]:
    """Fills the sorted set of each shard; returns all entries in order."""
    source, all_entries = random.Random(7), list[tuple[float, bytes]]()
    for shard in store.shards:
        own = 4 * entries * (shard.number == 1) if kind == "in one shard" else entries
        bonus = 100 * shard.number if kind == "one shard after the other" else 0
        members = {
            b"%c\xff%d" % (source.choice(b"aBz\x80"), number * 256 + shard.number): bonus
            + (0 if kind == "equal" else source.choice([source.randrange(20), source.random(), -7]))
            for number in range(own)
        }
        if members:
            await store.redis.zadd(key_of(shard), members)
        all_entries += [(float(score), member) for member, score in members.items()]
    return sorted(all_entries)


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("kind", ["alike", "one shard after the other", "in one shard", "equal"])
@pytest.mark.parametrize("max_skipped", [0, 7, 500])
async def test_a_page_is_right_wherever_its_entries_are(
    store: Store, monkeypatch: pytest.MonkeyPatch, ascending: bool, kind: str, max_skipped: int
) -> None:
    monkeypatch.setattr(ranking, "MAX_SKIPPED", max_skipped)
    ordered = await fill(store, kind, 60)
    if not ascending:
        ordered.reverse()
    expected = [(member.decode("utf-8", "replace"), score) for score, member in ordered]
    for count, offset in ((1, 0), (30, 0), (10, 45), (10, 115), (3, 236), (400, 0), (5, 239), (5, 240), (5, 1000)):
        found = await top_of(store.shards, key_of, count, offset, ascending=ascending)
        assert found == expected[offset : offset + count], (count, offset)


async def test_no_entries_have_pages_too(store: Store) -> None:
    assert await top_of(store.shards, key_of, 10, 0) == await top_of(store.shards, key_of, 10, 10**15) == []


@pytest.mark.parametrize("kind", ["alike", "one shard after the other", "in one shard", "equal"])
async def test_a_deep_page_reads_few_entries(store: Store, kind: str) -> None:
    """The store's answers are a small part of what comes before the page."""
    entries = 5000
    ordered = await fill(store, kind, entries)
    before = await bytes_sent(store)
    for offset in (entries, 2 * entries, 3 * entries):
        found = await top_of(store.shards, key_of, 10, offset, ascending=True)
        assert [score for _, score in found] == [score for score, _ in ordered[offset : offset + 10]]
    all_bytes = sum(len(member) + 10 for _, member in ordered)
    assert await bytes_sent(store) - before < all_bytes


async def bytes_sent(store: Store) -> int:
    return int((await store.redis.info("stats"))["total_net_output_bytes"])
