"""Users of four shards: their totals, copies of their rows, and unavailable shards."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import astuple
from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, Store, endpoint, update
from tests.store.sharding.harness import SHARDS, hash_in, one_and_several
from tracker.errors import ClientError
from tracker.store.schema.multipliers import RuleChange, rule_change
from tracker.store.swarms.codec import Refused
from tracker.store.users import hit_and_runs
from tracker.store.users.adoption import adopt_some
from tracker.store.users.listing import UserFilter
from tracker.store.users.rules import Group

HASHES = [hash_in(number % SHARDS, number) for number in range(8)]
RULES: dict[str, Any] = {
    "accounts": "required",
    "peer_memory": 3600,
    "hnr_min_bytes": 100,
    "hnr_threshold": 1000,
    "max_credit": 10_000,
}


@pytest.fixture
async def both(redis_url: str, prefix: str) -> AsyncIterator[tuple[Store, Store]]:
    """One and four shards, each with the users 7 (ALICE) and 8 (BOB)."""
    async with one_and_several(redis_url, prefix, **RULES) as stores:
        for store in stores:
            await store.users.add("7", ALICE, name="Alice")
            await store.users.add("8", BOB)
            for info_hash in HASHES:
                await store.torrents.add(info_hash)
        yield stores


@pytest.fixture
def store(both: tuple[Store, Store]) -> Store:
    """The one with four shards."""
    return both[1]


async def save_sums(store: Store) -> None:
    for shard in store.shards:
        await store.user_sums.save_changed(shard)


async def figures(store: Store) -> dict[str, Any]:
    """What both stores must have in common, without torrent ids."""
    found: dict[str, Any] = {}
    for user_id in ("7", "8"):
        sets = {}
        for name in ("active", "complete", "incomplete", "hnr"):
            torrents = await store.torrents.by_ids(await store.torrents_of(user_id, name))
            sets[name] = {torrent.info_hash for torrent in torrents}
        accounts = {}
        for torrent in await store.torrents.get_all(HASHES):
            accounts[torrent.info_hash] = (await store.users.on_torrents(user_id, [torrent.torrent_id]))[0]
        user = await store.users.find(user_id)
        found[user_id] = (astuple(user), sets, await store.users.set_sizes(user_id), accounts)
    return found | {"owing": await store.users.hit_and_runs()}


async def test_totals_of_users_in_four_shards_equal_those_of_one(both: tuple[Store, Store]) -> None:
    """S1, T7, T16, T17: also what users owe, and their sets."""
    source = random.Random(7)
    for _ in range(250):
        peer, passkey, info_hash = source.randrange(4), source.choice([ALICE, BOB]), source.choice(HASHES)
        values = {"uploaded": source.randrange(500), "downloaded": source.randrange(500)}
        event, left = source.choice("ssuuucx"), source.choice([0, 500, 1000])
        seconds = source.randrange(1, 60)
        for store in both:
            await store.announce(
                update(
                    peer,
                    event,
                    info_hash=info_hash,
                    passkey=passkey,
                    bytes_left=left,
                    endpoint=endpoint(peer),
                    **values,
                )
            )
        both[0].clock.now += seconds  # they share it
        for store in both:
            await store.pass_time(0)
    one, several = both
    await save_sums(several)
    assert await figures(several) == await figures(one)
    exact = await several.users.find("7")
    (listed,) = [user for user in await several.users.page(0) if user.user_id == "7"]
    assert listed == exact and exact.uploaded > 0
    for store in both:
        await store.user_listing.rank()
    lists = [await store.user_listing.page(UserFilter(order="uploaded", descending=True)) for store in both]
    assert [user.user_id for user in lists[0][1]] == [user.user_id for user in lists[1][1]]


async def test_cut_credit_of_all_shards_is_summed(store: Store) -> None:
    """An operator's own value counts from then on."""

    async def announce_above_the_rate(uploaded: int) -> None:
        store.clock.now += 10
        for info_hash in HASHES[:SHARDS]:
            await store.announce(update(1, info_hash=info_hash, passkey=ALICE, uploaded=uploaded))
        await save_sums(store)

    for info_hash in HASHES[:SHARDS]:
        await store.announce(update(1, "s", info_hash=info_hash, passkey=ALICE))
    await announce_above_the_rate(100_007)
    user = await store.users.find("7")
    assert (user.uploaded, user.credit_cut) == (SHARDS * 100_000, SHARDS * 7)
    accounts = [
        (await store.users.on_torrents("7", [torrent.torrent_id]))[0]
        for torrent in await store.torrents.get_all(HASHES[:SHARDS])
    ]
    assert [each["credit_cut"] for each in accounts] == ["7"] * SHARDS
    await store.users.edit(ALICE, {"credit_cut": 0})
    assert (await store.users.find("7")).credit_cut == 0
    await announce_above_the_rate(200_008)
    assert (await store.users.find("7")).credit_cut == SHARDS


