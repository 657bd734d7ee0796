"""Optional accounts: users are credited as with required ones, all others are served as without accounts."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, get_args

import pytest

from loadtest.invariants import check_invariants
from loadtest.servers import Server
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, Clock, Store, endpoint, info_hash, peer_id, running, update
from tests.store.swarms.test_announce_regular import contents, some_updates
from tracker.bittorrent import Accounts
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Admitted, AdmittedAnonymously, PeerUpdate, Refused
from tracker.store.swarms.rules import SwarmRules

RULES = SwarmRules(peer_memory=3600, hnr_min_bytes=100, hnr_threshold=1000, max_gap=7200)
STRANGER = "x" * 20

InMode = Callable[..., Awaitable[Store]]


@pytest.fixture
async def in_mode(any_server: Server, prefix: str) -> AsyncIterator[InMode]:
    """Opens the store of ``name`` with these accounts, with one clock for all."""
    clock = Clock()
    async with AsyncExitStack() as stack:

        async def make(accounts: Accounts, name: str = "") -> Store:
            rules = replace(RULES, accounts=accounts)
            store = await stack.enter_async_context(
                running(Store(any_server.url, Keys(f"{prefix}{name}"), rules, clock))
            )
            if not await store.users.count():
                await store.users.add("7", ALICE)
                await store.users.add("8", BOB)
            return store

        yield make


@pytest.fixture
async def optional(in_mode: InMode) -> Store:
    return await in_mode("optional")


def sorted_peers(outcome: Any) -> Any:
    """The outcome with its peers in order: only with accounts a reply that holds all peers may be in another one."""
    reply, totals = outcome
    if not isinstance(reply[0], Admitted):
        return outcome
    lists = [(reply[0].peers, 6), (reply[0].peers6, 18), (reply[0].peer_ids, 20), (reply[0].peer_ids6, 20)]
    parts = [sorted(packed[at : at + size] for at in range(0, len(packed), size)) for packed, size in lists]
    return reply[0]._replace(peers=b"", peers6=b"", peer_ids=b"", peer_ids6=b""), parts, totals


async def what_holds(store: Store) -> dict[str, Any]:
    """The contents, without counters that no longer hold: some announces of seeders leave them."""
    found = await contents(store)
    for peer in (found[key] for key in found if key.startswith("p:") and isinstance(found[key], dict)):
        if peer.get(b"lower", b"").split()[2:] != [peer.get(b"last_announce")]:
            peer.pop(b"lower", None)
    return found


async def compare(one: Store, other: Store, calls: list[tuple[int, list[PeerUpdate]]]) -> None:
    for seconds, announces in calls:
        one.clock.now += seconds
        outcomes = [await each.announce_together(*announces) for each in (one, other)]
        assert sorted_peers(outcomes[0]) == sorted_peers(outcomes[1])
    for each in (one, other):
        await each.announce_counts.flush()
    assert await what_holds(one) == await what_holds(other)
    assert await check_invariants(one.redis, one.keys) > 0


@pytest.mark.parametrize("seed", range(3))
async def test_users_are_credited_as_with_required_accounts(in_mode: InMode, seed: int) -> None:
    optional, required = await in_mode("optional", "optional:"), await in_mode("required", "required:")
    by_users = [
        (seconds, [one._replace(passkey=ALICE if one.peer_id[-1] % 3 else BOB) for one in call])
        for seconds, call in some_updates(seed)
    ]
    await compare(optional, required, by_users)
    for user in ("7", "8"):
        credited = await optional.users.find(user)
        assert credited.uploaded and credited.downloaded


@pytest.mark.parametrize("passkey", ["", STRANGER])
@pytest.mark.parametrize("seed", range(3))
async def test_all_others_are_served_as_without_accounts(in_mode: InMode, seed: int, passkey: str) -> None:
    optional, off = await in_mode("optional", "optional:"), await in_mode("off", "off:")
    calls = [(seconds, [one._replace(passkey=passkey) for one in call]) for seconds, call in some_updates(seed)]
    await compare(optional, off, calls)


async def test_an_unknown_passkey_is_reported_with_every_outcome(make_store: MakeStore) -> None:
    """Otherwise passkeys could be guessed with announces that are refused for another reason."""
    store = await make_store(accounts="optional", open=False)
    await store.torrents.add(info_hash(1))
    for event in "suuxx":
        assert isinstance(await store.swarms.announce(update(1, event, passkey=STRANGER)), AdmittedAnonymously)
    assert type(await store.announce(update(1, "s"))) is not AdmittedAnonymously
    await store.torrents.deny(info_hash(3), "no")
    refused = [await store.swarms.announce(update(1, torrent=n, passkey=STRANGER)) for n in (2, 3)]
    assert refused == [Refused("unknown torrent", "", True), Refused("denied", "no", True)]
    await store.users.add("7", ALICE)
    known = await store.swarms.announce(update(1, torrent=2, passkey=ALICE))
    assert known == Refused("unknown torrent at first", "", False)


# Whose peer it is


async def row(store: Store, number: int = 1) -> dict[str, Any]:
    return await store.peer(update(number))


@pytest.mark.parametrize("event", list("uscxp"))
@pytest.mark.parametrize("passkey", ["", STRANGER, BOB])
@pytest.mark.parametrize("where", [endpoint(1), endpoint(2)], ids=["the same address", "another address"])
@pytest.mark.parametrize("key", [b"", b"8 bytes!"])
async def test_a_users_peer_is_only_the_users(
    optional: Store, event: str, passkey: str, where: Any, key: bytes
) -> None:
    """Any client that announces its peer id, even with its key and from its address."""
    await optional.announce(update(1, "s", passkey=ALICE, key=key))
    before = await row(optional)
    await optional.announce(update(1, event, passkey=passkey, endpoint=where, key=key, bytes_left=0))
    assert await row(optional) == before
    again = await optional.announce(update(1, passkey=ALICE, key=key))
    assert again.outcome in ("update", "early")
    await check_invariants(optional.redis, optional.keys)


@pytest.mark.parametrize("event", ["u", "s"])
async def test_a_client_that_announces_with_and_without_its_passkey_is_listed_once(optional: Store, event: str) -> None:
    """Its torrent has both announce URLs, in either order. The user's peer counts; both get peers."""
    await optional.announce(update(9, "s"))
    first = await optional.announce(update(1, "s"))
    with_passkey = await optional.announce(update(1, event, passkey=ALICE))
    assert (first.outcome, with_passkey.outcome, with_passkey.leechers) == ("join", "join", 2)
    for _ in range(2):
        optional.clock.now += 1800
        anonymous = await optional.announce(update(1))
        assert (anonymous.outcome, anonymous.leechers, anonymous.peers) == ("displaced", 2, endpoint(9))
        assert (await optional.announce(update(1, passkey=ALICE))).outcome == "update"
    assert (await optional.announce(update(1, "x"))).outcome == "absent"
    assert await check_invariants(optional.redis, optional.keys) == 2
    assert (await optional.announce(update(1, "x", passkey=ALICE))).outcome == "leave"
    assert (await optional.announce(update(1))).outcome == "join"


