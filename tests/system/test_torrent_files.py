"""Kept .torrent files."""

from pathlib import Path

from tracker.bittorrent import InfoHash
from tracker.system.torrent_files import SHARDS, TorrentFiles

ONE, TWO = InfoHash(b"\xab" * 20), InfoHash(b"\x01" * 20)


def test_files_are_kept_by_info_hash_for_their_owner_only(tmp_path: Path) -> None:
    files = TorrentFiles(tmp_path / "data", enabled=True)
    files.keep(ONE, b"first")
    files.keep(ONE, b"second")
    files.keep(TWO, b"two")
    assert (files.read(ONE), files.read(TWO)) == (b"second", b"two")
    assert files.has(ONE) and not files.has(InfoHash(bytes(20)))
    found = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "data").rglob("*")}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert sum(path.is_file() for path in found) == 2


def test_a_file_is_deleted(tmp_path: Path) -> None:
    files = TorrentFiles(tmp_path, enabled=True)
    files.keep(ONE, b"x")
    for _ in range(2):
        files.delete(ONE)
        assert files.read(ONE) is None


def test_nothing_is_kept_or_read_while_files_are_off(tmp_path: Path) -> None:
    files, off = TorrentFiles(tmp_path, enabled=True), TorrentFiles(tmp_path, enabled=False)
    off.keep(ONE, b"x")
    assert not (tmp_path / "torrents").exists()
    files.keep(ONE, b"x")
    assert off.read(ONE) is None and not off.has(ONE)
    off.delete(ONE)
    assert files.read(ONE) is None


def test_files_are_listed_by_shard_and_others_are_left_out(tmp_path: Path) -> None:
    files = TorrentFiles(tmp_path, enabled=True)
    assert files.listed(0xAB) == []
    files.keep(ONE, b"x")
    files.keep(TWO, b"x")
    for name in ("README", f"{ONE.hex()}.part", f"{ONE.hex()[:-1]}Z.torrent", f".{ONE.hex()}.torrent.0a0a0a0a"):
        (tmp_path / "torrents" / "ab" / name).touch()
    assert [each for shard in range(SHARDS) for each in files.listed(shard)] == [TWO, ONE]
