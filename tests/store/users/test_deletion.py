"""A deletion that is cut off anywhere leaves a user who can announce or one who cannot, and is finished by whoever comes next."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, Store, update
from tests.store.invariants import check_invariants
from tests.store.test_users import named
from tracker.errors import ClientError, StoreAway
from tracker.store.accounts import Accounts
from tracker.store.connection import Connection, connect
from tracker.store.users import Users

NEW = "c" * 20
TORRENTS = 250
"""More than one step takes."""


class Dying(Connection):
    """One that is lost after so many commands: the next one never gets to the store."""

    def __init__(self, url: str, commands: int) -> None:
        super().__init__(connect(url, connect_timeout=5), timeout=5)
        self.left = commands

    async def command(self, *args: Any) -> Any:
        if self.left == 0:
            raise StoreAway("the connection was lost")
        self.left -= 1
        return await super().command(*args)


async def deleted_until_lost(store: Store, who: str, commands: int) -> bool:
    """Whether the deletion came to its end."""
    connection = Dying(store.url, commands)
    try:
        await Users(connection, store.keys).delete(who)
    except StoreAway:
        return False
    finally:
        await connection.close()
    return True


async def with_a_history(store: Store) -> None:
    """User 7 has torrents in all sets, a hit and run, and two peers that are there."""
    for number, torrent in ((1, 1), (2, 2), (3, 3)):
        await store.announce(update(number, "s", torrent=torrent, passkey=ALICE))
    store.clock.now += 100
    await store.announce(update(3, "x", torrent=3, downloaded=5000, passkey=ALICE))
    assert await store.users.torrents("7", "hnr") == ["3"]
    ids = range(1000, 1000 + TORRENTS)
    await store.redis.sadd(store.keys.user_set(7, "complete"), *ids)
    accounts = (store.keys.user_torrent(7, torrent_id) for torrent_id in ids)
    await store.connection.pipeline(*(("HSET", account, "uploaded", "1") for account in accounts))


async def once_more(store: Store) -> None:
    await store.users.delete("7")


async def by_itself(store: Store) -> None:
    assert await store.users.finish_deletions() == 1


@pytest.mark.parametrize("finish", [once_more, by_itself])
async def test_a_deletion_that_is_cut_off_anywhere_is_finished(
    private: Store, finish: Callable[[Store], Awaitable[None]]
) -> None:
    """After each of its commands in turn. Meanwhile nobody is credited, nobody gets what is left, and peers may be reaped."""
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
            assert await private.silence(update(1), "1") == 1
            await finish(private)
        for number in (1, 2):
            await private.silence(update(number), str(number))
        assert await named(private, "7", ALICE) == set()
        assert not await private.redis.exists(private.keys.deleting())
        assert await private.users.hit_and_runs() == []
        assert await named(private, "8", BOB) == others
        assert await check_invariants(private.redis, private.keys) == 1
    assert states == ["whole", "whole", "begun", "begun", "done", "done"]


async def state_of(store: Store, before: dict[bytes, Any]) -> str:
    """What a deletion that may have been cut off has left, with what holds then."""
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
    with pytest.raises(ClientError, match="being deleted"):
        await Accounts(store.connection, store.scripts, store.keys).bring({"user_id": "7"})
    return "begun"


async def test_a_passkey_that_was_given_out_again_stays_the_new_users(private: Store) -> None:
    await with_a_history(private)
    await deleted_until_lost(private, "7", 3)
    await private.users.add("70", ALICE)
    await private.users.finish_deletions()
    assert (await private.users.find("70")).passkey == ALICE
    assert (await private.announce(update(5, "s", passkey=ALICE))).outcome == "join"
