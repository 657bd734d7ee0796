"""``tracker torrent renumber``."""

from pathlib import Path

import pytest
from redis import Redis

from tests.commands import Command

HASHES = [f"{number:02x}" * 20 for number in range(3)]


def test_torrents_get_the_ids_of_a_file(tracker: Command, tmp_path: Path) -> None:
    for info_hash in HASHES:
        tracker("torrent", "add", info_hash)
    (tmp_path / "ids.csv").write_text(f"info_hash,id\n{HASHES[0]},2\n\n2\t3\n3;4711\n")
    assert tracker("torrent", "renumber", "ids.csv").stdout == "renumbered 3 torrents\n"
    exported = tracker("export", "--what", "torrents").stdout
    assert all(f'"torrent_id":"{new}"' in exported.replace(" ", "") for new in ("2", "3", "4711"))
    assert "torrent.renumber" in tracker("audit").stdout
    tracker("torrent", "add", "ff" * 20)
    assert "there is no torrent" not in tracker("torrent", "list").stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{HASHES[0]},0", "ids.csv line 1: needs an info hash or an id"),
        (f"{HASHES[0]},5,6", "ids.csv line 1: needs an info hash or an id"),
        (f"{HASHES[0]},5\n{HASHES[0]},6", "ids.csv line 2: this torrent is in the file twice"),
        (f"{'x' * 40},5", "ids.csv line 1: "),
        (f"{'ff' * 20},5", "is not registered"),
    ],
)
def test_a_wrong_file_is_refused(
    tracker: Command, keys: "Redis", prefix: str, tmp_path: Path, text: str, problem: str
) -> None:
    tracker("torrent", "add", HASHES[0])
    (tmp_path / "ids.csv").write_text(text)
    assert problem in tracker("torrent", "renumber", "ids.csv", code=1).stderr
    assert not keys.exists(f"{prefix}renumber")


def test_a_file_that_is_no_text_is_refused(tracker: Command, tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_bytes(b"\xc3\x28,5\n")
    assert tracker("torrent", "renumber", "ids.csv", code=1).stderr == "error: ids.csv is not UTF-8 text\n"
