from pydantic import SecretStr

from tests.admin.api.asking import Program, program
from tests.admin.conftest import Admin, Serve
from tracker import __version__
from tracker.settings import RedisSettings, Settings


async def test_settings_are_masked(serve: Serve, prefix: str) -> None:
    redis = RedisSettings(prefix=prefix, url=SecretStr("redis://me:sesame@localhost"))
    admin = await serve(Settings(redis=redis))
    async with program(admin, "read") as reader:
        rows = {row["name"]: row["value"] for row in (await reader.get("/settings"))["items"]}
    assert rows["TRACKER_REDIS__URL"] == "redis://me:***@localhost"
    assert rows["TRACKER_ADMIN__SESSION_SECONDS"] == "43200"
    assert "sesame" not in str(rows)


async def test_health(reader: Program, admin: Admin) -> None:
    well = await reader.get("/health")
    assert well == {
        "ready": True,
        "problems": [],
        "version": __version__,
        "store": admin.desk.server,
        "geoip": "",
    }
    admin.problems.append("the sweep is behind")
    assert (await reader.get("/health"))["problems"] == ["the sweep is behind"]


async def test_the_doctor(reader: Program) -> None:
    found = {row["subject"]: row["level"] for row in (await reader.get("/doctor"))["items"]}
    assert found["server"] == "ok"
    assert found["clock"] == "wrong"  # the clock of these tests stands in the future
