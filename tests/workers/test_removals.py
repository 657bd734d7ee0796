"""Who is out is out: peers of refused users, torrents and clients are told to nobody from the first moment, and leave
their swarms within seconds. With one shard and with four."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.harness import ALICE, BOB, Store, endpoint, peer_id, running, timeout_key, update
from tests.store.sharding.harness import SHARDS, hash_in
from tracker.bittorrent import InfoHash, PeerId
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import OWN_FAMILY, Admitted
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.admission import denied_prefixes
from tracker.workers.reaper import SWEEP_BUDGET, Reaper, remove_once

RULES: dict[str, Any] = {
    "accounts": "required",
    "peer_memory": 3600,
    "hnr_min_bytes": 100,
    "hnr_threshold": 1000,
    "max_changes": 100_000,
}
OTHER_CLIENT = b"-YY"
LARGE = 3 * SWEEP_BUDGET


@pytest.fixture(params=[1, SHARDS], ids=["one-shard", "shards"])
async def store(redis_url: str, prefix: str, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """With users 7 (ALICE) and 8 (BOB)."""
    opened = Store(redis_url, Keys(prefix), SwarmRules(**RULES), shards=request.param)
    async with running(opened) as store:
        await store.upgrade()
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        yield store


def torrent(number: int) -> InfoHash:
    """Torrents of different shards."""
    return hash_in(number % SHARDS, number)


def other_client(number: int) -> PeerId:
    return PeerId(OTHER_CLIENT + number.to_bytes(17, "big"))


async def join(store: Store, peer: int, passkey: str = ALICE, in_torrent: int = 1, **changes: Any) -> Admitted:
    given: dict[str, Any] = {"info_hash": torrent(in_torrent), "passkey": passkey, **changes}
    return await store.announce(update(peer, "s", **given))


async def told(store: Store, in_torrent: int = 1, **changes: Any) -> bytes:
    """The endpoints that BOB's peer 99 gets."""
    given: dict[str, Any] = {"info_hash": torrent(in_torrent), "passkey": BOB, **changes}
    reply = await store.announce(update(99, "u", **given))
    return reply.peers + reply.peers6


async def nothing(_: float) -> None:
    """Instead of pauses."""


async def remove(store: Store, denied: Callable[[], Awaitable[Sequence[bytes]]]) -> int:
    return await remove_once(store, denied, range(len(store.shards)), nothing)


async def removed_in_rounds(store: Store, rounds: int) -> int:
    """The peers that a tracker removes within so many seconds."""

    async def none() -> Sequence[bytes]:
        return ()

    return sum([await remove(store, none) for _ in range(rounds)])


async def work(store: Store, denied: tuple[bytes, ...] = ()) -> int:
    """What a tracker does once a second. Returns the peers removed."""

    async def prefixes() -> tuple[bytes, ...]:
        return denied

    removed = await remove(store, prefixes)
    assert await remove(store, prefixes) == 0
    for shard in store.shards:
        assert not await store.redis.exists(f"{shard.keys.prefix}removing", f"{shard.keys.prefix}removing:torrents")
    return removed


async def active(store: Store) -> int:
    return sum([await check_invariants(store.redis, shard.keys) for shard in store.shards])


async def changes(store: Store) -> list[tuple[str, str]]:
    """(change, user id) of the feed."""
    found = []
    for shard in store.shards:
        for _, row in await store.redis.xrange(f"{shard.keys.prefix}changes"):
            found.append((row[b"change"].decode(), row[b"user_id"].decode()))
    return found


async def disable(store: Store) -> None:
    await store.users.edit(ALICE, {"enabled": False})


async def disable_by_import(store: Store) -> None:
    await store.user_import.save([{"user_id": "7", "enabled": False}])


async def refuse_its_group(store: Store) -> None:
    await store.groups.save(5, {"name": "members"})
    await store.users.edit(ALICE, {"group": 5})
    assert await removed_in_rounds(store, 1) == 0
    await store.groups.save(5, {"may_announce": False})


async def move_to_a_refused_group(store: Store) -> None:
    await store.groups.save(5, {"may_announce": False})
    assert await removed_in_rounds(store, 1) == 0
    await store.users.edit(ALICE, {"group": 5})


