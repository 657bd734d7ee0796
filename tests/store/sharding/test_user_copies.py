"""Copies of users: a shard has those who have announced there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.store.harness import ALICE, BOB, Store, running, update
from tests.store.sharding.harness import SHARDS, apart, hash_in
from tracker.bittorrent import ScrapeFile
from tracker.errors import StoreUnavailable
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Admitted, AdmittedAnonymously, Refused
from tracker.store.swarms.rules import SwarmRules
from tracker.store.users.adoption import START, adopt_some
from tracker.token_bucket import TokenBucket

UNKNOWN = "u" * 20
TORRENTS = [hash_in(shard) for shard in range(SHARDS)]


@pytest.fixture(params=["required"])
async def store(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """The users 7 (ALICE) and 8 (BOB), who have not announced."""
    async with running(apart(redis_url, Keys(prefix), SwarmRules(accounts=request.param, max_changes=10))) as store:
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        for info_hash in TORRENTS:
            await store.torrents.add(info_hash)
        yield store


async def announce(store: Store, shard: int, passkey: str, event: str = "s", peer: int = 1) -> str:
    """The outcome, or the code of the refusal."""
    try:
        answer = await store.swarms.announce(update(peer, event, info_hash=TORRENTS[shard], passkey=passkey))
    except StoreUnavailable:
        return "unavailable"
    return answer.code if isinstance(answer, Refused) else answer.outcome


async def copies_of(store: Store, passkey: str) -> list[int]:
    """The shards that have one."""
    return [shard.number for shard in store.shards if await store.redis.exists(shard.keys.passkey(passkey))]


async def test_a_shard_gets_a_copy_with_the_first_announce(store: Store) -> None:
    """Changes reach the shards that have one, and no others."""
    assert await copies_of(store, ALICE) == []
    for event, outcome in (("s", "join"), ("u", "update"), ("x", "leave"), ("x", "absent")):
        assert await announce(store, 1, ALICE, event) == outcome
    assert await copies_of(store, ALICE) == [1]
    assert await announce(store, 3, BOB, "u") == "join"
    await store.users.edit(ALICE, {"enabled": "0"})
    assert await copies_of(store, ALICE) == [1] and await copies_of(store, BOB) == [3]
    assert [await announce(store, shard, ALICE) for shard in range(SHARDS)] == ["user disabled"] * SHARDS
    await store.users.edit(ALICE, {"enabled": "1"})
    await store.users.rotate(BOB, "n" * 20)
    assert await copies_of(store, BOB) == [] and await copies_of(store, "n" * 20) == [3]
    await store.users.delete("7")
    assert await copies_of(store, ALICE) == []
    assert [await announce(store, shard, ALICE) for shard in range(SHARDS)] == ["unknown passkey"] * SHARDS


@pytest.mark.parametrize("store", ["optional"], indirect=True)
async def test_the_first_announce_of_a_user_is_not_taken_for_an_anonymous_one(store: Store) -> None:
    assert await announce(store, 1, ALICE) == "join"
    assert len(await store.torrents_of("7", "active")) == 1
    answer = await store.swarms.announce(update(2, "s", info_hash=TORRENTS[2], passkey=UNKNOWN))
    assert isinstance(answer, AdmittedAnonymously) and answer.outcome == "join"


async def test_a_scrape_and_what_is_given_to_a_user_bring_a_copy(store: Store) -> None:
    assert await store.swarms.scrape([TORRENTS[0], TORRENTS[1]], ALICE) == {
        info_hash: ScrapeFile(0, 0, 0, 0) for info_hash in TORRENTS[:2]
    }
    torrents = {torrent.info_hash: torrent.torrent_id for torrent in await store.torrents.get_all(TORRENTS)}
    await store.freeleech.give("7", torrents[TORRENTS[2]])
    row: dict[str, Any] = {"user_id": "7", "torrent_id": torrents[TORRENTS[3]], "uploaded": 5}
    assert await store.user_history.save([row]) == [True]
    assert await copies_of(store, ALICE) == [0, 1, 2, 3]
    refused = await store.swarms.scrape([TORRENTS[0]], UNKNOWN)
    assert isinstance(refused, Refused) and refused.unknown_passkey


async def test_a_new_torrent_of_a_new_user_is_registered(store: Store) -> None:
    store.use_rules(SwarmRules(accounts="required", open=True, max_torrents=100))
    answers = [
        await store.swarms.announce(update(1, "s", info_hash=hash_in(2, 5), passkey=passkey))
        for passkey in (UNKNOWN, ALICE)
    ]
    assert isinstance(answers[0], Refused) and isinstance(answers[1], Admitted)


async def test_unknown_passkeys_do_not_cause_unbounded_reads_of_the_main_prefix(store: Store) -> None:
    """Who has a copy is served all the same."""
    assert await announce(store, 1, ALICE) == "join"
    moment = 0.0
    store.user_copies._timer = lambda: moment
    store.user_copies._unknown = TokenBucket(1, 3, moment)
    answers = [await announce(store, 1, UNKNOWN + str(number)) for number in range(4)]
    assert answers == ["unknown passkey"] * 3 + ["unavailable"]
    assert await announce(store, 1, ALICE, "u") == "update"
    assert await announce(store, 1, BOB, peer=2) == "unavailable"
    moment = 1.0
    assert await announce(store, 1, BOB, peer=2) == "join"


async def test_without_the_main_prefix_who_has_no_copy_is_refused_for_a_short_time(store: Store) -> None:
    """Users are found in the shards where they have been."""
    assert await announce(store, 3, ALICE) == "join"
    store.connection.set_unavailable(ConnectionError())
    assert [await announce(store, shard, ALICE, "u") for shard in range(SHARDS)] == ["unavailable"] * 3 + ["update"]
    assert (await store.users.find("7")).passkey == (await store.users.find(ALICE)).passkey == ALICE
    for unknown in ("8", BOB):
        with pytest.raises(StoreUnavailable, match="no shard that answers knows the user"):
            await store.users.find(unknown)
    with pytest.raises(StoreUnavailable):
        await store.swarms.scrape([TORRENTS[0]], ALICE)


@pytest.mark.parametrize("store", ["optional"], indirect=True)
async def test_a_new_torrent_is_registered_though_another_announce_of_the_call_needs_the_main_prefix(
    store: Store,
) -> None:
    store.use_rules(SwarmRules(accounts="optional", open=True, max_torrents=100))
    store.connection.set_unavailable(ConnectionError())
    found, _ = await store.announce_together(
        update(1, "s", info_hash=hash_in(1, 1)), update(2, "s", info_hash=TORRENTS[1], passkey=UNKNOWN)
    )
    assert [getattr(each, "outcome", type(each)) for each in found] == ["join", StoreUnavailable]


async def test_a_user_whom_a_site_wrote_may_announce_at_once_and_an_id_stays_with_the_listed_passkey(
    store: Store,
) -> None:
    await store.redis.hset(store.keys.passkey(UNKNOWN), mapping={"user_id": "9"})
    assert await announce(store, 0, UNKNOWN) == "join"
    assert await store.users.passkey_of("9") == UNKNOWN
    await store.redis.hset(store.keys.passkey("o" * 20), mapping={"user_id": "9"})
    assert await announce(store, 1, "o" * 20) == "user id in use"
    assert await announce(store, 1, UNKNOWN) == "join"


@pytest.mark.parametrize("published", [True, False])
async def test_a_user_whose_row_a_site_deletes_before_it_was_compared_may_not_announce(
    store: Store, published: bool
) -> None:
    """What was deleted is noted once."""
    assert [await announce(store, shard, ALICE) for shard in (1, 2)] == ["join", "join"]
    await store.redis.delete(store.keys.passkey(ALICE))
    versions = []
    for _ in range(2):
        await (store.user_copies.compare_one(ALICE.encode()) if published else store.user_copies.compare_page(b"0"))
        versions.append(await store.redis.get(store.keys.copies_version()))
    assert [await announce(store, shard, ALICE, "u") for shard in (1, 2)] == ["unknown passkey"] * 2
    assert versions[0] == versions[1] and not await store.redis.hexists(store.keys.compared_rows(), ALICE)


async def test_a_passkey_that_a_site_replaces_is_unknown_once_the_new_one_is_listed(store: Store) -> None:
    new = "n" * 20
    assert await announce(store, 1, ALICE) == "join"
    await store.user_copies.compare_page(b"0")
    await store.redis.rename(store.keys.passkey(ALICE), store.keys.passkey(new))
    cursor = START
    while (step := await adopt_some(store.shards.main, cursor)).cursor != START:
        cursor = step.cursor
    await store.user_copies.copy_to_all()
    assert await announce(store, 1, ALICE, "u") == "unknown passkey"
    assert await announce(store, 1, new, "u") == "update"
    assert not await store.redis.hexists(store.keys.compared_rows(), ALICE)


async def test_a_user_who_cannot_be_copied_is_logged(store: Store) -> None:
    await store.redis.delete(store.keys.copies())
    await store.redis.set(store.keys.copies(), "of another program")
    for user_id, passkey in (("9", UNKNOWN), ("10", "o" * 20)):
        await store.redis.hset(store.keys.passkey(passkey), "user_id", user_id)
    with capture_logs() as logs:
        assert await announce(store, 1, UNKNOWN) == "unavailable"
        with pytest.raises(StoreUnavailable):
            await store.swarms.scrape([TORRENTS[1]], "o" * 20)
    assert [line["event"] for line in logs] == ["users cannot be copied to a shard"] * 2


async def test_a_change_during_the_first_announce_is_not_lost(store: Store) -> None:
    shard = store.shards[1]
    for number in range(20):
        await store.redis.delete(shard.keys.passkey(ALICE), shard.keys.user("7"))
        await asyncio.gather(
            store.users.edit(ALICE, {"reason": f"reason {number}"}),
            store.user_copies.bring(shard, [ALICE]),
            store.users.edit(ALICE, {"can_leech": str(number % 2)}),
        )
        main = await store.redis.hgetall(store.keys.passkey(ALICE))
        assert await store.redis.hgetall(shard.keys.passkey(ALICE)) == main
