"""The slices of a store's counters, and the index of counters that have slices."""

from tests.store.harness import Store


async def known(store: Store) -> set[str]:
    """``precision:name`` of the counters and distributions in the index."""
    counters = await store.redis.zrange(store.keys.known_counters(), 0, -1)
    distributions = await store.redis.zrange(store.keys.known_distributions(), 0, -1)
    return {entry.decode() for entry in (*counters, *distributions)}


async def with_slices(store: Store) -> set[str]:
    """``precision:name`` of those that have slices; the index must be equal."""
    found = set()
    for kind in ("count:", "dist:"):
        prefix = f"{store.keys.prefix}{kind}"
        async for key in store.redis.scan_iter(f"{prefix}*", 1000):
            found.add(key.decode().removeprefix(prefix))
    return found
