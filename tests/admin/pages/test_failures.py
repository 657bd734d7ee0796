"""The page of a failure reason."""

from urllib.parse import quote

from tests.admin.conftest import Admin
from tests.admin.pages.page import get
from tests.store.harness import count_software, info_hash
from tracker.store.stats.refusal_samples import RefusedAnnounce

REASON = "<b>not & registered</b>"
PATH = f"/failures?reason={quote(REASON, safe='')}"


async def fill(admin: Admin) -> None:
    store, now = admin.store, int(admin.clock())
    store.counters.count(f"failures.{REASON}", by=120, at=now - 60)
    await store.counters.flush()
    await count_software(store.client_software, 1, {("aria2", REASON): 9, ("Deluge 2.1", "other"): 5}, now)
    await store.torrents.add(info_hash(1), {"name": "a name"})
    hashes = (info_hash(1), info_hash(2), info_hash(2))
    samples = [RefusedAnnounce(now - 10 + n, each, "aria2", "7" if n else "") for n, each in enumerate(hashes)]
    await store.refusal_samples.add({REASON: samples})


async def test_a_reason_leads_to_clients_and_torrents(admin: Admin) -> None:
    await fill(admin)
    async with admin.browser("read") as browser:
        overview = await get(browser, "/")
        (link,) = [href for href in overview.hrefs if href.startswith("/failures")]
        page = await get(browser, link)
        assert page.text == (await get(browser, PATH)).text
    assert "120 refused requests in total" in page.text
    clients, torrents, samples = [[row.text for row in page.all("tr")][at] for at in (1, 3, 6)]
    assert clients == "aria2 9"
    assert torrents == f"{info_hash(2).hex()} not registered 2"
    assert samples.startswith(f"{info_hash(2).hex()} not registered aria2 7 2027-01-15 07:59:52 UTC")
    assert page.hrefs.count("/users/7") == 2
    assert page.torrents == [info_hash(1).hex()] * 2
    assert "Deluge" not in page.text


async def test_its_chart_has_the_chosen_range(admin: Admin) -> None:
    await fill(admin)
    admin.clock.now += 30
    async with admin.browser() as browser:
        page = await get(browser, f"{PATH}&range=2h")
        source = page.one("figure").attributes["data-chart"] or ""
        async with browser.get(source) as response:
            data = await response.json()
    assert data["series"][0]["values"][-2:] == [2, 0] and data["incomplete"]


async def test_an_unknown_reason_is_not_found(admin: Admin) -> None:
    async with admin.browser() as browser:
        for path in ("/failures?reason=nothing", "/failures"):
            await get(browser, path, status=404)


async def test_a_reason_of_the_table_is_explained(admin: Admin) -> None:
    for label in ("may not leech", "dropped"):
        admin.store.counters.count(f"failures.{label}")
    await admin.store.counters.flush()
    async with admin.browser("read") as browser:
        page = await get(browser, "/failures?reason=may+not+leech")
        for text in (
            "your account may not download",
            "can_leech of the user or of the user's group is off",
            "tracker user edit USER --can-leech",
        ):
            assert text in page.text
        assert "continued beyond a rate limit" in (await get(browser, "/failures?reason=dropped")).text
