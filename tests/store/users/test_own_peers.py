"""Limits of a user: peers in a torrent (row T27), and torrents downloaded at once (row T28)."""

from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Store, endpoint, info_hash, peer_id, update
from tracker.errors import ClientError
from tracker.store.swarms.codec import PeerUpdate


@pytest.fixture
async def limited(make_store: MakeStore) -> Store:
    """Two peers of a user in a torrent, and two downloads at once."""
    store = await make_store(accounts="required", peer_memory=3600, max_peers=2, max_downloads=2)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    for torrent in range(1, 6):
        await store.torrents.add(info_hash(torrent))
    return store


def alice(peer: int = 1, event: str = "u", torrent: int = 1, **changes: Any) -> PeerUpdate:
    return update(peer, event, torrent, passkey=ALICE, **changes)


async def active(store: Store, *peers: int) -> list[int]:
    """Those of the peers that are in the swarm of torrent 1."""
    members = await store.redis.smembers(store.keys.swarm_peers(info_hash(1)))
    return [peer for peer in peers if peer_id(peer).hex().encode() in members]


async def test_the_peer_that_is_silent_longest_leaves(limited: Store) -> None:
    """T27."""
    await limited.announce(alice(1, "s"))
    limited.clock.now += 10
    await limited.announce(alice(2, "s", bytes_left=0))
    limited.clock.now += 10
    await limited.announce(alice(1))
    joined = await limited.announce(alice(3, "s"))
    assert (joined.outcome, joined.seeders, joined.leechers) == ("join", 0, 2)
    assert await active(limited, 1, 2, 3) == [1, 3]
    assert await check_invariants(limited.redis, limited.keys) == 2
    assert (await limited.users.on_torrents("7", ["1"]))[0]["peers"] == "2"
    assert await limited.redis.exists(f"{limited.keys.prefix}ptimeout:1:{peer_id(2).hex()}") == 0
    again = await limited.announce(alice(2, bytes_left=0))
    assert again.outcome == "join" and await active(limited, 1, 2, 3) == [2, 3]


async def test_of_equally_silent_peers_the_one_that_joined_first_leaves(limited: Store) -> None:
    for peer in (3, 1, 2):
        await limited.announce(alice(peer, "s"))
    assert await active(limited, 1, 2, 3) == [1, 2]


async def test_many_joins_in_one_call_leave_two_peers(limited: Store) -> None:
    outcomes, _ = await limited.announce_together(*(alice(peer, "s") for peer in range(1, 31)))
    assert [outcome.outcome for outcome in outcomes] == ["join"] * 30
    assert await active(limited, *range(1, 31)) == [29, 30]
    assert await check_invariants(limited.redis, limited.keys) == 2


async def test_other_users_and_other_torrents_have_peers_of_their_own(limited: Store) -> None:
    for peer in (1, 2):
        await limited.announce(alice(peer, "s"))
        await limited.announce(update(10 + peer, "s", passkey=BOB))
        await limited.announce(alice(20 + peer, "s", torrent=2))
    assert await check_invariants(limited.redis, limited.keys) == 6


async def test_a_peer_that_left_makes_room(limited: Store) -> None:
    await limited.announce(alice(1, "s"))
    await limited.announce(alice(2, "s"))
    await limited.announce(alice(2, "x"))
    await limited.announce(alice(3, "s"))
    assert await active(limited, 1, 2, 3) == [1, 3]
    assert await limited.silence(alice(1)) == 1
    await limited.announce(alice(4, "s"))
    assert await active(limited, 1, 3, 4) == [3, 4]


async def test_a_peer_that_yields_its_endpoint_makes_room(limited: Store) -> None:
    """A client that starts again under a new peer id replaces itself, and no other peer."""
    await limited.announce(alice(1, "s"))
    limited.clock.now += 10
    await limited.announce(alice(2, "s"))
    await limited.announce(alice(3, "s", endpoint=endpoint(2)))
    assert await active(limited, 1, 2, 3) == [1, 3]
    assert await check_invariants(limited.redis, limited.keys) == 2


async def test_a_peer_with_two_endpoints_leaves_with_both(limited: Store) -> None:
    await limited.announce(alice(1, "s", key=b"12345678"))
    await limited.announce(alice(1, endpoint=endpoint(1, v6=True), key=b"12345678"))
    limited.clock.now += 1
    await limited.announce(alice(2, "s"))
    await limited.announce(alice(3, "s", endpoint=endpoint(1)))  # takes one of them over
    assert await active(limited, 1, 2, 3) == [2, 3]
    assert await check_invariants(limited.redis, limited.keys) == 2


