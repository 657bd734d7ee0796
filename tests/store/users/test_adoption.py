"""Users and allowed clients that a site wrote: they are listed and found by ID, and their IDs are not reused."""

from collections.abc import Awaitable, Callable

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, info_hash, update
from tracker.bittorrent import PeerId
from tracker.errors import ClientError
from tracker.store.swarms.codec import Refused
from tracker.store.users.adoption import START, AdoptionStep, adopt_some
from tracker.store.users.listing import UserFilter

SITES, OTHER, NEW = "s" * 20, "o" * 20, "n" * 20
TRANSMISSION = PeerId(b"-TR4050-abcdefghijkl")
Way = Callable[[Store], Awaitable[None]]


async def by_hand(store: Store, user_id: str, passkey: str = SITES) -> None:
    await store.redis.hset(store.keys.passkey(passkey), "user_id", user_id)


async def sweep(store: Store) -> AdoptionStep:
    """Runs a whole sweep."""
    step, found = await adopt_some(store.shards.main), []
    found.append(step)
    while step.cursor != START:
        step = await adopt_some(store.shards.main, step.cursor)
        found.append(step)
    return AdoptionStep(
        START,
        step.keys,
        tuple(user for one in found for user in one.users),
        tuple(user for one in found for user in one.unusable),
        tuple(prefix for one in found for prefix in one.clients),
        tuple(user for one in found for user in one.names),
    )


async def by_sweep(store: Store) -> None:
    await sweep(store)


async def by_announce(store: Store) -> None:
    await store.announce(update(1, "s", passkey=SITES))


async def by_reindex(store: Store) -> None:
    found = {finding.kind: finding for finding in await store.maintenance.reindex()}
    assert found["users that were not listed"].examples == ("77",)


@pytest.mark.parametrize("adopted", [by_announce, by_reindex, by_sweep])
async def test_a_user_that_a_site_wrote_is_a_user(private: Store, adopted: Way) -> None:
    """T22: listed, exported (from the same pages), shown, disabled and deleted by ID. No other user gets the ID."""
    await by_hand(private, "77")
    await adopted(private)
    assert [user.user_id for user in await private.users.page(0)] == ["7", "8", "77"]
    assert await private.users.count() == 3
    found = await private.users.find("77")
    assert (found.passkey, found.enabled, found.can_leech) == (SITES, True, True)
    with pytest.raises(ClientError, match="id exists"):
        await private.users.add("77", NEW)
    assert (await private.users.add(passkey=NEW)).user_id == "78"
    await private.users.edit(found.passkey, {"enabled": False})
    assert await private.refused(update(2, "s", passkey=SITES)) == "user disabled"
    await private.users.delete("77")
    assert await private.users.passkey_of("77") is None
    assert await private.refused(update(2, "s", passkey=SITES)) == "unknown passkey"
    assert not [key async for key in private.redis.scan_iter(f"{private.keys.prefix}u:77*")]
    assert (await private.users.add(passkey=OTHER)).user_id == "79"


async def by_name(store: Store, text: str) -> list[str]:
    """The ids of the users whom a search finds."""
    page = await store.user_listing.page(UserFilter(name=text))
    return [user.user_id for user in page.rows]


@pytest.mark.parametrize("listed", [by_reindex, by_sweep])
async def test_a_name_that_a_site_wrote_is_found_by_a_search(private: Store, listed: Way) -> None:
    """One of a user whom the site wrote, one of a known user; then they are changed, and removed."""
    await by_hand(private, "77")
    names = {"7": "ÄNNE  of Cleves", "77": "Anne Boleyn"}
    for user_id, name in names.items():
        await private.redis.hset(private.keys.user(user_id), "name", name)
    await listed(private)
    assert (await by_name(private, "änne of"), await by_name(private, "NN")) == (["7"], ["77", "7"])
    assert (await sweep(private)).names == ()
    await private.redis.hset(private.keys.user("7"), "name", "catherine")
    await private.redis.hdel(private.keys.user("77"), "name")
    assert sorted((await sweep(private)).names) == ["7", "77"]
    assert (await by_name(private, "catherine"), await by_name(private, "nn")) == (["7"], [])
    assert await private.maintenance.cleanup() == []


