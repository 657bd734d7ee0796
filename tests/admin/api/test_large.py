"""With 100,000 torrents a page of a list costs what it costs with a hundred (row T20).

That each of these calls is short is measured in tests/store/test_lists_at_scale.py; here, that a request makes few.
"""

from typing import Any

import pytest

from tests.admin.api.asking import program, swarms_of
from tests.admin.conftest import Admin
from tests.store.test_lists_at_scale import MANY, calls, fill, hashed, name

PAGE = 100
MOST_CALLS = 3 * PAGE
"""Two for each torrent of a page, and some for the page and whoever asks."""


@pytest.mark.slow
async def test_lists_of_very_many_torrents(admin: Admin, redis_url: str) -> None:
    async with swarms_of(admin, redis_url) as store, program(admin) as asking:
        await fill(store)

        async def get(path: str, **query: Any) -> Any:
            """The answer; fails when the store had much to do for it."""
            await store.redis.config_resetstat()
            page = await asking.get(path, **query)
            made = await calls(store)
            assert not made.keys() & {"keys", "scan"}
            assert sum(made.values()) <= MOST_CALLS, made
            return page

        for sort in ("seeders", "leechers", "snatches", "score"):
            for offset in (0, MANY // 2, MANY - PAGE):
                page = await get("/torrents", sort=sort, offset=offset)
                assert (page["total"], len(page["items"])) == (MANY, PAGE)
            assert page["next_offset"] is None
        (found,) = (await get("/torrents", q=name(77_777)))["items"]
        assert found["info_hash"] == hashed(77_777).hex()
        (found,) = (await get("/torrents", q=hashed(7).hex()))["items"]
        assert found["name"] == name(7)
        assert len((await get("/torrents", q="something"))["items"]) == PAGE
        assert (await get("/scores", offset=MANY // 2))["total"] == MANY
        assert (await get("/statistics"))["torrents"] == MANY
