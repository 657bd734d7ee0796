"""``tracker import`` and ``tracker export`` on a real store."""

import csv
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from bencodepy import encode as bencode
from redis import Redis

from loadtest import trackers
from tests.commands import Command
from tests.waiting import until
from tracker.names import clean_text

HASH, OTHER = "ab" * 20, "cd" * 20
HOSTILE = (
    "plain",
    "=HYPERLINK(1)",
    "'=quoted",
    "''+twice",
    "-dash",
    "@at",
    "'Tis",
    "\ttab",
    "a\rb",
    "a\nb\r\n",
    'quo"te,comma',
    "\x1b[2J\x00\x07",
    "\u202eright",
    " spaces ",
    "x" * 1000,
    "\ufeffbom",
)


def many_files(folder: Path, count: int) -> Path:
    for number in range(count):
        place = folder / f"{number % 7}"
        place.mkdir(parents=True, exist_ok=True)
        info = {"name": f"torrent {number}", "piece length": 16384, "length": 3, "pieces": b"x" * 20}
        (place / f"{number}.torrent").write_bytes(bencode({"info": info}))
    return folder


def fields(keys: "Redis", prefix: str, info_hash: str) -> dict[str, str]:
    row: dict[bytes, bytes] = keys.hgetall(f"{prefix}t:{info_hash}")  # type: ignore[assignment]  # nothing is decoded
    return {name.decode(): value.decode() for name, value in row.items()}


def lines(tracker: Command, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in tracker(*words).stdout.splitlines()]


# Folders of .torrent files


