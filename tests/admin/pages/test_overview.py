"""The overview: tiles, charts and its empty state."""

import pytest

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import get
from tracker.bittorrent import Accounts
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import HttpSettings, UserSettings, WebTorrentSettings


async def test_an_empty_tracker_explains_the_first_steps(serve: Serve, prefix: str) -> None:
    settings = Settings(redis=RedisSettings(prefix=prefix), http=HttpSettings(listen=("0.0.0.0:6969",)))
    admin = await serve(settings)
    async with admin.browser() as browser:
        page = await get(browser, "/")
        assert "No announces yet" in page.text
        assert "http://127.0.0.1:6969/announce" in page.text


async def test_the_first_steps_disappear_after_the_first_request(admin: Admin) -> None:
    await admin.store.connection.command("SET", admin.store.keys.stat("requests"), 1)
    async with admin.browser() as browser:
        assert "No announces yet" not in (await get(browser, "/")).text


@pytest.mark.parametrize(
    ("accounts", "serves", "first_step"),
    [
        ("off", "any torrent, for everyone", "Use this announce URL in a torrent"),
        ("optional", "any torrent, for everyone; accounts are optional", "Create a user to get an announce URL"),
        ("required", "any torrent, for users with a passkey", "Create the first user to get an announce URL"),
    ],
)
async def test_who_may_announce_and_to_which_url_is_shown(
    serve: Serve, prefix: str, accounts: Accounts, serves: str, first_step: str
) -> None:
    redis, http = RedisSettings(prefix=prefix), HttpSettings(listen=("0.0.0.0:6969",))
    admin = await serve(Settings(redis=redis, http=http, users=UserSettings(private=accounts)))
    async with admin.browser() as browser:
        overview, torrents = await get(browser, "/"), await get(browser, "/torrents")
    assert f"Serves {serves} Store" in overview.text and first_step in overview.text
    assert ("http://127.0.0.1:6969/announce" in overview.text) == (accounts != "required")
    assert ("http://127.0.0.1:6969/<passkey>/announce" in overview.text) == (accounts == "required")
    assert ("http://127.0.0.1:6969/announce" in torrents.text) == (accounts != "required")
    assert ("user’s own announce URL" in torrents.text) == (accounts != "off")


async def test_values_come_from_the_store(admin: Admin) -> None:
    command, keys = admin.store.connection.command, admin.store.keys
    for name, value in (("seeders", 1200), ("leechers", 34), ("requests", 9), ("reaped", 56), ("repairs", 2)):
        await command("SET", keys.stat(name), value)
    async with admin.browser() as browser:
        page = await get(browser, "/")
    shown = {e.attributes["data-live"]: e.text for e in page.all("span") if "data-live" in e.attributes}
    assert (shown["peers"], shown["seeders"], shown["leechers"], shown["reaped"]) == ("1,234", "1,200", "34", "56")
    assert shown["repairs"] == "2"
    (tile,) = [e for e in page.all("div") if e.attributes.get("data-tile") == "repairs"]
    assert "bad" in (tile.attributes["class"] or "").split()


@pytest.mark.parametrize("served", [True, False])
async def test_open_sockets_and_what_passes_between_them_are_shown(serve: Serve, prefix: str, served: bool) -> None:
    redis, webtorrent = RedisSettings(prefix=prefix), WebTorrentSettings(enabled=served)
    admin = await serve(Settings(redis=redis, webtorrent=webtorrent))
    admin.telemetry.gauge("sockets", lambda: 1234.0)
    for counter in ("relays.offers", "relays.answers", "announces.ws"):
        admin.store.counters.count(counter, by=500, at=admin.clock() - 5)
    await admin.store.counters.flush()
    async with admin.browser() as browser:
        text = (await get(browser, "/")).text
    assert ("WebSockets 1,234 200/s offers and answers" in text) == served
    assert "0 total, 100/s over WebSockets" in text


async def test_readiness_problems_are_on_top(admin: Admin) -> None:
    admin.problems.append("the store <b>does</b> not response")
    async with admin.browser() as browser:
        page = await get(browser, "/")
    assert "the store <b>does</b> not response" in page.text
    assert "Not ready" in page.text


async def test_charts_have_the_chosen_range(admin: Admin) -> None:
    async with admin.browser() as browser:
        for query, name in (("", "2m"), ("?range=30d", "30d"), ("?range=nonsense", "2m")):
            page = await get(browser, f"/{query}")
            sources = [figure.attributes["data-chart"] for figure in page.all("figure")]
            assert sources == [f"/history/{chart}.json?range={name}" for chart in ("requests", "latency")]
