"""``tracker import --map`` and ``--resume``: files of other sites, and interrupted imports."""

import json
import re
from pathlib import Path

import pytest
from redis import Redis

from tests.cli.test_imports import HASH, OTHER, fields, lines
from tests.commands import Command
from tracker.cli.files.reading import parse_mapping
from tracker.errors import ClientError

PAGE = Path(__file__).parents[2] / "docs" / "moving.md"


def mapping_of(name: str) -> str:
    """The mapping on docs/moving.md after the line ``NAME.toml:``."""
    found = re.search(rf"^{name}\.toml:\n\n```toml\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found, name
    return found[1]


A, B, E = "a" * 32, "b" * 32, "e" * 40
UNIT3D_USERS = f"""id,username,passkey,uploaded,downloaded,can_download,slug,email
1,Alice,{A},53687091200,1073741824,1,poweruser,alice@example.org
2,"=Bob, ""B"" jr",{B},5,6,0,banned,
3,Carol,short,1,1,1,user,
4,Dave,{A},1,1,1,user,
"""
UNIT3D_TORRENTS = f"""id,info_hash,name,size,free,fl_until,doubleup,du_until,times_completed,status
4711,{HASH.upper()},A film,1234,100,2030-03-17 17:46:40,1,,42,1
12,{OTHER},Rejected,5,33,,0,,0,2
13,{E},Odd,5,101,,0,,0,1
"""
GAZELLE_USERS = f"""ID,Username,torrent_pass,Uploaded,Downloaded,Enabled,can_leech
1,Alice,{A},100,50,1,1
2,Bob,{B},7,8,2,0
"""
GAZELLE_TORRENTS = f"""ID,info_hash,Name,Size,FreeTorrent,Snatched
1,{HASH},Neutral,1234,2,42
2,{OTHER},Free,5,1,3
"""


def write(folder: Path, **texts: str) -> None:
    """Files of these contents; a double underscore in a name is a dot."""
    for name, content in texts.items():
        (folder / name.replace("__", ".")).write_text(content)


def test_unit3ds_tables_are_imported(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    write(
        tmp_path,
        users__csv=UNIT3D_USERS,
        torrents__csv=UNIT3D_TORRENTS,
        users__toml=mapping_of("unit3d-users"),
        torrents__toml=mapping_of("unit3d-torrents"),
    )
    result = tracker("import", "--map", "users.toml", "users.csv", code=1)
    assert "users: 2 added, 0 known" in result.stdout
    assert "users.csv line 4: a passkey is" in result.stderr
    assert "users.csv line 5: this passkey belongs to another user" in result.stderr
    assert "a" * 32 not in result.output
    alice, bob = lines(tracker, "export", "--what", "users")
    assert (alice["name"], alice["uploaded"], alice["enabled"], alice["can_leech"]) == (
        "Alice",
        53687091200,
        True,
        True,
    )
    assert (bob["name"], bob["enabled"], bob["can_leech"]) == ('=Bob, "B" jr', False, False)
    result = tracker("import", "--map", "torrents.toml", "torrents.csv", code=1)
    assert "torrents: 2 added" in result.stdout
    wrong = "torrents.csv line 4: column free must be a whole percentage from 0 to 100"
    assert wrong in result.stderr
    found = fields(keys, prefix, HASH)
    assert (found["name"], found["size"], found["multi_dn"], found["multi_up"], found["snatches"]) == (
        "A film",
        "1234",
        "0 1900000000",
        "2",
        "42",
    )
    assert (fields(keys, prefix, OTHER)["enabled"], fields(keys, prefix, OTHER)["multi_dn"]) == ("0", "0.67")
    assert (found["tid"], fields(keys, prefix, OTHER)["tid"]) == ("4711", "12")


def test_gazelles_tables_are_imported(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    write(
        tmp_path,
        users__csv=GAZELLE_USERS,
        torrents__csv=GAZELLE_TORRENTS,
        users__toml=mapping_of("gazelle-users"),
        torrents__toml=mapping_of("gazelle-torrents"),
    )
    assert tracker("import", "--map", "users.toml", "users.csv").stdout == "users: 2 added, 0 known\n"
    alice, bob = lines(tracker, "export", "--what", "users")
    assert (alice["passkey"], alice["downloaded"], alice["enabled"]) == ("a" * 32, 50, True)
    assert (bob["enabled"], bob["can_leech"]) == (False, False)
    tracker("import", "--map", "torrents.toml", "torrents.csv")
    neutral, free = fields(keys, prefix, HASH), fields(keys, prefix, OTHER)
    assert (neutral["multi_up"], neutral["multi_dn"], neutral["snatches"]) == ("0", "0", "42")
    assert (free["multi_up"], free["multi_dn"], free["name"]) == ("1", "0", "Free")


def test_json_lines_are_mapped_too(tracker: Command, tmp_path: Path) -> None:
    rows = [{"uid": 7, "ok": True, "more": [1]}, {"uid": 8, "ok": False}, {"uid": [1]}]
    write(
        tmp_path,
        users__jsonl="".join(json.dumps(row) + "\n" for row in rows),
        map__toml='kind = "users"\n[fields]\nuser_id = "uid"\nenabled = "ok"\n',
    )
    result = tracker("import", "--map", "map.toml", "users.jsonl", code=1)
    assert "users: 2 added" in result.stdout
    assert "users.jsonl line 3: a field is not text" in result.stderr
    assert [row["enabled"] for row in lines(tracker, "export", "--what", "users")] == [True, False]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kind = 1", "kind must be torrents, users, denied, clients"),
        ("kind = [", "Invalid"),
        ('kind = "users"', "fields must name the column of user_id"),
        ('kind = "users"\n[fields]\nname = "x"', "fields must name the column of user_id"),
        ('kind = "users"\n[fields]\nuser_id = "x"\ncolour = "y"', "unknown field colour: a user has user_id"),
        ('kind = "users"\nmore = 1\n[fields]\nuser_id = "x"', "unknown key more"),
        ('kind = "users"\n[fields]\nuser_id = 1', "user_id must be the name of a column"),
        ('kind = "users"\n[fields]\nuser_id = { values = {} }', "user_id must be the name of a column"),
        ('kind = "users"\n[fields]\nuser_id = { column = "x", mad = 1 }', "user_id may have column"),
        ('kind = "users"\n[fields]\nuser_id = { column = "x", values = 1 }', "values of user_id must be"),
        ('kind = "users"\n[fields]\nuser_id = { column = "x", other = [1] }', "a field is not text"),
    ],
)
def test_a_wrong_mapping_is_explained(tracker: Command, tmp_path: Path, text: str, shown: str) -> None:
    write(tmp_path, map__toml=text, users__csv="x\n1\n")
    result = tracker("import", "--map", "map.toml", "users.csv", code=1)
    assert result.stderr.startswith("error: map.toml: ") and shown in result.stderr


def test_a_mapping_of_other_columns_is_explained(tracker: Command, tmp_path: Path) -> None:
    write(
        tmp_path,
        map__toml='kind = "users"\n[fields]\nuser_id = "uid"\npasskey = "pass"\n',
        users__csv="uid,name\n1,x\n",
        twice__csv="uid,uid,pass\n1,1,x\n",
    )
    result = tracker("import", "--map", "map.toml", "users.csv", "twice.csv", code=1)
    assert "users.csv line 1: the first line must name the columns: pass is missing" in result.stderr
    assert "twice.csv line 1: a column appears twice" in result.stderr
    tracker("import", "--map", "map.toml", "--what", "users", "users.csv", code=2)
    assert "error: none.toml: No such file" in tracker("import", "--map", "none.toml", "users.csv", code=1).stderr


def test_an_empty_cell_uses_other_and_a_column_feeds_several_fields() -> None:
    text = """
        kind = "users"
        fields.user_id = "u"
        fields.name = { column = "u", other = "x" }
        fields.reason = { column = "r", values = { "" = "none" } }
    """
    mapping = parse_mapping(text)
    assert mapping.apply({"u": "7", "r": ""}) == {"user_id": "7", "name": "7", "reason": "none"}
    assert mapping.apply({"u": "", "r": ""})["name"] == "x"
    with pytest.raises(ClientError, match="no reason for this value of column r"):
        mapping.apply({"u": "7", "r": "secret"})


# Interrupted imports


def many_users(folder: Path, number: int, wrong: int) -> None:
    rows = "".join(f"{n},{'short' * (n == wrong)}\n" for n in range(1, number + 1))
    (folder / "users.csv").write_text(f"user_id,passkey\n{rows}")


def test_an_import_goes_on_where_it_stopped(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    """Problems before the interruption count, and are not reported again."""
    many_users(tmp_path, 2500, wrong=3)
    status = (tmp_path / "users.csv").stat()
    progress = {
        "inputs": [["users.csv", status.st_size, status.st_mtime_ns]],
        "records": 2000,
        "outcomes": {"user added": 1999},
        "problems": 1,
        "halves": {},
    }
    (tmp_path / "progress").write_text(json.dumps(progress))
    result = tracker("import", "--resume", "progress", "users.csv", code=1)
    assert result.stdout == "users: 2499 added, 0 known\n"
    shown = [line for line in result.stderr.splitlines() if not line.startswith("importing: ")]
    assert shown == ["note: continues after 2000 records", "error: 1 could not be imported"]
    assert keys.zcard(f"{prefix}users") == 500
    assert not (tmp_path / "progress").exists()


def test_progress_is_kept_and_belongs_to_the_files(tracker: Command, tmp_path: Path) -> None:
    many_users(tmp_path, 10, wrong=0)
    (tmp_path / "folder").mkdir()
    tracker("import", "--resume", "progress", "users.csv", "folder")
    assert not (tmp_path / "progress").exists()
    other = {"inputs": [["users.csv", 1, 1]], "records": 5, "outcomes": {}, "problems": 0}
    for content in (json.dumps(other), "[]"):
        (tmp_path / "progress").write_text(content)
        shown = tracker("import", "--resume", "progress", "users.csv", code=1).stderr
        assert "progress: belongs to an import of other files; delete it to start again" in shown
    (tmp_path / "progress").write_text("nonsense")
    assert "not a file of --resume" in tracker("import", "--resume", "progress", "users.csv", code=1).stderr
    assert len(lines(tracker, "export", "--what", "users")) == 10


def test_a_dry_run_keeps_no_progress(tracker: Command, tmp_path: Path) -> None:
    many_users(tmp_path, 10, wrong=0)
    tracker("import", "--resume", "progress", "--dry-run", "users.csv")
    assert not (tmp_path / "progress").exists()
