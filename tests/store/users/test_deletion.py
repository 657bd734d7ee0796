"""An interrupted deletion leaves a user who can announce or one who cannot. The next attempt completes it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import ALICE, BOB, Store, one_shard, update
from tests.store.users.test_users import named
from tracker.errors import ClientError, StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.swarms.reaping import Reaping
from tracker.store.users.parts import UserParts

NEW = "c" * 20
TORRENTS = 250
"""More than one step takes."""


class Dying(Connection):
    """A connection that is lost after a number of commands; the next command never reaches the store."""

    def __init__(self, url: str, commands: int) -> None:
        super().__init__(connect(url, connect_timeout=5, timeout=5))
        self.left = commands

    async def command(self, *args: Any) -> Any:
        if self.left == 0:
            raise StoreUnavailable("the connection was lost")
        self.left -= 1
        return await super().command(*args)


async def deleted_until_lost(store: Store, who: str, commands: int) -> bool:
    """Returns whether the deletion completed."""
    connection = Dying(store.url, commands)
    try:
        shards = one_shard(connection, store.keys.prefix)
        reapings = {shards.main: Reaping(shards.main, shards, store.rules, store.clock)}
        await UserParts(shards, store.rules, reapings, store.clock).users.delete(who)
    except StoreUnavailable:
        return False
    finally:
        await connection.close()
    return True


async def with_a_history(store: Store) -> None:
    """User 7 has torrents in all sets, a hit and run, and two active peers."""
    for number, torrent in ((1, 1), (2, 2), (3, 3)):
        await store.announce(update(number, "s", torrent=torrent, passkey=ALICE))
    store.clock.now += 100
    await store.announce(update(3, "x", torrent=3, downloaded=5000, passkey=ALICE))
    assert await store.torrents_of("7", "hnr") == ["3"]
    ids = range(1000, 1000 + TORRENTS)
    await store.redis.sadd(store.keys.user_set(7, "complete"), *ids)
    accounts = (store.keys.user_torrent(7, torrent_id) for torrent_id in ids)
    await store.connection.pipeline(*(("HSET", account, "uploaded", "1") for account in accounts))


async def once_more(store: Store) -> None:
    await store.users.delete("7")


async def by_itself(store: Store) -> None:
    assert await store.users.finish_deletions() == 1


@pytest.mark.parametrize("finish", [once_more, by_itself])
async def test_an_interrupted_deletion_is_completed_later(
    private: Store, finish: Callable[[Store], Awaitable[None]]
) -> None:
    """Interrupted after each of its commands. Until it is completed no user is credited or given the remains. Then the
    user has no peers."""
    await private.users.delete("7")  # so that the server knows the script
    await private.announce(update(9, "s", torrent=1, passkey=BOB))
    others, states, ended = await named(private, "8", BOB), list[str](), False
    while not ended:
        await private.users.add("7", ALICE)
        await with_a_history(private)
        before = await private.dump()
        ended = await deleted_until_lost(private, "7", len(states))
        states.append(await state_of(private, before))
        if states[-1] == "whole":
            await private.users.delete("7")
        if states[-1] == "begun":
            await finish(private)
        assert await named(private, "7", ALICE) == set()
        assert not await private.redis.exists(private.keys.deleting())
        assert await private.users.hit_and_runs() == []
        assert await named(private, "8", BOB) == others
        assert await check_invariants(private.redis, private.keys) == 1
    assert states == ["whole", "whole", *7 * ["begun"], "done", "done"]


async def state_of(store: Store, before: dict[bytes, Any]) -> str:
    """How far a deletion came: `whole`, `begun` or `done`, after checking what holds in that state."""
    if await store.users.get(ALICE):
        assert await store.dump() == before
        return "whole"
    assert await store.users.passkey_of("7") is None
    assert await store.refused(update(1, passkey=ALICE)) == "unknown passkey"
    if not await store.redis.exists(store.keys.deleting()):
        assert await named(store, "7", ALICE) == set()
        return "done"
    with pytest.raises(ClientError, match="id exists"):
        await store.users.add("7", NEW)
    (refused,) = await store.user_import.save([{"user_id": "7"}])
    assert isinstance(refused, ClientError) and "being deleted" in str(refused)
    return "begun"


async def test_a_reassigned_passkey_stays_the_new_users(private: Store) -> None:
    await with_a_history(private)
    await private.users.delete("7")  # so that the server knows the script
    await private.users.add("7", ALICE)
    await with_a_history(private)
    await deleted_until_lost(private, "7", 4)
    await private.users.add("70", ALICE)
    await private.users.finish_deletions()
    assert (await private.users.find("70")).passkey == ALICE
    assert (await private.announce(update(5, "s", passkey=ALICE))).outcome == "join"
