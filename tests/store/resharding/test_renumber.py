"""Torrents get other ids, in every key that names one, also after an interruption at any step."""

import asyncio
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import ALICE, BOB, Store, update
from tests.store.resharding.conftest import LATER, Open
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import in_background
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, StartupError
from tracker.store.changes.changes import FIRST
from tracker.store.resharding.parts import Parts
from tracker.store.resharding.renumber import Renumber
from tracker.store.schema.table.places import TORRENT_IDS_IN
from tracker.store.torrents.scores import Scored

HASHES = [hash_in(number % SHARDS, number) for number in range(6)]
OLD = [str(770_001 + number) for number in range(6)]
NEW = [OLD[1], OLD[2], OLD[0], "31", "880004", "880005"]
"""Some take the ids of others; 31 is that of a torrent that was removed."""
GONE = hash_in(2, 99)
RULES: dict[str, Any] = {"accounts": "required", "peer_memory": 3600, "hnr_min_bytes": 100, "hnr_threshold": 10_000}


async def fill(store: Store) -> None:
    """Every kind of key that names a torrent by its id."""
    await store.upgrade()
    await store.load_secret()
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    ids = [*zip(HASHES, OLD, strict=True), (GONE, "31")]
    for number, (info_hash, torrent_id) in enumerate(ids):
        fields = {"torrent_id": torrent_id, "name": f"torrent {number}", "size": "1000", "private": "1"}
        await store.torrents.add(info_hash, {**fields, "enabled": "pending" if number == 4 else "1"})
        if number not in (4, 5):
            for peer, passkey in ((1, ALICE), (2, BOB)):
                await store.announce(update(peer, "s", info_hash=info_hash, passkey=passkey))
                store.clock.now += 10
                event = "c" if peer == 1 else "x"
                await store.announce(
                    update(peer, event, info_hash=info_hash, passkey=passkey, downloaded=500, bytes_left=0)
                )
        if torrent_id != "31":
            await store.freeleech.give("7", torrent_id)
    await store.announce(update(1, "x", info_hash=GONE, passkey=ALICE))
    await store.torrents.remove(GONE)
    store.rules.current = store.rules.current.__class__(**{**RULES, "hnr_grace": 3600, "max_changes": 1000})
    await store.users.add("9", "c" * 20)
    await store.announce(update(3, "s", info_hash=HASHES[0], passkey="c" * 20))
    await store.announce(update(3, "x", info_hash=HASHES[0], passkey="c" * 20, downloaded=10**6))
    await store.torrent_listing.rank()
    for torrent_id in OLD:
        if taken := await store.scores.take_one(torrent_id):
            await store.scores.finish([Scored(taken, 1.5)])
    keys = store.shard(HASHES[5]).keys  # as of one that registered itself and was looked up in the DHT
    await store.redis.hset(keys.torrent(HASHES[5]), mapping={"auto": "1", "empty_since": "1"})
    for name in ("dht", "empty"):
        await store.redis.zadd(keys.index(name), {OLD[5]: 1})
    store.clock.now += LATER


async def figures(store: Store) -> dict[str, Any]:
    """What the store says of each torrent, by its info hash."""
    torrents = await store.torrents.get_all(HASHES)
    found: dict[str, Any] = {}
    for each in torrents:
        found[each.info_hash.hex()] = (
            each.seeders,
            each.completions,
            each.score,
            await store.torrents.completers(each),
            await store.torrents.history(each),
            [(await store.users.on_torrents(user, [each.torrent_id]))[0] for user in ("7", "8")],
        )
    for user in ("7", "8"):
        for name in ("active", "complete", "incomplete", "hnr"):
            ids = await store.torrents_of(user, name)
            found[f"{user} {name}"] = sorted(each.info_hash.hex() for each in await store.torrents.by_ids(ids))
    tokens = await store.freeleech.page("7")
    found["tokens"] = sorted(
        each.info_hash.hex() for each in await store.torrents.by_ids([token.torrent_id for token in tokens])
    )
    page = await store.changes.after(FIRST, 1000)
    found["feed"] = [(each.id, each.info_hash, each.change) for each in page.changes]
    found["gap"] = page.gap
    found["invariants"] = [await check_invariants(store.redis, part.keys) for part in store.shards]
    return found


async def words(store: Store) -> bytes:
    """All names and values, as text to search."""
    parts = []
    async for key in store.redis.scan_iter(f"{store.keys.prefix.removesuffix('{main}:')}*", 1000):
        kind = (await store.redis.type(key)).decode()
        read = {
            "string": store.redis.get,
            "hash": store.redis.hgetall,
            "set": store.redis.smembers,
            "zset": lambda key: store.redis.zrange(key, 0, -1),
            "list": lambda key: store.redis.lrange(key, 0, -1),
            "stream": store.redis.xrange,
        }[kind]
        parts.append(repr((key, await read(key))))
    return "\n".join(parts).encode()


