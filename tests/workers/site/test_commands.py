"""``tracker sync`` as operators call it."""

import pytest

from tests.commands import Command
from tests.databases import Site
from tests.workers.site.harness import passkey


def configure(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    monkeypatch.setenv("TRACKER_SITE__DATABASE", site.url)
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "100000")


def test_without_its_libraries_or_settings_the_command_says_what_to_do(
    tracker: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "TRACKER_SITE__DATABASE is not set" in tracker("sync", "check", code=1).stderr
    monkeypatch.setenv("TRACKER_SITE__DATABASE", "nonsense://root:hunter2@localhost/x")
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "100000")
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
