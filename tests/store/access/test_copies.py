"""Copies of tokens, sessions and lists of clients: when they hold, and when they are written."""

import glob
import json
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from loadtest.servers import Server
from tests.store.harness import Store, running
from tests.store.sharding.harness import SHARDS, apart
from tracker.bittorrent import PeerId
from tracker.errors import StartupError, StoreUnavailable
from tracker.store.access.copies import restore_access
from tracker.store.layout import check_part, made_without_main
from tracker.store.schema.keys import Keys
from tracker.store.schema.multipliers import rule_change
from tracker.store.sharding.shards import Shard, Shards
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """Four shards, each of which can be unavailable by itself."""
    async with running(apart(redis_url, Keys(prefix), SwarmRules())) as store:
        await store.upgrade()
        await store.load_secret()
        await store.shards.gather(store.start_shard, store.shards.all)
        yield store


def lose(shards: Iterable[Shard]) -> None:
    for shard in shards:
        shard.connection.set_unavailable(ConnectionError())


async def keys_in(store: Store, shard: Shard) -> list[bytes]:
    """Those of tokens, sessions and lists, without the prefix."""
    names = await store.redis.keys(f"{glob.escape(shard.keys.prefix)}*")
    own = sorted(name.removeprefix(shard.keys.prefix.encode()) for name in names)
    return [name for name in own if name.startswith((b"admin:", b"whitelist", b"denied_"))]


async def clear(store: Store, shard: Shard) -> None:
    await store.redis.delete(*await store.redis.keys(f"{glob.escape(shard.keys.prefix)}*"))


@pytest.mark.parametrize(("stale", "there", "holds"), [(1, 1, False), (2, 2, False), (2, 4, False), (3, 4, True)])
async def test_a_copy_holds_if_more_than_half_of_all_shards_have_it(
    store: Store, stale: int, there: int, holds: bool
) -> None:
    """So a revoked token whose revocation few shards have missed gives no access, also if only those answer."""
    token, text = await store.tokens.create("site", "admin")
    signed_in = await store.tokens.sign_in_by_token(text, 3600)
    assert signed_in is not None
    rows = {shard: await store.redis.hgetall(shard.keys.admin_token(token.token_id)) for shard in store.shards}
    await store.tokens.revoke("site")
    for shard in list(store.shards)[:stale]:
        await store.redis.hset(shard.keys.admin_token(token.token_id), mapping=rows[shard])
    lose([store.shards.main, *list(store.shards)[there:]])
    assert (await store.tokens.verify(text) is not None) == holds
    assert (await store.tokens.session(signed_in[1]) is not None) == holds


async def test_an_empty_main_prefix_gets_back_what_most_shards_have(store: Store) -> None:
    """One that lost everything while trackers run. What a single shard kept of a revocation does not return."""
    _, text = await store.tokens.create("site", "admin")
    revoked, _ = await store.tokens.create("revoked", "admin")
    signed_in = await store.tokens.sign_in_by_token(text, 3600)
    assert signed_in is not None
    await store.allow_list.add(b"-XX", "a client")
    await store.deny_list.add(b"-YY", "a reason")
    await store.copy_access(store.shards.others)
    stale, row = store.shards[0].keys, store.shards[0].keys.admin_token(revoked.token_id)
    fields = await store.redis.hgetall(row)
    await store.tokens.revoke("revoked")
    await store.redis.hset(row, mapping=fields)
    await store.redis.zadd(stale.admin_tokens(), {revoked.token_id: 0})
    before = await keys_in(store, store.shards[1])
    await clear(store, store.shards.main)
    await store.copy_access(store.shards.others)
    for shard in store.shards:
        assert await keys_in(store, shard) == before
    assert len(await keys_in(store, store.shards.main)) == len(before) == 7
    assert await store.tokens.verify(text) and await store.tokens.session(signed_in[1]) == signed_in[0]
    (session,) = await store.redis.zrange(store.keys.admin_sessions(), 0, -1)
    assert 0 < await store.redis.ttl(store.keys.admin_session(session.decode())) <= 3600
    assert [token.name for token in await store.tokens.list()] == ["site"]
    assert await store.allow_list.name(b"-XX") == "a client"
    assert await store.deny_list.all() == {b"-YY": "a reason"}


async def test_an_empty_main_prefix_gets_back_groups_and_multipliers(store: Store) -> None:
    """Also if half of the shards have lost theirs with it; a group's limit over all torrents is what it was."""
    await store.multipliers.set("2 donor", "0")
    await store.groups.save(5, {"name": "vip", "max_downloads": "5"})
    before = await store.groups.all(), await store.multipliers.get()
    for lost in ([], list(store.shards)[:2]):
        for shard in [store.shards.main, *lost]:
            await clear(store, shard)
        assert await store.multipliers.outdated(store.shards.others) == []
        await store.multipliers.set(upload="2 donor")  # of an operator who has not noticed
        await store.copy_access(store.shards.others)
        for shard in await store.multipliers.outdated(store.shards.others):
            await store.multipliers.copy_to(shard)
        assert (await store.groups.all(), await store.multipliers.get()) == before
        for shard in store.shards:
            text = await store.redis.get(shard.keys.groups())
            assert json.loads(text)["5"]["max_downloads"] == "2"
    lose([store.shards.main])
    assert (await store.groups.all(), await store.multipliers.get()) == before


