"""The API under test, as a program sees it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.admin.conftest import Admin
from tests.store.harness import Store, running
from tracker.store.swarms import SwarmRules
from tracker.store.tokens import Scope

JSON = "application/json"
PROBLEM = "application/problem+json"


class Program:
    """Asks with one token."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """The JSON of the answer, which must have this status; None where it has none."""
        async with self.session.request(method, f"/api/v1{path}", **options) as answer:
            text = await answer.text()
            assert answer.status == status, f"{method} {path}: {answer.status} {text}"
            if status == 204:
                assert text == ""
                return None
            assert answer.content_type == (JSON if status < 400 else PROBLEM)
            body = await answer.json(content_type=None)
            if status >= 400:
                assert (body["type"], body["status"]) == ("about:blank", status)
            return body

    async def get(self, path: str, status: int = 200, /, **query: Any) -> Any:
        return await self.ask("GET", path, status, params=query)

    async def wrong_fields(self, method: str, path: str, **options: Any) -> list[str]:
        """Where the fields stand that a 422 complains of: ``query.limit``."""
        answer = await self.ask(method, path, 422, **options)
        return [f"{error['in']}.{error['field']}" for error in answer["errors"]]


@asynccontextmanager
async def program(admin: Admin, scope: Scope = "full") -> AsyncIterator[Program]:
    async with admin.client(scope) as session:
        yield Program(session)


@asynccontextmanager
async def swarms_of(admin: Admin, redis_url: str, **rules: Any) -> AsyncIterator[Store]:
    """The same store as a tracker uses it, to announce there."""
    store = Store(redis_url, admin.stores.keys, SwarmRules(**rules), clock=admin.clock)
    async with running(store) as open_store:
        yield open_store


async def all_pages(asking: Program, path: str, **query: Any) -> list[Any]:
    """The items of every page of a list."""
    items: list[Any] = []
    more: dict[str, Any] = {}
    for _ in range(1000):
        page = await asking.get(path, **query, **more)
        items += page["items"]
        offset, cursor = page.get("next_offset"), page.get("next_cursor")
        if offset is None and cursor is None:
            return items
        more = {"offset": offset} if cursor is None else {"cursor": cursor}
    raise AssertionError("there is no end")
