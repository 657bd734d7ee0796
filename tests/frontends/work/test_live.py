"""The live view: server-sent events, resumed without a gap (W16)."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.frontends.work.conftest import Site, listening
from tests.frontends.work.test_public import finish
from tests.raw_http import Client, connect, request
from tracker.core.work_figures import Finished
from tracker.frontends.work.live import KEPT, PERIOD_SECONDS, Tail
from tracker.settings.model import Settings
from tracker.settings.site import WorkSettings

PATIENCE = 20.0


class Stream:
    """A stream of events, read from a chunked response."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._text = ""

    async def event(self) -> dict[str, str]:
        """The fields of the next event."""
        async with asyncio.timeout(PATIENCE):
            while "\n\n" not in self._text:
                size = int((await self._client.reader.readuntil(b"\r\n")).strip(), 16)
                assert size, "the stream has ended"
                self._text += (await self._client.reader.readexactly(size + 2))[:-2].decode()
        text, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in text.splitlines())

    async def finished(self) -> dict[str, Any]:
        row: dict[str, Any] = json.loads((await self.done())["data"])
        return row

    async def done(self) -> dict[str, str]:
        """The next finished item."""
        while (event := await self.event())["event"] != "done":
            pass
        return event

    async def counts(self) -> dict[str, int]:
        """The next counts of items."""
        while (event := await self.event())["event"] != "counts":
            pass
        found = json.loads(event["data"])
        self.periods: list[str] = found.pop("periods")
        numbers: dict[str, int] = found
        return numbers


@asynccontextmanager
async def stream(site: Site, *lines: str) -> AsyncIterator[tuple[Stream, str]]:
    """A stream, and the id from which it begins."""
    async with connect(site.addresses[0]) as client:
        client.send(request("/proj/live", *lines))
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
        assert "200 OK" in head and "text/event-stream" in head, head
        events = Stream(client)
        yield events, (await events.event())["id"]


async def test_items_of_0_bytes_show(site: Site) -> None:
    await finish(site, "before", data=1)
    async with stream(site) as (events, _):
        await finish(site, "one")
        row = await events.finished()
    assert (row["item"], row["downloader"], row["bytes"], row["seconds"]) == ("one", "volunteer_1", 0, 0)
    figures = {"bytes", "domain_bytes", "seconds"}
    assert set(row) == {"item", "downloader", "at", "version", "title", "periods", *figures}


async def test_a_stream_resumes_without_a_gap(site: Site) -> None:
    await finish(site, "item0")
    async with stream(site) as (events, begin):
        await finish(site, "item1")
        seen = await events.done()
    for number in range(2, 5):
        await finish(site, f"item{number}")
    for last, first in ((begin, 1), (seen["id"], 2)):
        async with stream(site, f"Last-Event-ID: {last}") as (events, _):
            found = [(await events.finished())["item"] for _ in range(first, 5)]
    assert found == ["item2", "item3", "item4"]


async def test_a_resumed_stream_goes_on(site: Site) -> None:
    async with stream(site) as (_, begin):
        await finish(site, "one")
    async with stream(site, f"Last-Event-ID: {begin}") as (events, _):
        assert (await events.finished())["item"] == "one"
        await finish(site, "two")
        assert (await events.finished())["item"] == "two"


async def test_a_stream_tells_the_counts_of_items(site: Site) -> None:
    async with stream(site) as (events, _):
        assert await events.counts() == {"todo": 0, "out": 0, "done": 0}
        await site.add("one", "two")
        assert await events.counts() == {"todo": 2, "out": 0, "done": 0}


async def test_a_stream_tells_that_a_new_week_or_month_has_begun(site: Site) -> None:
    """Also while nothing is finished. A finished item says in which it counts."""
    async with stream(site) as (events, _):
        await finish(site, "one")
        assert (await events.finished())["periods"] == ["2027-W02", "2027-01", ""]
        assert await events.counts() == {"todo": 0, "out": 0, "done": 1}
        assert events.periods == ["2027-W02", "2027-01", ""]
        await site.store.pass_time(17 * 86_400)
        assert await events.counts() == {"todo": 0, "out": 0, "done": 1}
        assert events.periods == ["2027-W05", "2027-02", ""]


async def test_a_stream_begins_after_the_id_of_the_page(site: Site) -> None:
    """What is finished between the page and the stream is not missing."""
    await finish(site, "one")
    id = (await site.ask("/proj/figures.json")).json["id"]
    await finish(site, "two")
    async with connect(site.addresses[0]) as client:
        client.send(request(f"/proj/live?after={id}"))
        await client.reader.readuntil(b"\r\n\r\n")
        events = Stream(client)
        assert (await events.event())["id"] == id
        assert (await events.finished())["item"] == "two"


