"""``tracker multipliers``, and the rules of ``tracker user edit`` and ``tracker torrent edit``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command, rows
from tests.store.harness import info_hash

HASH = info_hash(1).hex()
END = 1893456000


def shown(tracker: Command, *words: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(tracker(*words, "--json").stdout)
    return row


def test_multipliers_for_all_users_are_set_one_at_a_time(tracker: Command) -> None:
    none: dict[str, Any] = {"upload_multiplier": "1", "download_multiplier": "1"}
    none |= {"upload_multiplier_until": None, "download_multiplier_until": None}
    assert shown(tracker, "multipliers") == none
    tracker("multipliers", "--download", "0", "--until", "2030-01-01")
    freeleech = {**none, "download_multiplier": "0", "download_multiplier_until": END}
    assert shown(tracker, "multipliers", "--upload", "2.5") == {**freeleech, "upload_multiplier": "2.5"}
    assert "2030-01-01T00:00:00Z" in tracker("multipliers").stdout
    tracker("multipliers", "--until", "2d", code=2)
    assert "a multiplier is" in tracker("multipliers", "--upload", "-1", code=1).stderr
    assert "a time is" in tracker("multipliers", "--upload", "2", "--until", "soon", code=1).stderr
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


RULES = f"2 {END} donor, 1.5 group"


@pytest.mark.parametrize(
    ("edit", "show"),
    [
        (("user", "edit", "7"), ("user", "show", "7")),
        (("torrent", "edit", HASH), ("torrent", "show", HASH)),
        (("multipliers",), ("multipliers",)),
    ],
)
def test_rules_are_set_and_removed_beside_others(
    tracker: Command, edit: tuple[str, ...], show: tuple[str, ...]
) -> None:
    tracker("torrent", "add", HASH)
    tracker("user", "add", "--id", "7")
    end = "" if edit == ("multipliers",) else "-multiplier"
    upload, download = f"--upload{end}", f"--download{end}"
    tracker(*edit, upload, "1.5")
    tracker(*edit, "--rule", "donor", upload, "2", download, "0", "--until", str(END))
    row = shown(tracker, *show)
    assert (row["upload_multiplier"], row["upload_multiplier_until"]) == (f"1.5, 2 {END} donor", None)
    assert (row["download_multiplier"], row["download_multiplier_until"]) == (f"0 {END} donor", None)
    assert "1.5, 2 until 2030-01-01T00:00:00Z donor" in tracker(*show).stdout
    tracker(*edit, "--rule", "donor", upload, "3")
    row = shown(tracker, *show)
    assert (row["upload_multiplier"], row["download_multiplier"]) == ("1.5, 3 donor", "1")
    tracker(*edit, "--remove-rule", "donor")
    assert shown(tracker, *show)["upload_multiplier"] == "1.5"
    assert "no rule of this name" in tracker(*edit, "--remove-rule", "donor", code=1).stderr
    tracker(*edit, upload, RULES)
    assert shown(tracker, *show)["upload_multiplier"] == RULES
    for words, why in (
        (("--rule", "donor"), "needs a multiplier"),
        (("--rule", "2nd", upload, "2"), "the name of a rule"),
        (("--rule", "donor", upload, "inf"), "a number from 0"),
        (("--rule", "donor", upload, "2", "--until", "2020-01-01"), "in the future"),
        ((upload, "2 1 past, 3"), "in the future"),
        ((upload, "2 inf"), "begins with a letter"),
        ((upload, RULES, "--until", "2d"), "one number"),
    ):
        assert why in tracker(*edit, *words, code=1).stderr
    assert shown(tracker, *show)["upload_multiplier"] == RULES


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_files_bring_back_rules(tracker: Command, tmp_path: Path, form: str) -> None:
    """Also those that have ended. An invalid one is named, and changes nothing."""
    rules = ("--upload-multiplier", RULES, "--download-multiplier", "0 neutral")
    tracker("user", "add", "--id", "7", *rules)
    tracker("torrent", "add", HASH, *rules)
    files = [tmp_path / f"{name}.{form}" for name in ("users", "torrents")]
    for file in files:
        tracker("export", str(file), "--what", file.stem)
    for words in (("user", "edit", "7"), ("torrent", "edit", HASH)):
        tracker(*words, "--upload-multiplier", "1", "--download-multiplier", "1")
    tracker("import", *map(str, files))
    for what in ("user", "torrent"):
        row = shown(tracker, what, "list")
        assert (row["upload_multiplier"], row["download_multiplier"]) == (RULES, "0 neutral")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text('user_id,upload_multiplier\n7,"3 a, 4 a"\n7,"2 1000000000 past, 5"\n')
    assert "line 2: two rules have the same name" in tracker("import", str(wrong), code=1).stderr
    assert shown(tracker, "user", "list")["upload_multiplier"] == "2 1000000000 past, 5"
