"""What users have on torrents, exported to files and imported from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.commands import Command
from tests.store.users.test_history import ROW as HISTORY

HASHES = ("ab" * 20, "cd" * 20)
ROW: dict[str, Any] = {"user_id": "7", "torrent_id": "12", **HISTORY, "hit_and_run": False, "immune": True}
OTHER = {**ROW, "torrent_id": "4711", "completed_at": 0, "hit_and_run": True, "immune": False}


def lines(tracker: Command, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in tracker(*words).stdout.splitlines()]


@pytest.fixture(params=["1", "4"])
def site(request: pytest.FixtureRequest, tracker: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with two rows, and users and torrents for them."""
    monkeypatch.setenv("TRACKER_REDIS__SHARDS", request.param)
    known = [
        {"kind": "user", "user_id": "7", "passkey": "a" * 32},
        *({"info_hash": each, "torrent_id": own} for each, own in zip(HASHES, ("12", "4711"), strict=True)),
    ]
    (tmp_path / "known.jsonl").write_text("".join(json.dumps(each) + "\n" for each in known))
    tracker("import", "known.jsonl")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"kind": "user_torrent", **row}) + "\n" for row in (ROW, OTHER)))
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_export_is_wiped_imported_and_equal(
    tracker: Command, keys: "Redis", prefix: str, tmp_path: Path, site: Path, form: str
) -> None:
    assert tracker("import", site.name).stdout == "user torrents: 2 added, 0 known\n"
    names = [f"{what}.{form}" for what in ("torrents", "users", "user-torrents")]
    for name in names:
        tracker("export", name, "--what", name.partition(".")[0])
    keys.unlink(*keys.scan_iter(f"{prefix[:-1]}*", 10_000))
    assert "user torrents: 2 added, 0 known" in tracker("import", *names).stdout
    for name in names:
        tracker("export", f"again.{name}", "--what", name.partition(".")[0])
        both = [sorted((tmp_path / each).read_bytes().splitlines()) for each in (name, f"again.{name}")]
        assert both[0] == both[1]
    found = lines(tracker, "export", "--what", "user-torrents")
    assert sorted(found, key=str) == sorted(({"kind": "user_torrent", **row} for row in (ROW, OTHER)), key=str)
    (user,) = lines(tracker, "user", "show", "7", "--json")
    assert (user["uploaded"], user["downloaded"], user["snatches"]) == (0, 0, 0)


@pytest.mark.parametrize("site", ["1"], indirect=True)
def test_totals_follow_where_that_is_asked_for(tracker: Command, site: Path) -> None:
    for counts in ("2 added, 0 known", "0 added, 2 known"):
        assert tracker("import", site.name, "--add-to-totals").stdout == f"user torrents: {counts}\n"
    (user,) = lines(tracker, "user", "show", "7", "--json")
    assert (user["uploaded"], user["downloaded"], user["snatches"]) == (4000, 0, 1)
    (torrent,) = lines(tracker, "torrent", "show", HASHES[0], "--json")
    assert torrent["snatches"] == 1


@pytest.mark.parametrize("site", ["1"], indirect=True)
def test_tab_separated_rows_are_checked_by_line(tracker: Command, site: Path, tmp_path: Path) -> None:
    rows = ["user_id\ttorrent_id\tuploaded\tcompleted_at", "7\t12\t5\tNULL", "7\t0\t5\tNULL", "7\t12\t-5\tNULL"]
    rows += ["8\t12\t5\tNULL", "7\t99\t5\tNULL", "7\tNULL\t5\tNULL"]
    (tmp_path / "dump.tsv").write_text("\n".join(rows) + "\n")
    how = ("import", "--tsv", "--what", "user-torrents", "dump.tsv")
    invalid = [
        "error: dump.tsv line 3: torrent_id must be a positive number",
        "error: dump.tsv line 4: uploaded is a whole number up to 9007199254740991",
        "error: dump.tsv line 7: torrent_id is missing",
    ]
    checked = tracker(*how, "--check", code=1)
    assert checked.stderr.splitlines() == [*invalid, "error: 3 could not be imported"]
    assert lines(tracker, "export", "--what", "user-torrents") == []
    unknown = [
        "error: dump.tsv line 5: unknown user: add it first",
        "error: dump.tsv line 6: unknown torrent: register it first, with this id",
    ]
    done = tracker(*how, code=1)
    assert done.stderr.splitlines() == [*invalid[:2], *unknown, invalid[2], "error: 5 could not be imported"]
    (row,) = lines(tracker, "export", "--what", "user-torrents")
    assert (row["uploaded"], row["credited_uploaded"], row["completed_at"]) == (5, 5, 0)
