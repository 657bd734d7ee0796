"""The pages of settings and doctor."""

from pydantic import SecretStr

from tests.admin.conftest import Serve
from tests.admin.pages.page import Page, get
from tracker.settings import RedisSettings, Settings, UserSettings
from tracker.settings_page import describe


async def test_settings_are_shown_with_sentences_and_without_secrets(serve: Serve, prefix: str) -> None:
    url = SecretStr("redis://user:hunter2@store.example/0")
    settings = Settings(redis=RedisSettings(prefix=prefix, url=url), users=UserSettings(hnr_min_bytes=77))
    admin = await serve(settings)
    async with admin.browser("read") as browser:
        page = await get(browser, "/settings")
    assert "hunter2" not in page.source
    assert "redis://user:***@store.example/0" in page.text
    assert len([e for e in page.all("tr") if "data-row" in e.attributes]) == len(describe(settings))
    rows = [e for e in page.all("tr") if "TRACKER_USERS__HNR_MIN_BYTES" in e.text]
    assert "77" in rows[0].text
    assert "default" in rows[0].text


async def test_the_doctor_examines_at_each_visit(serve: Serve) -> None:
    admin = await serve()
    async with admin.browser("read") as browser:
        page = await get(browser, "/doctor")
        assert "the sweep never had to repair one" in page.text
        await admin.stores.connection.command("SET", admin.stores.keys.stat("repairs"), 3)
        admin.problems.append("the sweep is behind")
        async with browser.get("/doctor", headers={"HX-Request": "true"}) as answer:
            part = Page(await answer.text())
    assert not part.all("html")
    assert "the sweep repaired 3" in part.one("div", id="findings").text
    assert "the sweep is behind" in part.one("div", id="findings").text