async def test_several_users_share_an_endpoint_and_get_each_other_once(optional: Store) -> None:
    for passkey, number in ((ALICE, 1), (BOB, 2)):
        await optional.announce(update(number, "s", passkey=passkey, endpoint=endpoint(1)))
    reply = await optional.announce(update(3, "s"))
    assert (reply.leechers, reply.peers) == (3, endpoint(1))


async def test_an_evicted_anonymous_peer_is_not_counted_off_the_users_account(optional: Store) -> None:
    await optional.announce(update(1, "s", passkey=ALICE))
    await optional.announce(update(2, "s", endpoint=endpoint(5)))
    await optional.announce(update(3, "s", passkey=ALICE, endpoint=endpoint(5)))
    account = await optional.redis.hget(optional.keys.user_torrent("7", "1"), "peers")
    assert (account, await check_invariants(optional.redis, optional.keys)) == (b"2", 2)


@pytest.mark.parametrize("how", ["stops", "times out", "loses its endpoint"])
async def test_only_users_are_remembered(optional: Store, how: str) -> None:
    for passkey, number in ((ALICE, 1), ("", 2)):
        await optional.announce(update(number, "s", passkey=passkey))
        if how == "stops":
            await optional.announce(update(number, "x", passkey=passkey))
        elif how == "times out":
            assert await optional.silence(update(number)) == 1
        else:
            await optional.announce(update(5 + number, "s", passkey=passkey, endpoint=endpoint(number)))
        known = await row(optional, number)
        assert (known.get("active"), known.get("user_id")) == (("0", "7") if passkey else (None, None))