@pytest.mark.parametrize("disable", [disable, disable_by_import, refuse_its_group, move_to_a_refused_group])
async def test_a_disabled_user_is_not_returned_and_leaves(
    store: Store, disable: Callable[[Store], Awaitable[None]]
) -> None:
    """In each of the user's torrents. The user did not leave: that makes no hit-and-run, now or later."""
    for number in range(1, 9):
        await join(store, 1, in_torrent=number)
        await join(store, 2, in_torrent=number, bytes_left=0)
    await join(store, 99, BOB)
    store.clock.now += 50
    await store.announce(update(1, info_hash=torrent(1), passkey=ALICE, downloaded=5000))
    assert len(await told(store)) == 12
    await disable(store)
    assert await told(store) == b""
    assert await work(store) == 16
    assert await active(store) == 1
    assert await store.users.set_sizes("7") == {"active": 0, "complete": 8, "incomplete": 0, "hnr": 0}
    assert await store.hit_and_runs.pending_count() == 0
    shard = store.shard(torrent(1))
    torrent_id = (await store.torrent(torrent(1)))["tid"]
    assert not await store.redis.exists(timeout_key(shard.keys, torrent_id, peer_id(1)))
    remembered = await store.redis.hgetall(shard.keys.peer(torrent_id, peer_id(1)))
    assert remembered[b"active"] == b"0" and remembered[b"downloaded"] == b"5000"
    assert [each for each in await changes(store) if each[0] == "removed"] == 16 * [("removed", "7")]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_disabled_user_leaves_both_halves_of_a_hybrid_torrent(store: Store, *, apart: bool) -> None:
    """Of the v2 half no set of the user knows. The halves are in one shard, or with several shards in two."""
    v1, v2 = 1, 2 + SHARDS if apart else 1 + SHARDS
    for number in (v1, v2):
        await store.torrents.add(torrent(number))
    await store.hybrids.link(torrent(v2), torrent(v1))
    for number in (v1, v2):
        await join(store, 1, in_torrent=number)
        await join(store, 99, BOB, in_torrent=number)
    await store.users.edit(ALICE, {"enabled": False})
    assert await removed_in_rounds(store, 2) == 2
    assert await active(store) == 2
    assert await told(store, v2) == b""


async def test_a_user_who_is_enabled_at_once_stays(store: Store) -> None:
    await join(store, 1)
    await disable(store)
    await store.users.edit(ALICE, {"enabled": True})
    assert await work(store) == 0
    assert await active(store) == 1


async def test_a_deleted_user_has_no_peers_and_no_keys(store: Store) -> None:
    for number in range(1, 5):
        await join(store, 1, in_torrent=number)
    await join(store, 99, BOB)
    await store.users.delete("7")
    assert await told(store) == b""
    assert await active(store) == 1
    for shard in (store, *store.shards):
        assert not [key async for key in store.redis.scan_iter(f"{shard.keys.prefix}u:7*")]
    assert await work(store) == 0


async def test_another_tracker_goes_on_after_a_crash(store: Store) -> None:
    """What is to be removed is in the store before the call that refuses the user returns."""
    await join(store, 1)
    await disable(store)
    async with running(
        Store(store.url, Keys(store.prefix), SwarmRules(**RULES), store.clock, len(store.shards))
    ) as other:
        assert await work(other) == 1


async def deny_torrent(store: Store) -> None:
    await store.torrents.deny(torrent(1), "no")


async def disable_torrent(store: Store) -> None:
    await store.torrents.edit(torrent(1), {"enabled": "0"})


async def add_as_disabled(store: Store) -> None:
    await store.torrents.add(torrent(1), {"enabled": "0"})


async def make_pending(store: Store) -> None:
    await store.torrents.edit(torrent(1), {"enabled": "pending"})


async def add_as_pending(store: Store) -> None:
    await store.torrents.add(torrent(1), {"enabled": "pending"})


async def remove_torrent(store: Store) -> None:
    await store.torrents.remove(torrent(1))


@pytest.mark.parametrize(
    "refuse", [deny_torrent, disable_torrent, add_as_disabled, make_pending, add_as_pending, remove_torrent]
)
@pytest.mark.parametrize("peers", [3, LARGE])
async def test_a_refused_torrent_loses_its_peers(
    store: Store, refuse: Callable[[Store], Awaitable[None]], peers: int
) -> None:
    """In bounded steps, however many they are."""
    for number in range(peers):
        v6 = number % 3 == 0
        await join(store, number, bytes_left=number % 2, endpoint=endpoint(number, v6=v6))
    await join(store, 1, in_torrent=2)
    await refuse(store)
    assert await work(store) == peers
    assert await active(store) == 1
    counts = await store.torrent(torrent(1))
    assert (counts["seeders"], counts["leechers"]) == ("0", "0")


async def test_a_torrent_that_is_allowed_at_once_keeps_its_peers(store: Store) -> None:
    await join(store, 1)
    await deny_torrent(store)
    await store.torrents.allow(torrent(1))
    assert await work(store) == 0
    assert await active(store) == 1


