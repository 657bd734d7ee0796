"""Many users at a time: outcomes, totals, passkeys."""

import pytest

from tests.store.harness import ALICE, BOB, Store, text
from tracker.errors import ClientError
from tracker.store.users.fields import User
from tracker.store.users.importing import USERS_A_CALL, SavedUser

NEW = "c" * 20


async def outcomes(store: Store, *users: dict[str, str | int], replace: bool = False) -> list[object]:
    """Each is (user id, new), or the text of the error."""
    saved = await store.user_import.save(users, replace_totals=replace)
    return [each.text if isinstance(each, ClientError) else (each.user_id, each.new) for each in saved]


async def test_each_row_has_its_outcome_in_order(store: Store) -> None:
    await store.users.add("7", ALICE)
    found = await outcomes(
        store,
        {"user_id": "8", "passkey": BOB},
        {"user_id": "7", "passkey": NEW},
        {"user_id": "9", "passkey": ALICE},
        {"user_id": "0"},
        {"user_id": "9", "passkey": "short"},
        {"name": "nobody"},
        {"user_id": "10", "uploaded": "-1"},
        {"user_id": "10", "can_leech": "maybe"},
        {"user_id": "10", "colour": "red"},
        {"passkey": NEW},
    )
    assert found == [
        ("8", True),
        "the user with this id has another passkey",
        "this passkey belongs to another user: give one of them a new one",
        "a user id is a positive number",
        "a passkey is 16 to 64 letters, digits, _ or -",
        "a user needs user_id or passkey",
        "uploaded is a whole number up to 9007199254740991",
        "can_leech is 0 or 1",
        "a user has no such field",
        ("9", True),
    ]
    assert [user.user_id for user in await store.users.page(0)] == ["7", "8", "9"]


async def test_a_repeated_batch_changes_nothing(store: Store) -> None:
    users: list[dict[str, str | int]] = [
        {"user_id": "7", "passkey": ALICE, "name": "Alice", "uploaded": 5, "downloaded": 2, "enabled": False},
        {"user_id": "8", "reason": "why", "can_leech": False},
        {"passkey": BOB, "snatches": 3},
    ]
    assert await outcomes(store, *users) == [("7", True), ("8", True), ("9", True)]
    before = await store.dump()
    assert await outcomes(store, *users) == [("7", False), ("8", False), ("9", False)]
    assert await store.dump() == before


async def test_known_users_keep_their_totals_unless_asked(store: Store) -> None:
    row: dict[str, str | int] = {"user_id": "7", "passkey": ALICE, "uploaded": 100}
    await outcomes(store, row)
    await store.redis.hset(store.keys.user(7), "uploaded", "150")
    await outcomes(store, {**row, "name": "Alice"})
    assert await store.users.find("7") == User("7", ALICE, True, True, 150, name="Alice")
    await outcomes(store, row, replace=True)
    assert (await store.users.find("7")).uploaded == 100


async def test_a_passkey_is_made_once_and_told_once(store: Store) -> None:
    (first,) = await store.user_import.save([{"user_id": "7"}])
    (second,) = await store.user_import.save([{"user_id": "7"}])
    assert isinstance(first, SavedUser) and len(first.passkey) == 40
    assert second == SavedUser("7", False, "")
    assert await store.users.passkey_of("7") == first.passkey


async def test_a_site_written_user_keeps_the_rights_that_the_site_gave(store: Store) -> None:
    await store.redis.hset(store.keys.passkey(ALICE), mapping={"user_id": "77", "enabled": "0"})
    await outcomes(store, {"passkey": ALICE, "uploaded": 5})
    assert await store.users.find("77") == User("77", ALICE, False, True, 5)
    await store.redis.hset(store.keys.passkey(BOB), "user_id", "x7")
    assert await outcomes(store, {"passkey": BOB}) == ["the holder of this passkey has an invalid id"]


async def test_a_user_being_deleted_is_not_saved(store: Store) -> None:
    await store.redis.sadd(store.keys.deleting(), "7")
    assert await outcomes(store, {"user_id": "7"}) == [
        "the user with this id is being deleted: try again in a few minutes"
    ]


async def test_a_key_of_a_wrong_type_fails_one_row(store: Store) -> None:
    await store.redis.set(store.keys.user(7), "text")
    found = await outcomes(store, {"user_id": "7", "passkey": ALICE}, {"user_id": "8", "passkey": BOB})
    assert found == ["a key of this user is of the wrong type", ("8", True)]
    assert not await store.redis.exists(store.keys.passkey(ALICE))


async def test_a_large_batch_is_several_script_calls(store: Store) -> None:
    number = 3 * USERS_A_CALL + 1
    users: list[dict[str, str | int]] = [{"user_id": str(n)} for n in range(1, number + 1)]
    before = await calls(store)
    assert await outcomes(store, *users) == [(str(n), True) for n in range(1, number + 1)]
    assert await calls(store) - before == 4
    assert await store.users.count() == number


async def calls(store: Store) -> int:
    return (await commands(store)).get("evalsha", 0)


async def commands(store: Store) -> dict[str, int]:
    found = await store.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in found.items()}


@pytest.mark.parametrize(("again", "most"), [(False, 11), (True, 10)])
async def test_a_user_of_a_batch_takes_few_commands(store: Store, again: bool, most: int) -> None:
    """A batch of 1,000 is to take at most 100 ms of the tracker's and the store's time."""
    users: list[dict[str, str | int]] = [
        {"user_id": str(n), "passkey": f"{n:032x}", "name": f"user {n}", "enabled": True, "uploaded": n}
        for n in range(1, USERS_A_CALL + 1)
    ]
    for _ in range(1 + again):
        await store.redis.config_resetstat()
        await store.user_import.save(users)
    taken = sum((await commands(store)).values())
    assert USERS_A_CALL * 5 < taken < USERS_A_CALL * most


async def test_empty_names_and_reasons_are_removed(store: Store) -> None:
    await store.users.add("7", ALICE, name=" Alice ", reason="because", enabled=False)
    assert (await store.users.find("7")).name == "Alice"
    await store.users.edit(ALICE, {"name": "", "reason": ""})
    row = text(await store.redis.hgetall(store.keys.passkey(ALICE)))
    assert row == {"user_id": "7", "enabled": "0", "can_leech": "1"}
    assert text(await store.redis.hgetall(store.keys.user(7))) == {"passkey": ALICE}


@pytest.mark.parametrize("reason", [None, "", "still unpaid"])
async def test_enabling_clears_the_reason_unless_one_is_given(store: Store, reason: str | None) -> None:
    await store.users.add("7", ALICE, reason="unpaid", enabled=False)
    await store.users.edit(ALICE, {"enabled": True} | ({} if reason is None else {"reason": reason}))
    assert (await store.users.find("7")).reason == (reason or "")


async def test_totals_are_set_for_a_user_whom_a_site_wrote(store: Store) -> None:
    await store.redis.hset(store.keys.passkey(ALICE), "user_id", "77")
    await store.users.edit(ALICE, {"uploaded": 9, "name": "Alice"})
    assert await store.users.find("77") == User("77", ALICE, True, True, 9, name="Alice")
    await store.redis.hset(store.keys.passkey(BOB), "user_id", "77")
    with pytest.raises(ClientError, match="the id of another user"):
        await store.users.edit(BOB, {"uploaded": 9})
    await store.users.edit(BOB, {"enabled": False})  # rights belong to the passkey
    assert await store.redis.hget(store.keys.passkey(BOB), "enabled") == b"0"