# Changing the mode on a running store

CHANGES = list(itertools.permutations(get_args(Accounts), 2))


@pytest.mark.parametrize(("before", "after"), CHANGES, ids="-".join)
@pytest.mark.parametrize("how", ["stop", "time out", "start again"])
async def test_peers_of_before_go_on_and_leave_in_another_mode(
    in_mode: InMode, before: Accounts, after: Accounts, how: str
) -> None:
    """A user's client and, unless accounts are required, an anonymous one. Then back to the mode of before."""
    clients = [update(1, passkey=ALICE)] + [update(2)] * (before != "required")
    store = await in_mode(before)
    for client in clients:
        assert (await store.announce(client._replace(event=b"s"))).outcome == "join"
    store = await in_mode(after)
    for client in clients:
        store.clock.now += 100
        if after == "required" and not client.passkey:
            assert await store.refused(client) == "unknown passkey"
            assert await store.silence(client) == 1
            continue
        again = await store.announce(client._replace(event=b"s" if how == "start again" else b"u"))
        assert again.outcome in ("update", "join")
    listed = [client for client in clients if client.passkey or after != "required"]
    assert await check_invariants(store.redis, store.keys) == len(listed)
    seen = await store.announce(update(9, "s", passkey=BOB))
    assert {seen.peers[at : at + 6] for at in range(0, len(seen.peers), 6)} == {one.endpoint for one in listed}
    if how == "time out":
        members = await store.redis.smembers(store.keys.swarm_peers(info_hash(1)))
        for member in members - {peer_id(9).hex().encode()}:
            await store.redis.delete(f"{store.keys.prefix}ptimeout:1:{member.decode()}")
            assert await store.reaping.reap([("1", member.decode())]) == 1
    else:
        for client in listed:
            assert (await store.announce(client._replace(event=b"x"))).outcome == "leave"
    assert await check_invariants(store.redis, store.keys) == 1
    assert await store.torrents_of("7", "active") == []
    account = await store.redis.hget(store.keys.user_torrent("7", "1"), "peers")
    assert account in (None, b"0")
    back = await in_mode(before)
    assert (await back.announce(clients[0]._replace(event=b"s"))).outcome == "join"
    assert await check_invariants(back.redis, back.keys) == 2


async def test_a_users_peer_that_loses_its_endpoint_without_accounts_is_not_active(in_mode: InMode) -> None:
    store = await in_mode("optional")
    await store.announce(update(1, "s", passkey=ALICE))
    store = await in_mode("off")
    await store.announce(update(2, "s", endpoint=endpoint(1)))
    assert await check_invariants(store.redis, store.keys) == 1
    assert await store.torrents_of("7", "active") == []
    assert await store.redis.hget(store.keys.user_torrent("7", "1"), "peers") == b"0"


@pytest.mark.parametrize("after", ["off", "optional"])
async def test_an_anonymous_client_does_not_become_the_user_who_left(in_mode: InMode, after: Accounts) -> None:
    """It has the peer id, address and key of a peer that is still remembered."""
    store = await in_mode("required")
    for event in "sx":
        await store.announce(update(1, event, passkey=ALICE))
    await store.announce_counts.flush()
    store = await in_mode(after)
    await store.announce(update(1, "s"))
    assert (await row(store)).get("user_id") == (None if after == "off" else "7")
    store = await in_mode("optional")
    assert (await store.announce(update(1))).outcome in ("update", "early")
    assert (await store.users.find("7")).announces == 2
