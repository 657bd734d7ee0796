"""The users and torrents that programs edited: what the scripts record for lists with `updated_since`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from operator import attrgetter

import pytest

from tests.store.harness import ALICE, BOB, Store, info_hash, running, update
from tracker.errors import Conflict
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

USER = attrgetter("user_id")
TORRENT = attrgetter("info_hash")
HASH = info_hash(5)
Edit = Callable[[Store], Awaitable[object]]


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """The feed has one change, which is long ago. User 7 and a torrent exist."""
    rules = SwarmRules(accounts="required", max_changes=1000)
    async with running(Store(redis_url, Keys(prefix), rules)) as store:
        await store.users.add("7", ALICE)
        await store.torrents.add(HASH)
        await store.redis.xadd(store.keys.changes(), {"change": "joined"}, id="1-0")
        yield store


async def edited(store: Store) -> tuple[list[str], list[str]]:
    """(user ids, info hashes). An edit is listed when the server's clock is past its millisecond."""
    if last := await store.redis.xrevrange(store.keys.edits(), count=1):
        while int(last[0][0].partition(b"-")[0]) >= await milliseconds(store):
            pass
    users, _, _ = await store.changes.updated(USER, "1", "", 100)
    torrents, _, _ = await store.changes.updated(TORRENT, "1", "", 100)
    return users, torrents


async def milliseconds(store: Store) -> int:
    seconds, micros = await store.redis.time()
    return int(1000 * seconds + micros // 1000)


async def delete_all(store: Store) -> None:
    await store.users.delete("7")
    await store.torrents.remove(HASH)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda store: store.users.add("8", BOB), (["8"], [])),
        (lambda store: store.users.edit(ALICE, {"name": "Alice"}), (["7"], [])),
        (lambda store: store.users.edit(ALICE, {"upload_multiplier": "2"}), (["7"], [])),
        (lambda store: store.users.rotate(ALICE), (["7"], [])),
        (
            lambda store: store.user_import.save([{"user_id": "9"}, {"user_id": "0"}, {"user_id": "7"}]),
            (["9", "7"], []),
        ),
        (lambda store: store.torrents.add(info_hash(6)), ([], [info_hash(6).hex()])),
        (lambda store: store.torrents.add(HASH, {"name": "x"}), ([], [HASH.hex()])),
        (lambda store: store.torrents.add_many([(HASH, {}), (info_hash(6), {"size": "x"})]), ([], [HASH.hex()])),
        (lambda store: store.torrents.edit(HASH, {"enabled": "0"}), ([], [HASH.hex()])),
        (lambda store: store.torrents.deny(HASH, "why"), ([], [HASH.hex()])),
        (lambda store: store.torrents.allow(HASH), ([], [])),
        (delete_all, ([], [])),
    ],
)
async def test_each_edit_is_recorded(store: Store, edit: Edit, expected: tuple[list[str], list[str]]) -> None:
    """Not what failed or changed nothing, and no deletion: nothing is left to list."""
    await edit(store)
    assert await edited(store) == expected


async def test_the_end_of_a_denial_and_of_a_registration_are_recorded(store: Store) -> None:
    """The list shows the state of a torrent, and one that was removed as long as it has peers."""
    await store.torrents.deny(HASH, "why")
    await store.redis.delete(store.keys.edits())
    await store.torrents.allow(HASH)
    assert await edited(store) == ([], [HASH.hex()])
    await store.announce(update(1, "s", 5, passkey=ALICE))
    await store.redis.delete(store.keys.edits())
    await store.torrents.remove(HASH)
    assert await store.redis.xlen(store.keys.edits()) == 1


async def test_changes_and_edits_are_in_order_of_time(store: Store) -> None:
    """Pages hold both; the cursor tells a change and an edit with the same id apart."""
    changes, edits = store.keys.changes(), store.keys.edits()
    for second, user in ((10, "1"), (20, "2"), (40, "4"), (50, "2")):
        await store.redis.xadd(changes, {"change": "joined", "user_id": user}, id=f"{second}000-0")
    for second, user in ((15, "5"), (20, "6"), (30, ""), (45, "4")):
        await store.redis.xadd(edits, {"user_id": user, "info_hash": ""}, id=f"{second}000-0")
    names, cursor, _ = await store.changes.updated(USER, "10", "", 3)
    assert (names, cursor) == (["1", "5", "2"], "20000-0")
    names, cursor, _ = await store.changes.updated(USER, "10", cursor, 3)
    assert (names, cursor) == (["6", "4"], "40000-0")
    assert (await store.changes.updated(USER, "10", cursor, 3))[:2] == (["4", "2"], "")
    assert await store.changes.updated(USER, "16", "", 100) == (["2", "6", "4"], "", "50000-0")
    assert await store.changes.updated(USER, "45000-1", "", 100) == (["2"], "", "50000-0")
    assert await store.changes.updated(USER, "50000-0", "", 100) == ([], "", "50000-0")
    assert await store.changes.updated(USER, "51", "", 100) == ([], "", "51")


async def test_deleted_edits_show(store: Store) -> None:
    """Edits that never were are no gap; deleted ones are."""
    assert (await store.changes.updated(USER, "1", "", 100))[:2] == ([], "")
    for second in (10, 20):
        await store.redis.xadd(store.keys.edits(), {"user_id": "7", "info_hash": ""}, id=f"{second}000-0")
    assert (await store.changes.updated(USER, "1", "", 100))[:2] == (["7"], "")
    await store.redis.xtrim(store.keys.edits(), maxlen=1, approximate=False)
    assert (await store.changes.updated(USER, "20", "", 100))[:2] == (["7"], "")
    with pytest.raises(Conflict, match="reach back"):
        await store.changes.updated(USER, "19", "", 100)


async def test_edits_are_recorded_while_there_is_a_feed(store: Store) -> None:
    await store.changes.delete()
    await store.users.edit(ALICE, {"name": "Alice"})
    await store.torrents.edit(HASH, {"name": "x"})
    assert not await store.redis.exists(store.keys.edits())


async def test_edits_are_bounded(store: Store) -> None:
    fill = "for _ = 1, 100200 do redis.call('XADD', KEYS[1], '*', 'user_id', '7', 'info_hash', '') end"
    await store.redis.eval(fill, 1, store.keys.edits())
    await store.users.edit(ALICE, {"name": "Alice"})
    assert 100_000 <= await store.redis.xlen(store.keys.edits()) < 100_200


async def test_edits_of_another_type_fail_nothing(store: Store) -> None:
    await store.redis.set(store.keys.edits(), "x")
    await store.users.edit(ALICE, {"name": "Alice"})
    assert (await store.users.find("7")).name == "Alice"
