from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash


async def test_ranking_and_backlog_are_shown(full: ApiClient, admin: Admin) -> None:
    for number in range(5):
        await admin.store.torrents.add(info_hash(number))
    assert len(await all_pages(full, "/scores", limit=2)) == 5
    lag = await full.get("/scores/lag")
    assert (lag["count"], lag["late"]) == (5, 0)
