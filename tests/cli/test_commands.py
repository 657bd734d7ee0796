"""Further commands: edits of torrents and users, health, shell completion, and the page of commands."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from redis import Redis

from loadtest import trackers
from loadtest.servers import ROOT
from tests.commands import Command, rows, run
from tracker.cli import main
from tracker.store.torrents.listing import ORDERS

HASH, OTHER = "ab" * 20, "cd" * 20


def test_editing_a_torrent_keeps_its_other_fields(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "old")
    tracker("torrent", "edit", HASH, "--name", "new", "--upload-multiplier", "2.5")
    tracker("torrent", "edit", HASH, "--size", "7", "--labels", "films,4k")
    tracker("torrent", "edit", HASH, "--private", "--download-multiplier", "0")
    shown = json.loads(tracker("torrent", "show", HASH, "--json").stdout)
    fields = ("name", "private", "upload_multiplier", "download_multiplier", "size", "labels")
    assert [shown[name] for name in fields] == ["new", True, "2.5", "0", 7, "films 4k"]
    assert "a multiplier is" in tracker("torrent", "edit", HASH, "--upload-multiplier", "-1", code=1).stderr
    assert "a size is" in tracker("torrent", "edit", HASH, "--size", "7 GB", code=1).stderr
    assert "at most 20 labels" in tracker("torrent", "edit", HASH, "--labels", "A", code=1).stderr
    assert "unknown torrent" in tracker("torrent", "edit", OTHER, "--public", code=1).stderr
    tracker("torrent", "edit", HASH, code=2)


def test_a_folder_is_imported_not_added(tracker: Command, tmp_path: Path) -> None:
    assert "`tracker import FOLDER`" in tracker("torrent", "add", str(tmp_path), code=1).stderr


def test_a_torrent_waits_for_approval(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--pending")
    tracker("torrent", "add", OTHER)

    def states() -> list[str]:
        return [json.loads(tracker("torrent", "show", each, "--json").stdout)["state"] for each in (HASH, OTHER)]

    assert states() == ["pending", "registered"]
    (line, *_) = tracker("export", "--what", "torrents").stdout.splitlines()
    assert json.loads(line)["enabled"] == "pending"
    tracker("torrent", "enable", HASH)
    tracker("torrent", "edit", OTHER, "--pending", "--name", "x")
    assert states() == ["registered", "pending"]


def test_torrents_are_found_by_name_and_info_hash(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "Some Linux")
    tracker("torrent", "add", OTHER, "--name", "another")
    for text, found in (("linux", HASH), ("cdcd", OTHER)):
        (row,) = tracker("torrent", "search", text, "--json").stdout.splitlines()
        assert json.loads(row)["info_hash"] == found
    assert tracker("torrent", "search", "nothing of that kind").stdout == ""
    assert tracker("torrent", "history", HASH).stdout == ""


def test_denied_torrents_are_listed_in_pages(tracker: Command) -> None:
    hashes = [f"{number:040x}" for number in range(1, 131)]
    tracker("deny", *hashes, "--reason", "no\x1b[2J")
    listed = [line.split("\t") for line in tracker("denied").stdout.splitlines()]
    assert sorted(row[0] for row in listed) == hashes and {row[1] for row in listed} == {"no[2J"}
    first, *others = tracker("denied", "--limit", "7", "--json").stdout.splitlines()
    assert len(others) == 6 and abs(json.loads(first)["since"] - time.time()) < 600


def test_a_users_rights_are_edited(tracker: Command) -> None:
    tracker("user", "add", "--id", "7")
    tracker("user", "edit", "7", "--no-leech", "--disabled")
    row = json.loads(tracker("user", "list", "--json").stdout)
    assert (row["can_leech"], row["enabled"]) == (False, False)
    tracker("user", "edit", "7", "--can-leech")
    row = json.loads(tracker("user", "list", "--json").stdout)
    assert (row["can_leech"], row["enabled"]) == (True, False)
    tracker("user", "edit", "7", code=2)


def test_scores(tracker: Command) -> None:
    tracker("torrent", "add", HASH)
    assert json.loads(tracker("score", "lag", "--json").stdout)["count"] == 1
    place = json.loads(tracker("score", "place", HASH, "--json").stdout)
    assert (place["rank"], place["of"], place["score"]) == (1, 1, 1)
    assert "not in the ranking" in tracker("score", "place", OTHER, code=1).stderr


def test_torrents_are_listed_in_every_order_filtered_and_counted(tracker: Command) -> None:
    for number, name in enumerate(("b", "c", "a"), 1):
        tracker("torrent", "add", f"{number:040x}", "--name", name)
        tracker("torrent", "edit", f"{number:040x}", "--size", str(10 - number))
    tracker("torrent", "edit", f"{2:040x}", "--private")
    tracker("torrent", "disable", f"{3:040x}")
    tracker("reindex")

    def numbers(*words: str) -> list[int]:
        return [int(row[0], 16) for row in rows(tracker("torrent", "list", *words))]

    assert numbers("--by", "name", "--least") == [3, 1, 2]
    assert numbers("--by", "size") == [1, 2, 3]
    for order in ORDERS:
        assert sorted(numbers("--by", order)) == [1, 2, 3], order
    assert (numbers("--private"), sorted(numbers("--public"))) == ([2], [1, 3])
    assert (numbers("--state", "disabled"), numbers("--state", "pending")) == ([3], [])
    assert (numbers("--seeded"), len(numbers("--unseeded"))) == ([], 3)
    assert (numbers("--search", "A"), numbers("--search", "a", "--private")) == ([3], [])
    for words, count in (((), 3), (("--private",), 1), (("--search", "c"), 1), (("--public", "--unseeded"), 2)):
        assert tracker("torrent", "list", "--count", *words).stdout == f"{count}\n"
    listed = tracker("torrent", "list", "--limit", "2")
    assert (len(rows(listed)), listed.stderr) == (2, "note: 2 of 3 torrents\n")
    for option in ("--by", "--state"):
        assert f"'{option}': 'x' is not one of" in tracker("torrent", "list", option, "x", code=2).stderr


def test_ranks_continue_across_pages(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("torrent", "add", *(f"{number:040x}" for number in range(1, 105)))
    keys.zadd(f"{prefix}i:score", {str(number): 4 - number / 100 for number in range(1, 105)})
    assert [(row[0], row[1]) for row in rows(tracker("score", "top", "--limit", "2"))] == [("1", "3.99"), ("2", "3.98")]
    last = json.loads(tracker("score", "top", "--limit", "999", "--json").stdout.splitlines()[-1])
    assert (last["rank"], last["score"], last["info_hash"]) == (104, 2.96, f"{104:040x}")
    least = rows(tracker("torrent", "list", "--by", "score", "--least", "--limit", "1"))
    assert least[0][0] == f"{104:040x}"


def test_settings_and_doctor_as_json(tracker: Command) -> None:
    rows = [json.loads(line) for line in tracker("settings", "--json").stdout.splitlines()]
    assert {"name": "TRACKER_TORRENTS__MODE", "value": "open"} in rows
    # The tests' server has no persistence, which the doctor reports as wrong.
    found = [json.loads(line) for line in tracker("doctor", "--json", code=1).stdout.splitlines()]
    assert [row["subject"] for row in found if row["level"] == "wrong"] == ["persistence"]


def test_health_reports_a_running_and_a_stopped_tracker(tmp_path: Path) -> None:
    unavailable = trackers.run(tmp_path, "health", TRACKER_ADMIN__LISTEN="127.0.0.1:1")
    assert unavailable.returncode == 1 and unavailable.stderr.startswith(
        "error: no answer from a tracker at 127.0.0.1:1"
    )
    sockets = {"TRACKER_ADMIN__LISTEN": f"unix:{tmp_path}/a", "TRACKER_HTTP__LISTEN": f"unix:{tmp_path}/p"}
    running = trackers.start(tmp_path, **sockets)
    try:
        for words in ((), ("--ready",), ("--public",)):
            found = trackers.run(tmp_path, "health", *words, "--json", **sockets)
            assert found.returncode == 0 and json.loads(found.stdout)["healthy"] is True, found.stderr
    finally:
        running.end()


def completed(words: str, tmp_path: Path) -> list[str]:
    asked = {
        "_TRACKER_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "PYTHONPATH": str(ROOT),
    }
    code = "import sys; sys.argv = ['tracker']; from tracker.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    assert completed("tracker tor", tmp_path) == ["torrent"]
    assert {"backup", "torrent", "top"} <= set(completed("tracker ", tmp_path))
    assert completed("tracker torrent se", tmp_path) == ["search"]
    assert "--dry-run" in completed("tracker import --d", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed(tracker: Command, shell: str) -> None:
    assert f"_TRACKER_COMPLETE=complete_{shell}" in tracker("completion", shell).stdout


def test_version_and_help_import_little() -> None:
    code = (
        "import sys; from tracker.cli.main import app; from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([m for m in ('redis', 'aiohttp', 'pydantic', 'structlog', 'rich.console') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


MAX_MODULES = {
    "--help": 173,
    "settings": 312,
    "health": 320,
    "stats": 513,
    "torrent list": 522,
    "user list": 530,
    "work projects": 557,
}
"""Modules that a command imports. Most of the time of a short command goes into them."""


@pytest.mark.parametrize("command", MAX_MODULES)
def test_a_command_imports_few_modules(tmp_path: Path, command: str) -> None:
    code = (
        "import sys, atexit; from tracker.cli.main import main\n"
        "atexit.register(lambda: print(len(sys.modules), file=sys.stderr)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert int(done.stderr.splitlines()[-1]) <= MAX_MODULES[command], done.stderr


def commands() -> Iterator[tuple[str, str, str]]:
    """(words, line in the list, first line of the help) of every command, also of those in groups."""
    for entries in main.SECTIONS.values():
        for name, entry in entries.items():
            found = entry.load(name)
            yield name, entry.about, (found.help or "").split("\n")[0]
            for inner, each in getattr(found, "commands", {}).items():
                yield f"{name} {inner}", "", (each.help or "").split("\n")[0]


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = [words for words, _, _ in commands() if not re.search(rf"(?m)^tracker {words}(\s|$)", page)]
    assert not missing
    known = {words for words, _, _ in commands()}
    groups = {words.split()[0] for words in known if " " in words}
    for line in re.findall(r"(?m)^tracker ([a-z-]+(?: [a-z-]+)?)", page):
        first = line.split()[0]
        assert (line if first in groups else first) in known, line


def test_the_command_list_and_each_help_agree() -> None:
    for words, about, explained in commands():
        assert explained, words
        if about:
            assert about.rstrip(".").split(":")[0].split(",")[0].split()[0].lower() in explained.lower(), words


def test_every_reading_command_has_a_json_option() -> None:
    reads = {"list", "show", "search", "history", "seen", "owing", "top", "lag", "place", "lookup", "torrents"}
    for entries in main.SECTIONS.values():
        for name, entry in entries.items():
            found = entry.load(name)
            for inner, each in getattr(found, "commands", {name: found}).items():
                if inner in reads | {"settings", "doctor", "stats", "denied", "health", "cleanup"}:
                    assert any("--json" in param.opts for param in each.params), f"{name} {inner}"
    assert isinstance(main.app, typer.Typer)


USAGE_ERRORS = [
    ("token create x --role foo", 2),
    ("token create x --read-only --role operate", 2),
    ("token create x --expires foo", 1),
    ("user add --until 3d", 2),
    ("user add --upload-multiplier 2 --until foo", 1),
    ("user edit 1", 2),
    ("user edit 1 --until 3d", 2),
    (f"freeleech give 1 {HASH} --until foo", 1),
    ("work release p", 2),
    ("work edit p", 2),
    ("work policy p", 2),
    ("work purge p --older-than 1 --status todo", 2),
    ("wipe-stats --uniques --repairs", 2),
    ("dht find x", 1),
    ("work purge p", 1),  # the question has no answer
    ("wipe-stats", 1),
    ("jobs purge", 1),
]


@pytest.mark.parametrize(("words", "code"), USAGE_ERRORS, ids=[words for words, _ in USAGE_ERRORS])
def test_wrong_usage_opens_no_store(tmp_path: Path, words: str, code: int) -> None:
    """So it makes none in a folder that no tracker has used, and is reported also while the store is unavailable."""
    assert run(tmp_path, *words.split()).returncode == code
    assert list(tmp_path.iterdir()) == []
