"""A client announces both halves of a hybrid torrent (BEP 52) with the same peer id and totals. Users are credited and
charged for one of them: the v1 half. With several shards the halves are in different ones."""

import asyncio
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, endpoint, peer_id, text, update
from tests.store.sharding.harness import hash_in
from tracker.bittorrent import InfoHash
from tracker.store.swarms.codec import PeerUpdate
from tracker.store.users.fields import User

NUMBERS_OF_SHARDS = (1, 4)
V1, V2, OTHER = hash_in(0, 1), hash_in(1, 2), hash_in(2, 3)
GB = 10**9


@pytest.fixture
async def hybrid(private: Store) -> Store:
    """Private mode with both halves registered and linked."""
    return await linked(private)


async def linked(store: Store) -> Store:
    for half in (V1, V2):
        await store.torrents.add(half)
    await store.hybrids.link(V2, V1)
    return store


def said(half: InfoHash, event: str = "u", *, peer: int = 1, passkey: str = ALICE, **values: Any) -> PeerUpdate:
    return update(peer, event, info_hash=half, passkey=passkey, **values)


async def followed(store: Store) -> None:
    """Waits until the v1 halves have got what was announced on v2 halves."""
    while store.swarms.in_flight:
        await asyncio.sleep(0)


async def announce(store: Store, event: str, halves: tuple[InfoHash, ...] = (V1, V2), **values: Any) -> None:
    for half in halves:
        await store.announce(said(half, event, **values))
        await followed(store)
    store.clock.now += 1000


async def user(store: Store, user_id: str = "7") -> User:
    for shard in store.shards:
        await store.user_sums.save_changed(shard)
    return await store.users.find(user_id)


async def sets(store: Store, half: InfoHash, user_id: str = "7") -> set[str]:
    """The user's sets that hold this half."""
    keys, tid = store.shard(half).keys, (await store.torrent(half))["tid"]
    names = ("active", "complete", "incomplete", "hnr")
    return {n for n in names if await store.redis.sismember(keys.user_set(user_id, n), tid)}


async def account(store: Store, half: InfoHash, user_id: str = "7") -> dict[str, str]:
    tid = (await store.torrent(half))["tid"]
    return text(await store.redis.hgetall(store.shard(half).keys.user_torrent(user_id, tid)))


async def snatches(store: Store, half: InfoHash) -> str:
    return (await store.torrent(half)).get("snatches", "0")


async def test_time_that_two_peers_share_counts_once_if_one_announces_the_v2_half(hybrid: Store) -> None:
    """That announce counts no time of a peer in the swarm of the v1 half: the next one there has to."""
    for peer in (1, 2):
        await hybrid.announce(said(V1, "s", peer=peer, bytes_left=0))
    await hybrid.announce(said(V2, "s", peer=2, bytes_left=0))
    hybrid.clock.now = START + 100
    await hybrid.announce(said(V1, "x", bytes_left=0))
    await hybrid.announce(said(V2, peer=2, bytes_left=0, uploaded=5))
    await followed(hybrid)
    hybrid.clock.now = START + 200
    await hybrid.announce(said(V1, peer=2, bytes_left=0, uploaded=5))
    found = await account(hybrid, V1)
    assert (found["total_time"], found["seed_time"], found["peers"]) == ("200", "200", "1")


@pytest.mark.parametrize("order", [(V1, V2), (V2, V1)], ids=["v1 first", "v2 first"])
async def test_a_download_counts_once(hybrid: Store, order: tuple[InfoHash, InfoHash]) -> None:
    await announce(hybrid, "s", order, bytes_left=6_000_000)
    await announce(hybrid, "u", order, bytes_left=2_000_000, downloaded=4_000_000, uploaded=50)
    await announce(hybrid, "c", order, bytes_left=0, downloaded=6_000_000, uploaded=100)
    await hybrid.announce_counts.flush()
    found = await user(hybrid)
    assert (found.downloaded, found.uploaded, found.snatches, found.announces) == (6_000_000, 100, 1, 3)
    assert (await snatches(hybrid, V1), await snatches(hybrid, V2)) == ("1", "0")
    assert (await sets(hybrid, V1), await sets(hybrid, V2)) == ({"active", "complete"}, set())
    assert await account(hybrid, V2) == {}
    await announce(hybrid, "x", order, bytes_left=0, downloaded=6_000_000, uploaded=150)
    assert (await user(hybrid)).uploaded == 150
    assert (await sets(hybrid, V1), await sets(hybrid, V2)) == ({"complete"}, set())


