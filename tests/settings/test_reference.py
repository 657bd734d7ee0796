"""The texts of `tracker settings` and docs/settings.md."""

import pytest
from pydantic import SecretStr

from tracker.settings.background import ScoringSettings, StatHatSettings
from tracker.settings.model import FIELDS, RedisSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.settings.reference import GROUPS, Described, describe, grouped, mask_url


def row(settings: Settings, name: str) -> Described:
    return next(row for row in describe(settings) if row.name == name)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://:hunter2@h/1", "redis://:***@h/1"),
        ("rediss://site:hunter2@[::1]:6379/1", "rediss://site:***@[::1]:6379/1"),
        ("redis://site@h", "redis://site@h"),
        ("redis://:hun/ter@2@h", "redis://:***@h"),
        ("unix:///run/redis?db=1&password=hunter2&x=1", "unix:///run/redis?db=1&password=***&x=1"),
        ("hunter2", "***"),
    ],
)
def test_the_password_of_a_url_is_masked_and_the_host_is_shown(url: str, shown: str) -> None:
    settings = Settings(redis=RedisSettings(url=SecretStr(url)))
    assert mask_url(url) == shown
    assert row(settings, "TRACKER_REDIS__URL").value == shown


def test_the_passkey_of_another_tracker_is_masked() -> None:
    urls = (SecretStr("https://h/hunter2/announce"), SecretStr("udp://h:1/announce"))
    settings = Settings(scoring=ScoringSettings(upstreams=urls))
    shown = row(settings, "TRACKER_SCORING__UPSTREAMS").value
    assert shown == "https://h/***/announce,udp://h:1/announce"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("secret", ["hunter2", "hunter2://hunter2", "http://hunter2/announce", "a@hunter2"])
def test_a_secret_that_is_no_url_is_masked_whole(secret: str) -> None:
    settings = Settings(
        stathat=StatHatSettings(ezkey=SecretStr(secret)), redis=RedisSettings(sentinel_password=SecretStr(secret))
    )
    for name in ("TRACKER_STATHAT__EZKEY", "TRACKER_REDIS__SENTINEL_PASSWORD"):
        assert row(settings, name).value == "***"


def test_every_setting_is_described_once() -> None:
    rows = describe(Settings())
    assert len(rows) == len(FIELDS)
    assert all(row.value == row.default for row in rows)


def test_values_are_written_as_a_variable_would_hold_them() -> None:
    settings = Settings(http=HttpSettings(listen=("0.0.0.0:80", "[::]:80"), access_log=True))
    assert row(settings, "TRACKER_HTTP__LISTEN").value == "0.0.0.0:80,[::]:80"
    assert row(settings, "TRACKER_HTTP__ACCESS_LOG").value == "true"
    assert row(settings, "TRACKER_REDIS__URL").value == ""


def test_the_allowed_values_are_described() -> None:
    settings = Settings()
    assert row(settings, "TRACKER_LOG__FORMAT").allowed == "`auto`, `human`, `json`"
    assert row(settings, "TRACKER_REDIS__TIMEOUT_SECONDS").allowed == "> 0, ≤ 60"


def test_every_setting_is_in_one_group_and_every_group_has_some() -> None:
    groups = grouped()
    assert sorted(field for fields in groups.values() for field in fields) == sorted(FIELDS)
    assert all(groups.values())


def test_groups_name_existing_settings_and_sections() -> None:
    known = {".".join(field) for field in FIELDS} | Settings.model_fields.keys()
    assert {member for _, members in GROUPS.values() for member in members.split()} <= known
