"""W16: figures and page of a large project come from indexes, within 100 ms."""

import time

import pytest

from tests.frontends.work.conftest import Site

ITEMS, CLAIMS, CLAIMANTS = 100_000, 10_000, 1000
SECONDS = 0.1


@pytest.mark.long
@pytest.mark.serial
async def test_page_and_figures_of_a_large_project_take_less_than_100_ms(site: Site) -> None:
    redis, keys = site.store.redis, site.store.keys
    await site.add(*(f"item{number}" for number in range(ITEMS)))
    await redis.zadd(keys.work_out("proj"), {f"x{n} name{n % CLAIMANTS}": n for n in range(CLAIMS)})
    for board in ("downloader_count", "downloader_bytes", "downloader_seconds"):
        await redis.zadd(keys.work_ranking("proj", board), {f"name{n}": n for n in range(CLAIMANTS)})
    before = await walks(site)
    assert (await site.ask("/proj/nothing.json")).status == 404  # the first request compiles and connects
    for path in ("/proj/", "/proj/stats.json", "/proj/items/item5.json"):
        taken = []
        for _ in range(5):
            site.store.clock.now += 11  # the figures are read anew
            began = time.perf_counter()
            assert (await site.ask(path)).status == 200
            taken.append(time.perf_counter() - began)
        assert min(taken) < SECONDS, (path, taken)
    assert await walks(site) == before
    assert (await site.ask("/proj/stats.json")).json["counts"] == {"todo": ITEMS, "out": CLAIMS, "done": 0}


async def walks(site: Site) -> list[int]:
    """How often commands were called that walk whole keys."""
    stats = await site.store.redis.info("commandstats")
    names = ("scan", "keys", "zscan", "hscan", "sscan")
    return [stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names]
