"""Lists of users: order, filters, search, and how much of the store one page may take."""

import itertools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from loadtest.servers import Server
from tests.store.harness import ALICE, BOB, Store, running, update
from tracker.errors import ClientError
from tracker.store.schema.keys import Keys
from tracker.store.sharding import listing
from tracker.store.swarms.rules import SwarmRules
from tracker.store.users import listing as user_listing
from tracker.store.users.adoption import adopt_some
from tracker.store.users.listing import Order, UserFilter

USERS: list[dict[str, Any]] = [
    {"user_id": "1", "name": "Zoë E", "uploaded": 10, "downloaded": 5},
    {"user_id": "2", "name": "adam", "uploaded": 30, "downloaded": 0, "enabled": False},
    {"user_id": "3", "name": "Eve 2", "uploaded": 0, "downloaded": 9, "can_leech": False},
    {"user_id": "4"},
]


@pytest.fixture
async def listed(store: Store) -> Store:
    await store.user_import.save(USERS)
    await store.user_listing.rank()
    return store


async def ids(store: Store, count: int = 100, **wanted: Any) -> list[str]:
    """The ids of all pages."""
    cursor, found = "", list[str]()
    while True:
        cursor, users, *_ = await store.user_listing.page(UserFilter(**wanted), cursor, count)
        assert len(users) <= count
        found += [user.user_id for user in users]
        if not cursor:
            return found


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize(
    ("order", "ascending"),
    [
        ("id", ["1", "2", "3", "4"]),
        ("name", ["2", "3", "1"]),
        ("uploaded", ["3", "4", "1", "2"]),
        ("downloaded", ["2", "4", "1", "3"]),
        ("ratio", ["3", "4", "1", "2"]),
        ("hit_and_runs", []),
    ],
)
async def test_users_are_sorted(listed: Store, order: str, ascending: list[str], count: int) -> None:
    assert await ids(listed, count, order=order) == ascending
    assert await ids(listed, count, order=order, descending=True) == ascending[::-1]
    assert await listed.user_listing.count(order) == len(ascending)


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"enabled": False}, ["2"]),
        ({"enabled": True}, ["1", "3", "4"]),
        ({"can_leech": False}, ["3"]),
        ({"can_leech": True, "enabled": True, "order": "uploaded", "descending": True}, ["1", "4"]),
        ({"can_leech": False, "enabled": True, "order": "ratio"}, ["3"]),
        ({"can_leech": False, "enabled": False}, []),
        ({"can_leech": False, "order": "hit_and_runs"}, []),
        ({"name": "E"}, ["3", "1"]),
        ({"name": "ZOË"}, ["1"]),
        ({"name": "e", "can_leech": False}, ["3"]),
        ({"name": "2"}, ["2", "3"]),
        ({"name": "2", "enabled": True}, ["3"]),
        ({"name": "nobody"}, []),
        ({"name": "99"}, []),
    ],
)
async def test_users_are_filtered_and_searched(
    listed: Store, wanted: dict[str, Any], found: list[str], count: int
) -> None:
    """A search is ordered by name; the user with this id comes first, and once."""
    assert await ids(listed, count, **wanted) == found


