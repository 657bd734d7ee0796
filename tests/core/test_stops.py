"""A goodbye needs no permission: `stopped` is applied although the user, the torrent or the client is refused. The peer
must be the client's own, as always."""

from collections.abc import Awaitable, Callable

import pytest

from loadtest.invariants import check_invariants
from tests.core.harness import TrackerHarness, open_tracker
from tests.store.harness import ALICE, BOB, Store, info_hash
from tracker.core.counter_names import UDP
from tracker.settings.model import Settings

REAP_SECONDS = 1800


async def user_disabled(store: Store) -> None:
    await store.users.edit(ALICE, {"enabled": False})


async def user_deleted_by_the_site(store: Store) -> None:
    await store.redis.delete(store.keys.passkey(ALICE))


async def passkey_replaced(store: Store) -> None:
    await store.users.rotate(ALICE)


async def passkey_replaced_and_user_disabled(store: Store) -> None:
    await store.users.edit((await store.users.rotate(ALICE)).passkey, {"enabled": False})


async def torrent_disabled(store: Store) -> None:
    await store.torrents.edit(info_hash(1), {"enabled": "0"})


async def torrent_denied(store: Store) -> None:
    await store.torrents.deny(info_hash(1), "no")


async def torrent_removed(store: Store) -> None:
    await store.torrents.remove(info_hash(1))


async def client_denied(store: Store) -> None:
    await store.deny_list.add(b"-XX")
    await store.deny_list_cache.read()


REASONS = [
    user_disabled,
    user_deleted_by_the_site,
    passkey_replaced,
    passkey_replaced_and_user_disabled,
    torrent_disabled,
    torrent_denied,
    torrent_removed,
    client_denied,
]


def settings_with(accounts: str = "required", **announce: object) -> Settings:
    return Settings.model_validate(
        {
            "users": {"private": accounts},
            "torrents": {"mode": "registered"},
            "clients": {"deny_list": True},
            "reaper": {"interval_seconds": REAP_SECONDS},
            "announce": announce,
        }
    )


async def with_users(tracker: TrackerHarness) -> None:
    await tracker.store.torrents.add(info_hash(1))
    await tracker.store.users.add("7", ALICE)
    await tracker.store.users.add("8", BOB)


@pytest.mark.parametrize("accounts", ["required", "optional"])
@pytest.mark.parametrize("over", ["http", "udp"])
@pytest.mark.parametrize("refuse", REASONS)
async def test_a_stop_is_applied_whatever_is_refused(
    redis_url: str, prefix: str, refuse: Callable[[Store], Awaitable[None]], over: str, accounts: str
) -> None:
    async with open_tracker(redis_url, prefix, settings_with(accounts)) as tracker:
        await with_users(tracker)
        await tracker.announce(1, "started", ALICE)
        await tracker.announce(2, "started", BOB)
        await refuse(tracker.store)
        if over == "udp":
            tracker.decisions = tracker.decisions.over(UDP)
        reply = await tracker.announce(1, "stopped", ALICE, uploaded=70)
        assert (reply.leechers, reply.peers) == (1, b"")
        assert (await tracker.peer(1))["active"] == "0"
        assert await check_invariants(tracker.store.redis, tracker.store.keys) == 1
        if refuse is user_deleted_by_the_site:
            assert "uploaded" not in await tracker.store.redis.hgetall(tracker.store.keys.user(7))


async def test_nothing_else_is_applied_for_a_refused_user(redis_url: str, prefix: str) -> None:
    async with open_tracker(redis_url, prefix, settings_with()) as tracker:
        await with_users(tracker)
        await tracker.announce(1, "started", ALICE)
        await passkey_replaced(tracker.store)
        for event in ("", "started", "completed", "paused"):
            assert (await tracker.refused(1, event, ALICE)).label == "unknown passkey"
        assert (await tracker.peer(1))["active"] == "1"


async def test_an_old_passkey_stops_no_peer_of_another_user(redis_url: str, prefix: str) -> None:
    """Nor from another address, nor once all its peers must have timed out, nor does a passkey that no user had."""
    async with open_tracker(redis_url, prefix, settings_with()) as tracker:
        await with_users(tracker)
        await tracker.announce(1, "started", ALICE, key=b"secret")
        await tracker.announce(2, "started", BOB)
        await passkey_replaced(tracker.store)
        assert (await tracker.refused(2, "stopped", ALICE)).label == "unknown passkey"
        assert (await tracker.refused(1, "stopped", "n" * 20)).label == "unknown passkey"
        assert (await tracker.refused(1, "stopped", None)).label == "no passkey"
        await tracker.announce(1, "stopped", ALICE, address="11.9.9.9")
        await tracker.announce(1, "stopped", BOB)
        assert [(await tracker.peer(n))["active"] for n in (1, 2)] == ["1", "1"]
        await tracker.store.pass_time(2 * REAP_SECONDS)
        assert (await tracker.refused(1, "stopped", ALICE)).label == "unknown passkey"
        assert (await tracker.peer(1))["active"] == "1"


async def test_a_deleted_user_gets_no_keys_back_by_a_stop(redis_url: str, prefix: str) -> None:
    async with open_tracker(redis_url, prefix, settings_with()) as tracker:
        store = tracker.store
        await with_users(tracker)
        await tracker.announce(1, "started", ALICE)
        await store.redis.sadd(store.keys.deleting(), "7")
        await store.redis.delete(store.keys.passkey(ALICE))
        await tracker.announce(1, "stopped", ALICE, uploaded=70)
        await store.users.finish_deletions()
        assert not [key async for key in store.redis.scan_iter(f"{store.keys.prefix}u:7*")]


async def test_a_stop_of_an_unknown_torrent_is_refused_and_of_a_known_one_answered(redis_url: str, prefix: str) -> None:
    async with open_tracker(redis_url, prefix, settings_with("off")) as tracker:
        assert (await tracker.refused(1, "stopped")).label == "unknown torrent"
        await tracker.store.torrents.add(info_hash(2))
        await tracker.store.torrents.deny(info_hash(2), "no")
        assert (await tracker.announce(1, "stopped", info_hash=info_hash(2))).leechers == 0


async def test_a_stop_from_a_private_address_is_applied(redis_url: str, prefix: str) -> None:
    """The peer joined before the setting was changed."""
    async with open_tracker(redis_url, prefix, settings_with("off")) as tracker:
        await tracker.store.torrents.add(info_hash(1))
        await tracker.announce(1, "started", address="10.0.0.1")
        async with open_tracker(redis_url, prefix, settings_with("off", private_addresses="refuse")) as now:
            await now.refused(1, address="10.0.0.1")
            assert (await now.announce(1, "stopped", address="10.0.0.1")).leechers == 0


async def test_a_client_that_the_allow_list_lost_may_stop(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"clients": {"allow_list": True}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await tracker.store.allow_list.add(b"-XX")
        await tracker.announce(1, "started")
        async with open_tracker(redis_url, prefix, settings) as other:
            await other.store.allow_list.remove(b"-XX")
            await other.refused(2)
            assert (await other.announce(1, "stopped")).leechers == 0
