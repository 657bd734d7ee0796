"""The ``tracker`` command on a real store."""

import json
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from bencodepy import encode as bencode
from redis import Redis

from loadtest import trackers
from loadtest.servers import ROOT
from tests.commands import Command, rows
from tracker import __version__, commit
from tracker.cli.terminal import describe

HASH, OTHER = "ab" * 20, "cd" * 20


def torrent_file(path: Path, name: str, **more: object) -> Path:
    info = {"name": name, "piece length": 16384, "length": 3, "pieces": b"x" * 20, **more}
    path.write_bytes(bencode({"info": dict(sorted(info.items()))}))
    return path


def hybrid_file(path: Path) -> Path:
    tree = {b"both": {b"": {b"length": 3, b"pieces root": b"r" * 32}}}
    return torrent_file(path, "both", **{"meta version": 2, "file tree": tree})


# Torrents


def test_torrents_are_added_shown_listed_and_removed(tracker: Command, keys: "Redis", prefix: str) -> None:
    assert tracker("torrent", "add", HASH, "--name", "one", "--private").stdout == f"added {HASH} as 1 one\n"
    assert tracker("torrent", "add", OTHER.upper()).stdout == f"added {OTHER} as 2\n"
    assert tracker("torrent", "add", HASH).stdout == f"known {HASH} as 1 one\n"
    assert keys.get(f"{prefix}info_hash:{HASH}") == b"1"
    shown = json.loads(tracker("torrent", "show", HASH, "--json").stdout)
    assert (shown["name"], shown["private"], shown["state"], shown["torrent_id"]) == ("one", True, "registered", "1")
    listed = rows(tracker("torrent", "list"))
    assert sorted(listed) == [
        [HASH, "0", "0", "0", "registered", "one", "", ""],
        [OTHER, "0", "0", "0", "registered", "", "", ""],
    ]
    assert tracker("torrent", "remove", HASH, OTHER).stdout == f"removed {HASH}\nremoved {OTHER}\n"
    assert tracker("torrent", "list").stdout == ""
    assert keys.get(f"{prefix}info_hash:{HASH}") is None


def test_scores_are_shown_and_reset_only_on_request(tracker: Command, keys: "Redis", prefix: str) -> None:
    """B6: adding a known torrent resets its score only on request."""
    tracker("torrent", "add", HASH, OTHER)
    keys.zadd(f"{prefix}i:score", {"1": 2.0736, "2": 0.4096})
    assert "known" in tracker("torrent", "add", HASH, "--name", "one").stdout
    assert [row[4] for row in rows(tracker("torrent", "list", "--by", "score"))] == ["2.074", "0.4096"]
    assert json.loads(tracker("torrent", "show", HASH, "--json").stdout)["score"] == 2.0736
    tracker("torrent", "add", HASH, "--reset-score")
    assert [row[4] for row in rows(tracker("torrent", "list", "--by", "score"))] == ["1", "0.4096"]
    keys.zrem(f"{prefix}i:score", "2")
    assert [row[0] for row in rows(tracker("torrent", "list", "--by", "score"))] == [HASH]
    assert json.loads(tracker("torrent", "show", OTHER, "--json").stdout)["score"] is None


def test_a_hybrid_file_is_registered_under_both_hashes(tracker: Command, tmp_path: Path) -> None:
    hybrid_file(tmp_path / "a.torrent")
    assert len(tracker("torrent", "add", "a.torrent").stdout.splitlines()) == 2
    listed = rows(tracker("torrent", "list"))
    assert sorted((row[5], row[7]) for row in listed) == [("both", "v1"), ("both", "v2")]


