"""Every field of a user and of a torrent: each way in takes all of them, and an export brings them back."""

import json
from inspect import signature
from typing import Any

import pytest
from redis import Redis

from tests.cli.test_audit import commands
from tests.commands import Command
from tests.every_field import TORRENT, USER
from tracker.admin.api.torrents import TorrentBatchRow, TorrentEdit, TorrentNew, TorrentRow
from tracker.admin.api.users import UserBatchRow, UserEdit, UserNew, UserRow
from tracker.cli.files.rows import COLUMNS
from tracker.store.schema.multipliers import with_end_names
from tracker.store.torrents.records import TORRENT_FIELDS
from tracker.store.users.fields import ADDITIONS, FIELDS

HASH = "ab" * 20


def lines(tracker: Command, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tracker(*words).stdout.splitlines()]


def test_the_records_here_have_every_field() -> None:
    assert set(USER) == {*with_end_names(FIELDS)} and set(TORRENT) == {*with_end_names(TORRENT_FIELDS)}


@pytest.mark.parametrize("model", [UserNew, UserEdit, UserBatchRow, UserRow])
def test_the_api_has_every_field_of_a_user(model: Any) -> None:
    additions = {*ADDITIONS} if model in (UserEdit, UserBatchRow) else set()
    assert set(model.model_fields) - {"user_id", "passkey"} == set(USER) | additions


@pytest.mark.parametrize("model", [TorrentNew, TorrentEdit, TorrentBatchRow])
def test_the_api_has_every_field_of_a_torrent(model: Any) -> None:
    assert set(model.model_fields) - {"info_hash", "snatches", "torrent_id", "reset_score"} == set(TORRENT)
    assert set(TORRENT) - {"enabled"} <= set(TorrentRow.model_fields)  # `state` says whether it is enabled


def test_files_have_every_field() -> None:
    assert set(COLUMNS["user"]) == {"user_id", "passkey", *USER}
    assert set(COLUMNS["torrent"]) == {"info_hash", "snatches", "torrent_id", *TORRENT}


def test_the_command_line_has_every_field() -> None:
    """One option ends both multipliers."""
    options = {name: set(signature(command).parameters) for name, command in commands().items()}
    assert set(FIELDS) | {"until"} <= options["user.add"]
    assert set(FIELDS) | {"until", *ADDITIONS} <= options["user.edit"]
    assert {"until"} | set(TORRENT_FIELDS) - {"enabled", "reason"} <= options["torrent.edit"]
    assert {"info_hash", "reason"} <= options["torrent.disable"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("enabled", [False, "pending"])
def test_an_export_brings_back_every_field(
    tracker: Command, keys: "Redis", prefix: str, tmp_path: Any, form: str, enabled: bool | str
) -> None:
    """A file with all fields is imported, exported, and imported into an empty store."""
    passkey = "a" * 32
    records = [
        {"kind": "user", "user_id": "7", "passkey": passkey, **USER},
        {"kind": "torrent", "info_hash": HASH, **TORRENT, "enabled": enabled, "snatches": 8, "torrent_id": "4711"},
        {"kind": "torrent", "info_hash": TORRENT["hybrid_of"], "snatches": 9, "torrent_id": "12"},
    ]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    tracker("import", "all.jsonl")
    exported = sorted(lines(tracker, "export", "--what", "all"), key=str)
    (other,) = (each for each in exported if each.get("info_hash") == TORRENT["hybrid_of"])
    assert (other["snatches"], other["enabled"], other["hybrid_of"]) == (9, True, "")
    assert [each for each in exported if each is not other] == sorted(records[:2], key=str)
    tracker("export", f"users.{form}", "--what", "users")
    tracker("export", f"torrents.{form}", "--what", "torrents")
    before = dump(keys, prefix)
    keys.unlink(*keys.scan_iter(f"{prefix}*"))
    for _ in range(2):
        tracker("import", f"users.{form}", f"torrents.{form}")
        assert sorted(lines(tracker, "export", "--what", "all"), key=str) == exported
        assert dump(keys, prefix) == before


def dump(keys: "Redis", prefix: str) -> dict[str, Any]:
    """The rows of the user and of the torrent, without the time of its registration."""
    rows: dict[str, Any] = {name: keys.hgetall(prefix + name) for name in (f"user:{'a' * 32}", "u:7", f"t:{HASH}")}
    rows[f"t:{HASH}"].pop(b"added")
    return rows


def test_a_multiplier_and_its_end_may_share_a_field(tracker: Command, tmp_path: Any) -> None:
    """A date is a valid end too."""
    (tmp_path / "t.csv").write_text(f"info_hash,upload_multiplier,download_multiplier\n{HASH},2 1900000000,\n")
    (tmp_path / "u.csv").write_text("user_id,download_multiplier,download_multiplier_until\n7,0,2030-03-17 17:46:40\n")
    tracker("import", "t.csv", "u.csv")
    torrent, user = lines(tracker, "export", "--what", "all")
    assert (torrent["upload_multiplier"], torrent["upload_multiplier_until"]) == (2, 1_900_000_000)
    assert (user["download_multiplier"], user["download_multiplier_until"]) == (0, 1_900_000_000)
    assert (user["upload_multiplier"], user["max_downloads"], user["hnr_exempt"]) == ("", "", False)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("7,,1900000000", "download_multiplier_until needs download_multiplier"),
        ("7,1,soon", "a time is a date"),
        ("7,2 1900000000,1900000000", "the end of a multiplier"),
        ("7,-1,", "a multiplier is a number"),
    ],
)
def test_an_invalid_multiplier_is_reported(tracker: Command, tmp_path: Any, row: str, problem: str) -> None:
    (tmp_path / "u.csv").write_text(f"user_id,download_multiplier,download_multiplier_until\n{row}\n")
    assert problem in tracker("import", "u.csv", code=1).stderr
