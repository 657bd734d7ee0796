"""What the counters of a store under test have: slices, and the entries that say so."""

from tests.store.harness import Store


async def known(store: Store) -> set[str]:
    """``precision:name`` of the counters and distributions that are said to have slices."""
    counters = await store.redis.zrange(store.keys.known_counters(), 0, -1)
    distributions = await store.redis.zrange(store.keys.known_distributions(), 0, -1)
    return {entry.decode() for entry in (*counters, *distributions)}


async def with_slices(store: Store) -> set[str]:
    """What has slices, as it should be known."""
    found = set()
    for kind in ("count:", "dist:"):
        beginning = f"{store.keys.prefix}{kind}"
        async for key in store.redis.scan_iter(f"{beginning}*", 1000):
            found.add(key.decode().removeprefix(beginning))
    return found