async def test_the_limit_may_change(limited: Store, make_store: MakeStore) -> None:
    for peer in (1, 2):
        await limited.announce(alice(peer, "s"))
    one = await make_store(accounts="required", peer_memory=3600, max_peers=1)
    await one.announce(alice(3, "s"))
    assert await active(limited, 1, 2, 3) == [3]
    await limited.announce(alice(4, "s"))
    assert await active(limited, 3, 4) == [3, 4]


async def test_the_last_peers_that_joined_without_a_limit_count(limited: Store, make_store: MakeStore) -> None:
    unlimited = await make_store(accounts="required", peer_memory=3600)
    for peer in range(1, 11):
        await unlimited.announce(alice(peer, "s"))
    for peer in (11, 12):
        await limited.announce(alice(peer, "s"))
    assert await active(limited, *range(1, 13)) == [1, 2, 11, 12]


async def test_an_array_of_another_type_fails_the_join_and_removes_no_peer(limited: Store) -> None:
    await limited.announce(alice(1, "s"))
    await limited.announce(alice(2, "s"))
    await limited.redis.lpush(f"{limited.keys.prefix}swarm:{info_hash(1).hex()}:s6", "x")
    before = await limited.dump()
    assert await limited.refused(alice(3, "s")) == "error"
    assert await limited.dump() == before


# Downloads at once


async def test_a_download_beyond_the_limit_is_refused_and_changes_nothing(limited: Store) -> None:
    """T28, and again when one is complete, stopped or reaped."""
    await limited.announce(alice(1, "s", torrent=1))
    await limited.announce(alice(1, "s", torrent=2))
    before = await limited.dump()
    assert await limited.refused(alice(1, "s", torrent=3)) == "too many downloads"
    assert await limited.refused(alice(1, "p", torrent=3, bytes_left=None)) == "too many downloads"
    assert await limited.dump() == before
    await limited.announce(alice(1, "c", torrent=1, bytes_left=0))
    await limited.announce(alice(1, "s", torrent=3))
    assert await limited.refused(alice(1, "s", torrent=4)) == "too many downloads"
    await limited.announce(alice(1, "x", torrent=2))
    await limited.announce(alice(1, "s", torrent=4))
    torrent_id = (await limited.torrent(info_hash(4)))["tid"]
    assert await limited.silence(alice(1), torrent_id) == 1
    await limited.announce(alice(1, "s", torrent=5))


async def test_seeders_and_peers_of_a_download_are_not_refused(limited: Store) -> None:
    await limited.announce(alice(1, "s", torrent=1))
    await limited.announce(alice(1, "s", torrent=2))
    await limited.announce(alice(2, "s", torrent=1))
    await limited.announce(alice(1, torrent=2))
    await limited.announce(alice(1, "s", torrent=3, bytes_left=0))
    await limited.announce(update(9, "s", 4, passkey=BOB))


async def test_a_batch_does_not_exceed_the_limit(limited: Store) -> None:
    outcomes, _ = await limited.announce_together(*(alice(1, "s", torrent) for torrent in range(1, 6)))
    refused = [getattr(outcome, "code", "") for outcome in outcomes]
    assert refused == ["", "", *["too many downloads"] * 3]


@pytest.mark.parametrize(("own", "allowed"), [("0", 5), ("1", 1), ("4", 4), ("", 2), ("x", 2), ("1e999", 5)])
async def test_a_user_may_have_a_limit_of_their_own(limited: Store, own: str, allowed: int) -> None:
    await limited.redis.hset(limited.keys.passkey(ALICE), "max_downloads", own)
    for torrent in range(1, allowed + 1):
        await limited.announce(alice(1, "s", torrent))
    if allowed < 5:
        assert await limited.refused(alice(1, "s", allowed + 1)) == "too many downloads"


async def test_the_limit_of_a_user_is_edited(limited: Store) -> None:
    for text, expected in (("3", 3), ("", None), ("0", 0), ("-1", None)):
        await limited.users.edit(ALICE, {"max_downloads": text})
        assert (await limited.users.find("7")).max_downloads == expected
    for text in ("-2", "1.5", "9" * 7, "x"):
        with pytest.raises(ClientError, match="max_downloads is"):
            await limited.users.edit(ALICE, {"max_downloads": text})


async def test_no_limit_is_the_default(private: Store) -> None:
    for torrent in range(1, 30):
        await private.announce(alice(torrent, "s", torrent))
        await private.announce(alice(torrent, "s", 1))
    listed = await private.redis.hget(private.keys.user_torrent("7", "1"), "peer_ids")
    assert listed == b"".join(alice(peer).peer_id for peer in range(22, 30))