async def test_a_name_that_changed_since_it_was_read_is_skipped(private: Store) -> None:
    await private.users.edit(ALICE, {"name": "new"})
    await private.scripts.name_users(["7", "old", "old", "8", "", ""])
    assert (await by_name(private, "new"), await by_name(private, "old")) == (["7"], [])


async def test_a_user_of_an_older_store_is_found_by_the_sweep(private: Store) -> None:
    """A user who announced before adoption existed has totals that name the passkey, and is in no list."""
    await by_hand(private, "77")
    await private.redis.hset(private.keys.user("77"), mapping={"passkey": SITES, "uploaded": "5"})
    await private.announce(update(1, "s", passkey=SITES))
    assert await private.users.passkey_of("77") is None
    assert (await sweep(private)).users == ("77",)
    assert (await private.users.find("77")).uploaded == 5
    assert (await sweep(private)).users == ()


async def test_ids_of_an_older_store_are_not_reused(private: Store) -> None:
    """The last generated ID is below those that were chosen by hand."""
    await private.users.add("500", SITES)
    await private.redis.set(f"{private.keys.prefix}user_id", "3")
    assert (await private.users.add()).user_id == "501"


async def test_an_imported_id_is_not_reused(private: Store) -> None:
    await private.user_import.save([{"user_id": "900", "passkey": SITES}])
    await private.users.delete("900")
    assert (await private.users.add()).user_id == "901"


@pytest.mark.parametrize(
    "user_id", ["0", "-5", "007", "1e3", "+7", " 7", "7 ", "7:t:1", "bob", "inf", "1.5", "1" * 16, "١"]
)
async def test_an_id_that_is_no_number_is_refused(private: Store, user_id: str) -> None:
    """The row stays as the site wrote it until it is deleted by its passkey. Other users are unaffected."""
    await private.users.add("1000", OTHER)
    await by_hand(private, user_id)
    before = await private.dump()
    assert await private.refused(update(1, "s", passkey=SITES)) == "bad user id"
    assert (await sweep(private)).unusable == (user_id,)
    assert await private.dump() == before
    found = {finding.kind: finding for finding in await private.maintenance.reindex()}
    (unusable,) = [finding for kind, finding in found.items() if kind.startswith("user ids")]
    assert (unusable.count, unusable.changed, unusable.examples) == (1, 0, (user_id,))
    assert (await private.users.rotate(SITES, NEW)).user_id == user_id
    await private.users.delete(NEW)
    with pytest.raises(ClientError, match="no such user"):
        await private.users.find(NEW)
    assert [user.user_id for user in await private.users.page(0)] == ["7", "8", "1000"]
    assert {user.passkey for user in await private.users.page(0)} == {ALICE, BOB, OTHER}


async def test_an_empty_id_creates_no_user(private: Store) -> None:
    await by_hand(private, "")
    assert await private.refused(update(1, "s", passkey=SITES)) == "unknown passkey"
    assert isinstance(await private.swarms.scrape([info_hash(1)], SITES), Refused)
    assert (await sweep(private)).unusable == ()
    with pytest.raises(ClientError, match="no such user"):
        await private.users.rotate(SITES, NEW)


async def test_a_huge_id_leaves_ids_for_other_users(private: Store) -> None:
    await by_hand(private, "9" * 15)
    await by_announce(private)
    assert (await private.users.find("9" * 15)).passkey == SITES
    assert (await private.users.add()).user_id == "9"
    await by_hand(private, "9" * 14, OTHER)
    await sweep(private)
    assert (await private.users.add()).user_id == "1" + "0" * 14


async def test_an_id_belongs_to_the_passkey_that_had_it_first(private: Store) -> None:
    """A second user with the same ID is refused, changes nothing, and can be deleted without the first."""
    await private.announce(update(1, "s", passkey=ALICE))
    await by_hand(private, "7")
    before = await private.dump()
    assert await private.refused(update(2, "s", passkey=SITES)) == "user id in use"
    assert (await sweep(private)).unusable == ("7",)
    assert await private.dump() == before
    await private.users.rotate(SITES, NEW)
    assert await private.users.passkey_of("7") == ALICE
    await private.users.delete(NEW)
    assert (await private.announce(update(1, passkey=ALICE))).outcome == "update"
    await private.announce_counts.flush()
    assert (await private.users.find("7")).announces == 2


