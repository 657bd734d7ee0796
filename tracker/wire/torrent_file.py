"""`.torrent` files: name, info hashes, private flag and size, for v1, v2 and hybrid torrents (BEP 3, 27, 47, 52).

An info hash is the hash of the info dictionary's bytes in the file. Decoding and encoding it again would give another
hash where the file is not canonical. So a scanner first finds the span of the dictionary. The scanner has no recursion,
bounds number and depth of the values, and rejects malformed input. bencodepy, which is recursive and lenient, then
decodes only input that is safe.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from typing import Any, NoReturn

from bencodepy import decode as bdecode

from tracker.bittorrent import HASH_LENGTH, InfoHash
from tracker.errors import ClientError

MEDIA_TYPE = "application/x-bittorrent"
MAX_BYTES = 10 * 1024 * 1024
MAX_DEPTH = 100
"""Nested values. A v2 file tree needs one for each folder of a path."""
MAX_NAME_LENGTH = 255

MAX_TOKENS = 1_000_000
"""Values, keys and ends in the whole file. One file of a torrent takes about nine."""

_MAX_SIZE = 2**53 - 1
"""Bytes: the largest number that is exact in JSON and in the store's scripts."""
_KEPT = frozenset({b"info", b"piece layers"})
_TOKEN = re.compile(rb"i(?:0|-?[1-9]\d{0,18})e|(0|[1-9]\d{0,8}):|[dle]")


@dataclass(frozen=True, slots=True)
class TorrentFile:
    """The fields that a tracker uses. A torrent has a v1 hash, a v2 hash, or both (hybrid)."""

    name: str
    """At most 255 characters; unprintable ones are replaced."""
    info_hash: InfoHash | None
    """SHA-1 of the info dictionary; ``None`` for a v2 torrent."""
    info_hash_v2: bytes | None
    """SHA-256 of the info dictionary, 32 bytes; ``None`` for a v1 torrent."""
    private: bool
    size_bytes: int
    """Sum of all files without padding."""
    bare: bytes = field(repr=False)
    """The file without announce URLs, comments and all else that no client needs: the info dictionary, and the piece
    layers of a v2 torrent. An announce URL may hold a passkey of another tracker."""

    @property
    def announce_hashes(self) -> tuple[InfoHash, ...]:
        """The info hashes that clients announce, v1 first; the v2 hash is cut to 20 bytes (BEP 52)."""
        hashes = (self.info_hash, self.info_hash_v2)
        return tuple(InfoHash(each[:HASH_LENGTH]) for each in hashes if each is not None)


