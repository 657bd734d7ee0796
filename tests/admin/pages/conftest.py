"""Fixtures for pages: `store` is the store of the admin port, `private` an admin port in private mode."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from tests.admin.conftest import Admin, Serve
from tests.store.harness import Store, running
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import UserSettings
from tracker.store.swarms.rules import SwarmRules

HNR_BYTES = 100
HNR_SECONDS = 1000


@pytest.fixture
async def store(admin: Admin, redis_url: str) -> AsyncIterator[Store]:
    """The store of the public tracker."""
    keys = admin.store.keys
    async with running(Store(redis_url, keys, SwarmRules(), admin.clock)) as store:
        yield store


@pytest.fixture
async def browser(admin: Admin) -> AsyncIterator[aiohttp.ClientSession]:
    async with admin.browser("admin") as session:
        yield session


@pytest.fixture
async def reader(admin: Admin) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser signed in with role read."""
    async with admin.browser("read") as session:
        yield session


@dataclass
class Private:
    """A private tracker: its admin port and its store."""

    admin: Admin
    store: Store


@pytest.fixture
async def private(serve: Serve, redis_url: str, prefix: str) -> AsyncIterator[Private]:
    users = UserSettings(private="required", hnr_min_bytes=HNR_BYTES, hnr_threshold_seconds=HNR_SECONDS)
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), users=users))
    rules = SwarmRules(
        accounts="required", peer_memory=3600, hnr_min_bytes=HNR_BYTES, hnr_threshold=HNR_SECONDS, max_gap=7200
    )
    async with running(Store(redis_url, admin.store.keys, rules, admin.clock)) as store:
        yield Private(admin, store)