async def join(store: Store, passkey: str) -> list[str]:
    """What a first announce in each shard is answered."""
    answers = []
    for info_hash in HASHES[:SHARDS]:
        reply = await store.swarms.announce(update(3, "s", info_hash=info_hash, passkey=passkey))
        answers.append(reply.code if isinstance(reply, Refused) else reply.outcome)
    return answers


async def test_a_change_of_a_user_holds_in_all_shards_at_once(store: Store) -> None:
    """S2, T2, T22."""
    assert await join(store, ALICE) == ["join"] * SHARDS
    await store.users.edit(ALICE, {"enabled": "0"})
    assert await join(store, ALICE) == ["user disabled"] * SHARDS
    await store.users.edit(ALICE, {"enabled": "1"})
    await store.users.rotate(ALICE, "n" * 20)
    assert await join(store, ALICE) == ["unknown passkey"] * SHARDS
    assert await join(store, "n" * 20) == ["update"] * SHARDS
    await store.users.delete("7")
    assert await join(store, "n" * 20) == ["unknown passkey"] * SHARDS
    for shard in store.shards:
        assert not [key async for key in store.redis.scan_iter(f"{shard.keys.prefix}u:7*")]
        assert not await store.redis.exists(shard.keys.deleting())
    with pytest.raises(ClientError):
        await store.users.find("7")


async def test_users_of_an_import_and_of_a_site_reach_the_shards(store: Store) -> None:
    await store.user_import.save([{"user_id": "9", "passkey": "i" * 20, "uploaded": 5}])
    assert await join(store, "i" * 20) == ["join"] * SHARDS
    assert (await store.users.find("9")).uploaded == 5
    await store.redis.hset(store.keys.passkey("w" * 20), mapping={"user_id": "10"})
    cursor = (await adopt_some(store.shards.main)).cursor
    while cursor != b"0":
        cursor = (await adopt_some(store.shards.main, cursor)).cursor
    await store.user_copies.copy_to_all()
    assert await join(store, "w" * 20) == ["join"] * SHARDS


