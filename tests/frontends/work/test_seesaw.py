"""W26: the real client of 2019, seesaw 0.10.3, against the real listener: request, done, and every refusal.

It wants Python 3.9 or older; seesaw_client.py gives back the names that it misses.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.frontends.work.conftest import Serve, Site
from tests.frontends.work.libraries import libraries

CLIENT = Path(__file__).with_name("seesaw_client.py")
RUN_SECONDS = 30


@pytest.fixture(scope="module")
def seesaw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of a process that imports seesaw."""
    if sys.version_info >= (3, 12):
        pytest.skip("seesaw wants tornado 4.5, which needs ssl.match_hostname of Python 3.11 or older")
    return libraries(tmp_path_factory.mktemp("seesaw"))


@dataclass(frozen=True)
class Run:
    """``state`` is that of the item at the end."""

    log: str
    state: str
    properties: dict[str, Any]


async def run(seesaw: dict[str, str], url: str, **changes: Any) -> Run:
    options = {
        "url": url,
        "name": "volunteer_1",
        "version": "20260101.01",
        "domains": {"data": 1234},
        "id": {"sum": "abc"},
        "attempts": 2,
        **changes,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        CLIENT,
        json.dumps(options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=seesaw["PYTHONPATH"],
        env=seesaw,
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()
    *log, last = out.decode().splitlines()
    found = json.loads(last)
    return Run("\n".join(log), found["state"], found["properties"])


@pytest.mark.slow
async def test_seesaw_claims_an_item_and_reports_it(site: Site, seesaw: dict[str, str]) -> None:
    await site.add("one")
    ended = await run(seesaw, f"{site.url}/proj")
    assert ended.state == "completed", ended.log
    assert "Received item 'one' from tracker" in ended.log and "Tracker confirmed item 'one'" in ended.log
    assert set(ended.properties) == {"item_name", "token", "lease_ends", "stats", "data_dir"}
    (entry,) = await site.store.work.log.newest("proj")
    assert entry.bytes == {"data": 1234} and entry.note == '{"sum":"abc"}'
    assert entry.user_agent == "ArchiveTeam Warrior/0.10.3"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="seesaw uploads with curl")
async def test_seesaw_uploads_where_the_tracker_says(site: Site, seesaw: dict[str, str], tmp_path: Path) -> None:
    """A pipeline of a project: get an item, download it, count its bytes, upload it, report it."""
    received: dict[str, bytes] = {}

    async def put(request: web.Request) -> web.Response:
        received[request.path] = await request.read()
        return web.Response(status=201)

    app = web.Application()
    app.router.add_put("/{path:.+}", put)
    async with TestServer(app) as server:
        targets = (f"http://127.0.0.1:{server.port}/:downloader/",)
        await site.store.work.projects.edit("proj", {"upload_targets": targets, "domains": ("data",)})
        await site.add("one")
        ended = await run(seesaw, f"{site.url}/proj", file=str(tmp_path / "one.warc"))
    assert ended.state == "completed", ended.log
    assert received == {"/volunteer_1/one.warc": b"data of one"}
    (entry,) = await site.store.work.log.newest("proj")
    assert (entry.item, entry.bytes) == ("one", {"data": 11})


@pytest.mark.long
async def test_seesaw_understands_every_refusal(serve: Serve, seesaw: dict[str, str]) -> None:
    site = await serve()
    await site.project(per_minute=1, start_budget=2, budget=2)
    projects, blocks = site.store.work.projects, site.store.work.blocks
    url = f"{site.url}/proj"

    async def refusal(**changes: Any) -> str:
        ended = await run(seesaw, url, **changes)
        assert ended.state == "running" and ended.log.count("Retrying") == 2, ended.log
        return ended.log

    assert "No item received" in await refusal()
    await site.add("one", "two", "three", "four")
    await projects.edit("proj", {"min_version": "20260101.2"})
    assert "Project code is out of date" in await refusal()
    await projects.edit("proj", {"min_version": "20260101.01"})
    await blocks.block("volunteer_1", "proj")
    assert "status code 403" in await refusal()
    await blocks.unblock("volunteer_1", "proj")
    assert "status code 400" in await refusal(name="x")
    assert (await run(seesaw, url)).state == "completed"
    assert "Tracker rate limiting is active" in await refusal()
    await projects.edit("proj", {"per_minute": 0})
    for _ in range(2):
        await site.store.work.claims.claim("proj", "volunteer_1", version="20260101.1")
    assert "No item received" in await refusal()  # the budget is used


@pytest.mark.long
@pytest.mark.parametrize("legacy", [False, True])
async def test_seesaw_takes_420_and_429_alike(serve: Serve, seesaw: dict[str, str], legacy: bool) -> None:
    site = await serve(work={"legacy_status": legacy})
    await site.project(per_minute=1)
    await site.add("one", "two")
    assert (await run(seesaw, f"{site.url}/proj")).state == "completed"
    assert "Tracker rate limiting is active" in (await run(seesaw, f"{site.url}/proj")).log


@pytest.mark.long
@pytest.mark.parametrize(("report", "domains"), [("unknown", {"data": 1}), ("one", {"data": 1}), ("", {"x": 1})])
async def test_a_report_that_can_never_count_ends_all_the_same(
    serve: Serve, seesaw: dict[str, str], report: str, domains: dict[str, int]
) -> None:
    """That client repeats it until the answer is OK."""
    site = await serve()
    await site.project(domains=("data",))
    await site.add("one")
    await site.store.work.claims.claim("proj", "stranger")
    assert (await site.store.work.claims.done("proj", "stranger", "one", reported={"data": 1})).counted
    await site.add("two")
    ended = await run(seesaw, f"{site.url}/proj", report=report or "two", domains=domains)
    assert ended.state == "completed" and ended.properties["item_name"] == "two"
    assert (await site.store.redis.xlen(site.store.keys.work_log("proj"))) == 1


@pytest.mark.long
async def test_seesaw_works_with_the_default_project(serve: Serve, seesaw: dict[str, str]) -> None:
    site = await serve(work={"default": "proj"})
    await site.project()
    await site.add("one")
    assert (await run(seesaw, site.url)).state == "completed"
