"""A page of a list costs the same with 100,000 torrents as with 100 (row T20).

tests/store/torrents/test_lists_at_scale.py measures the time of each call; this file counts the calls of a request.
"""

from typing import Any

import pytest

from tests.admin.api.api_client import program, swarms_of
from tests.admin.conftest import Admin
from tests.store.torrents.test_lists_at_scale import MANY, calls, fill, hashed, name

PAGE = 100
MAX_CALLS = 2 * PAGE
"""One per torrent of a page, and a few for the page and authentication; a search reads parts of the index of names."""


@pytest.mark.slow
async def test_large_lists_need_few_store_calls(admin: Admin, redis_url: str) -> None:
    async with swarms_of(admin, redis_url) as store, program(admin) as asking:
        await fill(store)

        async def get(path: str, **query: Any) -> Any:
            """The response; fails if it took too many store calls."""
            await store.redis.config_resetstat()
            page = await asking.get(path, **query)
            made = await calls(store)
            assert not made.keys() & {"keys", "scan"}
            assert sum(made.values()) <= MAX_CALLS, made
            return page

        for sort in ("seeders", "leechers", "snatches", "score"):
            for offset in (0, MANY // 2, MANY - PAGE):
                page = await get("/torrents", sort=sort, cursor=f"f{offset}")
                assert (page["total"], len(page["items"])) == (MANY, PAGE)
            assert page["next_cursor"] is None
        (found,) = (await get("/torrents", q=name(77_777)))["items"]
        assert found["info_hash"] == hashed(77_777).hex()
        (found,) = (await get("/torrents", q=hashed(7).hex()))["items"]
        assert found["name"] == name(7)
        assert len((await get("/torrents", q="something"))["items"]) == PAGE
        assert (await get("/scores", cursor=MANY // 2))["total"] == MANY
        assert (await get("/statistics"))["torrents"] == MANY
