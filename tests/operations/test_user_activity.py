"""What a user does and did."""

from collections.abc import AsyncIterator
from dataclasses import fields, replace
from functools import partial

import pytest

from tests.store.harness import ALICE, BOB, Store, info_hash, running, update
from tests.store.sharding.harness import SHARDS, hash_in, one_and_several
from tracker.geoip import GeoIP
from tracker.operations import users as activity_module
from tracker.operations.users import Activity, user_activity
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.users import hit_and_runs

RULES = SwarmRules(
    accounts="required", peer_memory=3600, hnr_min_bytes=100, hnr_threshold=1000, hnr_grace=600, max_gap=7200
)


@pytest.fixture
async def private(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), RULES)) as store:
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        yield store


async def of_alice(store: Store) -> Activity:
    return await user_activity(store, "7", GeoIP(None))


async def test_a_user_who_was_never_seen(private: Store) -> None:
    assert await of_alice(private) == Activity([], True, [], True, [], True, 0, [])


async def test_without_a_change_feed_completions_are_known(private: Store) -> None:
    await private.torrents.add(info_hash(1), {"name": "a film"})
    await private.announce(update(1, "s", passkey=ALICE))
    await private.announce(update(2, "s", passkey=BOB))
    await private.pass_time(60)
    await private.announce(update(1, "c", passkey=ALICE, bytes_left=0, downloaded=500))
    live = await of_alice(private)
    assert [(each.torrent.name, each.peer.seeding) for each in live.peers] == [("a film", True)]
    assert [(each.what, each.at) for each in live.events] == [("completed", private.clock.now)]
    assert live.last_seen == private.clock.now
    await private.announce(update(1, "x", passkey=ALICE, bytes_left=0, downloaded=500))
    left = int(private.clock.now)
    await private.torrents.remove(info_hash(1))
    await private.pass_time(100)
    found = await of_alice(private)
    assert (found.peers, found.last_seen) == ([], left)
    assert [(each.torrent.torrent_id, each.at) for each in found.pending] == [("1", left + 600)]


async def test_completions_and_hit_and_runs_of_all_shards_are_known(redis_url: str, prefix: str) -> None:
    rules = {field.name: getattr(RULES, field.name) for field in fields(RULES)}
    hashes = [hash_in(shard) for shard in range(SHARDS)]
    async with one_and_several(redis_url, prefix, **rules) as both:
        for store in both:
            await store.users.add("7", ALICE)
            for one in hashes:
                for event in "sx":
                    downloaded = 500 if event == "x" else 0
                    await store.announce(
                        update(1, event, info_hash=one, passkey=ALICE, bytes_left=0, downloaded=downloaded)
                    )
            found = await of_alice(store)
            assert {each.torrent.info_hash for each in found.pending} == set(hashes)


async def test_pending_hit_and_runs_are_searched_in_more_torrents_than_completions(
    private: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are bounded, and the bound shows."""
    for number in range(1, 4):
        update_of = partial(update, 1, passkey=ALICE, info_hash=info_hash(number))
        await private.announce(update_of("s"))
        for event in "cx":
            await private.announce(update_of(event, bytes_left=0, downloaded=500))
    monkeypatch.setattr(activity_module, "MAX_COMPLETED", 2)
    monkeypatch.setattr(hit_and_runs, "TORRENTS_A_CALL", 2)
    found = await of_alice(private)
    assert (len(found.pending), found.all_pending) == (3, True)
    assert (len(found.events), found.all_completed) == (2, False)
    monkeypatch.setattr(activity_module, "MAX_TORRENTS", 2)
    found = await of_alice(private)
    assert (len(found.pending), found.all_pending) == (2, False)


async def test_the_change_feed_shows_more_and_the_history_is_bounded(
    private: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.use_rules(replace(RULES, max_changes=100))
    for event in "scx":
        left = 0 if event != "s" else 1000
        await private.announce(update(1, event, passkey=ALICE, bytes_left=left))
        await private.announce(update(2, event, passkey=BOB, bytes_left=left))
    events = (await of_alice(private)).events
    assert sorted(each.what for each in events) == ["completed", "joined", "stopped"]
    monkeypatch.setattr(activity_module, "MAX_EVENTS", 2)
    assert len((await of_alice(private)).events) == 2
