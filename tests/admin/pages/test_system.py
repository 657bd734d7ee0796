"""The pages of settings and doctor."""

from pydantic import SecretStr

from tests.admin.conftest import Serve
from tests.admin.pages.page import Page, get
from tracker.settings.model import RELOADED, RedisSettings, Settings, variable
from tracker.settings.public import UserSettings
from tracker.settings.reference import describe
from tracker.settings.reload import LastReload


async def test_settings_are_shown_with_descriptions_and_without_secrets(serve: Serve, prefix: str) -> None:
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


async def test_settings_show_the_result_of_the_last_reload(serve: Serve) -> None:
    admin = await serve()
    async with admin.browser("read") as browser:
        page = await get(browser, "/settings")
        assert "Not reloaded since start" in page.text
        rows = [e for e in page.all("tr") if "data-row" in e.attributes]
        marked = {row.text.split()[0] for row in rows if row.text.split()[1] == "reload"}
        assert marked == {variable(*key) for key in RELOADED}
        left = LastReload(admin.clock(), waiting=("TRACKER_HTTP__LISTEN",))
        admin.context.last_reload = lambda: left
        page = await get(browser, "/settings")
        assert "Reloaded" in page.text and "a restart is needed: TRACKER_HTTP__LISTEN" in page.text
        assert [e for e in page.all("tr") if e.text.startswith("TRACKER_HTTP__LISTEN restart needed")]
        failed = LastReload(admin.clock(), problems=("log.level: <b>wrong</b>",))
        admin.context.last_reload = lambda: failed
        page = await get(browser, "/settings")
        assert "no setting changed: log.level: <b>wrong</b>" in page.text and not page.all("b")


async def test_the_doctor_runs_its_checks_at_each_visit(serve: Serve) -> None:
    admin = await serve()
    async with admin.browser("read") as browser:
        page = await get(browser, "/doctor")
        assert "the sweep has repaired nothing" in page.text
        await admin.store.connection.command("SET", admin.store.keys.stat("repairs"), 3)
        admin.problems.append("the sweep is behind")
        async with browser.get("/doctor", headers={"HX-Request": "true"}) as response:
            part = Page(await response.text())
    assert not part.all("html")
    assert "the sweep repaired 3" in part.one("div", id="findings").text
    assert "the sweep is behind" in part.one("div", id="findings").text
