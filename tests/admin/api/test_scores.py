from tests.admin.api.asking import Program, all_pages
from tests.admin.conftest import Admin
from tests.store.harness import info_hash


async def test_the_ranking_and_the_lag(full: Program, admin: Admin) -> None:
    for number in range(5):
        await admin.stores.torrents.add(info_hash(number))
    assert len(await all_pages(full, "/scores", limit=2)) == 5
    lag = await full.get("/scores/lag")
    assert (lag["count"], lag["late"]) == (5, 0)
