"""``tracker multipliers``, and the rules of ``tracker user edit`` and ``tracker torrent edit``."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands import Command, command, rows, set_store
from tests.store.harness import info_hash

HASH = info_hash(1).hex()
END = 1893456000


@pytest.fixture
def tracker(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    set_store(monkeypatch, redis_url, prefix)
    with command() as run:
        yield run


def shown(tracker: Command, *words: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(tracker(*words, "--json").stdout)
    return row


def test_multipliers_for_everybody_are_set_one_at_a_time(tracker: Command) -> None:
    none: dict[str, Any] = {"upload_multiplier": "1", "download_multiplier": "1"}
    none |= {"upload_multiplier_until": None, "download_multiplier_until": None}
    assert shown(tracker, "multipliers") == none
    tracker("multipliers", "--download", "0", "--until", "2030-01-01")
    freeleech = {**none, "download_multiplier": "0", "download_multiplier_until": END}
    assert shown(tracker, "multipliers", "--upload", "2.5") == {**freeleech, "upload_multiplier": "2.5"}
    assert "2030-01-01T00:00:00Z" in tracker("multipliers").stdout
    tracker("multipliers", "--until", "2d", code=2)
    assert "a multiplier is" in tracker("multipliers", "--upload", "-1", code=1).stderr
    assert "an end is" in tracker("multipliers", "--upload", "2", "--until", "soon", code=1).stderr
    assert shown(tracker, "multipliers", "--upload", "1", "--download", "1") == none


def test_torrents_and_users_have_multipliers_with_an_end(tracker: Command) -> None:
    tracker("torrent", "add", HASH)
    tracker("user", "add", "--id", "7")
    for words in (("torrent", "edit", HASH), ("user", "edit", "7")):
        tracker(*words, "--download-multiplier", "0.5", "--until", str(END))
        tracker(*words, "--upload-multiplier", "3")
        row = shown(tracker, words[0], "show", words[2])
        assert (row["upload_multiplier"], row["upload_multiplier_until"]) == ("3", None)
        assert (row["download_multiplier"], row["download_multiplier_until"]) == ("0.5", END)
        assert "a multiplier is" in tracker(*words, "--upload-multiplier", "x", code=1).stderr


def test_new_torrents_and_users_may_have_multipliers(tracker: Command) -> None:
    """Lists show them in JSON."""
    words = ("--upload-multiplier", "2", "--download-multiplier", "0", "--until", str(END))
    tracker("torrent", "add", HASH, *words)
    tracker("user", "add", "--id", "7", *words, "--max-downloads", "3", "--hnr-exempt", "--announces", "9")
    for what in ("torrent", "user"):
        row = shown(tracker, what, "list")
        assert (row["upload_multiplier"], row["upload_multiplier_until"]) == ("2", END)
        assert (row["download_multiplier"], row["download_multiplier_until"]) == ("0", END)
    assert (row["max_downloads"], row["hnr_exempt"], row["announces"]) == (3, True, 9)
    assert "a multiplier is" in tracker("torrent", "add", HASH, "--upload-multiplier", "x", code=1).stderr
    for line in (f"torrent add {HASH}", "user add", "user edit 7 --name x"):
        assert "--until needs a multiplier" in tracker(*line.split(), "--until", "2d", code=2).stderr


def test_other_rules_of_a_user_are_edited(tracker: Command) -> None:
    tracker("user", "add", "--id", "7")
    tracker("user", "edit", "7", "--max-downloads", "3", "--hnr-exempt")
    row = shown(tracker, "user", "show", "7")
    assert (row["max_downloads"], row["hnr_exempt"]) == (3, True)
    tracker("user", "edit", "7", "--max-downloads", "", "--no-hnr-exempt")
    row = shown(tracker, "user", "show", "7")
    assert (row["max_downloads"], row["hnr_exempt"]) == (None, False)
    assert "max_downloads is" in tracker("user", "edit", "7", "--max-downloads", "x", code=1).stderr


def test_without_a_grace_period_nothing_is_pending(tracker: Command) -> None:
    assert rows(tracker("user", "pending")) == []
