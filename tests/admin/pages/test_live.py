"""The live updates of the overview."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import orjson

from tests.admin.conftest import PATIENCE, Admin, Serve
from tests.waiting import eventually
from tracker.admin.context import StreamLimits
from tracker.admin.http.connections import Limits
from tracker.admin.pages.overview import LatestReading
from tracker.admin.server import serve_admin


class Stream:
    """Reads server-sent events like a browser's EventSource."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, dict[str, Any]]:
        """(name, data) of the next event; ("end", {}) at the end of the stream."""
        name = ""
        while line := (await self.response.content.readline()).decode():
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                return name, orjson.loads(line.removeprefix("data: "))
        return "end", {}

    async def until(self, name: str, **texts: str) -> dict[str, Any]:
        """The first event of this name that has these texts."""
        async with asyncio.timeout(PATIENCE):
            while True:
                heard, data = await self.next()
                if heard == name and texts.items() <= data.get("texts", {}).items():
                    return data
                assert heard != "end", f"no {name} with {texts}"


@asynccontextmanager
async def listening(browser: aiohttp.ClientSession) -> AsyncIterator[Stream]:
    async with browser.get("/live", headers={"Accept": "text/event-stream"}) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        yield Stream(response)


async def test_live_updates_follow_the_store(admin: Admin) -> None:
    keys, command = admin.store.keys, admin.store.connection.command
    async with admin.browser("read") as browser, listening(browser) as stream:
        await stream.until("figures", seeders="0")
        await command("SET", keys.stat("seeders"), 41)
        admin.store.counters.count("failures.<b>", "refused.announces", by=4, at=admin.clock() - 5)
        await admin.store.counters.flush()
        data = await stream.until("figures", seeders="41", peers="41")
        assert set(data["charts"]) == {"requests", "latency"}
        assert sum(data["sparks"]["failures"]) == 4
        assert data["problems"] == []
        assert data["tones"] == {"repairs": "good", "credit_cut": ""}
        admin.problems.append("the sweep is behind")
        while not data["problems"]:
            data = await stream.until("figures")
        assert data["problems"] == ["the sweep is behind"]


async def test_a_revoked_token_ends_the_stream_of_its_browser(serve: Serve) -> None:
    admin = await serve(streams=StreamLimits(identity_seconds=0))
    async with admin.browser() as browser, listening(browser) as stream:
        await stream.until("figures")
        await admin.store.tokens.revoke("test admin")
        await stream.until("signed-out")
        assert await stream.next() == ("end", {})


async def test_streams_end_when_the_port_closes(admin: Admin) -> None:
    begun = asyncio.Event()

    async def listen(url: str) -> None:
        headers = {"Authorization": f"Bearer {await admin.token()}"}
        async with aiohttp.ClientSession(url, headers=headers) as client, listening(client) as stream:
            await stream.until("figures")
            begun.set()
            while (await stream.next())[0] != "end":
                pass

    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        # The port waits for streams much longer than this test.
        port = serve_admin(admin.context, admin.context.settings.admin, Limits(stop_seconds=10 * PATIENCE))
        addresses = await stack.enter_async_context(port)
        group.create_task(listen(f"http://{addresses[0]}"))
        await begun.wait()
        await stack.aclose()


async def test_the_number_of_open_streams_is_limited(serve: Serve) -> None:
    admin = await serve(streams=StreamLimits(streams=1))
    async with admin.browser() as browser:
        async with listening(browser) as stream:
            await stream.until("figures")
            async with browser.get("/live") as response:
                assert response.status == 503
                assert response.headers["Retry-After"]

        async def is_open() -> bool:
            async with browser.get("/live") as response:
                return bool(response.status == 200)

        await eventually(is_open)  # the tracker detects a closed connection at its next write


async def test_the_number_of_streams_per_token_is_limited(serve: Serve) -> None:
    admin = await serve(streams=StreamLimits(streams_per_token=1))
    async with admin.browser("read") as reader, admin.browser("admin") as browser:
        async with listening(reader) as stream:
            await stream.until("figures")
            async with reader.get("/live") as response:
                assert response.status == 503
            async with listening(browser) as other:
                await other.until("figures")


async def test_streams_need_authentication(admin: Admin) -> None:
    async with admin.client(headers={"Accept": "text/event-stream"}) as client:
        async with client.get("/live") as response:
            assert response.status == 401


async def test_concurrent_streams_share_one_reading(admin: Admin) -> None:
    now = 100.0
    latest_reading = LatestReading(admin.context, lambda: now)
    command, key = admin.store.connection.command, admin.store.keys.stat("seeders")
    first = await asyncio.gather(*(latest_reading.latest() for _ in range(20)))
    assert len({id(figures) for figures in first}) == 1
    await command("SET", key, 5)
    assert (await latest_reading.latest()).totals["seeders"] == 0
    now += 1
    assert (await latest_reading.latest()).totals["seeders"] == 5


async def test_the_95th_percentile_covers_the_last_minute(admin: Admin) -> None:
    now = 100.0
    latest_reading = LatestReading(admin.context, lambda: now)
    assert (await latest_reading.latest()).p95 is None
    for _ in range(100):
        admin.telemetry.observe("announce_seconds", 2.0)
    now += 1
    p95 = (await latest_reading.latest()).p95
    assert p95 is not None and 1.0 < p95 <= 2.5
    for _ in range(120):
        now += 1
        admin.telemetry.observe("announce_seconds", 0.0004)
        p95 = (await latest_reading.latest()).p95
    assert p95 is not None and p95 <= 0.0005