async def test_the_v2_half_moves_peers(hybrid: Store) -> None:
    """Its swarm, its counts, its timeouts and its peers' users are those of any torrent."""
    await hybrid.announce(said(V2, "s", bytes_left=0))
    reply = await hybrid.announce(said(V2, "s", peer=2, passkey=BOB))
    assert (reply.seeders, reply.leechers, reply.peers) == (1, 1, endpoint(1))
    shard = hybrid.shard(V2)
    tid = (await hybrid.torrent(V2))["tid"]
    assert await hybrid.redis.hget(shard.keys.peer(tid, peer_id(1)), "user_id") == b"7"
    assert await check_invariants(hybrid.redis, shard.keys) == 2
    assert await hybrid.silence(said(V2), tid) == 1
    reply = await hybrid.announce(said(V2, "x", peer=2, passkey=BOB))
    assert (reply.seeders, reply.leechers) == (0, 0)
    assert await check_invariants(hybrid.redis, shard.keys) == 0
    assert await sets(hybrid, V2) == set() and await account(hybrid, V2) == {}


async def test_leaving_early_is_one_hit_and_run(hybrid: Store) -> None:
    for event, downloaded in (("s", 0), ("u", 900), ("x", 900)):
        for half in (V1, V2):
            await hybrid.announce(said(half, event, bytes_left=1000 - downloaded, downloaded=downloaded))
        hybrid.clock.now += 10
    assert (await sets(hybrid, V1), await sets(hybrid, V2)) == ({"hnr", "incomplete"}, set())


async def test_a_hybrid_torrent_is_one_download(make_store: MakeStore) -> None:
    store = await make_store(accounts="required", max_downloads=1)
    await store.users.add("7", ALICE)
    await linked(store)
    await store.torrents.add(hash_in(0, 9))
    await announce(store, "s")
    assert await store.refused(said(hash_in(0, 9), "s")) == "too many downloads"
    await announce(store, "x")
    await store.announce(said(hash_in(0, 9), "s"))
    if len(store.shards) == 1:
        assert await store.refused(said(V2, "s")) == "too many downloads"
    else:  # the v1 half is in another shard: the user is taken out of the swarm after the answer
        await store.announce(said(V2, "s"))
        await followed(store)
        assert (await store.torrent(V2))["leechers"] == "0"
    assert await store.refused(said(V1, "s")) == "too many downloads"
    await store.announce(said(hash_in(0, 9), "x"))
    await announce(store, "s", (V2, V1))  # both are admitted


async def test_a_token_for_the_v1_half_makes_the_torrent_free(hybrid: Store) -> None:
    await hybrid.freeleech.give("7", (await hybrid.torrent(V1))["tid"], START + 10**6)
    await announce(hybrid, "s")
    await announce(hybrid, "u", downloaded=700, uploaded=300, bytes_left=300)
    found = await user(hybrid)
    assert (found.downloaded, found.uploaded) == (0, 300)


async def test_the_bytes_that_peers_moved_count_once(hybrid: Store) -> None:
    await announce(hybrid, "s")
    _, one = await hybrid.announce_together(said(V1, downloaded=700, uploaded=300))
    _, other = await hybrid.announce_together(said(V2, downloaded=700, uploaded=300))
    assert sum(one[:4]) == 1000 and sum(other[:4]) == 0


@pytest.mark.parametrize("field", ["ab\0" * 40, "AB" * 20, V2.hex(), ""])
async def test_a_field_that_names_no_other_torrent_changes_nothing(hybrid: Store, field: str) -> None:
    """Whatever a site writes, no announce and no byte is lost."""
    await hybrid.redis.hset(hybrid.shard(V2).keys.torrent(V2), "hybrid_of", field)
    await announce(hybrid, "s", (V2,))
    await announce(hybrid, "c", (V2,), downloaded=1000, bytes_left=0)
    assert (await user(hybrid)).downloaded == 1000
    assert await sets(hybrid, V2) == {"active", "complete"}


