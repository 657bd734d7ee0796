"""What is public: figures, items, needed torrents, the feed, the page."""

import asyncio
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import qbittorrentapi

from tests.frontends.work.conftest import Serve, Site
from tests.frontends.work.libraries import libraries
from tests.frontends.work.test_calls import ASK, claimed, report
from tests.store.harness import ALICE, BOB, START, info_hash
from tests.store.work.harness import rank
from tests.volunteer.programs import PASSWORD, USER, Program, program
from tests.waiting import until
from tracker.core.work_figures import WorkFigures
from tracker.frontends.work.public import amount_text

HOSTILE = "<script>alert(1)</script>&\"'"


async def finish(site: Site, item: str, name: str = "volunteer_1", **numbers: int) -> None:
    await site.add(item)
    await claimed(site, downloader=name)
    assert (await report(site, item, downloader=name, bytes=numbers)).text == "OK\n"
    assert await site.store.work.leaderboard.update("proj") == 1


async def test_stats_have_the_fields_of_2020(site: Site) -> None:
    await finish(site, "one", data=5, more=2)
    await finish(site, "two", "volunteer_2")
    await site.add("three", "four")
    await claimed(site)
    reply = await site.ask("/proj/stats.json")
    assert reply.json == {
        "domain_bytes": {"data": 5, "more": 2},
        "downloader_bytes": {"volunteer_1": 7, "volunteer_2": 0},
        "downloader_count": {"volunteer_1": 1, "volunteer_2": 1},
        "downloaders": ["volunteer_2", "volunteer_1"],
        "counts": {"todo": 1, "out": 1, "done": 2},
        "total_items": 4,
        "total_items_done": 2,
        "total_items_out": 1,
        "total_bytes": 7,
    }
    assert reply.headers["cache-control"] == "public, max-age=10"


async def test_figures_are_read_every_ten_seconds(site: Site) -> None:
    async def added() -> int:
        found: int = (await site.ask("/proj/stats.json")).json["total_items"]
        return found

    assert await added() == 0
    await site.add("one")
    site.store.clock.now += 9
    assert await added() == 0
    site.store.clock.now += 2
    assert await added() == 1


async def test_an_item_says_where_it_is(site: Site) -> None:
    async def state(item: str) -> Any:
        return (await site.ask(f"/proj/items/{item}.json")).json

    await site.add("a/b c.json")
    path = "a%2Fb%20c.json"
    assert await state(path) == {"status": "todo", "downloader": None}
    await claimed(site)
    assert await state("a/b%20c.json") == {"status": "out", "downloader": "volunteer_1"}
    await report(site, "a/b c.json")
    assert await state(path) == {"status": "done", "downloader": None}
    assert await state("nothing") == {"status": None, "downloader": None}


async def test_the_page_shows_everything_escaped(serve: Serve) -> None:
    """W11, and W16: items of 0 bytes show."""
    site = await serve()
    await site.project(title=HOSTILE, item_type=HOSTILE)
    await finish(site, HOSTILE)
    reply = await site.ask("/proj/")
    assert reply.status == 200 and reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "<script>alert" not in reply.text
    assert reply.text.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;") == 4
    assert re.search(r"<td>volunteer_1</td><td>&lt;script.*</td><td>0 B</td>", reply.text)
    for path in re.findall(r'(?:href|src)="([^"]+)"', reply.text):
        assert (await site.ask(path)).status == 200
    assert (await site.ask("/static/server.py")).status == 404
    reply = await site.ask("/proj")
    assert (reply.status, reply.headers["location"]) == (308, "/proj/")


async def test_the_page_shows_the_leaderboards_of_week_month_and_all_time(site: Site) -> None:
    await finish(site, "one", data=5 * 2**30)
    site.store.clock.now = datetime(2027, 3, 8, tzinfo=UTC).timestamp()  # a Monday
    await finish(site, "two", "volunteer_2", data=2**20)
    site.store.clock.now += 7 * 86_400
    await finish(site, "three", "volunteer_3", data=2**20)
    text = (await site.ask("/proj/")).text
    week, month, everything = text.split("Leaderboard: ")[1:]
    assert week.startswith("2027-W11") and month.startswith("2027-03")
    assert "volunteer_3" in week and "volunteer_2" not in week
    assert "volunteer_2" in month and "volunteer_1" not in month and "1.0 MiB" in month
    assert everything.count("volunteer_1") == 1 and "5.0 GiB" in everything


def test_sizes_and_days_are_readable() -> None:
    assert [amount_text(n, "bytes") for n in (0, 1, 1023, 1024, 5 * 2**30, 2**53)] == [
        *("0 B", "1 B", "1023 B", "1.0 KiB", "5.0 GiB", "8.0 PiB")
    ]
    assert amount_text(108_000, "seconds") == "1.2 d"


