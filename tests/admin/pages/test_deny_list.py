import aiohttp

from tests.admin.conftest import Admin
from tests.admin.pages.page import get, send
from tests.store.harness import info_hash
from tracker.admin.pages.torrents import PAGE


async def test_an_empty_list_explains_denying(browser: aiohttp.ClientSession) -> None:
    assert "No denied torrents" in (await get(browser, "/torrents/denied")).text


async def test_an_info_hash_is_denied_and_allowed_again(admin: Admin, browser: aiohttp.ClientSession) -> None:
    one = info_hash(9)
    await send(browser, "/torrents/denied", {"info_hash": one.hex(), "reason": "a complaint <b>"})
    page = await get(browser, "/torrents/denied")
    assert one.hex() in page.torrents and "a complaint <b>" in page.text
    found = await admin.store.torrents.get(one)
    assert found is not None and found.denied == "a complaint <b>"
    await send(browser, "/torrents/denied/allow", {"info_hash": one.hex()})
    assert await admin.store.torrents.get(one) is None


async def test_an_invalid_info_hash_is_reported(admin: Admin, browser: aiohttp.ClientSession) -> None:
    for path in ("/torrents/denied", "/torrents/denied/allow"):
        page = await send(browser, path, {"info_hash": "<i>"}, status=422)
        assert "40 hexadecimal digits" in page.text
    assert await admin.store.torrents.denial_count() == 0


async def test_a_long_list_is_paged(admin: Admin, browser: aiohttp.ClientSession) -> None:
    hashes = {info_hash(number).hex() for number in range(PAGE + 5)}
    for one in hashes:
        await admin.store.torrents.deny(info_hash(int(one, 16)), "no")
    first = await get(browser, "/torrents/denied")
    second = await get(browser, "/torrents/denied?page=2")
    assert {*first.torrents, *second.torrents} == hashes
    assert "/torrents/denied?page=2" in first.hrefs and "/torrents/denied?page=3" not in second.hrefs


async def test_role_read_cannot_change_the_list(admin: Admin, reader: aiohttp.ClientSession) -> None:
    one = info_hash(1)
    await admin.store.torrents.deny(one, "no")
    page = await get(reader, "/torrents/denied")
    assert one.hex() in page.torrents and not page.changes
    await send(reader, "/torrents/denied/allow", {"info_hash": one.hex()}, status=403)
    assert await admin.store.torrents.denial_count() == 1
