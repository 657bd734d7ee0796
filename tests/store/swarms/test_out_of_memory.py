"""A full store refuses joins. Everything that needs no memory or frees memory continues."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from redis.exceptions import OutOfMemoryError

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.harness import ALICE, Store, info_hash, running, timeout_key, update
from tracker.store.access.audit import AuditEntry
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Refused
from tracker.store.swarms.rules import SwarmRules

PEERS = 300
RULES = {"accounts": "required", "peer_memory": 3600, "hnr_min_bytes": 0, "hnr_threshold": 1000, "forget_after": 100}


@pytest.fixture(params=["valkey", "redis"])
async def full(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> AsyncIterator[Store]:
    """300 peers of user 7 (every third seeds) in torrent 1, none in torrent 2, and no free memory."""
    server = start_server("--appendonly", "no", binary=request.param)
    async with running(Store(server.url, Keys("t:"), SwarmRules(**RULES))) as store:  # type: ignore[arg-type]
        await store.users.add("7", ALICE)
        for number in range(PEERS):
            await store.announce(update(number, "s", passkey=ALICE, bytes_left=number % 3))
        await store.torrents.add(info_hash(2))
        await fill(store)
        yield store


async def fill(store: Store) -> None:
    """Sets the limit well below the used memory, so that connection buffers do not matter."""
    used = (await store.redis.info("memory"))["used_memory"]
    await store.redis.config_set("maxmemory", used - 1_000_000)
    with pytest.raises(OutOfMemoryError):
        await store.redis.set("one", "more")


async def make_room(store: Store) -> None:
    await store.redis.config_set("maxmemory", 0)


async def alice(store: Store, number: int, event: str = "u", torrent: int = 1, left: int | None = None) -> str:
    """The outcome of an announce, or its refusal."""
    left = number % 3 if left is None else left
    reply = await store.swarms.announce(update(number, event, torrent, passkey=ALICE, bytes_left=left))
    return reply.code if isinstance(reply, Refused) else reply.outcome


async def test_joins_are_refused_and_change_nothing(full: Store) -> None:
    before = await full.dump()
    for number in range(PEERS, PEERS + 10):
        assert await alice(full, number, "s") == "store full"
        assert await alice(full, number, "s", torrent=2) == "store full"
        assert await alice(full, number, "s", torrent=3) == "store full"  # would register
    assert await full.dump() == before
    assert await check_invariants(full.redis, full.keys) == PEERS


async def test_updates_work(full: Store) -> None:
    """A full store must not time out active peers."""
    timeout = timeout_key(full.keys, 1, update(5).peer_id)
    await full.redis.pexpire(timeout, 60_000)
    assert await alice(full, 5) == "update"
    assert await full.redis.pttl(timeout) > 60_000
    assert await alice(full, 4, "c", left=0) == "update"
    files = await full.swarms.scrape([info_hash(1)], ALICE)
    assert isinstance(files, dict) and files[info_hash(1)].seeders == PEERS // 3 + 1
    assert await check_invariants(full.redis, full.keys) == PEERS


async def test_stops_reaps_and_sweeps_work(full: Store) -> None:
    """They free memory: joins work again afterwards."""
    for number in range(100):
        assert await alice(full, number, "x") == "leave"
    assert await check_invariants(full.redis, full.keys) == PEERS - 100
    for number in range(100, 150):
        assert await full.silence(update(number)) == 1
    assert await check_invariants(full.redis, full.keys) == PEERS - 150
    timeouts = [timeout_key(full.keys, 1, update(number).peer_id) for number in range(150, PEERS)]
    await full.redis.delete(*timeouts)
    full.clock.now += 3000
    step = await full.reaping.sweep(["1", "2"], "", 1000)
    assert (step.reaped, step.repairs) == (PEERS - 150, 0)
    assert await check_invariants(full.redis, full.keys) == 0
    full.clock.now += 200
    assert (await full.reaping.sweep(["1", "2"], "", 1000)).forgotten == 1


async def test_due_lists_work(full: Store) -> None:
    deadlines = [key async for key in full.redis.scan_iter("t:due:*", 1000)]
    timeouts = [timeout_key(full.keys, 1, update(number).peer_id) for number in range(PEERS)]
    await full.redis.delete(*timeouts)
    full.clock.now += 3000
    reaped = 0
    for key in deadlines:
        _, more = await full.reaping.reap_due(int(key.decode().rpartition(":")[2]), 0, 1000, 1000)
        reaped += more
    assert reaped == PEERS
    assert await check_invariants(full.redis, full.keys) == 0


async def test_repairs_work(full: Store) -> None:
    await full.redis.srem(full.keys.swarm_peers(info_hash(1)), update(3).peer_id.hex())
    assert (await full.reaping.sweep(["1"], "", 1000)).repairs == 1
    assert await check_invariants(full.redis, full.keys) == PEERS


async def test_joins_work_again_when_there_is_room(full: Store) -> None:
    assert await alice(full, PEERS, "s") == "store full"
    await make_room(full)
    assert await alice(full, PEERS, "s") == "join"
    assert await alice(full, PEERS, "s", torrent=3) == "join"
    assert await check_invariants(full.redis, full.keys) == PEERS + 2


async def test_peers_that_leave_make_room_for_joins(full: Store) -> None:
    """The limit stays: the memory of 2,000 peers is enough for others."""
    await make_room(full)
    async with running(Store(full.url, full.keys, SwarmRules())) as public:
        numbers = range(10_000, 12_000)
        await asyncio.gather(*(public.announce(update(number, torrent=2)) for number in numbers))
        await fill(full)
        newcomer = update(20_000, "s", torrent=2)
        assert await public.refused(newcomer) == "store full"
        await asyncio.gather(*(public.announce(update(number, "x", torrent=2)) for number in numbers))
        assert (await public.announce(newcomer)).outcome == "join"
    assert await check_invariants(full.redis, full.keys) == PEERS + 1


async def test_counters_are_written(full: Store) -> None:
    """Especially the refusals, which operators must see."""
    full.counters.count("requests", by=3)
    full.counters.count("failures.store full")
    await full.counters.flush()
    assert (await full.counters.totals())["requests"] == 3
    assert await full.redis.hgetall(full.keys.failures()) == {b"store full": b"1"}


async def test_the_heartbeat_continues(full: Store) -> None:
    await full.reaping.heartbeat()
    full.clock.now += 5
    assert await full.reaping.heartbeat() == 0
    assert await full.redis.get(full.keys.heartbeat()) == str(int(full.clock.now)).encode()


async def test_removing_and_allowing_torrents_work(full: Store) -> None:
    assert await full.torrents.remove(info_hash(2))
    assert not await full.torrents.allow(info_hash(2))
    with pytest.raises(OutOfMemoryError):
        await full.torrents.add(info_hash(4))
    assert await check_invariants(full.redis, full.keys) == PEERS


async def test_search_works(full: Store) -> None:
    await make_room(full)
    await full.torrents.add(info_hash(3), {"name": "Too Large"})
    await fill(full)
    assert [torrent.name for torrent in (await full.torrents.search("large"))[1]] == ["Too Large"]


async def test_an_admin_can_sign_in(full: Store) -> None:
    await make_room(full)
    _, text = await full.tokens.create("site", "admin")
    await fill(full)
    assert await full.tokens.verify(text)
    signed_in = await full.tokens.sign_in_by_token(text, 60)
    assert signed_in is not None
    assert await full.tokens.session(signed_in[1]) == signed_in[0]


async def test_changes_are_recorded(full: Store) -> None:
    """A full store takes deletions, and their entries in the audit log."""
    await fill(full)
    assert await full.audit.add(AuditEntry("site", "", "admin", "api", "", "torrent.remove"))
