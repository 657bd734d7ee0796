"""The share of the store's memory in use, read once a second at most."""

from collections.abc import Callable

from loadtest.servers import Server
from tests.store.harness import Store, running
from tracker.store.schema.keys import Keys
from tracker.store.stats.memory_usage import Memory, Usage, read_usage
from tracker.store.swarms.rules import SwarmRules


async def test_usage_is_a_share_of_the_limit(start_server: Callable[..., Server]) -> None:
    """Without a limit, or where INFO is forbidden, the store counts as not nearly full."""
    async with running(Store(start_server().url, Keys("t:"), SwarmRules())) as store:
        now = 0.0
        memory = Memory(store.connection, lambda: now)
        assert not await memory.nearly_full()
        used = (await read_usage(store.connection)).used
        await store.redis.config_set("maxmemory", int(used * 1.1))
        assert not await memory.nearly_full()  # within a second
        now = 1.0
        assert await memory.nearly_full()
        await store.redis.config_set("maxmemory", used * 2)
        now = 2.0
        assert not await memory.nearly_full()
        await store.redis.execute_command("ACL", "SETUSER", "default", "-info")
        assert await read_usage(store.connection) == Usage() and Usage().share == 0
