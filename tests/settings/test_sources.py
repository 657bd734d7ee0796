"""The sources of settings, their order, and the errors."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from tracker.errors import SettingsError
from tracker.settings.model import Settings
from tracker.settings.public import HttpSettings
from tracker.settings.sources import load


@pytest.fixture(autouse=True)
def empty_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working directory without .env, and an environment without TRACKER_ variables."""
    import os  # noqa: PLC0415 - the only place that looks at the test's own environment

    for name in list(os.environ):
        if name.upper().startswith("TRACKER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(config: Path | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(config)
    return caught.value.problems


def test_without_sources_the_defaults_apply() -> None:
    assert load() == Settings()


def test_settings_made_by_hand_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_LOG__LEVEL", "debug")
    assert Settings().log.level == "info"


def test_the_environment_wins_over_the_env_file_and_that_over_toml(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "tracker.toml"
    config.write_text("[announce]\ninterval_seconds = 100\npeers_default = 10\npeers_max = 11\n")
    Path(".env").write_text("TRACKER_ANNOUNCE__INTERVAL_SECONDS=200\nTRACKER_ANNOUNCE__PEERS_DEFAULT=20\n")
    monkeypatch.setenv("TRACKER_ANNOUNCE__INTERVAL_SECONDS", "300")
    announce = load(config).announce
    assert (announce.interval_seconds, announce.peers_default, announce.peers_max) == (300, 20, 11)
    assert announce.min_interval_seconds == 900


@pytest.mark.parametrize("word", ["maybe", "true", "0", "require"])
def test_other_words_for_accounts_are_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_USERS__PRIVATE", word)
    (problem,) = problems()
    assert "TRACKER_USERS__PRIVATE" in problem and "'off', 'optional' or 'required'" in problem


def test_names_are_read_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("tracker_log__level", "debug")
    assert load().log.level == "debug"


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("0.0.0.0:80,[::]:80", ("0.0.0.0:80", "[::]:80")),
        ("[::]:80, 0.0.0.0:80", ("[::]:80", "0.0.0.0:80")),
        ('["0.0.0.0:80", "unix:/run/tracker"]', ("0.0.0.0:80", "unix:/run/tracker")),
        ("unix:/run/tracker", ("unix:/run/tracker",)),
        ("[]", ()),
    ],
)
def test_a_list_is_written_with_commas_or_as_json(
    text: str, listen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER_HTTP__LISTEN", text)
    assert load().http.listen == listen


def test_a_list_of_networks_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_HTTP__TRUSTED_PROXIES", "10.0.0.0/8,2001:db8::1")
    expected = (ip_network("10.0.0.0/8"), ip_network("2001:db8::1/128"))
    assert load().http.trusted_proxies == expected
    assert HttpSettings(trusted_proxies=expected).trusted_proxies == expected


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_REDIS__URL", "")
    monkeypatch.setenv("TRACKER_HTTP__KEEPALIVE_SECONDS", "")
    Path(".env").write_text("TRACKER_LOG__LEVEL=\n")
    assert load() == Settings()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("TRACKER_REDIS__ULR", "TRACKER_REDIS__URL"),
        ("TRACKER_REDIS_URL", "TRACKER_REDIS__URL"),
        ("TRACKER_HTPP__LISTEN", "TRACKER_HTTP__LISTEN"),
        ("TRACKER_LISTEN", "TRACKER_HTTP__LISTEN"),
        ("TRACKER_ANOUNCE__INTERVAL_SECOND", "TRACKER_ANNOUNCE__INTERVAL_SECONDS"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_right_name(
    name: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    assert problems() == (f"{name} is not a setting; did you mean {nearest}?",)


@pytest.mark.parametrize("name", ["TRACKER_UPD__PORT", "TRACKER_", "TRACKER_HTTP"])
def test_an_unknown_variable_without_a_near_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "{}")
    assert problems()[0].startswith(f"{name} is not a setting; ")


def test_a_misspelt_line_of_the_env_file_is_refused() -> None:
    Path(".env").write_text("COMPOSE_PROJECT_NAME=mine\nTRACKER_REDIS__ULR=redis://:hunter2@h\n")
    assert problems() == ("TRACKER_REDIS__ULR in .env is not a setting; did you mean TRACKER_REDIS__URL?",)


def test_unknown_tables_and_keys_of_the_toml_file_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    config.write_text('[htpp]\nlisten = []\n[redis]\nulr = "x"\n')
    first, second = problems(config)
    assert first.startswith(f"htpp in {config} is not a setting")
    assert second == f"redis.ulr in {config} is not a setting; did you mean redis.url?"


def test_all_problems_are_reported_at_once_with_their_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    config.write_text("[announce]\npeers_max = -1\n")
    Path(".env").write_text("TRACKER_LOG__LEVEL=loud\n")
    monkeypatch.setenv("TRACKER_HTTP__WORKERS", "many")
    monkeypatch.setenv("TRACKER_HTTP__TRUSTED_PROXIES", "10.0.0.1/8")
    monkeypatch.setenv("TRACKER_DATA__DRIECTORY", "x")
    assert set(problems(config)) == {
        "TRACKER_DATA__DRIECTORY is not a setting; did you mean TRACKER_DATA__DIRECTORY?",
        "TRACKER_HTTP__WORKERS: must be a whole number",
        "TRACKER_HTTP__TRUSTED_PROXIES: 10.0.0.1/8 has host bits set",
        f"announce.peers_max in {config}: must be at least 0",
        "TRACKER_LOG__LEVEL in .env: must be 'debug', 'info', 'warning' or 'error'",
    }


def test_mistakes_of_single_settings_and_contradictions_are_listed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_STATSD__ADDRESS", "[::1]:8125")
    monkeypatch.setenv("TRACKER_STATHAT__EZKEY", "hidden")
    monkeypatch.setenv("TRACKER_LOG__LEVEL", "loud")
    with pytest.raises(SettingsError) as caught:
        load()
    level, choose = caught.value.problems
    assert level.startswith("TRACKER_LOG__LEVEL: must be") and choose.startswith("statsd: choose one")


def test_no_message_contains_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    config.write_text('[redis]\nurl = ["redis://:hunter2@h"]\n')
    with pytest.raises(SettingsError) as caught:
        load(config)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None  # that of pydantic shows the values
    monkeypatch.setenv("TRACKER_REDIS__URL", "redis://:hunter2@h")
    assert "hunter2" not in repr(load())


def test_variables_of_kubernetes_and_docker_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TRACKER_SERVICE_HOST": "10.0.0.1",
        "TRACKER_SERVICE_PORT": "6969",
        "TRACKER_SERVICE_PORT_HTTP": "6969",
        "TRACKER_PORT": "tcp://10.0.0.1:6969",
        "TRACKER_PORT_6969_TCP": "tcp://10.0.0.1:6969",
        "TRACKER_PORT_6969_TCP_ADDR": "10.0.0.1",
        "TRACKER_WEB_PORT": "tcp://10.0.0.2:80",
    }.items():
        monkeypatch.setenv(name, value)
    assert load() == Settings()
    monkeypatch.setenv("TRACKER_PORT", "6969")
    assert problems()[0].startswith("TRACKER_PORT is not a setting")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"TRACKER_LOG__LEVEL\n", ".env line 1: write NAME=value"),
        (b"A=1\n\nTRACKER LOG=1\n", ".env line 3: write NAME=value"),
        (b"\xff\xfe", ".env is not UTF-8 text"),
    ],
)
def test_a_malformed_env_file_is_refused(content: bytes, problem: str) -> None:
    Path(".env").write_bytes(content)
    assert problems() == (problem,)


def test_a_directory_named_env_is_ignored() -> None:
    Path(".env").mkdir()
    assert load() == Settings()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[http", "is not TOML: "),
        (b"\xff", "is not UTF-8 text"),
        (b"http = 3", ": http must be a table of settings, [http]"),
    ],
)
def test_a_malformed_toml_file_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    config = tmp_path / "tracker.toml"
    config.write_bytes(content)
    assert problem in problems(config)[0]


def test_a_missing_toml_file_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert problems(missing) == (f"{missing}: there is no such file",)


def test_an_invalid_announce_url_is_numbered_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_SCORING__UPSTREAMS", "http://h/announce, udp://h/hunter2/announce")
    assert problems() == (
        "TRACKER_SCORING__UPSTREAMS: number 2 is not an announce URL: http, https or udp, a host, and for udp a port",
    )


def test_an_unreadable_path_is_reported(tmp_path: Path) -> None:
    """Usually a directory without permission; a path that is too long also fails for root."""
    nowhere = tmp_path / ("x" * 300)
    assert problems(nowhere) == (f"{nowhere} cannot be read: File name too long",)
    with pytest.raises(SettingsError, match="cannot be read"):
        load(env_file=nowhere)