@pytest.mark.parametrize("most", [1000, 0])
async def test_filters_agree_with_the_users(store: Store, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Also where too many fit to sort them: then the index of the order is walked through."""
    for name in ("MAX_MATCHES", "MAX_FEW"):
        monkeypatch.setattr(listing, name, most)
    monkeypatch.setattr(listing, "MATCHES_A_CALL", 2)
    rows: list[dict[str, Any]] = [
        {
            "user_id": str(n),
            "name": f"n {n * 7 % 30}",
            "uploaded": n * 11 % 30,
            "downloaded": n * 13 % 30 + 1,
            "enabled": n % 3 != 0,
            "can_leech": n % 4 != 0,
        }
        for n in range(1, 31)
    ]
    await store.user_import.save(rows)
    await store.user_listing.rank()
    keys: dict[Order, Callable[[dict[str, Any]], Any]] = {
        "id": lambda row: int(row["user_id"]),
        "name": lambda row: f"{row['name']}\t{row['user_id']}",
        "uploaded": lambda row: (row["uploaded"], row["user_id"]),
        "ratio": lambda row: (row["uploaded"] / row["downloaded"], row["user_id"]),
    }
    for enabled, can_leech in itertools.product((None, False, True), repeat=2):
        for order, key in keys.items():
            for descending in (False, True):
                fitting = [
                    row
                    for row in sorted(rows, key=key, reverse=descending)
                    if enabled in (None, row["enabled"]) and can_leech in (None, row["can_leech"])
                ]
                wanted = UserFilter(order, descending, enabled, can_leech)
                for count in (4, 100):
                    found = await ids(store, count, **asdict(wanted))
                    assert found == [row["user_id"] for row in fitting], (wanted, count)
                total = (await store.user_listing.page(wanted)).total
                assert total in (None, len(fitting))
                if most and (enabled is False or can_leech is False):
                    assert total == len(fitting)
                if [enabled, can_leech].count(None) == 1 and order != "name":
                    assert total == len(fitting)


async def test_the_indexes_of_rights_follow_changes(store: Store) -> None:
    """Of programs at once, of a site when the job ran; a deleted user is in none."""

    async def listed() -> list[list[str]]:
        return [await ids(store, enabled=False), await ids(store, can_leech=False)]

    await store.user_listing.rank()
    alice, bob = await store.users.add("1", ALICE, enabled=False), await store.users.add("2", BOB)
    await store.users.edit(BOB, {"can_leech": False})
    await store.users.edit(BOB, {"name": "Bob"})
    assert await listed() == [["1"], ["2"]]
    await store.users.edit(ALICE, {"enabled": True})
    await store.users.rotate(BOB, "c" * 20)
    assert await listed() == [[], ["2"]]
    await store.redis.hset(store.keys.passkey(ALICE), mapping={"enabled": "0", "can_leech": "0"})
    await store.redis.hdel(store.keys.passkey("c" * 20), "can_leech")
    assert await listed() == [[], []]  # user 2 is left out, as the row says otherwise
    await store.user_listing.rank()
    assert await listed() == [["1"], ["1"]]
    await store.users.delete(alice.user_id)
    assert await listed() == [[], []] and bob.user_id == "2"
    for state in ("disabled", "blocked"):
        assert not await store.redis.exists(store.keys.user_index(state))


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_last_row_of_a_user_in_a_batch_is_the_one_listed(store: Store, enabled: bool) -> None:
    await store.user_listing.rank()  # filters read the indexes once they are complete
    rows: list[dict[str, Any]] = [
        {"user_id": "1", "enabled": each, "can_leech": each} for each in (enabled, not enabled)
    ]
    await store.user_import.save(rows)
    disabled = ["1"] if enabled else []
    assert await ids(store, enabled=False) == await ids(store, can_leech=False) == disabled


async def test_changes_are_in_the_indexes_at_once(listed: Store) -> None:
    user = await listed.users.find("4")
    await listed.users.edit(user.passkey, {"name": "Bob", "uploaded": 99})
    assert (await ids(listed, order="name"))[1] == "4"
    assert (await ids(listed, order="uploaded"))[-1] == "4"
    await listed.users.edit(user.passkey, {"name": "Robert"})
    assert await ids(listed, name="bob") == []
    assert await ids(listed, name="rob") == ["4"]
    await listed.users.delete("4")
    for order in ("id", "name", "uploaded", "downloaded", "ratio"):
        assert "4" not in await ids(listed, order=order)
        assert await listed.user_listing.count(order) == 3


async def test_totals_of_announces_are_ranked_by_rounds(private: Store) -> None:
    """Announces do not write the indexes. A round goes on where the last one ended."""
    await private.announce(update(1, "s", passkey=BOB))
    private.clock.now += 100
    await private.announce(update(1, passkey=BOB, uploaded=5000))
    assert (await private.users.find("8")).uploaded == 5000
    assert await private.redis.zscore(private.keys.user_index("uploaded"), "8") == 0
    await private.user_listing.rank()
    assert await ids(private, order="uploaded") == ["7", "8"]
    await private.redis.hset(private.keys.passkey("c" * 20), "user_id", "77")
    await adopt_some(private.shards.main)
    await private.user_listing.rank()
    assert set(await ids(private, order="ratio")) == {"7", "8", "77"}


async def test_invalid_totals_and_keys_do_not_stop_a_round(private: Store) -> None:
    await private.redis.hset(private.keys.user(7), mapping={"uploaded": "x", "downloaded": "-3"})
    await private.redis.delete(private.keys.user(8))
    await private.redis.set(private.keys.user(8), "text")
    await private.redis.set(private.keys.user_index("ratio"), "text")
    await private.user_listing.rank()
    assert await private.redis.zscore(private.keys.user_index("uploaded"), "7") == 0
    assert await private.redis.get(private.keys.user_index("ratio")) == b"text"


async def test_incomplete_indexes_are_completed_in_one_round(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade: rounds are small otherwise. A new version begins again, and so does a program's call."""
    monkeypatch.setattr(user_listing, "USERS_A_CALL", 10)
    await store.user_import.save([{"user_id": str(n)} for n in range(1, 201)])

    async def ranked(*, all_of_them: bool = False) -> int:
        await store.redis.delete(store.keys.user_index("ratio"))
        await store.user_listing.rank(20, all_of_them=all_of_them)
        return await store.user_listing.count("ratio")

    assert not await store.user_listing.is_complete()
    assert await ranked() == 200 and await store.user_listing.is_complete()
    assert 20 <= await ranked() < 200
    assert await ranked(all_of_them=True) == 200
    monkeypatch.setattr(listing, "INDEXES", b"next")
    assert not await store.user_listing.is_complete()
    assert await ranked() == 200 and await store.user_listing.is_complete()


async def test_a_ranking_of_all_users_pauses_and_goes_on_where_the_store_was_full(
    start_server: Callable[..., Server], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_listing, "USERS_A_CALL", 10)
    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await store.user_import.save([{"user_id": str(n)} for n in range(1, 201)])
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                await store.redis.config_set("maxmemory", 1)

        assert not await store.user_listing.rank(pause=pause)
        assert len(pauses) == 5 and min(pauses) > 0 and not await store.user_listing.is_complete()
        await store.redis.config_set("maxmemory", 0)
        await store.redis.delete(store.keys.user_index("ratio"))
        assert await store.user_listing.rank(pause=pause) and await store.user_listing.is_complete()
        assert 0 < await store.user_listing.count("ratio") < 200


async def test_rights_are_read_from_the_rows_until_the_indexes_are_complete(store: Store) -> None:
    """As after an upgrade: the total is unknown then."""
    await store.user_import.save(USERS)
    await store.redis.delete(store.keys.user_index("disabled"), store.keys.user_index("blocked"))
    for rights, expected in (
        ({"enabled": False}, ["2"]),
        ({"enabled": True}, ["1", "3", "4"]),
        ({"can_leech": False, "enabled": True}, ["3"]),
        ({"can_leech": False, "name": "e"}, ["3"]),
    ):
        assert await ids(store, **rights) == expected
        assert (await store.user_listing.page(UserFilter(**rights))).total is None
    await store.user_listing.rank()
    assert (await store.user_listing.page(UserFilter(enabled=False))).total == 1


@pytest.mark.parametrize("order", ["uploaded", "name"])
async def test_a_list_goes_on_as_it_began(listed: Store, monkeypatch: pytest.MonkeyPatch, order: Order) -> None:
    """Also when more fit meanwhile than are sorted for a page, and when the indexes become complete."""
    monkeypatch.setattr(listing, "MAX_FEW", 2)
    monkeypatch.setattr(listing, "MAX_MATCHES", 2)
    await listed.users.edit((await listed.users.find("3")).passkey, {"enabled": False})
    wanted = UserFilter(order, enabled=False)
    after, first, *_ = await listed.user_listing.page(wanted, "", 1)
    await listed.users.edit((await listed.users.find("1")).passkey, {"enabled": False, "uploaded": 99, "name": "z"})
    end, others, total, _ = await listed.user_listing.page(wanted, after, 100)
    assert (after, end, total) == ("f1", "", 3)
    found = [user.user_id for user in (*first, *others)]
    assert found == (["3", "2", "1"] if order == "uploaded" else ["2", "3", "1"])
    assert (await listed.user_listing.page(wanted, "", 1)).cursor.startswith("w")

    await listed.redis.delete(listed.keys.indexed())
    monkeypatch.setattr(listing, "MAX_FEW", 1000)
    monkeypatch.setattr(listing, "MAX_MATCHES", 1000)
    after, first, *_ = await listed.user_listing.page(wanted, "", 1)
    await listed.user_listing.rank()
    _, others, *_ = await listed.user_listing.page(wanted, after, 100)
    assert found == [user.user_id for user in (*first, *others)]


async def test_a_page_after_the_end_is_empty(listed: Store) -> None:
    for wanted in (UserFilter(), UserFilter(enabled=False), UserFilter(name="x")):
        for cursor in (f"f{2**53 - 1}", "w" + "9" * 12):
            assert (await listed.user_listing.page(wanted, cursor))[:2] == ("", [])


@pytest.mark.parametrize("cursor", ["x", "1", "f", "w-1", "f1.2", "f" + "9" * 17])
async def test_an_invalid_cursor_is_refused(store: Store, cursor: str) -> None:
    for wanted in (UserFilter(), UserFilter(enabled=False), UserFilter(name="x")):
        with pytest.raises(ClientError):
            await store.user_listing.page(wanted, cursor)


async def test_a_place_after_all_users_is_no_cursor_of_a_whole_list(store: Store) -> None:
    with pytest.raises(ClientError, match="invalid cursor"):
        await store.user_listing.page(UserFilter(), "we")


async def test_a_page_looks_at_a_bounded_number_of_users(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends early, with a position to go on from."""
    monkeypatch.setattr(user_listing, "USERS_A_CALL", 10)
    monkeypatch.setattr(user_listing, "USERS_A_PAGE", 40)
    await store.user_import.save([{"user_id": str(n), "can_leech": n == 95} for n in range(1, 101)])
    await store.user_listing.rank()
    wanted = UserFilter(can_leech=True)
    assert await store.user_listing.page(wanted) == ("w40", [], 1, None)
    after, found, *_ = await store.user_listing.page(wanted, "w80")
    assert (after, [user.user_id for user in found]) == ("", ["95"])


async def test_a_page_of_a_search_looks_at_a_bounded_number_of_names(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at fewer users if it selects by rights too, which takes longer."""
    for name, number in (("USERS_A_CALL", 10), ("NAMES_A_PAGE", 60), ("USERS_A_PAGE", 20)):
        monkeypatch.setattr(user_listing, name, number)
    rows: list[dict[str, Any]] = [
        {"user_id": str(n), "name": f"user {n:03}", "can_leech": False} for n in range(1, 101)
    ]
    await store.user_import.save(rows)
    assert await store.user_listing.page(UserFilter(name="nobody")) == ("w60", [], None, None)
    assert await store.user_listing.page(UserFilter(name="user", can_leech=True)) == ("w20", [], None, None)
    after, found, *_ = await store.user_listing.page(UserFilter(name="099"), "w60")
    assert (after, [user.user_id for user in found]) == ("", ["99"])


async def test_a_renamed_index_entry_and_a_deleted_row_are_left_out(listed: Store) -> None:
    await listed.redis.delete(listed.keys.user(1))
    assert await ids(listed, name="e") == ["3"]


async def test_a_new_passkey_keeps_the_user_in_the_lists(private: Store) -> None:
    await private.users.edit(ALICE, {"name": "Alice"})
    await private.users.rotate(ALICE, "c" * 20)
    _, found, *_ = await private.user_listing.page(UserFilter(name="ali"))
    assert [user.passkey for user in found] == ["c" * 20]