async def test_a_change_under_an_empty_main_prefix_keeps_the_other_groups_and_rules(store: Store) -> None:
    for number in (5, 6):
        await store.groups.save(number, {"name": f"group {number}"})
    await store.multipliers.set("2 donor", "0 holiday")
    await clear(store, store.shards.main)
    await store.groups.save(7, {"name": "new"})
    assert [group.group_id for group in await store.groups.all()] == [5, 6, 7]
    await clear(store, store.shards.main)
    assert await store.groups.delete(5)
    assert [group.group_id for group in await store.groups.all()] == [6]
    await clear(store, store.shards.main)
    await store.multipliers.change_rule(rule_change(store.clock.now, "week", upload=3))
    upload, download = await store.multipliers.get()
    assert [rule.name for rule in (*upload, *download)] == ["donor", "week", "holiday"]


async def test_a_token_whose_row_one_shard_has_lost_comes_from_another(store: Store) -> None:
    token, text = await store.tokens.create("site", "admin")
    await store.redis.delete(store.shards[0].keys.admin_token(token.token_id))
    await clear(store, store.shards.main)
    await store.copy_access(store.shards.others)
    assert await store.tokens.verify(text)


async def test_a_group_that_a_shard_did_not_see_deleted_stays_deleted(store: Store) -> None:
    for number in (5, 6):
        await store.groups.save(number, {"name": f"group {number}"})
    await copy_rules(store)
    stale = await store.redis.get(store.shards[0].keys.groups())
    await store.groups.delete(5)
    await copy_rules(store)
    await store.redis.set(store.shards[0].keys.groups(), stale)
    for shard in [store.shards.main, *list(store.shards)[2:]]:
        await clear(store, shard)
    await store.copy_access(store.shards.others)
    assert [group.group_id for group in await store.groups.all()] == [6]


async def copy_rules(store: Store) -> None:
    for shard in await store.multipliers.outdated(store.shards.others):
        await store.multipliers.copy_to(shard)


async def test_copies_stay_while_too_few_shards_answer_to_restore_an_empty_main_prefix(store: Store) -> None:
    _, text = await store.tokens.create("site", "admin")
    before = await keys_in(store, store.shards[0])
    await clear(store, store.shards.main)
    lose(list(store.shards)[2:])
    await store.copy_access(store.shards.others)
    with pytest.raises(StoreUnavailable, match="too few shards answer"):
        await check_part(store.shards, store.shards.main, store.secret)
    assert await keys_in(store, store.shards[0]) == before
    assert not await store.redis.exists(store.keys.layout(), store.keys.secret())
    for shard in store.shards:
        shard.connection.unavailable = False
    await check_part(store.shards, store.shards.main, store.secret)
    assert await store.tokens.verify(text)


@pytest.mark.parametrize("there", [1, 2])
async def test_a_new_store_begins_if_all_shards_that_answer_are_empty(redis_url: str, prefix: str, there: int) -> None:
    """It waits for more than half of them if one says that the store is not new."""
    async with running(apart(redis_url, Keys(prefix), SwarmRules())) as store:
        lose(list(store.shards)[there:])
        for key, write in (("layout", "HSET"), ("admin_tokens", "ZADD"), ("denied_clients", "HSET")):
            name = getattr(store.shards[0].keys, key)()
            await store.redis.execute_command(write, name, 1, 1)
            with pytest.raises(StoreUnavailable, match="too few shards answer"):
                await restore_access(store.shards)
            await store.redis.delete(name)
        assert not await store.redis.exists(store.shards.main.keys.layout())
        await store.upgrade()
        assert await store.redis.exists(store.shards.main.keys.layout())


async def test_a_round_writes_only_what_differs(start_server: Callable[..., Server], prefix: str) -> None:
    server = start_server()
    async with running(Store(server.url, Keys(prefix), SwarmRules(), shards=SHARDS)) as store:
        await store.upgrade()
        _, text = await store.tokens.create("site", "admin")
        await store.tokens.sign_in_by_token(text, 3600)
        await store.allow_list.add(b"-XX", "a client")
        await store.deny_list.add(b"-YY", "a reason")
        await store.copy_access(store.shards.others)

        async def writes() -> int:
            return int((await store.redis.info("persistence"))["rdb_changes_since_last_save"])

        before = await writes()
        await store.copy_access(store.shards.others)
        assert await writes() == before
        await store.deny_list.add(b"-YY", "another reason")
        before = await writes()
        await store.copy_access([store.shards[1]])
        assert await writes() == before + 1
        assert await store.redis.hget(store.shards[1].keys.denied_clients(), b"-YY") == b"another reason"


async def test_a_shard_that_lost_its_copies_does_not_decide(store: Store) -> None:
    """Nor one that does not answer: another one is asked."""
    await store.allow_list.add(b"-XX", "a client")
    await store.deny_list.add(b"-YY", "a reason")
    await store.multipliers.set("2", "0.5")
    await store.copy_access(store.shards.others)
    await clear(store, store.shards[0])
    lose([store.shards.main])

    async def read(shard: Shard) -> int:
        if shard is not store.shards[2]:
            raise StoreUnavailable("it is lost now")
        return shard.number

    assert await store.shards.main_or_copy(read) == 2
    assert await store.allow_list.allowed_prefixes(PeerId(b"-XX" + bytes(17))) == [b"-XX"]
    assert await store.deny_list.all() == {b"-YY": "a reason"}
    upload, _ = await store.multipliers.get()
    assert [rule.factor for rule in upload] == [2.0]


@pytest.mark.parametrize("configured", [2, 8, 128])
async def test_another_number_of_shards_is_refused_without_the_main_prefix(
    store: Store, prefix: str, configured: int
) -> None:
    """Also while shard 0 does not answer, whose name two numbers may have in common."""
    await clear(store, store.shards[0])
    lose([store.shards.main])
    wrong = Shards.under(store.connection, prefix, configured)
    kept = list(store.connection.topology.connections)
    with pytest.raises(StartupError, match=f"made with {SHARDS} shards"):
        await made_without_main(wrong, prefix)
    assert store.connection.topology.connections == kept