def test_thousands_of_files_can_be_imported_twice(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    many_files(tmp_path / "files", 2000)
    result = tracker("import", "files")
    assert result.stdout == "torrents: 2000 added, 0 known\n"
    assert keys.zcard(f"{prefix}i:seeders") == 2000
    assert tracker("import", "files/0").stdout == "torrents: 0 added, 286 known\n"
    found = {(row["name"], row["size"]) for row in lines(tracker, "export")}
    assert found == {(f"torrent {number}", 3) for number in range(2000)}


def test_files_are_kept_and_stale_ones_found(
    tracker: Command, tmp_path: Path, keys: "Redis", prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER_DATA__DIRECTORY", str(tmp_path / "data"))
    many_files(tmp_path / "files", 4)
    tracker("torrent", "add", "files/0/0.torrent")
    assert not (tmp_path / "data").exists()
    monkeypatch.setenv("TRACKER_TORRENTS__KEEP_FILES", "true")
    tracker("torrent", "add", "files/0/0.torrent")
    tracker("import", "files/1", "--dry-run")
    assert len(list((tmp_path / "data").rglob("*.torrent"))) == 1
    tracker("import", "files")
    kept = sorted(path.stem for path in (tmp_path / "data").rglob("*.torrent"))
    assert kept == sorted(str(row["info_hash"]) for row in lines(tracker, "export"))
    tracker("torrent", "remove", kept[0])
    keys.delete(f"{prefix}info_hash:{kept[1]}")
    assert f"1 .torrent files without a torrent: {kept[1]}" in tracker("cleanup").stdout
    assert "1 .torrent files without a torrent, 1 deleted" in tracker("cleanup", "--delete", "--yes").stdout
    assert sorted(path.stem for path in (tmp_path / "data").rglob("*.torrent")) == kept[2:]


def test_unreadable_files_are_reported_and_the_others_imported(tracker: Command, tmp_path: Path) -> None:
    folder = many_files(tmp_path / "files", 20)
    (folder / "broken.torrent").write_bytes(b"d4:infoi1ee")
    (folder / "list.torrent").write_bytes(b"l" * 100_000)
    (folder / "folder.torrent").mkdir()
    os.mkfifo(folder / "pipe.torrent")
    (folder / "gone.torrent").symlink_to("nowhere")
    (folder / "readme.txt").write_text("not a torrent")
    result = tracker("import", "files", code=1)
    assert result.stdout == "torrents: 20 added, 0 known\n"
    shown = [line.split(": ", 2)[1].rpartition("/")[2] for line in result.stderr.splitlines() if "/" in line]
    assert shown == ["broken.torrent", "gone.torrent", "list.torrent", "pipe.torrent"]
    assert "4 could not be imported" in result.stderr


def test_a_dry_run_writes_nothing(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    many_files(tmp_path / "files", 5)
    (tmp_path / "bad.csv").write_text("info_hash\nnonsense\n")
    result = tracker("import", "--dry-run", "files", "bad.csv", code=1)
    assert "torrents: 5 would be imported" in result.stdout and "bad.csv line 2" in result.stderr
    assert not list(keys.scan_iter(f"{prefix}*"))


def test_a_dry_run_reports_the_same_problems_as_the_import(tracker: Command, tmp_path: Path) -> None:
    """Except for problems that only the store can find."""
    files = {
        "torrents.csv": f"info_hash,upload_multiplier,enabled\n{HASH},99999,1\n{HASH},1,yes\n{HASH},2,0\n",
        "users.csv": "user_id,passkey,uploaded\n0,,\n7,short,\n7,,-4\n8,,4\n",
        "clients.csv": f"prefix,name\n{'x' * 21},too long\n-TR40,Transmission\n",
        "denied.csv": f"kind,info_hash\ndenial,{HASH[1:]}\ndenial,{HASH}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tried, done = tracker("import", "--dry-run", *files, code=1), tracker("import", *files, code=1)
    assert sorted(tried.stderr.splitlines()) == sorted(done.stderr.splitlines())
    assert "error: 7 could not be imported" in tried.stderr
    assert tried.stdout.count(": 1 would be imported") == 4


def test_a_dry_run_finds_a_passkey_that_two_users_have(tracker: Command, tmp_path: Path) -> None:
    first, second = "a" * 32, "b" * 32
    rows = f"7,{first}\n8,{second}\n7,{first}\n9,{second}\n"
    (tmp_path / "users.csv").write_text(f"user_id,passkey\n{rows}")
    for words in (["--dry-run"], []):
        result = tracker("import", "users.csv", *words, code=1)
        (problem, _) = result.stderr.splitlines()
        assert "users.csv line 5: this passkey belongs to another user" in problem


def test_an_import_reports_its_progress(tracker: Command, tmp_path: Path) -> None:
    many_files(tmp_path / "files", 1200)
    assert "importing: 1000 of 1200" in tracker("import", "files").stderr


def test_missing_paths_and_other_files_are_refused(tracker: Command, tmp_path: Path) -> None:
    assert "nowhere: there is no such file" in tracker("import", "nowhere", code=1).stderr
    (tmp_path / "notes.txt").write_text("x")
    assert "is not a folder, .torrent" in tracker("import", "notes.txt", code=1).stderr
    tracker("import", code=2)
    tracker("import", "notes.txt", "--what", "peers", code=2)
    (tmp_path / "empty").mkdir()
    assert tracker("import", "empty").stdout == "nothing to import\n"


def test_importing_a_file_again_does_not_rename_its_torrent(tracker: Command, tmp_path: Path) -> None:
    many_files(tmp_path / "files", 1)
    tracker("import", "files")
    (info_hash,) = (row["info_hash"] for row in lines(tracker, "export"))
    tracker("torrent", "edit", str(info_hash), "--name", "my name", "--private")
    assert "0 added, 1 known" in tracker("import", "files").stdout
    assert [(row["name"], row["private"]) for row in lines(tracker, "export")] == [("my name", True)]


# Export and import


def set_up(tracker: Command, keys: "Redis", prefix: str) -> None:
    for number, name in enumerate(HOSTILE, 1):
        tracker("torrent", "add", f"{number:040x}", "--name", name)
        tracker("deny", f"{number + 100:040x}", "--reason", name)
    tracker("torrent", "add", HASH, "--private")
    tracker("torrent", "disable", HASH, "--reason", "=bad")
    keys.hset(f"{prefix}t:{HASH}", mapping={"multi_up": "2.5", "multi_dn": "0"})
    tracker("torrent", "edit", HASH, "--size", "123456789012", "--labels", "-x films")
    tracker("client", "allow", "-TR40", "M7-%00", "'=%27", "--name", "+name")
    tracker("client", "deny", "-TR283", "=%00", "--reason", "=why")
    tracker("user", "add", "--id", "7", "--passkey", "a" * 16, "--no-leech")
    tracker("user", "add", "--id", "900", "--passkey", "-" * 20)
    tracker("user", "disable", "900")
    keys.hset(f"{prefix}u:7", mapping={"uploaded": str(2**53 - 1), "downloaded": "5", "snatches": "3"})


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_export_is_imported_without_loss(
    tracker: Command, keys: "Redis", prefix: str, tmp_path: Path, form: str
) -> None:
    set_up(tracker, keys, prefix)
    names = [f"{what}.{form}" for what in ("torrents", "users", "denied", "clients", "denied-clients")]
    for name in names:
        tracker("export", name, "--what", name.partition(".")[0])
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    before = {name: sorted((tmp_path / name).read_bytes().splitlines()) for name in names}
    passkey = keys.hgetall(f"{prefix}user:{'a' * 16}")
    forget_all(keys, prefix)
    for _ in range(2):
        tracker("import", *names)
        for name in names:
            tracker("export", f"again.{name}", "--what", name.partition(".")[0])
            again = (tmp_path / f"again.{name}").read_bytes().splitlines()
            assert sorted(again) == before[name]
    for number, name in enumerate(HOSTILE, 1):
        assert fields(keys, prefix, f"{number:040x}")["name"] == clean_text(name)
        assert keys.get(f"{prefix}deny:{number + 100:040x}") == clean_text(name).encode()
    assert fields(keys, prefix, HASH)["multi_up"] == "2.5"
    assert (fields(keys, prefix, HASH)["size"], fields(keys, prefix, HASH)["labels"]) == ("123456789012", "-x films")
    # A file has the defaults of flags too.
    assert keys.hgetall(f"{prefix}user:{'a' * 16}") == {b"visible": b"1", **passkey}


def forget_all(keys: "Redis", prefix: str) -> None:
    keys.unlink(*keys.scan_iter(f"{prefix}*", 10_000))


def test_everything_fits_in_one_file(tracker: Command, keys: "Redis", prefix: str) -> None:
    set_up(tracker, keys, prefix)
    tracker("export", "--what", "all", "everything.jsonl")
    forget_all(keys, prefix)
    assert tracker("import", "everything.jsonl").stdout.splitlines() == [
        f"torrents: {len(HOSTILE) + 1} added, 0 known",
        "users: 2 added, 0 known",
        f"denials: {len(HOSTILE)} set",
        "clients: 3 set",
        "denied clients: 2 set",
    ]
    assert lines(tracker, "import", "everything.jsonl", "--json")[0] == {
        "kind": "torrent",
        "added": 0,
        "known": len(HOSTILE) + 1,
        "dry_run": False,
    }


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_freeleech_tokens_are_exported_and_imported(
    tracker: Command, keys: "Redis", prefix: str, tmp_path: Path, form: str
) -> None:
    """Tokens of unknown users and torrents, and ended ones, are refused."""
    tracker("torrent", "add", HASH)
    tracker("user", "add", "--id", "7")
    tracker("freeleech", "give", "7", HASH, "--until", "2030-01-01")
    what = ("freeleech-tokens", "users", "torrents")
    for each in what:
        tracker("export", f"{each}.{form}", "--what", each)
    forget_all(keys, prefix)
    tracker("import", f"users.{form}", f"torrents.{form}")
    assert tracker("import", f"freeleech-tokens.{form}").stdout == "freeleech tokens: 1 set\n"
    tracker("export", f"again.{form}", "--what", "freeleech-tokens")
    assert (tmp_path / f"again.{form}").read_text() == (tmp_path / f"freeleech-tokens.{form}").read_text()
    (tmp_path / "bad.csv").write_text(
        f"user_id,info_hash,until\n7,{OTHER},2030-01-01\n8,{HASH},2030-01-01\n7,{HASH},1\nx,{HASH},2030-01-01\n"
    )
    problems = tracker("import", "bad.csv", "--what", "freeleech-tokens", code=1).stderr
    assert "bad.csv line 2: unknown torrent" in problems and "4 could not be imported" in problems
    tried = tracker("import", "--dry-run", "bad.csv", "--what", "freeleech-tokens", code=1).stderr
    assert "2 could not be imported" in tried


def test_a_csv_export_holds_no_formula(tracker: Command, keys: "Redis", prefix: str, tmp_path: Path) -> None:
    set_up(tracker, keys, prefix)
    for what in ("torrents", "denied", "clients", "denied-clients"):
        tracker("export", f"{what}.csv", "--what", what)
        with (tmp_path / f"{what}.csv").open(newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r"))]


def test_passkeys_can_be_left_out_of_an_export(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    tracker("user", "add", "--id", "7", "--passkey", "averysecretpasskey")
    assert "averysecretpasskey" in tracker("export", "--what", "users").stdout
    tracker("export", "users.csv", "--what", "users", "--no-passkeys")
    assert "averysecretpasskey" not in (tmp_path / "users.csv").read_text()
    assert tracker("import", "users.csv").stdout == "users: 0 added, 1 known\n"
    assert keys.zrange(f"{prefix}users", 0, -1) == [b"averysecretpasskey"]
    tracker("user", "delete", "7", "--yes")
    assert tracker("import", "users.csv").stdout == "users: 1 added, 0 known\n"
    (passkey,) = keys.zrange(f"{prefix}users", 0, -1)
    assert len(passkey) == 40


def test_self_registered_torrents_are_exported_only_on_request(tracker: Command, keys: "Redis", prefix: str) -> None:
    tracker("torrent", "add", HASH, OTHER)
    keys.hset(f"{prefix}t:{OTHER}", "auto", "1")
    assert [row["info_hash"] for row in lines(tracker, "export")] == [HASH]
    assert len(lines(tracker, "export", "--with-auto")) == 2


def test_invalid_options_of_an_export_are_wrong_usage(tracker: Command) -> None:
    for words in (("--what", "peers"), ("--format", "xml"), ("--what", "all", "--format", "csv")):
        tracker("export", *words, code=2)


def test_a_failed_export_leaves_no_file(tracker: Command, tmp_path: Path) -> None:
    tracker("torrent", "add", HASH)
    (tmp_path / "folder").mkdir()
    assert "error: folder: exists and is not" in tracker("export", "folder", code=1).stderr
    shown = tracker("export", "missing/file.csv", code=1).stderr
    assert shown == "error: missing/file.csv: No such file or directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_an_export_does_not_replace_devices_and_pipes(tracker: Command, tmp_path: Path) -> None:
    """A user who may write in /dev would replace /dev/null or /dev/stdout by a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        shown = tracker("export", name, code=1).stderr
        assert shown == f"error: {name}: exists and is not a regular file\n"
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


# Users


def user(tracker: Command, user_id: str) -> dict[str, object]:
    (row,) = [row for row in lines(tracker, "export", "--what", "users") if row["user_id"] == user_id]
    return row


def test_an_import_sets_totals_of_new_users_only(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    (tmp_path / "users.csv").write_text(f"user_id,passkey,uploaded,can_leech\n7,{'a' * 20},100,0\n")
    tracker("import", "users.csv")
    assert (user(tracker, "7")["uploaded"], user(tracker, "7")["can_leech"]) == (100, False)
    keys.hset(f"{prefix}u:7", "uploaded", "150")
    tracker("import", "users.csv")
    assert user(tracker, "7")["uploaded"] == 150
    tracker("import", "users.csv", "--replace-totals")
    assert user(tracker, "7")["uploaded"] == 100


def test_conflicting_users_are_reported_without_their_passkeys(tracker: Command, tmp_path: Path) -> None:
    tracker("user", "add", "--id", "7", "--passkey", "averysecretpasskey")
    rows = [
        ("7", "anothersecretpasskey", ""),
        ("8", "averysecretpasskey", ""),
        ("0", "", ""),
        ("9", "short", ""),
        ("9", "", str(2**53)),
        ("9", "", "-1"),
        ("9", "", "1e3"),
    ]
    text = "".join(f"{','.join(row)}\n" for row in rows)
    (tmp_path / "users.csv").write_text(f"user_id,passkey,uploaded\n{text}")
    result = tracker("import", "users.csv", code=1)
    assert {
        "error: users.csv line 2: the user with this id has another passkey",
        "error: users.csv line 3: this passkey belongs to another user: give one of them a new one",
        "error: users.csv line 4: a user id is a positive number",
    } < set(result.stderr.splitlines())
    assert "secret" not in result.output and "7 could not be imported" in result.stderr
    assert len(lines(tracker, "export", "--what", "users")) == 1


# Malformed files


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("info_hash,colour\n", "line 1: the first line must name the columns: unknown field of a torrent"),
        ("name\nx\n", "line 1: the first line must name the columns: needs info_hash"),
        ("info_hash,info_hash\n", "line 1: a column appears twice"),
        (f"info_hash,name\n{HASH}\n", "line 2: has 1 columns instead of 2"),
        (f"info_hash,name\n{HASH},a,b,c\n", "line 2: has 4 columns instead of 2"),
        (f"info_hash,name\n{HASH},{'x' * 20_000}\n", "line 2: name is too long"),
        (f"info_hash,name\n{HASH},{'x' * 500_000}\n", "line 2: "),
        (f'info_hash,name\n{HASH},"{"x" * 90_000}\n{"y" * 90_000}\n', "line 3: field larger than"),
        (f'info_hash,name\n{HASH},"open\n', "line 2: unexpected end of data"),
        (f'info_hash,name\n{HASH},"a"b\n', "line 2: "),
        ("info_hash\n\x00\x1b[2J\n", "line 2: info_hash has control characters"),
        (f"info_hash,name\n{HASH},a\x1b[2J\n", "line 2: name has control characters"),
        (f'info_hash,name\n{HASH},"a\nb"\n', "line 3: name has control characters"),
        (f"info_hash,size\n{HASH},true\n", "line 2: a size is"),
        (f"info_hash,private\n{HASH},maybe\n", "line 2: private is 0 or 1"),
        (f"info_hash,enabled\n{HASH},maybe\n", "line 2: enabled is 0, 1 or pending"),
        (f"info_hash,upload_multiplier\n{HASH},-1\n", "line 2: a multiplier is"),
        (f"info_hash,upload_multiplier\n{HASH},1e309\n", "line 2: a multiplier is"),
        (f"info_hash,size\n{HASH},1e3\n", "line 2: a size is"),
        (f"info_hash,labels\n{HASH},Films\n", "line 2: at most 20 labels"),
        (f"kind,info_hash\npeer,{HASH}\n", "line 2: kind must be torrent"),
        (f"kind,prefix,name\nclient,{'x' * 21},\n", "line 2: a peer id prefix is"),
        (f"info_hash\n{HASH[:-1]}\u0663\n", "line 2: an info hash is"),
    ],
)
def test_a_bad_csv_row_is_reported_and_the_next_is_read(
    tracker: Command, tmp_path: Path, text: str, shown: str
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    (tmp_path / "good.csv").write_text(f"info_hash\n{OTHER}\n")
    result = tracker("import", "bad.csv", "good.csv", code=1)
    assert shown in result.stderr and "\x1b" not in result.stderr
    assert "torrents: 1 added" in result.stdout
    assert [row["info_hash"] for row in lines(tracker, "export")] == [OTHER]


def test_rows_after_a_malformed_row_are_read(tracker: Command, tmp_path: Path) -> None:
    (tmp_path / "mixed.csv").write_text(f'info_hash,name\nnonsense,a\n{HASH},"a"b\n{OTHER},fine\n')
    assert "torrents: 1 added" in tracker("import", "mixed.csv", code=1).stdout


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("nonsense", "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 50_000, "not JSON"),
        ('{"info_hash": ["x"]}', "a field is not text, a number or a boolean"),
        ('{"info_hash": 1e999}', "info_hash is no number with a fraction or an exponent"),
        (f'{{"info_hash": "{HASH}", "size": true}}', "size is neither true nor false"),
        (f'{{"info_hash": "{HASH}", "size": 1e3}}', "size is no number with a fraction or an exponent"),
        (f'{{"info_hash": "{HASH}", "upload_multiplier": true}}', "upload_multiplier is neither true nor false"),
        (f'{{"info_hash": "{HASH}", "name": 5}}', "name is a text, not a number"),
        (f'{{"info_hash": "{HASH}", "name": true}}', "name is neither true nor false"),
        (f'{{"info_hash": "{HASH}", "name": "a\\u0007"}}', "name has control characters"),
        (f'{{"info_hash": "{HASH}", "name": "\\ud800"}}', "a field is not UTF-8 text"),
        (f'{{"kind": "denial", "info_hash": "{HASH}", "reason": "a\\nb"}}', "reason has control characters"),
        ('{"user_id": "7", "uploaded": true}', "uploaded is neither true nor false"),
        ('{"info_hash": ' + "9" * 50_000 + "}", "not JSON"),
        ('{"info_hash": "' + "a" * 200_000 + '"}', "the line is too long"),
        (
            '{"kind": {}, "info_hash": "x"}',
            "kind must be torrent, user, denial, client, denied_client, freeleech_token or user_torrent",
        ),
        (f'{{"info_hash": "{HASH}", "uploaded": 1}}', "unknown field of a torrent"),
        ('{"user_id": 1.5}', "user_id is no number with a fraction or an exponent"),
        ('{"user_id": "1.5"}', "a user id is a positive number"),
        ('{"user_id": 1, "uploaded": -5}', "uploaded is a whole number"),
    ],
)
def test_a_bad_json_line_is_reported_and_the_next_is_read(
    tracker: Command, tmp_path: Path, line: str, shown: str
) -> None:
    (tmp_path / "bad.jsonl").write_text(f'{line}\n\n{{"info_hash": "{OTHER}", "name": "x"}}\n')
    result = tracker("import", "bad.jsonl", code=1)
    assert f"error: bad.jsonl line 1: {shown}" in result.stderr
    assert "torrents: 1 added" in result.stdout


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.tsv"])
def test_rows_that_are_not_utf8_are_refused(tracker: Command, tmp_path: Path, name: str) -> None:
    """Latin-1 beside UTF-8 with a byte order mark."""
    rows = {
        "rows.csv": f"\ufeffinfo_hash,name\r\n{OTHER},Öl\r\n{HASH},gr\udcfcn\r\n",
        "rows.jsonl": f'{{"info_hash": "{OTHER}", "name": "Öl"}}\n\n{{"info_hash": "{HASH}", "name": "gr\udcfcn"}}\n',
        "rows.tsv": f"\ufeffinfo_hash\tname\n{OTHER}\tÖl\n{HASH}\tgr\udcfcn\n",
    }
    (tmp_path / name).write_bytes(rows[name].encode("utf-8", "surrogateescape"))
    result = tracker("import", name, *(["--tsv"] if name == "rows.tsv" else []), code=1)
    assert f"{name} line 3: a field is not UTF-8 text" in result.stderr
    assert [row["name"] for row in lines(tracker, "export")] == ["Öl"]


def test_output_of_mysql_is_read_with_its_escapes(tracker: Command, tmp_path: Path) -> None:
    rows = ["info_hash\tname\tsize", f'{HASH}\tC:\\\\new "a", \'b\t5', f"{OTHER}\tNULL\tNULL", ""]
    rows += [f"{'3' * 40}\ta\\tb\t5", f"{'4' * 40}\tx", f"{'5' * 40}\t=1\t\\0"]
    (tmp_path / "dump.txt").write_text("\n".join(rows) + "\n")
    result = tracker("import", "--tsv", "dump.txt", code=1)
    assert result.stderr.splitlines() == [
        "error: dump.txt line 5: name has control characters",
        "error: dump.txt line 6: has 2 columns instead of 3",
        "error: dump.txt line 7: size has control characters",
        "error: 3 could not be imported",
    ]
    found = {row["info_hash"]: (row["name"], row["size"]) for row in lines(tracker, "export")}
    assert found == {HASH: ('C:\\new "a", \'b', 5), OTHER: ("", "")}
    assert "is not a folder" in tracker("import", "dump.txt", code=1).stderr


def test_a_passkey_that_is_twice_in_the_files_is_refused(tracker: Command, tmp_path: Path) -> None:
    one, two = "a" * 32, "b" * 32
    (tmp_path / "a.csv").write_text(f"user_id,passkey\n7,{one}\n7,{one}\n")
    (tmp_path / "b.csv").write_text(f"user_id,passkey\n8,{one}\n7,{two}\n")
    for words in (["--dry-run"], ["--check"], []):
        result = tracker("import", "a.csv", "b.csv", *words, code=1)
        assert result.stderr.splitlines()[:2] == [
            "error: b.csv line 2: this passkey belongs to another user: give one of them a new one",
            "error: b.csv line 3: the user with this id has another passkey",
        ]
        assert len(lines(tracker, "export", "--what", "users")) == (0 if words else 1)


def test_with_check_nothing_is_imported_if_one_record_is_invalid(tracker: Command, tmp_path: Path) -> None:
    many_files(tmp_path / "files", 3)
    (tmp_path / "files" / "bad.torrent").write_bytes(b"d4:info")
    (tmp_path / "users.csv").write_text("user_id,uploaded\n7,5\n")
    shown = tracker("import", "--check", "users.csv", "files", code=1).stderr
    assert "bad.torrent: this is not a well-formed .torrent file" in shown
    assert lines(tracker, "export") == lines(tracker, "export", "--what", "users") == []
    (tmp_path / "files" / "bad.torrent").unlink()
    assert "torrents: 3 added" in tracker("import", "--check", "users.csv", "files").stdout
    assert len(lines(tracker, "export", "--what", "users")) == 1


def test_a_file_of_denials_needs_a_kind(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    (tmp_path / "list.csv").write_text(f"info_hash\n{HASH}\n")
    assert tracker("import", "list.csv", "--what", "denied").stdout == "denials: 1 set\n"
    assert keys.get(f"{prefix}deny:{HASH}") == b"this torrent is not served here"


# As child processes


@pytest.mark.slow
def test_an_interrupted_import_can_be_repeated(tracker: Command, tmp_path: Path, keys: "Redis", prefix: str) -> None:
    rows = "".join(f"{number:040x},torrent {number}\n" for number in range(1, 60_001))
    (tmp_path / "many.csv").write_text(f"info_hash,name\n{rows}")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tracker", "import", "many.csv"],
        cwd=tmp_path,
        env=trackers.environment(settings),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=trackers.restore_signal_handlers,  # noqa: PLW1509  # no threads here
    ) as process:
        until(lambda: keys.zcard(f"{prefix}i:seeders") >= 100)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=trackers.SECONDS)
    assert process.returncode == 130 and "interrupted after" in shown and "Traceback" not in shown
    done = keys.zcard(f"{prefix}i:seeders")
    assert 100 <= done < 60_000
    assert all(fields(keys, prefix, f"{number:040x}").get("name") for number in range(1, 101))
    (tmp_path / "some.csv").write_text("info_hash,name\n" + "\n".join(rows.splitlines()[: done + 500]) + "\n")
    known = lines(tracker, "import", "some.csv", "--json")[0]
    assert known["added"] == 500 and known["known"] == done


def test_a_closed_pipe_ends_an_export_without_an_error(tracker: Command, tmp_path: Path) -> None:
    rows = "".join(f"{number:040x},{'n' * 200}\n" for number in range(1, 2001))
    (tmp_path / "many.csv").write_text(f"info_hash,name\n{rows}")
    tracker("import", "many.csv")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tracker", "export"],
        cwd=tmp_path,
        env=trackers.environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        with suppress(OSError):
            process.stdout.readline()
            process.stdout.close()
        shown = process.stderr.read()
        process.wait(trackers.SECONDS)
    assert process.returncode == 1 and shown == ""


def linked(tracker: Command) -> dict[str, tuple[str, str]]:
    """(hybrid_of, hybrid) of each torrent that is a half."""
    rows = [json.loads(line) for line in tracker("torrent", "list", "--json").stdout.splitlines()]
    return {row["info_hash"]: (row["hybrid_of"], row["hybrid"]) for row in rows if row["half"]}


def test_hybrid_files_are_linked(tracker: Command, tmp_path: Path) -> None:
    tree = {b"both": {b"": {b"length": 3, b"pieces root": b"r" * 32}}}
    info = {"name": "both", "piece length": 16384, "length": 3, "pieces": b"x" * 20, "file tree": tree}
    (tmp_path / "a.torrent").write_bytes(bencode({"info": dict(sorted({**info, "meta version": 2}.items()))}))
    for _ in range(2):
        tracker("import", "a.torrent")
        found = linked(tracker)
        v1, v2 = sorted(found, key=lambda each: found[each][0])
        assert found == {v1: ("", v2), v2: (v1, "")}


@pytest.mark.parametrize("between", [0, 1500])
def test_the_v1_half_may_come_later_than_its_v2_half(tracker: Command, tmp_path: Path, between: int) -> None:
    rows = [{"info_hash": OTHER, "hybrid_of": HASH.upper()}]
    rows += [{"info_hash": f"{number:040x}"} for number in range(between)]
    rows.append({"info_hash": HASH})
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert f"{len(rows)} added" in tracker("import", "t.jsonl").stdout
    assert linked(tracker) == {HASH: ("", OTHER), OTHER: (HASH, "")}


def test_halves_that_wait_are_kept_with_the_progress(tracker: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"info_hash,hybrid_of\n{OTHER},{HASH}\n{HASH},\n")
    status = (tmp_path / "t.csv").stat()
    tracker("torrent", "add", OTHER)
    progress = {
        "inputs": [["t.csv", status.st_size, status.st_mtime_ns]],
        "records": 1,
        "outcomes": {"torrent added": 1},
        "problems": 0,
        "halves": {HASH: OTHER},
    }
    (tmp_path / "progress").write_text(json.dumps(progress))
    tracker("import", "--resume", "progress", "t.csv")
    assert linked(tracker) == {HASH: ("", OTHER), OTHER: (HASH, "")}


def test_halves_that_cannot_be_linked_are_reported(tracker: Command, tmp_path: Path) -> None:
    third = "ef" * 20
    rows = [(OTHER, HASH), (HASH, ""), (third, HASH), ("12" * 20, "34" * 20), ("56" * 20, "x")]
    text = "".join(f"{info_hash},{of}\n" for info_hash, of in rows)
    (tmp_path / "t.csv").write_text(f"info_hash,hybrid_of\n{text}")
    done = tracker("import", "t.csv", code=1)
    assert "4 added" in done.stdout
    problems = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(problems) == 4
    assert f"error: {third}: the torrent that hybrid_of names is a half of another" in problems[0]
    assert problems[1] == "error: t.csv line 6: an info hash is 40 hexadecimal digits"
    assert problems[2] == f"error: {'12' * 20}: the torrent that hybrid_of names is not registered"
    assert linked(tracker) == {HASH: ("", OTHER), OTHER: (HASH, "")}
    assert "line 6" in tracker("import", "--dry-run", "t.csv", code=1).stderr