def wanted() -> dict[str | InfoHash, str]:
    """By info hash, and by id."""
    return {(HASHES[n] if n % 2 else OLD[n]): NEW[n] for n in range(6)}


async def run(store: Store, steps: int = 1_000_000, page: int = 7) -> bool:
    """Whether it came to its end within so many pages."""
    work = Renumber(Parts(store, page))
    assert await work.begin(wanted()) == 6
    walk = work.run()
    async for _ in walk:
        steps -= 1
        if not steps:
            await walk.aclose()
            return False
    return True


@pytest.fixture(params=[1, SHARDS], ids=["one", "several"])
async def store(open_store: Open, request: pytest.FixtureRequest) -> Store:
    store: Store = await open_store("a", request.param, **RULES)
    await fill(store)
    return store


async def test_every_key_speaks_the_new_ids(store: Store) -> None:
    before = await figures(store)
    assert await run(store)
    assert await figures(store) == before
    assert [each.torrent_id for each in await store.torrents.get_all(HASHES)] == NEW
    text = await words(store)
    for gone in OLD[3:]:
        assert gone.encode() not in text, gone
    for kept in NEW:
        assert kept.encode() in text
    assert b"10000000" not in text.replace(b"1000000000", b""), "an id of the first walk"
    assert int((await store.torrents.add(hash_in(1, 50)))[0]) > 880_005
    await store.check_layout()


async def test_the_store_here_has_every_kind_of_key_that_names_a_torrent_by_its_id(store: Store) -> None:
    seen = {each.row.pattern async for page in Parts(store).pages() for each in page.found}
    assert set(TORRENT_IDS_IN) <= seen


async def test_it_goes_on_after_a_kill_at_any_moment(store: Store) -> None:
    before = await figures(store)
    for turns in range(0, 400, 7):
        async with in_background(run_to_its_end(store)):
            for _ in range(turns):
                await asyncio.sleep(0)
    await run_to_its_end(store)
    assert await figures(store) == before
    assert [each.torrent_id for each in await store.torrents.get_all(HASHES)] == NEW


async def run_to_its_end(store: Store) -> None:
    """Nothing, if an earlier run came to its end."""
    if (await store.torrents.get_all(HASHES[:1]))[0].torrent_id == NEW[0] and not await store.redis.exists(
        store.keys.renumber()
    ):
        return
    assert await run(store, page=20)


async def test_what_a_removed_torrent_left_goes_to_no_other(store: Store) -> None:
    before = await accounts(store)
    assert await run(store)
    after = await accounts(store)
    assert after["31"] == before[OLD[3]]
    (left,) = after.keys() - set(NEW)
    assert after[left] == before["31"] and int(left) > 880_005
    assert set(await store.torrents_of("7", "complete")) - set(NEW) == {left}


async def accounts(store: Store) -> dict[str, dict[bytes, bytes]]:
    """Those of user 7, by torrent id, in all shards."""
    head = f"{store.keys.prefix.removesuffix('{main}:')}*u:7:t:*"
    return {
        key.rpartition(b":")[2].decode(): await store.redis.hgetall(key)
        async for key in store.redis.scan_iter(head, 1000)
    }


async def test_it_goes_on_after_an_interruption_at_any_step(store: Store) -> None:
    before = await figures(store)
    steps = 1
    while not await run(store, steps, page=20):
        with pytest.raises(StartupError, match="renumber"):
            await store.check_layout()
        steps += 5
    assert await figures(store) == before
    assert [each.torrent_id for each in await store.torrents.get_all(HASHES)] == NEW
    await store.check_layout()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({OLD[0]: "5", OLD[1]: "5"}, "two torrents would get the same id"),
        ({OLD[0]: OLD[1]}, "has an id that another one gets"),
        ({"12345": "5"}, "there is no torrent 12345"),
        ({hash_in(0, 77): "5"}, "is not registered"),
        ({OLD[0]: "5", HASHES[0]: "6"}, "in the file twice"),
    ],
)
async def test_a_wrong_file_changes_nothing(store: Store, given: dict[str | InfoHash, str], problem: str) -> None:
    before = await store.dump()
    with pytest.raises(ClientError, match=problem):
        await Renumber(Parts(store)).begin(given)
    assert await store.dump() == before
    store.clock.now -= LATER
    await store.reaping.heartbeat()
    with pytest.raises(ClientError, match="a tracker runs"):
        await Renumber(Parts(store)).begin(wanted())


async def test_another_file_waits_for_the_first(store: Store) -> None:
    assert not await run(store, 1)
    with pytest.raises(ClientError, match="another file was begun"):
        await Renumber(Parts(store)).begin({OLD[0]: "5"})
