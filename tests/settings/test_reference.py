"""What `tracker settings` and docs/settings.md show."""

import pytest
from pydantic import SecretStr

from tracker.settings import FIELDS, HttpSettings, RedisSettings, ScoringSettings, Settings, StatHatSettings
from tracker.settings_page import Described, describe, mask_url


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
def test_of_a_secret_that_is_no_url_nothing_is_shown(secret: str) -> None:
    settings = Settings(
        stathat=StatHatSettings(ezkey=SecretStr(secret)),
        redis=RedisSettings(sentinel_password=SecretStr(secret)),
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


def test_what_is_allowed_is_said() -> None:
    settings = Settings()
    assert row(settings, "TRACKER_LOG__FORMAT").allowed == "`auto`, `human`, `json`"
    assert row(settings, "TRACKER_HTTP__HALF_CLOSE_SECONDS").allowed == "> 0, ≤ 60"