async def test_a_user_deleted_while_a_shard_is_unavailable_is_refused_when_it_returns(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2, T2, T22: it gets what it lacks, and nothing that was changed meanwhile is lost."""
    for passkey in (ALICE, BOB):
        assert await join(store, passkey) == ["join"] * SHARDS
    unavailable = store.shards[2]
    copied = await store.redis.get(unavailable.keys.copied())
    rows = {key: await store.redis.dump(key) async for key in store.redis.scan_iter(f"{unavailable.keys.prefix}u*")}
    await store.users.delete("7")
    await store.users.edit(BOB, {"can_leech": "0"})
    # The shard as it was when it went unavailable.
    for key, value in rows.items():
        await store.redis.restore(key, 0, value, replace=True)
    await store.redis.set(unavailable.keys.copied(), copied)
    assert await join(store, ALICE) == ["unknown passkey"] * 2 + ["join"] + ["unknown passkey"]
    await store.user_copies.copy_if_possible(unavailable)
    assert await join(store, ALICE) == ["unknown passkey"] * SHARDS
    assert await store.redis.hget(unavailable.keys.passkey(BOB), "can_leech") == b"0"
    assert not await store.redis.exists(unavailable.keys.user("7"))


async def test_concurrent_copies_do_not_bring_an_older_row_back(store: Store) -> None:
    shard = store.shards[1]
    assert await join(store, ALICE) == ["join"] * SHARDS
    for number in range(20):
        await asyncio.gather(
            store.users.edit(ALICE, {"reason": f"first {number}", "enabled": "0"}),
            store.users.edit(ALICE, {"reason": f"second {number}", "enabled": "0"}),
            store.user_copies.copy_to(shard),
        )
        await store.user_copies.copy_to_all()
        main = await store.redis.hgetall(store.keys.passkey(ALICE))
        for each in store.shards:
            assert await store.redis.hgetall(each.keys.passkey(ALICE)) == main


async def test_a_main_store_that_lost_changes_copies_everything_again(store: Store) -> None:
    shard = store.shards[0]
    assert await join(store, BOB) == ["join"] * SHARDS
    await store.redis.set(shard.keys.copied(), 10**6)
    await store.redis.delete(shard.keys.passkey(BOB))
    await store.user_copies.copy_to(shard)
    assert await store.redis.exists(shard.keys.passkey(BOB))
    assert await store.redis.get(shard.keys.copied()) == await store.redis.get(store.keys.copies_version())


@pytest.mark.parametrize("way", ["edit", "import"])
async def test_totals_that_a_program_sets_are_the_start_of_what_follows(store: Store, way: str) -> None:
    """Also before the next pass over all users."""

    async def upload(number: int) -> None:
        store.clock.now += 10
        for shard in store.shards:
            await store.redis.set(shard.keys.heartbeat(), int(store.clock.now))
        await store.announce(update(5, "u", uploaded=number, info_hash=HASHES[1], passkey=ALICE, bytes_left=0))

    await upload(0)
    await upload(100)
    await save_sums(store)
    assert (await store.users.find("7")).uploaded == 100
    if way == "edit":
        await store.users.edit(ALICE, {"uploaded": 7000})
    else:
        await store.user_import.save([{"user_id": "7", "uploaded": 7000}], replace_totals=True)
    assert (await store.users.find("7")).uploaded == 7000
    await upload(150)
    assert (await store.users.find("7")).uploaded == 7050
    (listed, _) = await store.users.page(0)
    assert listed.uploaded == 7000
    await save_sums(store)
    (listed, _) = await store.users.page(0)
    assert listed.uploaded == 7050


async def test_totals_of_an_imported_user_are_the_start_of_what_follows(store: Store) -> None:
    await store.user_import.save([{"user_id": "9", "passkey": "i" * 20, "announces": 5}])
    await store.announce(update(1, "s", info_hash=HASHES[0], passkey="i" * 20))
    await save_sums(store)
    await store.announce_counts.flush()
    await save_sums(store)
    assert (await store.users.find("9")).announces == 6


async def test_sums_that_were_not_written_are_healed_by_a_walk(store: Store) -> None:
    await store.announce(update(5, "s", info_hash=HASHES[1], passkey=ALICE))
    await store.announce_counts.flush()
    await store.redis.delete(*(shard.keys.changed() for shard in store.shards))
    cursor = await store.user_sums.save_page(b"0")
    assert cursor == b"0"
    assert await store.redis.hget(store.keys.user("7"), "announces") == b"1"


async def test_hit_and_runs_are_counted_forgiven_and_pending_over_all_shards(store: Store) -> None:
    for info_hash in HASHES[:3]:
        await store.announce(update(5, "s", info_hash=info_hash, passkey=ALICE))
        await store.pass_time(10)
        await store.announce(update(5, "x", info_hash=info_hash, passkey=ALICE, downloaded=500, bytes_left=500))
    await save_sums(store)
    assert await store.users.hit_and_runs() == [("7", 3)]
    (torrent_id, *_) = await store.torrents_of("7", "hnr")
    assert await store.users.forgive("7", torrent_id) == 1
    assert await store.users.hit_and_runs() == [("7", 2)]
    assert await store.users.forgive("7") == 2
    assert await store.users.hit_and_runs() == [] and await store.users.hit_and_run_count() == 0
    assert await store.hit_and_runs.decide() == await store.hit_and_runs.drop() == 0
    assert await store.hit_and_runs.pending() == [] and await store.hit_and_runs.pending_count() == 0
    found, cursor = [], 0
    while True:
        cursor, page = await store.users.torrents_page("7", "incomplete", cursor, 1)
        found += page
        if not cursor:
            break
    assert len(set(found)) == 3


@pytest.mark.parametrize("torrents_a_call", [1000, 1])
async def test_pending_hit_and_runs_of_a_user_are_found_in_all_shards(
    store: Store, monkeypatch: pytest.MonkeyPatch, torrents_a_call: int
) -> None:
    """Also of a removed torrent, in the shard that its id names."""
    monkeypatch.setattr(hit_and_runs, "TORRENTS_A_CALL", torrents_a_call)
    torrents = await store.torrents.get_all(HASHES)
    ids = [each.torrent_id for each in torrents]
    assert len(ids) > len(store.shards)
    for at, (info_hash, torrent_id) in enumerate(zip(HASHES, ids, strict=True), 1000):
        await store.redis.zadd(store.shard(info_hash).keys.pending_hit_and_runs(), {f"7:{torrent_id}": at})
    await store.torrents.remove(HASHES[2])
    found = await store.hit_and_runs.pending_of("7", [*ids[:0:-1], str(2**60), "x"])
    assert [(each.user_id, each.torrent_id) for each in found] == [("7", each) for each in ids[1:]]
    assert [each.at for each in found] == list(range(1001, 1000 + len(ids)))
    assert await store.hit_and_runs.pending_of("8", ids) == []


async def test_pages_of_a_users_torrents_are_full(both: tuple[Store, Store]) -> None:
    """They do not end with each shard."""
    for store in both:
        for info_hash in HASHES:
            await store.announce(update(5, "s", info_hash=info_hash, passkey=ALICE))
        every = await store.torrents_of("7", "active")
        for count in (1, 3, 5, 100):
            pages, cursor = list[list[str]](), 0
            while True:
                cursor, page = await store.users.torrents_page("7", "active", cursor, count)
                pages.append(page)
                if not cursor:
                    break
            assert sorted({each for page in pages for each in page}) == sorted(every)
            assert all(len(page) >= min(count, len(every)) for page in pages[:-1])
        for count in (1, 7, 8, 500):
            found, complete = await store.users.first_torrents("7", "active", count)
            assert len(set(found)) == min(count, 8) and set(found) <= set(every)
            assert complete == (count >= 8)


async def test_tokens_and_multipliers_reach_the_shards(store: Store) -> None:
    await store.upgrade()
    ids = [torrent.torrent_id for torrent in await store.torrents.get_all(HASHES[:3])]
    for number, torrent_id in enumerate(ids):
        await store.freeleech.give("7", torrent_id, int(store.clock.now) + 100 + number)
    assert [token.torrent_id for token in await store.freeleech.page("7", 1, 2)] == ids[1:]
    assert await store.freeleech.count("7") == 3
    assert await store.freeleech.take_back("7", ids[0])
    with pytest.raises(ClientError):
        await store.freeleech.give("7", "999999", int(store.clock.now) + 100)
    await store.groups.save(5, {"name": "vip", "max_downloads": "10"})
    assert await store.groups.get(5) == Group(5, "vip", max_downloads=10)
    assert await join(store, ALICE) == ["join"] * SHARDS
    await store.users.edit("7", {"visible": False})
    for shard in store.shards:
        assert json.loads(await store.redis.get(shard.keys.groups()))["hidden"] == " 7 "
    await store.users.edit("7", {"visible": True})
    await store.multipliers.set("2", "0.5")
    for shard in store.shards:
        text = await store.redis.get(shard.keys.groups())
        group = json.loads(text)["5"]
        assert (group["name"], group["max_downloads"]) == ("vip", "3"), "a part of the slots, rounded up"
        assert await store.redis.get(shard.keys.upload_multiplier()) == b"2"


async def test_rules_reach_the_shards(store: Store) -> None:
    await store.upgrade()
    passkey = await store.users.passkey_of("7") or ""
    assert await join(store, passkey) == ["join"] * SHARDS
    change = rule_change(store.clock.now, "donor", 2, 0)
    await store.multipliers.change_rule(change)
    await store.users.change_rule(passkey, change)
    for info_hash in HASHES[:3]:
        await store.torrents.change_rule(info_hash, change)
        torrent = await store.torrents.get(info_hash)
        assert torrent is not None and torrent.fields["multi_up"] == "2 donor"
    for shard in store.shards:
        assert await store.redis.get(shard.keys.upload_multiplier()) == b"2 donor"
        assert await store.redis.hget(shard.keys.passkey(passkey), "download_multiplier") == b"0 donor"
    assert await store.users.change_rule(passkey, RuleChange(0, "donor"))
    assert await store.multipliers.change_rule(RuleChange(0, "donor"))
    for shard in store.shards:
        assert not await store.redis.hexists(shard.keys.passkey(passkey), "upload_multiplier")
        assert not await store.redis.get(shard.keys.upload_multiplier())