async def test_the_first_of_two_users_with_one_id_keeps_it(private: Store) -> None:
    await by_hand(private, "77")
    await by_hand(private, "77", OTHER)
    await private.announce(update(1, "s", passkey=OTHER))
    assert await private.refused(update(2, "s", passkey=SITES)) == "user id in use"
    assert await private.users.passkey_of("77") == OTHER


@pytest.mark.parametrize("adopted", [by_announce, by_sweep])
async def test_a_passkey_replaced_by_a_site_is_replaced_in_the_list(private: Store, adopted: Way) -> None:
    await private.redis.rename(private.keys.passkey(ALICE), private.keys.passkey(SITES))
    await adopted(private)
    assert await private.users.passkey_of("7") == SITES
    assert [(u.user_id, u.passkey) for u in await private.users.page(0)] == [("7", SITES), ("8", BOB)]


async def test_an_id_changed_by_a_site_is_changed_in_the_list(private: Store) -> None:
    await by_hand(private, "70", ALICE)
    await sweep(private)
    assert [user.user_id for user in await private.users.page(0)] == ["8", "70"]


async def test_a_user_in_deletion_does_not_come_back_under_its_id(private: Store) -> None:
    await private.redis.sadd(private.keys.deleting(), "77")
    await by_hand(private, "77")
    assert await private.refused(update(1, "s", passkey=SITES)) == "user id in use"
    await private.users.finish_deletions()
    await by_announce(private)
    assert await private.users.passkey_of("77") == SITES


async def test_a_join_of_a_known_user_reads_no_list(private: Store) -> None:
    """Only a user whose totals do not name the passkey is looked up in the list of users."""

    async def looked_for(peer: int) -> bool:
        await private.redis.config_resetstat()
        await private.announce(update(peer, "s", passkey=ALICE))
        return "cmdstat_zscore" in await private.redis.info("commandstats")

    assert not await looked_for(1)
    await private.redis.hdel(private.keys.user("7"), "passkey")
    assert await looked_for(2)
    assert not await looked_for(3)


# Clients


async def used(store: Store) -> None:
    assert await store.allow_list.allowed_prefixes(TRANSMISSION) == [b"-TR"]


async def reindexed(store: Store) -> None:
    found = {finding.kind: finding for finding in await store.maintenance.reindex()}
    assert found["clients that were not listed"].examples == ("-TR",)


@pytest.mark.parametrize("adopted", [used, reindexed, by_sweep])
async def test_a_client_allowed_by_a_site_is_listed(store: Store, adopted: Way) -> None:
    await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
    await adopted(store)
    assert await store.allow_list.page(0) == (0, [(b"-TR", "Transmission")])
    assert await store.allow_list.remove(b"-TR")
    assert await store.allow_list.page(0) == (0, [])
    assert not await store.allow_list.allowed_prefixes(TRANSMISSION)


async def test_a_list_of_another_type_refuses_no_client(store: Store) -> None:
    await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")
    await store.redis.set(store.keys.allowed_clients(), "a string")
    await used(store)


async def test_prefixes_of_any_bytes_are_found_up_to_the_maximum_length(make_store: MakeStore) -> None:
    store = await make_store()
    for prefix in (b"\xff:*[\n", b"x" * 20, b"y" * 21):
        await store.redis.hset(store.keys.allowed_client(prefix), "name", "")
    assert set((await sweep(store)).clients) == {b"\xff:*[\n", b"x" * 20}


async def test_a_client_whose_key_a_site_deleted_is_not_listed(store: Store) -> None:
    await store.allow_list.add(b"-TR")
    await store.allow_list.add(b"-LT")
    await store.redis.delete(store.keys.allowed_client(b"-LT"))
    assert await store.allow_list.page(0) == (0, [(b"-TR", "")])


async def test_a_sweep_finds_all_of_many_users(private: Store) -> None:
    """Each step checks a bounded number of keys, whatever else the store holds."""
    for n in range(1000):
        await by_hand(private, str(1000 + n), f"{n:020}")
    step = await adopt_some(private.shards.main)
    assert step.cursor != START and step.keys >= 1000
    assert set((await sweep(private)).users) | set(step.users) == {str(1000 + n) for n in range(1000)}
    assert await private.users.count() == 1002