@pytest.fixture
async def torrents(seeding: Site) -> Site:
    """Needed torrents 1 (open) and 2 (private), and 3 and 5, which are disabled and pending."""
    for number, fields in (
        (1, {"name": HOSTILE + "\x01\ufffe", "size": "5000"}),
        (2, {"name": "private", "size": "9000", "private": "1"}),
        (3, {"enabled": "0"}),
        (5, {"enabled": "pending"}),
    ):
        await seeding.store.torrents.add(info_hash(number), fields)
        await seeding.add(info_hash(number).hex(), project="seeds", place=number)
    return seeding


async def test_the_open_list_is_for_projects_that_have_one(torrents: Site) -> None:
    """W30: private torrents are not in it."""
    assert (await torrents.ask("/seeds/needed.json")).status == 404
    await torrents.store.work.projects.edit("seeds", {"public": True})
    await torrents.store.redis.rpush(
        torrents.store.keys.history("1"), *(f"{START - 3600 * n} 2 5 7 1.5" for n in range(6, 0, -1))
    )
    (found,) = (await torrents.ask("/seeds/needed.json")).json
    assert found.pop("name").startswith(HOSTILE)
    assert found == {
        "info_hash": info_hash(1).hex(),
        "size": 5000,
        "seeders": 0,
        "average": 2.0,
        "leechers": 0,
        "added": START,
    }


async def test_the_feed_is_for_owners_of_passkeys(torrents: Site) -> None:
    for query in ("", "?passkey=", f"?passkey={'x' * 20}"):
        assert (await torrents.ask(f"/seeds/feed.rss{query}")).status == 401
    assert (await torrents.ask(f"/seeds/feed.rss?passkey={ALICE}&max_size=x")).status == 400
    reply = await torrents.ask(f"/seeds/feed.rss?passkey={ALICE}")
    assert reply.headers["content-type"] == "application/rss+xml; charset=utf-8"
    assert reply.headers["cache-control"] == "private, no-store"
    assert len(items(reply.body)) == 2
    assert len(items((await torrents.ask(f"/seeds/feed.rss?passkey={BOB}&max_size=5000")).body)) == 1
    await torrents.store.work.blocks.block("7", "seeds")
    assert (await torrents.ask(f"/seeds/feed.rss?passkey={ALICE}")).status == 403


async def test_a_public_feed_names_no_private_torrent(torrents: Site) -> None:
    """W30."""
    await torrents.store.work.projects.edit("seeds", {"public": True})
    (entry,) = items((await torrents.ask("/seeds/feed.rss")).body)
    assert entry.findtext("guid") == info_hash(1).hex()
    assert f"6969{'%2F'}announce" in (entry.findtext("link") or "")


async def test_the_feed_is_valid_whatever_names_contain(torrents: Site) -> None:
    """W11, W29: RSS 2.0, escaped, with one enclosure for each item."""
    reply = await torrents.ask(f"/seeds/feed.rss?passkey={ALICE}")
    root = parsed(reply.body)
    assert (root.tag, root.attrib) == ("rss", {"version": "2.0"})
    (channel,) = root
    assert all(channel.findtext(name) for name in ("title", "link", "description"))
    entry = items(reply.body)[0]
    assert entry.findtext("title") == HOSTILE + "\ufffd"  # of the name, which holds no control characters
    assert entry.findtext("pubDate") == "Fri, 15 Jan 2027 08:00:00 GMT"
    (enclosure,) = entry.findall("enclosure")
    assert enclosure.attrib == {
        "url": entry.findtext("link"),
        "length": "5000",
        "type": "application/x-bittorrent;x-scheme-handler/magnet",
    }
    assert enclosure.attrib["url"].startswith(f"magnet:?xt=urn:btih:{info_hash(1).hex()}&dn=%3Cscript")


READ = """
import feedparser, json, sys
feed = feedparser.parse(sys.stdin.buffer.read())
rows = [[e.title, e.id, e.enclosures[0].href, e.enclosures[0].length] for e in feed.entries]
print(json.dumps([feed.bozo, feed.version, rows]))
"""


