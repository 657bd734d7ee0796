""".torrent files: name, size and hashes as a strict bencode parser gives them, or ClientError."""

from collections.abc import Iterable
from hashlib import sha1, sha256
from typing import Any

from bencodepy import decode, encode

from tracker.errors import ClientError
from tracker.names import clean_text
from tracker.wire.torrent_file import MAX_NAME_LENGTH, Pieces, parse_torrent_file

MAX_LENGTH = 3000


def check(data: bytes) -> None:
    try:
        torrent = parse_torrent_file(data)
    except ClientError:
        return
    assert torrent.announce_hashes and all(len(each) == 20 for each in torrent.announce_hashes)
    assert len(torrent.name) <= MAX_NAME_LENGTH and clean_text(torrent.name) == torrent.name
    torrent.name.encode()
    assert 0 < torrent.size_bytes < 2**53
    assert parse_torrent_file(data + b"trailing") == torrent
    if torrent.pieces is not None:
        _check_pieces(torrent.pieces)
    info = encode(decode(data)[b"info"])
    if b"4:info" + info in data and data.count(b"4:info") == 1:
        assert torrent.info_hash in (None, sha1(info, usedforsecurity=False).digest())
        assert torrent.info_hash_v2 in (None, sha256(info).digest())


def _check_pieces(pieces: Pieces) -> None:
    """The pieces follow each other, and only the last one may be shorter."""
    lengths = [pieces.piece(index).length for index in range(pieces.count)]
    assert sum(lengths) == pieces.total_bytes and 0 < lengths[-1] <= pieces.piece_length
    assert all(length == pieces.piece_length for length in lengths[:-1])


def seeds() -> Iterable[bytes]:
    v1 = {"length": 5, "name": "a", "piece length": 16384, "pieces": b"x" * 20, "private": 1}
    files = [{"length": 3, "path": ["b"]}, {"attr": "p", "length": 9, "path": [".pad"]}]
    tree = {"a": {"": {"length": 5, "pieces root": b"x" * 32}}}
    v2 = {"file tree": tree, "meta version": 2, "name": "b", "piece length": 16384}
    infos: list[dict[str, Any]] = [
        v1,
        {"files": files, "name": "c", "name.utf-8": "\xe4", "piece length": 16384, "pieces": b"x" * 20},
        v2,
        {**v1, **v2},
    ]
    return [encode({"announce": "http://t/announce", "info": dict(sorted(info.items()))}) for info in infos]