@pytest.mark.parametrize(
    "ending", ["denied", "disabled", "pending", "half of another", "half of this one", "wrong type"]
)
async def test_a_v2_half_counts_for_itself_while_its_v1_half_does_not(private: Store, ending: str) -> None:
    """Both are in the same shard. A v1 half in another one is not read by announces."""
    v1, v2, keys = V1, hash_in(0, 5), private.shards[0].keys
    await private.torrents.add(v1)
    await private.torrents.add(v2)
    await private.hybrids.link(v2, v1)
    await announce(private, "s", (v1, v2))
    await announce(private, "u", (v1, v2), downloaded=300, bytes_left=700)
    if ending == "denied":
        await private.redis.set(keys.deny(v1), "no")
    elif ending in ("disabled", "pending"):
        enabled = "0" if ending == "disabled" else "pending"
        await private.redis.hset(keys.torrent(v1), "enabled", enabled)
    elif ending == "wrong type":
        await private.redis.delete(keys.torrent(v1))
        await private.redis.set(keys.torrent(v1), "x")
    else:
        other = OTHER if ending == "half of another" else v2
        await private.redis.hset(keys.torrent(v1), "hybrid_of", other.hex())
    await announce(private, "u", (v2,), downloaded=700, bytes_left=300)
    await announce(private, "c", (v2,), downloaded=1000, bytes_left=0)
    found = await user(private)
    assert (found.downloaded, found.snatches, await snatches(private, v2)) == (1000, 1, "1")
    assert await sets(private, v2) == {"active", "complete"}
    await announce(private, "x", (v2,), downloaded=1000, bytes_left=0)
    assert await sets(private, v2) == {"complete"}


@pytest.mark.parametrize("ending", ["removed", "half of another", "half of this one"])
async def test_what_a_site_ends_without_the_api_is_noticed(hybrid: Store, shards: int, ending: str) -> None:
    """At once with one shard. With several a job ends the link: an announce reads no other shard."""
    await announce(hybrid, "s")
    await hybrid.torrents.add(OTHER)
    keys = hybrid.shard(V1).keys
    if ending == "removed":
        await hybrid.redis.delete(keys.info_hash(V1))
    else:
        other = OTHER if ending == "half of another" else V2
        await hybrid.redis.hset(keys.torrent(V1), "hybrid_of", other.hex())
    if shards > 1:
        await hybrid.torrent_listing.rank(all_of_them=True)
    await announce(hybrid, "u", (V2,), downloaded=800, bytes_left=200)
    assert (await user(hybrid)).downloaded == 800


async def test_a_v2_half_counts_from_the_end_of_the_link_on(hybrid: Store) -> None:
    await announce(hybrid, "s")
    await announce(hybrid, "u", downloaded=300, bytes_left=700)
    await hybrid.hybrids.unlink(V1)
    await announce(hybrid, "u", (V2,), downloaded=800, bytes_left=200)
    assert (await user(hybrid)).downloaded == 800
    assert await sets(hybrid, V2) == {"active"}  # it joined without an account


async def test_what_a_user_had_on_the_v2_half_ends_with_its_peer(private: Store) -> None:
    """The halves were registered alone, and are linked while peers are there: no slot stays taken, and no hit-and-run
    is left that no user could clear."""
    for half in (V1, V2):
        await private.torrents.add(half)
    await announce(private, "s")
    await announce(private, "u", downloaded=500, bytes_left=500)
    assert (await user(private)).downloaded == 1000
    assert await sets(private, V2) == {"active", "incomplete"}
    await private.hybrids.link(V2, V1)
    private.clock.now += 10
    await announce(private, "x", downloaded=600, bytes_left=400)
    assert (await user(private)).downloaded == 1100
    assert await sets(private, V2) == {"incomplete"}


@pytest.mark.parametrize("grace", [0, 60])
async def test_hit_and_runs_of_the_v2_half_from_before_the_link_are_dropped(make_store: MakeStore, grace: int) -> None:
    """No user could clear them: time on the v2 half does not count."""
    store = await make_store(accounts="required", hnr_min_bytes=100, hnr_threshold=10**6, hnr_grace=grace)
    await store.users.add("7", ALICE)
    for half in (V1, V2):
        await store.torrents.add(half)
    await announce(store, "s")
    await announce(store, "x", downloaded=500, bytes_left=500)
    await store.hybrids.link(V2, V1)
    await store.pass_time(100)
    await store.hit_and_runs.decide()
    for _ in store.shards:
        await store.hit_and_runs.drop()
    assert (await sets(store, V1), await sets(store, V2)) == ({"hnr", "incomplete"}, {"incomplete"})


async def test_a_peer_that_is_evicted_from_the_v2_half_is_not_active_there(private: Store) -> None:
    for half in (V1, V2):
        await private.torrents.add(half)
    await announce(private, "s", (V2,))
    await private.hybrids.link(V2, V1)
    await announce(private, "s", (V2,), peer_id=peer_id(9))
    assert await sets(private, V2) == {"incomplete"}


