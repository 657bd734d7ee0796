"""The site's database is unavailable for an hour: the store keeps what changes, as far as its feed reaches back."""

from dataclasses import replace

import pytest

from loadtest.databases import Site
from tests.store.harness import Store, running
from tests.workers.site.conftest import RULES
from tests.workers.site.harness import announce, members, syncing
from tests.workers.site.test_comparing import compared
from tracker.store.schema.keys import Keys

USERS = range(1, 41)
ANNOUNCES, EVERY_SECONDS = 12, 300
MUCH, LITTLE = 10_000, 200


@pytest.mark.parametrize("backlog", [MUCH, LITTLE])
async def test_what_happens_in_an_hour_without_the_database_arrives_later(
    redis_url: str, prefix: str, unit3d: Site, backlog: int
) -> None:
    """From the feed, or, if that is too short, by comparing all rows. The feed does not grow beyond its limit."""
    async with running(Store(redis_url, Keys(prefix), replace(RULES, max_changes=backlog))) as store:
        await members(store, unit3d, USERS)
        async with syncing(store, unit3d) as sync:
            for user in USERS:
                await announce(store, user, "s", left=0)
            await sync.step()
            before = sync.state.compared_at
            assert not sync.state.error and before
            unit3d.server.kill()
            try:
                for number in range(1, ANNOUNCES + 1):
                    await store.pass_time(EVERY_SECONDS)
                    for user in USERS:
                        await announce(store, user, up=1000 * number + user, left=0)
                    await store.changes.record_updates()
                    assert not await sync.step()
                    assert "the site's database is unavailable" in sync.state.error
                    assert sync.lag_seconds == number * EVERY_SECONDS
                await announce(store, 1, "x", up=1000 * ANNOUNCES + 1, left=0)
                length = await store.redis.xlen(store.keys.changes())
                assert length > ANNOUNCES * len(USERS) if backlog == MUCH else length <= LITTLE + 100
            finally:
                unit3d.server.start()
            while await sync.step():
                pass
            assert (sync.state.error, sync.lag_seconds) == ("", 0)
            assert (sync.state.compared_at > before) == (backlog == LITTLE)
            assert not any(each.differences for each in (await compared(sync)).values())
    moved = f"{1000 * ANNOUNCES} + id"
    assert unit3d.number(f"SELECT COUNT(*) FROM users WHERE uploaded = {moved}") == len(USERS)
    assert unit3d.number(f"SELECT COUNT(*) FROM history WHERE seedtime = {ANNOUNCES * EVERY_SECONDS}") == len(USERS)
    assert unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == len(USERS) - 1