@dataclass(frozen=True, slots=True)
class Piece:
    index: int
    length: int
    """In bytes. Only the last piece of a torrent may be shorter than the others."""
    sha1: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a v1 or hybrid torrent, over all its files and their padding."""

    piece_length: int
    total_bytes: int
    hashes: bytes
    """The SHA-1 hash of each piece, 20 bytes each."""

    @property
    def count(self) -> int:
        return len(self.hashes) // HASH_LENGTH

    def piece(self, index: int) -> Piece:
        """``index`` is from 0 to ``count`` - 1."""
        length = min(self.piece_length, self.total_bytes - index * self.piece_length)
        return Piece(index, length, self.hashes[index * HASH_LENGTH : (index + 1) * HASH_LENGTH])


def parse_torrent_file(data: bytes, *, max_bytes: int = MAX_BYTES) -> TorrentFile:
    """Parses an untrusted ``.torrent`` file. Raises ClientError only.

    A large file takes seconds: do not call this on an event loop. Bytes after the outer dictionary are ignored, as
    clients do.
    """
    if len(data) > max_bytes:
        raise ClientError("the .torrent file is too large")
    values = _outer_values(data)
    span = values[b"info"]
    info = bdecode(span)
    is_v1, is_v2 = b"pieces" in info, info.get(b"meta version") == 2
    if is_v1:
        _check_pieces(info[b"pieces"])
    elif not is_v2:
        raise ClientError("the .torrent file has neither pieces (v1) nor meta version 2")
    return TorrentFile(
        name=_name(info),
        info_hash=InfoHash(sha1(span, usedforsecurity=False).digest()) if is_v1 else None,
        info_hash_v2=sha256(span).digest() if is_v2 else None,
        private=info.get(b"private") == 1,
        size_bytes=_size_v1(info) if is_v1 else _size_v2(info),
        bare=b"".join((b"d", *(b"%d:%s%s" % (len(key), key, values[key]) for key in sorted(values)), b"e")),
    )


def parse_pieces(data: bytes) -> Pieces | None:
    """The pieces of an untrusted ``.torrent`` file. ``None`` for a v2 torrent, which has no SHA-1 hashes of pieces, and
    where number and size of the pieces do not match.

    Raises ClientError only for what ``parse_torrent_file`` refuses. Not to be called on an event loop, like that one.
    """
    info = bdecode(_outer_values(data)[b"info"])
    hashes, piece_length = info.get(b"pieces"), info.get(b"piece length")
    if hashes is None:
        return None
    _check_pieces(hashes)
    try:
        total = _size_v1(info, padded=True)
    except ClientError:  # the length of a padding file, which nothing else reads
        return None
    if not isinstance(piece_length, int) or piece_length <= 0 or not hashes:
        return None
    pieces = Pieces(piece_length, total, hashes)
    return pieces if (pieces.count - 1) * piece_length < total <= pieces.count * piece_length else None


def with_announce_url(bare: bytes, url: str) -> bytes:
    """A ``TorrentFile.bare`` with an announce URL, as a client needs it."""
    encoded = url.encode()
    return b"d8:announce%d:%s%s" % (len(encoded), encoded, bare[1:])


def _refuse() -> NoReturn:
    raise ClientError("this is not a well-formed .torrent file")


def _outer_values(data: bytes) -> dict[bytes, bytes]:
    """The values in the outer dictionary under _KEPT keys, as in the file. Refuses a value that is no dictionary, two
    values under one key, and a file without ``info``."""
    if not data.startswith(b"d"):
        _refuse()
    found: dict[bytes, bytes] = {}
    at, left = 1, MAX_TOKENS
    while data[at : at + 1] != b"e":
        key_end, key = _key(data, at)
        value_end, left = _end_of_value(data, key_end, left - 1)
        if key in _KEPT:
            if key in found or data[key_end : key_end + 1] != b"d":
                _refuse()
            found[key] = data[key_end:value_end]
        at = value_end
    if b"info" not in found:
        raise ClientError("the .torrent file has no info dictionary")
    return found


def _key(data: bytes, at: int) -> tuple[int, bytes]:
    match = _TOKEN.match(data, at)
    if not match or match[1] is None:
        _refuse()
    end = match.end() + int(match[1])
    if end > len(data):
        _refuse()
    return end, data[match.end() : end]


def _end_of_value(data: bytes, at: int, max_tokens: int) -> tuple[int, int]:
    """Where the value at ``at`` ends, and how many of ``max_tokens`` are left. Refuses a malformed value."""
    # For each open dictionary: whether a key comes next. For each open list: None.
    key_next: list[bool | None] = []
    for left in range(max_tokens - 1, -1, -1):
        if not (match := _TOKEN.match(data, at)):
            _refuse()
        at = match.end()
        token = data[match.start()]
        if match[1] is not None:
            at += int(match[1])
            if at > len(data):
                _refuse()
        elif token == ord("e"):
            # A dictionary may end before a key, not between a key and its value.
            if not key_next or key_next.pop() is False:
                _refuse()
        elif key_next and key_next[-1]:
            _refuse()  # a key is a string
        elif token != ord("i"):
            key_next.append(True if token == ord("d") else None)
            if len(key_next) > MAX_DEPTH:
                raise ClientError("the .torrent file is nested too deeply")
            continue
        if not key_next:
            return at, left
        if key_next[-1] is not None:
            key_next[-1] = not key_next[-1]
    raise ClientError("the .torrent file has too many values")


def _check_pieces(pieces: object) -> None:
    if not isinstance(pieces, bytes) or len(pieces) % HASH_LENGTH:
        _refuse()


def _name(info: dict[bytes, Any]) -> str:
    name = info.get(b"name.utf-8", info.get(b"name"))
    if not isinstance(name, bytes):
        _refuse()
    text = name.decode("utf-8", "replace")[:MAX_NAME_LENGTH]
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _size_v1(info: dict[bytes, Any], *, padded: bool = False) -> int:
    """``padded``: with padding, which the pieces contain too."""
    if b"files" not in info:
        return _total([info.get(b"length")])
    files = info[b"files"]
    if not isinstance(files, list) or not all(isinstance(each, dict) for each in files):
        _refuse()
    return _total(each.get(b"length") for each in files if padded or not _is_padding(each))


def _size_v2(info: dict[bytes, Any]) -> int:
    return _total(each.get(b"length") for each in _leaves(info.get(b"file tree")) if not _is_padding(each))


def _leaves(tree: object) -> Iterator[dict[bytes, Any]]:
    """The files of a v2 tree: each is a dictionary under an empty name."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            _refuse()
        for name, child in node.items():
            if name:
                waiting.append(child)
            elif isinstance(child, dict):
                yield child
            else:
                _refuse()


def _is_padding(file: dict[bytes, Any]) -> bool:
    attributes = file.get(b"attr")
    return isinstance(attributes, bytes) and b"p" in attributes


def _total(lengths: Any) -> int:
    total = 0
    for length in lengths:
        if not isinstance(length, int) or length < 0:
            _refuse()
        total += length
    if total > _MAX_SIZE:
        _refuse()
    return total