async def test_anonymous_peers_complete_a_hybrid_torrent_once(make_store: MakeStore, shards: int) -> None:
    store = await linked(await make_store())
    for event, left in (("s", 1000), ("c", 0)):
        for half in (V1, V2):
            await store.announce(said(half, event, passkey="", bytes_left=left))
    assert (await snatches(store, V1), await snatches(store, V2)) == ("1", "0")
    assert "completions" not in await store.torrent(V2)


async def test_the_feed_names_no_totals_of_the_v2_half(make_store: MakeStore) -> None:
    """A site that copies them would count twice. The snatch is one of the v1 half."""
    store = await make_store(accounts="required", peer_memory=3600, max_changes=100)
    await store.users.add("7", ALICE)
    await linked(store)
    await announce(store, "s", (V2,), downloaded=400)
    await announce(store, "c", (V2,), downloaded=900, bytes_left=0)
    await announce(store, "x", (V2,), downloaded=1000, bytes_left=0)
    found = [
        (each.change, each.info_hash == V1.hex(), each.user_id, each.downloaded)
        for each in await store.changes.newest(10)
    ]
    assert sorted(found) == [("completed", True, "7", 500), ("joined", False, "7", 0), ("stopped", False, "7", 0)]


def amounts(found: User) -> tuple[int, int]:
    return found.uploaded, found.downloaded


async def test_a_client_that_announces_the_v2_half_only_is_credited_on_the_v1_half(hybrid: Store) -> None:
    """As one that announces the v1 half: a download with a slot, a snatch, and no hit-and-run after enough time. No
    reply of the v1 half names it."""
    await announce(hybrid, "s", (V2,), bytes_left=500)
    assert await sets(hybrid, V1) == {"active", "incomplete"}
    await announce(hybrid, "u", (V2,), bytes_left=200, downloaded=300, uploaded=50)
    assert amounts(await user(hybrid)) == (50, 300)
    await announce(hybrid, "c", (V2,), bytes_left=0, downloaded=500, uploaded=50)
    reply = await hybrid.announce(said(V1, "s", peer=2, passkey=BOB))
    assert (reply.seeders, reply.peers) == (0, b"")
    await announce(hybrid, "u", (V2,), bytes_left=0, downloaded=500, uploaded=70)
    assert await sets(hybrid, V1) == {"active", "complete"}
    await announce(hybrid, "x", (V2,), bytes_left=0, downloaded=500, uploaded=100)
    assert amounts(found := await user(hybrid)) == (100, 500) and found.unreported == 0
    assert (found.snatches, await snatches(hybrid, V1), await snatches(hybrid, V2)) == (1, "1", "0")
    assert await sets(hybrid, V1) == {"complete"}
    held = await account(hybrid, V1)
    assert (held["uploaded"], held["downloaded"], held["total_time"]) == ("100", "500", "4000")
    assert await account(hybrid, V2) == {}


@pytest.mark.parametrize("order", [(V1, V2), (V2, V1)], ids=["v1 first", "v2 first"])
async def test_a_client_that_announces_a_half_now_and_then_counts_once(
    hybrid: Store, order: tuple[InfoHash, InfoHash]
) -> None:
    first, second = order
    await announce(hybrid, "s", order, bytes_left=900)
    await announce(hybrid, "u", (first,), bytes_left=800, downloaded=100, uploaded=10)
    await announce(hybrid, "u", (second,), bytes_left=700, downloaded=200, uploaded=20)
    await announce(hybrid, "u", order, bytes_left=600, downloaded=300, uploaded=30)
    await announce(hybrid, "x", order, bytes_left=500, downloaded=400, uploaded=40)
    assert amounts(found := await user(hybrid)) == (40, 400) and found.unreported == 0
    await announce(hybrid, "s", order, bytes_left=500)  # the client begins anew
    await announce(hybrid, "u", order, bytes_left=300, downloaded=200, uploaded=25)
    assert amounts(found := await user(hybrid)) == (65, 600) and found.unreported == 0
    assert await account(hybrid, V2) == {}


@pytest.mark.parametrize("ending", ["stop", "timeout"])
async def test_a_download_of_the_v2_half_alone_may_be_a_hit_and_run(hybrid: Store, ending: str) -> None:
    for event, downloaded in (("s", 0), ("u", 900)):
        await hybrid.announce(said(V2, event, bytes_left=1000 - downloaded, downloaded=downloaded))
        await followed(hybrid)
        hybrid.clock.now += 10
    if ending == "stop":
        await hybrid.announce(said(V2, "x", bytes_left=100, downloaded=900))
        await followed(hybrid)
    else:
        assert await hybrid.silence(said(V1), (await hybrid.torrent(V1))["tid"]) == 1
    assert await sets(hybrid, V1) == {"hnr", "incomplete"}
    assert (await account(hybrid, V1))["peers"] == "0"