def test_halves_are_linked_and_the_link_is_ended(tracker: Command) -> None:
    tracker("torrent", "add", HASH, OTHER)
    assert tracker("torrent", "edit", OTHER, "--hybrid-of", HASH).stdout == f"changed {OTHER}\n"
    shown = [json.loads(tracker("torrent", "show", each, "--json").stdout) for each in (HASH, OTHER)]
    assert [(each["half"], each["hybrid_of"], each["hybrid"]) for each in shown] == [
        ("v1", "", OTHER),
        ("v2", HASH, ""),
    ]
    assert "half of" in tracker("torrent", "edit", HASH, "--hybrid-of", OTHER, code=1).stderr
    assert "40 hexadecimal" in tracker("torrent", "edit", OTHER, "--hybrid-of", "x", code=1).stderr
    tracker("deny", HASH, "--reason", "asked to")
    assert len(tracker("denied").stdout.splitlines()) == 2
    tracker("allow", OTHER)
    assert tracker("denied").stdout == ""
    tracker("torrent", "disable", OTHER)
    tracker("torrent", "enable", HASH)
    assert json.loads(tracker("torrent", "show", OTHER, "--json").stdout)["state"] == "registered"
    tracker("torrent", "edit", HASH, "--hybrid-of", "")
    assert json.loads(tracker("torrent", "show", OTHER, "--json").stdout)["half"] == ""


def test_a_v2_hash_is_cut_to_what_clients_announce(tracker: Command) -> None:
    assert tracker("torrent", "add", "ef" * 32).stdout == f"added {'ef' * 20} as 1\n"


def test_a_broken_torrent_file_is_reported_and_the_others_added(tracker: Command, tmp_path: Path) -> None:
    torrent_file(tmp_path / "good.torrent", "good", private=1)
    (tmp_path / "bad.torrent").write_bytes(b"d4:infoi1ee")
    (tmp_path / "folder").mkdir()
    words = ("bad.torrent", "missing.torrent", "folder", "good.torrent", HASH, HASH[:-1])
    result = tracker("torrent", "add", *words, code=1)
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == [*words[:3], HASH[:-1]]
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["added", "added"]
    (good,) = (row for row in rows(tracker("torrent", "list")) if row[5] == "good")
    assert json.loads(tracker("torrent", "show", good[0], "--json").stdout)["private"] is True