async def test_two_streams_see_the_same(site: Site) -> None:
    async with stream(site) as (first, _), stream(site) as (second, _):
        await finish(site, "one")
        assert await first.finished() == await second.finished()


async def test_an_id_beyond_the_newest_counts_as_the_newest(site: Site) -> None:
    """The store was restored from a backup, or the project was deleted and created again."""
    await finish(site, "one")
    newest = (await site.store.work.log.newest("proj", 1))[0].id
    async with stream(site, "Last-Event-ID: 9999999999999-0") as (events, begin):
        assert begin == newest
        await finish(site, "two")
        assert (await events.finished())["item"] == "two"


async def test_a_stream_that_fails_takes_nothing_from_others(site: Site) -> None:
    """All streams of a project share one tail of the log, also after one could not begin."""
    log, aside = site.store.keys.work_log("proj"), site.store.keys.work_log("aside")
    await finish(site, "one")
    async with stream(site):
        await site.store.redis.rename(log, aside)
        await site.store.redis.set(log, "no stream")
        assert (await site.ask("/proj/live")).status == 500
        await site.store.redis.rename(aside, log)
        async with stream(site):
            gc.collect()
            assert sum(isinstance(each, Tail) for each in gc.get_objects()) == 1


async def test_a_malformed_id_is_refused(site: Site) -> None:
    for id in ("x", "1", "1-1-1", "$", "+"):
        assert (await site.ask("/proj/live", headers={"Last-Event-ID": id})).status == 400
    assert (await site.ask("/nothing/live")).status == 404


async def test_streams_of_one_address_are_limited(site: Site) -> None:
    async with stream(site), stream(site), stream(site), stream(site):
        async with stream(site), stream(site), stream(site), stream(site):
            assert (await site.ask("/proj/live")).status == 503


async def test_streams_end_when_the_listener_stops(site: Site) -> None:
    settings = Settings(work=WorkSettings(listen=("127.0.0.1:0",)))
    async with AsyncExitStack() as stack:
        async with listening(settings, site.store) as other:
            client = await stack.enter_async_context(connect(other.addresses[0]))
            client.send(request("/proj/live"))
            await client.reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await client.reader.read()).endswith(b"0\r\n\r\n")


def entry(number: int) -> Finished:
    return Finished(f"{number}-0", {"item": f"item{number}"})


class Log:
    """A log that counts how often it is read."""

    def __init__(self) -> None:
        self.entries: list[Finished] = []
        self.reads = 0

    async def read(self, id: str, count: int) -> Sequence[Finished]:
        self.reads += 1
        after = int(id.partition("-")[0])
        return [each for each in self.entries if int(each.id.partition("-")[0]) > after][:count]


async def test_all_streams_share_one_reading_a_second() -> None:
    log, now = Log(), 0.0
    tail = Tail(log.read, "0-0", lambda: now)
    log.entries = [entry(1), entry(2)]
    for _ in range(50):
        assert [each.id for each in await tail.after("1-0")] == ["2-0"]
    assert log.reads == 1
    now += PERIOD_SECONDS
    log.entries.append(entry(3))
    assert [each.id for each in await tail.after("2-0")] == ["3-0"] and log.reads == 2


async def test_who_is_far_behind_reads_from_the_store_in_pages() -> None:
    log, now = Log(), 0.0
    log.entries = [entry(n) for n in range(1, KEPT + 1000)]
    tail = Tail(log.read, "0-0", lambda: now)
    last, seen = "0-0", list[str]()
    while found := await tail.after(last):
        assert len(found) <= KEPT
        seen += [each.id for each in found]
        last = found[-1].id
    assert seen == [each.id for each in log.entries]


async def test_events_are_written_once_for_all_streams() -> None:
    """A thousand viewers cost a thousand writes to sockets, and nothing else."""
    log, now = Log(), 0.0
    tail = Tail(log.read, "0-0", lambda: now)
    log.entries = [entry(1), entry(2)]
    last, data = await tail.chunk("0-0")
    assert last == "2-0" and data.count(b"event: done") == 2
    for _ in range(1000):
        assert tail.has_news("0-0", None)
        again, same = await tail.chunk("0-0")
        assert again == last and same is data
        assert not tail.has_news(last, tail.counts)  # so it asks for nothing before there is something new
    assert log.reads == 1
    log.entries.append(entry(3))
    now += PERIOD_SECONDS
    assert not await tail.after("3-0") and tail.has_news(last, tail.counts)
