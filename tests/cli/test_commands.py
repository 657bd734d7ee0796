"""What the command line has besides: changes of torrents and users, health, completion in a shell, its page."""

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

from tests import trackers
from tests.commands import Command, rows
from tests.servers import ROOT
from tracker import cli

HASH, OTHER = "ab" * 20, "cd" * 20


def test_a_torrent_is_changed_field_by_field(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--name", "old")
    tracker("torrent", "edit", HASH, "--name", "new", "--upload-multiplier", "2.5")
    tracker("torrent", "edit", HASH, "--private", "--download-multiplier", "0")
    shown = json.loads(tracker("torrent", "show", HASH, "--json").stdout)
    fields = ("name", "private", "upload_multiplier", "download_multiplier")
    assert [shown[name] for name in fields] == ["new", True, "2.5", "0"]
    assert "a multiplier is" in tracker("torrent", "edit", HASH, "--upload-multiplier", "-1", code=1).stderr
    assert "unknown torrent" in tracker("torrent", "edit", OTHER, "--public", code=1).stderr
    tracker("torrent", "edit", HASH, code=2)


def test_torrents_are_found(tracker: Command) -> None:
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
    assert sorted(row[0] for row in listed) == hashes and {row[1] for row in listed} == {"no\\x1b[2J"}
    first, *others = tracker("denied", "--limit", "7", "--json").stdout.splitlines()
    assert len(others) == 6 and abs(json.loads(first)["since"] - time.time()) < 600


def test_a_user_is_changed(tracker: Command) -> None:
    tracker("user", "add", "--id", "7")
    tracker("user", "edit", "7", "--no-leech", "--disabled")
    row = json.loads(tracker("user", "list", "--json").stdout)
    assert (row["may_leech"], row["enabled"]) == (False, False)
    tracker("user", "edit", "7", "--may-leech")
    row = json.loads(tracker("user", "list", "--json").stdout)
    assert (row["may_leech"], row["enabled"]) == (True, False)
    tracker("user", "edit", "7", code=2)


def test_scores(tracker: Command) -> None:
    tracker("torrent", "add", HASH)
    assert json.loads(tracker("score", "lag", "--json").stdout)["count"] == 1
    place = json.loads(tracker("score", "place", HASH, "--json").stdout)
    assert (place["rank"], place["of"], place["score"]) == (1, 1, 1)
    assert "not in the ranking" in tracker("score", "place", OTHER, code=1).stderr


def test_the_ranking_goes_on_from_page_to_page(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("torrent", "add", *(f"{number:040x}" for number in range(1, 105)))
    keys.zadd(f"{prefix}i:score", {str(number): 4 - number / 100 for number in range(1, 105)})
    assert [(row[0], row[1]) for row in rows(tracker("score", "top", "--limit", "2"))] == [
        ("1", "3.99"),
        ("2", "3.98"),
    ]
    last = json.loads(tracker("score", "top", "--limit", "999", "--json").stdout.splitlines()[-1])
    assert (last["rank"], last["score"], last["info_hash"]) == (104, 2.96, f"{104:040x}")
    least = rows(tracker("torrent", "list", "--by", "score", "--least", "--limit", "1"))
    assert least[0][0] == f"{104:040x}"


def test_settings_and_doctor_as_json(tracker: Command) -> None:
    rows = [json.loads(line) for line in tracker("settings", "--json").stdout.splitlines()]
    assert {"name": "TRACKER_TORRENTS__MODE", "value": "open"} in rows
    # The tests' own server keeps nothing on the disk, which is wrong.
    found = [json.loads(line) for line in tracker("doctor", "--json", code=1).stdout.splitlines()]
    assert [row["subject"] for row in found if row["level"] == "wrong"] == ["persistence"]


def test_health_of_a_tracker(tmp_path: Path) -> None:
    away = trackers.run(tmp_path, "health", TRACKER_ADMIN__LISTEN="127.0.0.1:1")
    assert away.returncode == 1 and away.stderr.startswith("error: no tracker answers at 127.0.0.1:1")
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
    code = "import sys; sys.argv = ['tracker']; from tracker.cli import main; main()"
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


def test_a_shell_completes_words(tmp_path: Path) -> None:
    assert completed("tracker tor", tmp_path) == ["torrent"]
    assert {"backup", "torrent", "top"} <= set(completed("tracker ", tmp_path))
    assert completed("tracker torrent se", tmp_path) == ["search"]
    assert "--dry-run" in completed("tracker import --d", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(tracker: Command, shell: str) -> None:
    assert f"_TRACKER_COMPLETE=complete_{shell}" in tracker("completion", shell).stdout


def test_little_is_imported_for_the_version_and_lists() -> None:
    code = (
        "import sys; from tracker.cli import app; from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([m for m in ('redis', 'aiohttp', 'pydantic', 'structlog', 'rich.console') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def commands() -> Iterator[tuple[str, str, str]]:
    """(words, the line of the list, the first line of its help) of every command, and of every command in a group."""
    for entries in cli.SECTIONS.values():
        for name, entry in entries.items():
            found = entry.load(name)
            yield name, entry.about, (found.help or "").split("\n")[0]
            for inner, each in getattr(found, "commands", {}).items():
                yield f"{name} {inner}", "", (each.help or "").split("\n")[0]


def test_every_command_is_on_its_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    missing = [words for words, _, _ in commands() if not re.search(rf"(?m)^tracker {words}(\s|$)", page)]
    assert not missing
    known = {words for words, _, _ in commands()}
    groups = {words.split()[0] for words in known if " " in words}
    for line in re.findall(r"(?m)^tracker ([a-z-]+(?: [a-z-]+)?)", page):
        first = line.split()[0]
        assert (line if first in groups else first) in known, line


def test_the_list_says_what_the_command_says() -> None:
    for words, about, explained in commands():
        assert explained, words
        if about:
            assert about.rstrip(".").split(":")[0].split(",")[0].split()[0].lower() in explained.lower(), (
                words
            )


def test_every_reading_command_has_json() -> None:
    reads = {
        "list",
        "show",
        "search",
        "history",
        "seen",
        "owing",
        "top",
        "lag",
        "place",
        "lookup",
        "torrents",
    }
    for entries in cli.SECTIONS.values():
        for name, entry in entries.items():
            found = entry.load(name)
            for inner, each in getattr(found, "commands", {name: found}).items():
                if inner in reads | {"settings", "doctor", "stats", "denied", "health", "cleanup"}:
                    assert any("--json" in param.opts for param in each.params), f"{name} {inner}"
    assert isinstance(cli.app, typer.Typer)
