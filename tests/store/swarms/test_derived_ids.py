"""Peer IDs that several clients announce: the first owner keeps the ID, other clients get derived ones."""

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, peer_id, timeout_key, update
from tracker.bittorrent import PeerId
from tracker.store.swarms.codec import WITH_IDS

KEY, OTHER = b"k" * 8, b"other..!"


async def members(store: Store) -> set[bytes]:
    return set(await store.redis.smembers(store.keys.swarm_peers(info_hash(1))))


async def derived_id(store: Store) -> PeerId:
    """The one member that is not stored under the announced peer ID."""
    (one,) = await members(store) - {peer_id(1).hex().encode()}
    return PeerId(bytes.fromhex(one.decode()))


async def test_a_client_with_another_key_has_its_own_entry(store: Store) -> None:
    await store.announce(update(1, "s", key=KEY))
    other = update(1, "s", key=OTHER, endpoint=endpoint(2))
    assert (await store.announce(other)).outcome == "join"
    assert peer_id(1).hex().encode() in await members(store)
    derived = await derived_id(store)
    assert await store.redis.hget(store.keys.peer(1, derived), "peer_id") == peer_id(1)
    answer = await store.announce(other._replace(event=b"u", uploaded=b"5"))  # type: ignore[arg-type]
    assert (answer.outcome, answer.leechers, answer.peers) == ("update", 2, endpoint(1))
    assert await check_invariants(store.redis, store.keys) == 2
    assert (await store.announce(other._replace(event=b"x"))).outcome == "leave"
    assert (await store.announce(update(1, "x", key=KEY))).outcome == "leave"
    assert await check_invariants(store.redis, store.keys) == 0


async def test_both_families_of_a_client_are_one_entry_under_its_derived_id(store: Store) -> None:
    await store.announce(update(1, "s", key=KEY))
    await store.announce(update(1, "s", key=OTHER, endpoint=endpoint(2)))
    v6 = update(1, "s", key=OTHER, endpoint=endpoint(2, v6=True))
    answer = await store.announce(v6)
    assert (answer.outcome, answer.leechers) == ("update", 2)
    assert await check_invariants(store.redis, store.keys) == 2


async def test_clients_cannot_choose_a_derived_id(make_store: MakeStore) -> None:
    """It depends on a secret of the store."""
    ids = []
    for secret in ("one secret", "another"):
        store = await make_store()
        await store.redis.set(store.keys.secret(), secret)
        await store.announce(update(1, "s", key=KEY))
        await store.announce(update(1, "s", key=OTHER, endpoint=endpoint(2)))
        ids.append(await derived_id(store))
        await store.redis.flushdb()
    assert ids[0] != ids[1]


async def test_replies_with_peer_ids_name_the_announced_ones(store: Store) -> None:
    await store.announce(update(1, "s", key=KEY))
    await store.announce(update(1, "s", key=OTHER, endpoint=endpoint(2)))
    await store.announce(update(1, "s", key=OTHER, endpoint=endpoint(2, v6=True)))
    for event in "su":
        answer = await store.announce(update(3, event, form=WITH_IDS))
        assert answer.peers + answer.peers6 in (
            endpoint(1) + endpoint(2) + endpoint(2, v6=True),
            endpoint(2) + endpoint(1) + endpoint(2, v6=True),
        )
        assert (answer.peer_ids, answer.peer_ids6) == (peer_id(1) * 2, peer_id(1))


@pytest.mark.parametrize("first", [ALICE, BOB])
async def test_announcing_a_known_peer_id_first_does_not_harm_its_owner(make_store: MakeStore, first: str) -> None:
    """In private mode too: both users are in the swarm and credited."""
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    second = BOB if first == ALICE else ALICE
    await store.announce(update(1, "s", passkey=first))
    mine = update(1, "s", passkey=second, endpoint=endpoint(2), uploaded=1000)
    assert (await store.announce(mine)).outcome == "join"
    store.clock.now += 100
    assert (await store.announce(mine._replace(event=b"u", uploaded=b"5000"))).outcome == "update"  # type: ignore[arg-type]
    credited = await store.users.find("8" if second == BOB else "7")
    assert credited.uploaded == 4000
    assert await check_invariants(store.redis, store.keys) == 2
    derived = await derived_id(store)
    await store.redis.delete(timeout_key(store.keys, 1, derived))
    assert await store.reaping.reap([("1", derived.hex())]) == 1
    assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.parametrize("how", ["stops", "times out", "loses its endpoint"])
async def test_a_client_keeps_its_entry_when_the_first_owner_of_its_peer_id_leaves(store: Store, how: str) -> None:
    await store.announce(update(1, "s", key=KEY))
    own = update(1, "s", key=OTHER, endpoint=endpoint(2))
    await store.announce(own)
    if how == "stops":
        await store.announce(update(1, "x", key=KEY))
    elif how == "times out":
        assert await store.silence(update(1)) == 1
    else:
        await store.announce(update(3, "s", endpoint=endpoint(1)))
    before = await store.announce(update(9, "s", peers_wanted=0))
    assert (await store.announce(own._replace(event=b"u"))).outcome == "update"
    done = await store.announce(own._replace(event=b"c", bytes_left=b"0"))  # type: ignore[arg-type]
    assert (done.outcome, done.completions, done.seeders) == ("update", 1, 1)
    assert (await store.announce(own._replace(event=b"s"))).outcome == "update"
    assert (await store.announce(own._replace(event=b"x"))).outcome == "leave"
    after = await store.announce(update(9, peers_wanted=0))
    assert after.leechers + after.seeders == before.leechers + before.seeders - 1
    assert (await store.announce(own)).outcome == "join"
    assert peer_id(1).hex().encode() in await members(store), "the ID has no owner any more"
    await check_invariants(store.redis, store.keys)


async def test_a_user_is_credited_when_the_first_owner_of_the_peer_id_has_left(make_store: MakeStore) -> None:
    store = await make_store(accounts="required")
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    await store.announce(update(1, "s", passkey=ALICE))
    mine = update(1, "s", passkey=BOB, endpoint=endpoint(2))
    await store.announce(mine)
    await store.announce(update(1, "x", passkey=ALICE))
    store.clock.now += 100
    assert (await store.announce(mine._replace(event=b"u", uploaded=b"5000"))).outcome == "update"  # type: ignore[arg-type]
    assert (await store.users.find("8")).uploaded == 5000
    await check_invariants(store.redis, store.keys)


async def test_both_families_of_a_user_without_a_key_are_one_peer(make_store: MakeStore) -> None:
    """aria2 puts its key into the peer ID, where it does not count. In private mode the passkey identifies the
    owner."""
    store = await make_store(accounts="required")
    await store.users.add("7", ALICE)
    await store.announce(update(1, "s", passkey=ALICE))
    v6 = await store.announce(update(1, "s", passkey=ALICE, endpoint=endpoint(1, v6=True)))
    assert (v6.outcome, v6.leechers) == ("update", 1)
    assert await check_invariants(store.redis, store.keys) == 1


async def test_the_same_user_without_a_key_moves_no_entry_to_another_address(make_store: MakeStore) -> None:
    store = await make_store(accounts="required")
    await store.users.add("7", ALICE)
    await store.announce(update(1, "s", passkey=ALICE))
    before = await store.dump()
    assert (await store.announce(update(1, "s", passkey=ALICE, endpoint=endpoint(2)))).outcome == "stranger"
    assert await store.dump() == before