async def test_a_denied_client_is_not_returned_and_leaves(store: Store) -> None:
    """Also where its peers have derived ids, and with peer ids and IPv6 in the reply."""
    taken: dict[str, Any] = {"peer_id": other_client(1), "key": b"12345678"}
    await join(store, 1, **taken)
    await join(store, 2, **{**taken, "key": b"87654321"})  # gets a derived id
    await join(store, 3, endpoint=endpoint(3, v6=True), peer_id=other_client(3))
    await join(store, 4)
    await join(store, 99, BOB)
    assert len(await told(store)) == 3 * 6 + 18
    await store.deny_list.add(OTHER_CLIENT)
    for form in (0, 1, OWN_FAMILY):
        assert await told(store, form=form) == endpoint(4)
    assert await work(store, (OTHER_CLIENT,)) == 3
    assert await active(store) == 2


async def test_a_client_that_is_not_denied_stays(store: Store) -> None:
    """The deny list is off, or the client was taken off it at once."""
    await join(store, 1)
    await join(store, 99, BOB)
    await store.deny_list.add(b"-XX")
    await store.deny_list.remove(b"-XX")
    assert await told(store) == endpoint(1)
    await store.deny_list.add(b"-XX")
    assert await work(store) == 0
    assert await active(store) == 2


async def test_many_users_are_removed_together(store: Store) -> None:
    """The list of users that announces read is bounded: beyond it they look up the user of each peer."""
    users = range(100, 250)
    await store.user_import.save([{"user_id": str(n), "passkey": f"{n:020}"} for n in users])
    for n in users:
        await join(store, n, f"{n:020}")
    await join(store, 99, BOB)
    await join(store, 1)
    await store.user_import.save([{"user_id": str(n), "enabled": False} for n in users])
    listed = await store.redis.get(f"{store.shard(torrent(1)).keys.prefix}removing")
    assert len(listed) < 2000
    for random in range(0, 150, 30):
        assert await told(store, random=random) in (b"", endpoint(1))
    assert await work(store) == len(users)
    assert await active(store) == 2


@pytest.mark.parametrize("peers", [3, LARGE])
async def test_the_sweep_removes_what_a_site_refused_itself(store: Store, peers: int) -> None:
    for number in range(peers):
        await join(store, 1000 + number, BOB)
        await join(store, 1000 + number, BOB, 5)
    await join(store, 1)
    await join(store, 2, peer_id=other_client(2))
    main = store.keys.passkey(ALICE)
    for shard in store.shards:
        await store.redis.hset(main.replace(store.keys.prefix, shard.keys.prefix), "enabled", "0")
    await store.redis.set(store.shard(torrent(5)).keys.deny(torrent(5)), "no")
    assert await sweep(store, (OTHER_CLIENT,)) == peers + 2
    assert await active(store) == peers
    assert await store.users.set_sizes("7") == {"active": 0, "complete": 0, "incomplete": 1, "hnr": 0}


async def test_the_sweep_leaves_a_user_whose_passkey_a_site_replaced(store: Store) -> None:
    """With RENAME, which the tracker notices later."""
    await join(store, 1)
    renamed = [shard for shard in store.shards if await store.redis.exists(shard.keys.passkey(ALICE))]
    assert len(renamed) == 1  # the shard of the torrent
    for shard in renamed:
        await store.redis.rename(shard.keys.passkey(ALICE), shard.keys.passkey("n" * 20))
    assert await sweep(store) == 0
    assert await active(store) == 1


async def sweep(store: Store, denied: tuple[bytes, ...] = ()) -> int:
    """Sweeps all shards; returns the number of peers removed. Nothing needs a repair."""
    removed = 0
    for shard in store.shards:
        _, ids = await store.reapings[shard].page(0, 1000)
        position = ""
        while ids:
            step = await store.reapings[shard].sweep(ids, position, SWEEP_BUDGET, denied)
            assert step.seen <= 3 * SWEEP_BUDGET and step.repairs == 0
            ids, position, removed = ids[step.done :], step.position, removed + step.reaped
    return removed


async def test_the_reaper_sweeps_denied_clients_that_a_site_wrote(store: Store) -> None:
    """While the deny list is on."""
    await join(store, 1)
    await join(store, 2, peer_id=other_client(2))
    await store.redis.hset(store.keys.denied_clients(), OTHER_CLIENT, "no")
    for is_enabled, peers in ((False, 2), (True, 1)):
        for shard in store.shards:
            await Reaper(
                store,
                shard,
                lambda: 0.0,
                store.clock,
                denied=partial(denied_prefixes, store.deny_list, partial(bool, is_enabled)),
            ).sweep_once(hurry=True)
        assert await active(store) == peers