@pytest.mark.parametrize("order", [(V1, V2), (V2, V1)], ids=["v1 leaves first", "v2 leaves first"])
async def test_a_client_that_joins_the_v2_half_first_is_one_peer_of_its_user(
    hybrid: Store, order: tuple[InfoHash, InfoHash]
) -> None:
    await announce(hybrid, "s", (V2, V1))
    assert (await account(hybrid, V1))["peers"] == "1"
    tid = (await hybrid.torrent(V1))["tid"]
    assert await hybrid.redis.hget(hybrid.shard(V1).keys.peer(tid, peer_id(1)), "active") == b"1"
    await announce(hybrid, "x", order)
    assert (await account(hybrid, V1))["peers"] == "0"
    assert await sets(hybrid, V1) == {"incomplete"}
    for shard in hybrid.shards:
        await check_invariants(hybrid.redis, shard.keys)


# Which peers of a user overlap


async def time_of(store: Store, half: InfoHash, *peers: int) -> int:
    """What the account counts while these peers announce every 100 s, three times; two seeders overlap."""
    before = int((await account(store, half)).get("total_time", 0))
    for _ in range(3):
        store.clock.now += 100
        for peer in peers:
            await store.announce(said(half, peer=peer, bytes_left=0))
            await followed(store)
    return int((await account(store, half))["total_time"]) - before


async def test_peers_that_announced_while_the_halves_were_linked_overlap_afterwards(private: Store) -> None:
    for half in (V1, V2):
        await private.torrents.add(half)
    for peer in (1, 2):
        await private.announce(said(V2, "s", peer=peer, bytes_left=0))
    await private.hybrids.link(V2, V1)
    for peer in (1, 2):
        await private.announce(said(V2, peer=peer, bytes_left=0))
        await followed(private)
    await private.hybrids.unlink(V2)
    assert await time_of(private, V2, 1, 2) == 300


async def test_a_peer_that_joined_while_the_halves_were_linked_gets_an_account_afterwards(private: Store) -> None:
    await linked(private)
    await private.announce(said(V2, "s", bytes_left=0))
    await followed(private)
    await private.hybrids.unlink(V2)
    private.clock.now += 100
    await private.announce(said(V2, bytes_left=0))
    assert "active" in await sets(private, V2)
    assert (await account(private, V2))["peers"] == "1"


@pytest.mark.parametrize("max_peers", [0, 2])
async def test_a_peer_that_was_active_by_the_v2_half_alone_overlaps_with_later_ones(
    make_store: MakeStore, max_peers: int
) -> None:
    """Also when others joined and left since, so that the account does not list it any more."""
    store = await make_store(accounts="required", peer_memory=3600, max_gap=7200, max_peers=max_peers)
    await store.users.add("7", ALICE)
    await linked(store)
    await store.announce(said(V2, "s", peer=1, bytes_left=0))
    await followed(store)
    for peer in range(2, 12):
        await store.announce(said(V1, "s", peer=peer, bytes_left=0))
        await store.announce(said(V1, "x", peer=peer, bytes_left=0))
    for peer in (1, 20):
        await store.announce(said(V1, "s", peer=peer, bytes_left=0))
    assert await time_of(store, V1, 1, 20) == 300


async def test_an_upgrade_from_layout_1_marks_a_peer_beside_one_of_the_v2_half_alone(private: Store) -> None:
    await linked(private)
    await private.announce(said(V1, "s", peer=1, bytes_left=0))
    await private.announce(said(V2, "s", peer=2, bytes_left=0))
    await followed(private)
    shard, tid = private.shard(V1), (await private.torrent(V1))["tid"]
    await private.redis.hdel(shard.keys.user_torrent("7", tid), "peer_ids")
    await private.redis.hdel(shard.keys.peer(tid, said(V1, peer=1).peer_id), "marks")
    await shard.scripts.upgrade_swarms([tid])
    private.clock.now += 100
    await private.announce(said(V1, peer=1, bytes_left=0))
    await private.announce(said(V2, peer=2, bytes_left=0))
    await followed(private)
    private.clock.now += 100
    await private.announce(said(V1, peer=1, bytes_left=0))
    assert (await account(private, V1))["total_time"] == "200"
