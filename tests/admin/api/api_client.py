"""A client of the API under test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.admin.conftest import Admin
from tests.store.harness import Store, running
from tracker.store.access.tokens import Role
from tracker.store.swarms.rules import SwarmRules

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
PROBLEM = "application/problem+json"


class ApiClient:
    """Sends requests with one token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """The JSON of the response, which must have this status; None without a body."""
        async with self.session.request(method, f"/api/v1{path}", **options) as response:
            text = await response.text()
            assert response.status == status, f"{method} {path}: {response.status} {text}"
            if status == 204:
                assert text == ""
                return None
            assert response.content_type == (JSON if status < 400 else PROBLEM)
            body = await response.json(content_type=None)
            if status >= 400:
                assert (body["type"], body["status"]) == ("about:blank", status)
            return body

    async def get(self, path: str, status: int = 200, /, **query: Any) -> Any:
        return await self.ask("GET", path, status, params=query)

    async def wrong_fields(self, method: str, path: str, **options: Any) -> list[str]:
        """The invalid fields of a 422, such as ``query.limit``."""
        response = await self.ask(method, path, 422, **options)
        return [f"{error['in']}.{error['field']}" for error in response["errors"]]


@asynccontextmanager
async def program(admin: Admin, role: Role = "admin") -> AsyncIterator[ApiClient]:
    async with admin.client(role) as session:
        yield ApiClient(session)


@asynccontextmanager
async def swarms_of(admin: Admin, redis_url: str, **rules: Any) -> AsyncIterator[Store]:
    """The store of the admin port, for announces."""
    store = Store(redis_url, admin.store.keys, SwarmRules(**rules), clock=admin.clock)
    async with running(store) as open_store:
        yield open_store


async def all_pages(asking: ApiClient, path: str, **query: Any) -> list[Any]:
    """The items of every page of a list."""
    items: list[Any] = []
    more: dict[str, Any] = {}
    for _ in range(1000):
        page = await asking.get(path, **query, **more)
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        more = {"cursor": page["next_cursor"]}
    raise AssertionError("there is no end")
