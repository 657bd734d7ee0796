"""full, reader    clients with a token of role admin, and of role read"""

from collections.abc import AsyncIterator

import pytest

from tests.admin.api.api_client import ApiClient, program
from tests.admin.conftest import Admin


@pytest.fixture
async def full(admin: Admin) -> AsyncIterator[ApiClient]:
    async with program(admin, "admin") as asking:
        yield asking


@pytest.fixture
async def reader(admin: Admin) -> AsyncIterator[ApiClient]:
    async with program(admin, "read") as asking:
        yield asking
