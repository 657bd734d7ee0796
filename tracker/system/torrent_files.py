"""Kept .torrent files: one file per info hash, in a folder of the data directory that only the owner may read. The
functions block."""

import re
from contextlib import suppress
from pathlib import Path

from tracker.bittorrent import InfoHash
from tracker.system.private_file import private_file

SHARDS = 256
"""Folders, by the first byte of the info hash."""
_NAME = re.compile(r"([0-9a-f]{40})\.torrent")


class TorrentFiles:
    """The files under ``directory``, which is created at the first write. If not ``enabled``, nothing is kept or read,
    but ``delete`` still deletes."""

    def __init__(self, directory: Path, *, enabled: bool) -> None:
        self._directory = directory / "torrents"
        self.enabled = enabled

    def keep(self, info_hash: InfoHash, data: bytes) -> None:
        """Writes the file of a torrent. Raises OSError. A longer one stays: all have the same info dictionary, and the
        longer has more of the piece layers."""
        if not self.enabled:
            return
        path = self._path(info_hash)
        with suppress(FileNotFoundError):
            if path.stat().st_size > len(data):
                return
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with private_file(path) as file:
            file.write(data)

    def read(self, info_hash: InfoHash) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._path(info_hash).read_bytes() if self.enabled else None
        return None

    def has(self, info_hash: InfoHash) -> bool:
        """Whether ``read`` returns a file."""
        return self.enabled and self._path(info_hash).exists()

    def delete(self, info_hash: InfoHash) -> None:
        self._path(info_hash).unlink(missing_ok=True)

    def listed(self, shard: int) -> list[InfoHash]:
        """The info hashes of the files in one of the SHARDS."""
        try:
            names = [path.name for path in (self._directory / f"{shard:02x}").iterdir()]
        except FileNotFoundError:
            return []
        found = map(_NAME.fullmatch, names)
        return [InfoHash(bytes.fromhex(match[1])) for match in found if match is not None]

    def _path(self, info_hash: InfoHash) -> Path:
        text = info_hash.hex()
        return self._directory / text[:2] / f"{text}.torrent"