def read_with(environment: dict[str, str], body: bytes) -> bytes:
    command = [sys.executable, "-c", READ]
    return subprocess.run(command, input=body, env=environment, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.long
async def test_a_reader_of_feeds_takes_the_feed(torrents: Site, tmp_path: Path) -> None:
    """W29: feedparser, as many programs use it."""
    environment = await asyncio.to_thread(libraries, tmp_path)
    body = (await torrents.ask(f"/seeds/feed.rss?passkey={ALICE}")).body
    malformed, version, rows = json.loads(await asyncio.to_thread(read_with, environment, body))
    assert not malformed and version == "rss20"
    assert [row[1] for row in rows] == [info_hash(1).hex(), info_hash(2).hex()]
    assert [row[3] for row in rows] == ["5000", "9000"]
    assert all(row[2].startswith("magnet:?xt=urn:btih:") for row in rows)


def subscribe(program: Program, feed: str) -> set[str]:
    """Lets qBittorrent follow the feed, and returns the info hashes of the two torrents that it added."""
    address = program.url.rpartition("@")[2]
    client = qbittorrentapi.Client(f"http://{address}", username=USER, password=PASSWORD)
    client.app_set_preferences({"rss_processing_enabled": True, "rss_auto_downloading_enabled": True})
    client.rss_add_feed(feed, "needed")
    client.rss_set_rule("all", {"enabled": True, "affectedFeeds": [feed], "addPaused": True})
    until(lambda: len(client.torrents_info()) == 2)
    return {str(torrent["hash"]) for torrent in client.torrents_info()}


@pytest.mark.long
async def test_a_client_adds_what_the_feed_names(torrents: Site, tmp_path: Path) -> None:
    """W29: qBittorrent, by its own rules for feeds."""
    feed = f"{torrents.url}/seeds/feed.rss?passkey={ALICE}"
    with program("qbittorrent", tmp_path) as client:
        added = await asyncio.to_thread(subscribe, client, feed)
    assert added == {info_hash(1).hex(), info_hash(2).hex()}


async def test_the_feed_links_torrent_files_where_they_are(serve: Serve) -> None:
    site = await serve(work={"torrent_url": "https://site.example/t?id={info_hash}&x=1"})
    await site.project("seeds", kind="seeding", keep_done_days=30, public=True)
    await site.store.torrents.add(info_hash(1), {})
    await site.add(info_hash(1).hex(), project="seeds")
    (entry,) = items((await site.ask("/seeds/feed.rss")).body)
    url = f"https://site.example/t?id={info_hash(1).hex()}&x=1"
    assert (entry.findtext("title"), entry.findtext("link")) == (info_hash(1).hex(), url)
    assert entry.find("enclosure").attrib["type"] == "application/x-bittorrent"  # type: ignore[union-attr]


async def test_own_requests_come_first_in_the_feed(torrents: Site) -> None:
    await torrents.store.torrents.add(info_hash(4), {})
    await torrents.add(info_hash(4).hex(), project="seeds", claimants=("8",))
    for passkey, numbers in ((ALICE, [1, 2]), (BOB, [4, 1, 2])):
        reply = await torrents.ask(f"/seeds/feed.rss?passkey={passkey}")
        assert [each.findtext("guid") for each in items(reply.body)] == [info_hash(n).hex() for n in numbers]


@pytest.mark.parametrize("order", ["random", "weakest"])
async def test_the_neediest_torrents_come_first_whatever_their_queue(seeding: Site, order: str) -> None:
    """In the order of their averages. In a project with a random order the policy knows them."""
    store = seeding.store
    await store.work.projects.edit("seeds", {"public": True, "order": order})
    for number, seeders, queue in ((5, 2, "secondary"), (6, 3, "todo"), (7, 0, "todo"), (8, 1, "secondary")):
        name, base = info_hash(number).hex(), 1000 * seeders
        await store.torrents.add(info_hash(number))
        await seeding.add(name, project="seeds", queue=queue, place=base)
        need = base + (10**9 if queue == "secondary" else 0)
        await store.redis.zadd(store.keys.work_needs("seeds"), {name: need})
        torrent = await store.torrents.get(info_hash(number))
        assert torrent is not None
        points = [f"{START - 3600 * hour} {seeders} 5 7 1.5" for hour in range(60, 0, -1)]
        await store.redis.rpush(store.keys.history(torrent.torrent_id), *points)
    expected = [info_hash(number).hex() for number in (7, 8, 5, 6)]
    listed = (await seeding.ask("/seeds/needed.json")).json
    assert [(row["info_hash"], row["average"]) for row in listed] == list(zip(expected, range(4), strict=True))
    feed = items((await seeding.ask("/seeds/feed.rss")).body)
    assert [each.findtext("guid") for each in feed] == expected
    found = await store.work.items.neediest("seeds", 2)
    assert found == expected[:2]


async def test_an_item_that_no_torrent_has_is_left_out_of_the_list(torrents: Site) -> None:
    """A site wrote it into the queue."""
    await torrents.store.work.projects.edit("seeds", {"public": True})
    await torrents.store.redis.zadd(torrents.store.keys.work_queue("seeds", "todo"), {"no hash": 0})
    assert len((await torrents.ask("/seeds/needed.json")).json) == 1


async def test_passkeys_are_in_no_shared_cache_and_on_no_page(torrents: Site) -> None:
    """W29."""
    await torrents.store.work.projects.edit("seeds", {"public": True})
    for path in ("/", "/stats.json", "/needed.json", f"/items/{info_hash(1).hex()}.json"):
        reply = await torrents.ask(f"/seeds{path}", headers={"Authorization": f"Bearer {ALICE}"})
        assert reply.status == 200 and ALICE not in reply.text
    for path in ("/feed.rss?passkey=" + ALICE, "/mine"):
        reply = await torrents.ask(f"/seeds{path}", headers={"Authorization": f"Bearer {ALICE}"})
        assert reply.status == 200 and "private" in reply.headers["cache-control"]


async def test_projects_of_kind_items_have_no_feed(site: Site) -> None:
    for path in ("/proj/feed.rss", "/proj/needed.json"):
        assert (await site.ask(path)).status == 404


async def test_the_default_project_has_short_paths_too(serve: Serve) -> None:
    site = await serve(work={"default": "proj"})
    await site.project()
    await site.add("one")
    for path in ("/stats.json", "/items/one.json", "/", f"/mine?downloader={ASK['downloader']}"):
        assert (await site.ask(path)).status == 200


def items(body: bytes) -> list[ElementTree.Element]:
    return parsed(body).findall("channel/item")


def parsed(body: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(body)  # noqa: S314  # our own reply


async def test_nothing_public_names_a_private_torrent(torrents: Site) -> None:
    """W30: neither who has it, nor who has finished it."""
    claims, names = torrents.store.work.claims, [info_hash(number).hex() for number in (1, 2)]
    for _ in names:
        await claims.claim("seeds", "7")
    states = [(await torrents.ask(f"/seeds/items/{name}.json")).json["status"] for name in names]
    assert states == ["out", None]
    for name in names:
        assert (await claims.complete("seeds", "7", name, seconds=5)).counted
    figures = await torrents.ask("/seeds/figures.json")
    page = (await torrents.ask("/seeds/")).text
    for text in (page, figures.text):
        assert not any(f"private{end}" in text for end in ("<", '"'))
        assert names[1] not in text
    project = await torrents.store.work.projects.get("seeds")
    last = await WorkFigures(torrents.store, torrents.store.clock).finished_after(project, "0-0", 9)
    assert [each.shown["item"] for each in last] == [names[0], ""]
    assert last[0].shown["title"].startswith(HOSTILE) and last[1].shown["title"] == ""


async def test_the_page_names_users_and_torrents(torrents: Site) -> None:
    site = torrents
    await site.store.users.edit("7", {"name": "Ada"})
    item = info_hash(1).hex()
    await site.store.torrents.edit(info_hash(1), {"name": "Old disks"})
    await site.store.work.claims.claim("seeds", "7", free_bytes=6000)
    assert (await site.store.work.claims.complete("seeds", "7", item, seconds=86_400, uploaded=5)).counted
    await rank(site.store, "seeds")
    text = (await site.ask("/seeds/")).text
    assert "<td>Ada</td><td>Old disks</td>" in text and item not in text
    figures = (await site.ask("/seeds/figures.json")).json
    assert [row["name"] for row in figures["ranks"][""]] == ["Ada"]
    assert "Ada" in (await site.ask("/seeds/charts.json")).json["downloader_chart"]


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({}, ["items", "reported"]),
        ({"kind": "seeding", "verify": "announce"}, ["verified", "items", "reported"]),
        ({"kind": "seeding", "verify": "address"}, ["verified", "items"]),
    ],
)
async def test_the_page_has_only_boards_of_what_is_counted(
    serve: Serve, fields: dict[str, Any], columns: list[str]
) -> None:
    site = await serve()
    await site.project("p", keep_done_days=1, **fields)
    await site.store.redis.zadd(site.store.keys.work_ranking("p", "downloader_count"), {"7": 1})
    await site.store.redis.zadd(site.store.keys.work_ranking("p", "downloader_seconds"), {"7": 1})
    text = (await site.ask("/p/")).text
    board = text.split("Leaderboard: all time")[1]
    assert re.findall(r"<th>(\w+)</th>", board) == ["by", *columns]
    assert text.count("<section hidden>") == 2  # nothing this week and this month


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "/p</span>"),
        ({"kind": "seeding", "verify": "announce"}, "your passkey"),
        ({"kind": "seeding", "verify": "address", "public": True}, "--name NAME --port PORT"),
    ],
)
async def test_the_page_says_how_to_take_part(serve: Serve, fields: dict[str, Any], expected: str) -> None:
    site = await serve()
    await site.project("p", keep_done_days=1, **fields)
    text = (await site.ask("/p/")).text
    assert expected in text.partition("Take part")[2]
    assert ("tracker work seed --url" in text) == bool(fields)
