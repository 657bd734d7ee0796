"""``tracker sync`` as operators call it."""

import pytest

from loadtest.databases import Database, Site
from tests.commands import Command
from tests.workers.site.harness import passkey


def configure(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setenv("TRACKER_SITE__DATABASE", site.url)
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "100000")
    monkeypatch.setenv("TRACKER_CHANGES__UPDATES_SECONDS", "2")


def test_without_its_libraries_or_settings_the_command_says_what_to_do(
    tracker: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "TRACKER_SITE__DATABASE is not set" in tracker("sync", "check", code=1).stderr
    monkeypatch.setenv("TRACKER_SITE__DATABASE", "nonsense://root:hunter2@localhost/x")
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "100000")
    monkeypatch.setenv("TRACKER_CHANGES__UPDATES_SECONDS", "2")
    wrong = tracker("sync", "check", code=1).stderr
    assert "TRACKER_SITE__DATABASE is a URL" in wrong
    assert "hunter2" not in wrong
    monkeypatch.setattr("tracker.workers.site.mapping.find_spec", lambda name: None)
    assert "pip install 'swarmkeeper[site]'" in tracker("sync", "check", code=1).stderr


def test_a_site_that_was_not_moved_in_is_not_written(
    tracker: Command, unit3d: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, unit3d)
    tracker("user", "add", "--id", "7", "--passkey", passkey(7))
    assert "run tracker sync import" in tracker("sync", "check", code=1).stderr


def test_the_doctor_says_what_is_wrong_with_the_database(
    tracker: Command, unit3d: Site, mariadb: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def site_lines(code: int) -> list[str]:
        lines = tracker("doctor", code=code).stdout.splitlines()
        return [line[24:] for line in lines if line[9:13] == "site"]

    configure(monkeypatch, unit3d)
    assert site_lines(1)[0] == ("the site's database is not moved in yet: run tracker sync import: see docs/sync.md")
    tracker("sync", "import")
    monkeypatch.setenv("TRACKER_USERS__BEYOND_MAX_DOWNLOADS", "refusal")
    assert site_lines(1) == [
        "downloads beyond a user's slots are refused; the site's former tracker warns, and gives no peers: unset"
        " TRACKER_USERS__BEYOND_MAX_DOWNLOADS",
        "the tables of the site's database fit the mapping",
    ]
    monkeypatch.delenv("TRACKER_USERS__BEYOND_MAX_DOWNLOADS")
    assert site_lines(1) == ["the tables of the site's database fit the mapping"]
    user = f"doctor_{unit3d.name}"
    unit3d.sql(
        f"CREATE USER {user}@localhost IDENTIFIED BY 'hunter2'",
        f"GRANT SELECT ON {unit3d.name}.* TO {user}@localhost",
        "SET GLOBAL time_zone = '+02:00'",
        "ALTER TABLE peers DROP COLUMN port",
    )
    monkeypatch.setenv("TRACKER_SITE__DATABASE", mariadb.url(unit3d.name, user, "hunter2"))
    try:
        found = site_lines(1)
    finally:
        unit3d.sql("SET GLOBAL time_zone = 'SYSTEM'", f"DROP USER {user}@localhost")
    assert found[0].startswith("column peers.port is missing")
    assert found[1].startswith("UPDATE on users: the account has too few rights")
    assert found[-1].startswith("the time zone of the database is +02:00")
    assert not [line for line in found if "hunter2" in line]
