"""The scan that lists users and clients written by a site."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.store.harness import Store
from tests.waiting import eventually
from tracker.workers.users import AdoptionWorker

SITES = "s" * 20


def worker_of(store: Store, *, wanted: bool = True) -> AdoptionWorker:
    return AdoptionWorker(store.shards.main, lambda: 2700.0, lambda: wanted)


async def write(store: Store) -> None:
    await store.redis.hset(store.keys.passkey(SITES), "user_id", "77")
    await store.redis.hset(store.keys.user(77), "name", "Anne")
    await store.redis.hset(store.keys.passkey("b" * 20), "user_id", "bob")
    await store.redis.hset(store.keys.allowed_client(b"-TR"), "name", "Transmission")


async def test_a_round_lists_users_and_clients_of_the_site_and_logs_it(store: Store) -> None:
    """The log contains no passkey, no id and no name."""
    await write(store)
    with capture_logs() as logs:
        await worker_of(store).round(0.0)
    assert await store.users.passkey_of("77") == SITES
    assert await store.allow_list.page(0) == (0, [(b"-TR", "Transmission")])
    assert logs == [
        {"event": "indexed users and clients that the site wrote", "users": 1, "clients": 1, "log_level": "info"},
        {"event": "indexed names of users that the site wrote", "names": 1, "log_level": "info"},
        {"event": "invalid user ids: not positive numbers, or used twice", "ids": 1, "log_level": "warning"},
    ]


async def test_the_first_round_begins_at_the_start(store: Store) -> None:
    await write(store)
    running = asyncio.Task(worker_of(store).run())

    async def listed() -> bool:
        return await store.users.passkey_of("77") is not None

    await eventually(listed)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_tracker_without_users_and_allow_list_scans_nothing(store: Store) -> None:
    await write(store)
    await worker_of(store, wanted=False).round(0.0)
    assert await store.users.count() == 0
