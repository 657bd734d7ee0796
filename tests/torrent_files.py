"""Info dictionaries written by hand, and .torrent files that libtorrent makes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bencodepy
import pytest

V1: dict[bytes, Any] = {b"length": 5, b"name": b"n", b"piece length": 16384, b"pieces": b"\x11" * 20}
HYBRID: dict[bytes, Any] = {
    b"file tree": {b"a film": {b"": {b"length": 5, b"pieces root": b"\x22" * 32}}},
    b"length": 5,
    b"meta version": 2,
    b"name": b"a film",
    b"piece length": 16384,
    b"pieces": bytes(20),
}
FLAGS = {"v1": "v1_only", "v2": "v2_only", "hybrid": "canonical_files"}


def made(tmp_path: Path, kind: str, contents: Mapping[str, bytes] | Mapping[str, bytes | Path]) -> bytes:
    """A file of libtorrent with pieces of 16 KiB, for one file, or files in the folder ``top``; a path as content makes
    a symlink."""
    lt = pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")
    for name, content in contents.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.symlink_to(content)
    links = lt.create_torrent.symlinks
    files = lt.list_files(str(tmp_path / next(iter(contents)).partition("/")[0]), flags=links)
    flags = links | getattr(lt.create_torrent, FLAGS[kind])
    creator = lt.create_torrent(files, piece_size=16384, flags=flags)
    creator.add_tracker("http://other/secret/announce")
    lt.set_piece_hashes(creator, str(tmp_path))
    data: bytes = lt.bencode(creator.generate())
    return data


def changed(data: bytes, *path: bytes | int, to: object) -> bytes:
    """The file with another value at ``path``; ``None`` removes it."""
    whole = bencodepy.decode(data)
    place = whole
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    encoded: bytes = bencodepy.encode(whole)
    return encoded