def test_a_torrent_is_disabled_with_a_reason_and_enabled(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("torrent", "add", HASH)
    tracker("torrent", "disable", HASH, "--reason", "bad audio")
    assert "disabled" in tracker("torrent", "list").stdout
    assert keys.hmget(f"{prefix}t:{HASH}", "enabled", "reason") == [b"0", b"bad audio"]
    tracker("torrent", "enable", HASH)
    assert keys.hmget(f"{prefix}t:{HASH}", "enabled", "reason") == [b"1", b""]
    assert "unknown torrent" in tracker("torrent", "disable", OTHER, code=1).stderr


def test_torrents_are_denied_and_allowed_again(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("deny", HASH, OTHER, "--reason", "asked by its author")
    assert keys.get(f"{prefix}deny:{HASH}") == b"asked by its author"
    shown = json.loads(tracker("torrent", "show", HASH, "--json").stdout)
    assert (shown["state"], shown["reason"]) == ("denied", "asked by its author")
    assert tracker("allow", HASH).stdout == f"allowed {HASH}\n"
    assert keys.get(f"{prefix}deny:{HASH}") is None
    assert tracker("allow", HASH, code=1).stderr == f"error: {HASH}: is not on the deny list\n"
    assert "40 hexadecimal digits" in tracker("deny", "nonsense", code=1).stderr


def test_unknown_torrents_are_reported(tracker: Command) -> None:
    assert tracker("torrent", "show", HASH, code=1).stderr == "error: unknown torrent\n"
    assert tracker("torrent", "remove", HASH, code=1).stderr == f"error: {HASH}: is not registered\n"
    assert "error: an info hash is" in tracker("torrent", "show", "x", code=1).stderr


def test_long_lists_come_in_pages(tracker: Command) -> None:
    hashes = [f"{number:040x}" for number in range(230)]
    tracker("torrent", "add", *hashes)
    assert sorted(row[0] for row in rows(tracker("torrent", "list"))) == hashes
    assert len(rows(tracker("torrent", "list", "--limit", "150", "--by", "snatches"))) == 150
    assert len([json.loads(line) for line in tracker("torrent", "list", "--json").stdout.splitlines()]) == 230


def in_terminal(directory: Path, columns: int, *words: str) -> list[str]:
    """The output lines of a command in a terminal."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    size = {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    ours, theirs = pty.openpty()
    shown = b""
    with trackers.starter(
        [sys.executable, "-m", "tracker", *words],
        cwd=directory,
        env=trackers.environment({**settings, **size}),
        stdout=theirs,
    ):
        os.close(theirs)
        with suppress(OSError):  # Linux raises this when the other end is closed
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    return shown.decode().splitlines()


def test_in_a_terminal_pages_share_one_header(tracker: Command, tmp_path: Path) -> None:
    tracker("torrent", "add", *(f"{number:040x}" for number in range(130)), HASH)
    lines = in_terminal(tmp_path, 110, "torrent", "list")
    assert sum("info hash" in line for line in lines) == 1
    assert not any("size" in line for line in lines)
    assert any("size" in line for line in in_terminal(tmp_path, 130, "torrent", "list"))
    starts = [line.index("registered") for line in lines if "registered" in line]
    assert (len(starts), len(set(starts))) == (131, 1)
    head, *narrow = in_terminal(tmp_path, 60, "torrent", "list")
    assert head.split("\t")[0] == "info_hash"
    assert len(narrow) == 131


def test_names_follow_the_rule_and_are_not_interpreted_as_markup(tracker: Command, keys: "Redis", prefix: str) -> None:
    """Also one that a site wrote. Joiners and wide spaces stay."""
    name = "a\x1b[2J\n[red]b\u202e\t می\u200cخواهم\u3000x"
    tracker("torrent", "add", HASH, "--name", name)
    assert keys.hget(f"{prefix}t:{HASH}", "name") == "a[2J[red]b می\u200cخواهم\u3000x".encode()
    for written in (False, True):
        if written:
            keys.hset(f"{prefix}t:{HASH}", "name", name)
        for words in (("torrent", "list"), ("torrent", "show", HASH)):
            assert "a[2J[red]b می\u200cخواهم\u3000x" in tracker(*words).stdout
    tracker("client", "allow", "-XX", "--name", "\x1b]0;x\x07")
    assert rows(tracker("client", "list")) == [["-XX", "]0;x"]]


def test_text_that_moves_the_cursor_or_reorders_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    describe({"text": "a\x1b[2J\n[red]b\u202e\t\u200c"}, as_json=False)
    assert capsys.readouterr().out == "text  a\\x1b[2J\\n[red]b\\u202e\\t\u200c\n"


# Users


def test_a_user_is_added_listed_shown_and_disabled(tracker: Command) -> None:
    text = tracker("user", "add").stdout
    passkey = json.loads(tracker("user", "add", "--json", "--no-leech").stdout)["passkey"]
    assert "announce path" in text
    assert [row[:3] for row in rows(tracker("user", "list"))] == [["1", "yes", "yes"], ["2", "yes", "no"]]
    assert passkey not in tracker("user", "list").stdout + tracker("user", "show", "2").stdout
    assert passkey in tracker("user", "list", "--passkeys").stdout
    assert json.loads(tracker("user", "show", passkey, "--passkeys", "--json").stdout)["passkey"] == passkey
    assert tracker("user", "disable", passkey, "1").stdout == "disabled user 2\ndisabled user 1\n"
    assert [row[1] for row in rows(tracker("user", "list"))] == ["no", "no"]
    assert tracker("user", "enable", "2").stdout == "enabled user 2\n"


def test_a_user_may_be_given_an_id_and_a_passkey(tracker: Command) -> None:
    words = ("user", "add", "--id", "77", "--passkey", "sixteencharacters")
    assert "/sixteencharacters/announce" in tracker(*words).stdout
    assert tracker(*words, code=1).stderr.startswith("error: ")
    assert "16 to 64 letters" in tracker("user", "add", "--passkey", "short", code=1).stderr


def test_a_rotated_passkey_is_a_new_one(tracker: Command) -> None:
    old = json.loads(tracker("user", "add", "--json").stdout)["passkey"]
    new = json.loads(tracker("user", "rotate", "1", "--json").stdout)["passkey"]
    assert old != new
    assert tracker("user", "show", old, code=1).stderr == "error: there is no such user\n"
    assert json.loads(tracker("user", "show", new, "--json").stdout)["user_id"] == "1"
    words = ("user", "rotate", "1", "--passkey", "-", "--json")
    assert json.loads(tracker(*words, typed="sixteencharacters\n").stdout)["passkey"] == "sixteencharacters"
    assert "16 to 64 letters" in tracker("user", "rotate", "1", "--passkey", "short", code=1).stderr


def test_a_user_is_deleted_only_after_confirmation(tracker: Command) -> None:
    tracker("user", "add")
    tracker("user", "delete", "1", typed="n\n", code=1)
    assert len(rows(tracker("user", "list"))) == 1
    tracker("user", "delete", "1", "--yes")
    assert tracker("user", "list").stdout == ""


def test_an_interrupted_deletion_can_be_repeated(tracker: Command, keys: "Redis", prefix: str) -> None:
    keys.sadd(f"{prefix}deleting", "7")
    keys.hset(f"{prefix}u:7", "uploaded", "1")
    assert tracker("user", "delete", "7", "--yes").stdout == "deleted user 7\n"
    assert not keys.exists(f"{prefix}deleting", f"{prefix}u:7")
    assert tracker("user", "delete", "7", "--yes", code=1).stderr == "error: there is no such user\n"


def test_an_error_does_not_repeat_an_unknown_passkey(tracker: Command) -> None:
    result = tracker("user", "disable", "averysecretpasskey1", code=1)
    assert result.stderr == "error: argument 1: there is no such user\n"


def test_an_empty_line_is_no_passkey(tracker: Command) -> None:
    """An empty passkey would mean a random one."""
    for typed in ("", "\n", "  \n"):
        assert "is empty" in tracker("user", "add", "--passkey", "-", typed=typed, code=1).stderr
    assert tracker("user", "list").stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ("deny", "ab" * 20, "--reason"),
        ("torrent", "search"),
        ("client", "allow"),
        ("user", "show"),
        ("jobs", "show"),
        ("unique", "figure", "countries"),
    ],
)
def test_an_argument_that_is_not_utf8_is_one_error_line(tracker: Command, words: tuple[str, ...]) -> None:
    """A Latin-1 terminal sends such bytes."""
    latin = os.fsdecode(b"caf\xe9")
    assert tracker(*words, latin, code=1).stderr == "error: an argument of this command is not UTF-8 text\n"


# Clients


def test_clients_are_allowed_listed_and_disallowed(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("client", "allow", "-TR40", "M7-%00", "--name", "Transmission")
    assert keys.exists(f"{prefix}whitelist:-TR40", f"{prefix}whitelist:M7-\0") == 2
    listed = sorted(rows(tracker("client", "list")))
    assert listed == [["-TR40", "Transmission"], ["M7-%00", "Transmission"]]
    assert tracker("client", "disallow", "-TR40").stdout == "disallowed -TR40\n"
    assert tracker("client", "disallow", "-TR40", code=1).stderr == "error: -TR40: is not on the allow-list\n"
    assert "1 to 20" in tracker("client", "allow", "x" * 21, code=1).stderr


def test_clients_are_denied_listed_and_undenied(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("client", "deny", "-TR283", "M7-%00", "--reason", "too old")
    assert keys.hgetall(f"{prefix}denied_clients") == {b"-TR283": b"too old", b"M7-\0": b"too old"}
    assert rows(tracker("client", "denied")) == [["-TR283", "too old"], ["M7-%00", "too old"]]
    assert tracker("client", "undeny", "-TR283").stdout == "no longer denied -TR283\n"
    assert tracker("client", "undeny", "-TR283", code=1).stderr == "error: -TR283: is not on the deny list\n"
    assert "1 to 20" in tracker("client", "deny", "x" * 21, code=1).stderr


# Settings, usage, errors


def test_settings_are_printed_masked(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_REDIS__URL", "redis://:hunter2@h/1")
    text = tracker("settings").stdout
    assert "TRACKER_REDIS__URL=redis://:***@h/1\n" in text and "hunter2" not in text
    assert tracker("settings", "--markdown").stdout.startswith("# Settings\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--config", "file.toml", "torrent", "list", "--json"),
        ("torrent", "--config", "file.toml", "list", "--json"),
        ("torrent", "list", "--json", "--config", "file.toml"),
    ],
)
def test_the_config_option_may_stand_anywhere(
    tracker: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, words: tuple[str, ...]
) -> None:
    tracker("torrent", "add", HASH)
    monkeypatch.delenv("TRACKER_REDIS__PREFIX")
    (tmp_path / "file.toml").write_text(f'[redis]\nprefix = "{prefix}"\n')
    assert json.loads(tracker(*words).stdout)["info_hash"] == HASH


def test_a_misspelt_setting_is_refused_with_the_right_name(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_HTTP__LISTNE", "x")
    assert "did you mean TRACKER_HTTP__LISTEN?" in tracker("doctor", code=1).stderr
    assert "no such file" in tracker("settings", "--config", "missing.toml", code=1).stderr


@pytest.mark.parametrize(
    "words", [("nonsense",), ("torrent", "add"), ("torrent", "list", "--by", "age"), ("user", "add", "--nope")]
)
def test_wrong_usage_is_exit_code_2(tracker: Command, words: tuple[str, ...]) -> None:
    assert "Usage: " in tracker(*words, code=2).stderr


def test_a_name_needs_exactly_one_torrent(tracker: Command) -> None:
    assert "exactly one torrent" in tracker("torrent", "add", HASH, OTHER, "--name", "x", code=2).stderr


def test_an_unavailable_store_is_one_error_line(tracker: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_REDIS__URL", "redis://127.0.0.1:1/0")
    (line,) = tracker("torrent", "list", code=1).stderr.splitlines()
    assert line.startswith("error: no usable store at redis://127.0.0.1:1/0")


def test_a_store_error_is_one_error_line(tracker: Command, keys: "Redis", prefix: str) -> None:
    keys.set(f"{prefix}i:seeders", "not a sorted set")
    (line,) = tracker("torrent", "list", code=1).stderr.splitlines()
    assert line.startswith("error: store error: WRONGTYPE")


def test_doctor_exits_with_1_only_if_a_check_fails(tracker: Command, keys: "Redis", prefix: str) -> None:
    keys.set(f"{prefix}stats:repairs", "1")
    text = tracker("doctor", code=1).stdout
    assert "wrong    counts" in text
    assert all(line.startswith(("ok ", "warning ", "wrong ")) for line in text.splitlines())


@pytest.mark.usefixtures("own_interpreter")
def test_python_m_tracker_prints_version_and_commit(tmp_path: Path) -> None:
    result = trackers.run(tmp_path, "--version")
    expected = f"swarmkeeper {__version__} (commit {commit()})\n"
    assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")
    shutil.copytree(ROOT / "tracker", tmp_path / "tracker", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for built, shown in (("", "unknown"), ("0123456789ab\n", "0123456789ab")):
        if built:
            (tmp_path / "tracker" / "commit.txt").write_text(built)
        result = trackers.run(tmp_path, "--version", PYTHONPATH=str(tmp_path))
        assert result.stdout == f"swarmkeeper {__version__} (commit {shown})\n"


def test_a_command_reaches_the_store_of_a_running_tracker(tmp_path: Path) -> None:
    running = trackers.start(tmp_path)
    try:
        running.announce()
        shown = trackers.run(tmp_path, "torrent", "show", "01" * 20, "--peers")
        assert "127.0.0.1:6881" in shown.stdout and "-TR4000-abcdefghijkl" in shown.stdout
        assert "a tracker is running" in trackers.run(tmp_path, "doctor").stdout
        assert trackers.run(tmp_path, "deny", "01" * 20, "--reason", "enough").returncode == 0
        assert running.announce()[b"failure reason"] == b"enough"
    finally:
        running.end()


@pytest.mark.usefixtures("own_interpreter")
def test_a_command_notes_that_it_creates_a_new_store(tmp_path: Path) -> None:
    found = trackers.run(tmp_path, "torrent", "list")
    assert found.returncode == 0 and "no tracker has used" in found.stderr
    assert "no tracker has run" not in trackers.run(tmp_path, "torrent", "list").stderr


STARTED = """
import gc, sys
from tracker.__main__ import main
sys.argv = ["tracker", "settings"]
try:
    main()
finally:
    print(sum(generation["collections"] for generation in gc.get_stats()), file=sys.stderr)
"""


def test_a_command_does_not_search_its_modules_for_garbage(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTED]
    done = subprocess.run(
        command, cwd=tmp_path, env=trackers.environment({}), capture_output=True, text=True, check=True
    )
    assert int(done.stderr.split()[-1]) < 40  # 85 with the default threshold
