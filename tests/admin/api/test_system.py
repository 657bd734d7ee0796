from pydantic import SecretStr

from tests.admin.api.api_client import ApiClient, program
from tests.admin.conftest import Admin, Serve
from tracker import __version__
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.reload import LastReload


async def test_settings_are_masked(serve: Serve, prefix: str) -> None:
    redis = RedisSettings(prefix=prefix, url=SecretStr("redis://me:sesame@localhost"))
    admin = await serve(Settings(redis=redis))
    async with program(admin, "read") as reader:
        rows = {row["name"]: row["value"] for row in (await reader.get("/settings"))["items"]}
    assert rows["TRACKER_REDIS__URL"] == "redis://me:***@localhost"
    assert rows["TRACKER_ADMIN__SESSION_SECONDS"] == "43200"
    assert "sesame" not in str(rows)


async def test_settings_show_what_needs_a_restart(serve: Serve) -> None:
    admin = await serve()
    left = LastReload(admin.clock(), waiting=("TRACKER_HTTP__WORKERS",))
    admin.context.last_reload = lambda: left
    async with program(admin, "read") as reader:
        rows = {row["name"]: row for row in (await reader.get("/settings"))["items"]}
    assert [name for name, row in rows.items() if row["waiting"]] == ["TRACKER_HTTP__WORKERS"]
    assert rows["TRACKER_LOG__LEVEL"]["reloaded"] and not rows["TRACKER_HTTP__WORKERS"]["reloaded"]


async def test_health_is_shown(reader: ApiClient, admin: Admin) -> None:
    well = await reader.get("/health")
    assert well == {
        "ready": True,
        "problems": [],
        "shards_unavailable": [],
        "main_unavailable": False,
        "version": __version__,
        "store": admin.context.server,
        "geoip": "",
        "dht": "off",
    }
    admin.problems.append("the sweep is behind")
    assert (await reader.get("/health"))["problems"] == ["the sweep is behind"]


async def test_health_checks_are_run(reader: ApiClient) -> None:
    found = {row["subject"]: row["level"] for row in (await reader.get("/doctor"))["items"]}
    assert found["server"] == "ok"
    assert found["clock"] == "wrong"  # the clock of these tests is in the future
