"""`.torrent` files: name, info hashes, private flag and size, for v1, v2 and hybrid torrents (BEP 3, 27, 47, 52). An
info hash is the hash of the info dictionary's bytes in the file. A file that no client can load is refused: its torrent
would never have a peer. Limits of single clients, such as the number of pieces, are not checked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from typing import Any, NamedTuple, NoReturn

from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, InfoHash
from tracker.errors import ClientError
from tracker.names import clean_text
from tracker.wire.bencode import BencodeError, Entry, decode_entries, encode

MEDIA_TYPE = "application/x-bittorrent"
MAX_BYTES = 10 * 1024 * 1024
MAX_DEPTH = 100
"""Nested values. A v2 file tree needs one for each folder of a path."""
MAX_NAME_LENGTH = 255

MAX_VALUES = 1_000_000
"""Values and keys in the whole file. One file of a torrent takes about seven."""

_BLOCK = 16384
"""Bytes of a leaf of a v2 torrent's hash trees."""
_ROOT_LENGTH = 32
_READ = frozenset({b"info", b"piece layers", b"encoding"})
_ENCODING = re.compile(rb"[-_.:0-9A-Za-z]{1,40}")
_BENCODE_ERRORS = {
    "too deep": "the .torrent file is nested too deeply",
    "too many values": "the .torrent file has too many values",
    "repeated key": "the .torrent file has a key twice in a dictionary",
}
_DIFFER = "the v1 and v2 parts of the .torrent file differ"


@dataclass(frozen=True, slots=True)
class TorrentFile:
    """The fields that a tracker uses. A torrent has a v1 hash, a v2 hash, or both (hybrid)."""

    name: str
    """As ``clean_text`` returns it, at most 255 characters."""
    info_hash: InfoHash | None
    """SHA-1 of the info dictionary; ``None`` for a v2 torrent."""
    info_hash_v2: bytes | None
    """SHA-256 of the info dictionary, 32 bytes; ``None`` for a v1 torrent."""
    private: bool
    size_bytes: int
    """Sum of all files without padding."""
    bare: bytes = field(repr=False)
    """The file without all that no client needs, such as announce URLs, which may hold another tracker's passkey: the
    info dictionary, and the piece layers of a v2 torrent. It is the same for all files of an info hash."""
    pieces: "Pieces | None" = field(default=None, repr=False)
    """``None`` for a v2 torrent, which has no SHA-1 hashes of pieces."""

    @property
    def announce_hashes(self) -> tuple[InfoHash, ...]:
        """The info hashes that clients announce, v1 first; the v2 hash is cut to 20 bytes (BEP 52)."""
        hashes = (self.info_hash, self.info_hash_v2)
        return tuple(InfoHash(each[:HASH_LENGTH]) for each in hashes if each is not None)


@dataclass(frozen=True, slots=True)
class Piece:
    index: int
    length: int
    """Length in bytes. Only the last piece of a torrent may be shorter than the others."""
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


_Path = tuple[Any, ...]
"""(path of the folder, name); empty for the top. Files share the paths of their folders."""


class _File(NamedTuple):
    path: _Path
    length: int
    """0 for a symlink (BEP 47)."""
    is_padding: bool = False
    root: bytes = b""
    """Of the file's hash tree; empty for a v1 file, a symlink and an empty file."""


def parse_torrent_file(data: bytes, *, max_bytes: int = MAX_BYTES) -> TorrentFile:
    """Parses an untrusted ``.torrent`` file. Raises ClientError only. A large file takes seconds: do not call this on
    an event loop. Bytes after the outer dictionary are ignored, as clients do."""
    if len(data) > max_bytes:
        _refuse("the .torrent file is too large")
    entries = _entries(data)
    span, info, _ = entries[b"info"]
    is_v2 = _is_v2(entries[b"info"])
    is_v1 = not is_v2 or not info.keys().isdisjoint((b"length", b"files", b"pieces"))
    name = _name(info, entries.get(b"encoding"))
    piece_length = _piece_length(info, is_v2=is_v2)
    v1, v2 = _files_v1(info) if is_v1 else [], _files_v2(info) if is_v2 else []
    if is_v1 and is_v2:
        _check_parts(v1, v2, piece_length)
    pieces = _pieces(info, v1, piece_length) if is_v1 else None
    layers = _checked_layers(entries, v2, piece_length) if is_v2 else None
    return TorrentFile(
        name=name,
        info_hash=InfoHash(sha1(span, usedforsecurity=False).digest()) if is_v1 else None,
        info_hash_v2=sha256(span).digest() if is_v2 else None,
        private=isinstance(info.get(b"private"), int) and info[b"private"] != 0,
        size_bytes=_total(v2 or [each for each in v1 if not each.is_padding]),
        bare=b"d4:info%b%be" % (span, b"" if layers is None else b"12:piece layers" + encode(layers)),
        pieces=pieces,
    )


def with_announce_url(bare: bytes, url: str) -> bytes:
    """A ``TorrentFile.bare`` with an announce URL, as a client needs it."""
    encoded = url.encode()
    return b"d8:announce%d:%s%s" % (len(encoded), encoded, bare[1:])


def _refuse(text: str = "this is not a well-formed .torrent file") -> NoReturn:
    raise ClientError(text)


def _entries(data: bytes) -> dict[bytes, Entry]:
    try:
        entries = decode_entries(data, _READ, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    except BencodeError as error:
        _refuse(_BENCODE_ERRORS.get(str(error), "this is not a well-formed .torrent file"))
    if b"info" not in entries:
        _refuse("the .torrent file has no info dictionary")
    if not isinstance(entries[b"info"].value, dict):
        _refuse()
    return entries


def _is_v2(info: Entry) -> bool:
    version = info.value.get(b"meta version")
    if isinstance(version, int) and version > 2:
        _refuse("the .torrent file is of an unknown version")
    if version != 2 and b"file tree" in info.value:
        _refuse("the .torrent file has a file tree, but not meta version 2")
    if version != 2 and b"pieces" not in info.value:
        _refuse("the .torrent file has neither pieces (v1) nor meta version 2")
    if version == 2 and not info.is_sorted:
        _refuse("the keys of the v2 .torrent file are not sorted")
    return bool(version == 2)


def _name(info: Mapping[bytes, Any], encoding: Entry | None) -> str:
    name = _preferred(info, b"name", bytes)
    if name is None:
        _refuse("the torrent has no name")
    name = name[: 8 * MAX_NAME_LENGTH]
    text = name.decode("utf-8", "replace")
    # An old file names the encoding of a name that is not UTF-8.
    old = encoding.value if encoding is not None else None
    known = old.decode("ascii") if isinstance(old, bytes) and _ENCODING.fullmatch(old) else "utf-8"
    if text.encode() != name:
        with suppress(LookupError, ValueError):
            text = name.decode(known, "replace")
    return clean_text(text)[:MAX_NAME_LENGTH]


def _preferred(fields: Mapping[bytes, Any], key: bytes, kind: type) -> Any:
    """The value in UTF-8 if there is one, else the other; ``None`` if it is of another type."""
    for value in (fields.get(key + b".utf-8"), fields.get(key)):
        if isinstance(value, kind):
            return value
    return None


def _piece_length(info: Mapping[bytes, Any], *, is_v2: bool) -> int:
    length = info.get(b"piece length")
    if not isinstance(length, int) or length <= 0:
        _refuse("the piece length of the torrent is missing or not a positive number")
    if is_v2 and (length < _BLOCK or length & (length - 1)):
        _refuse("the piece length of a v2 torrent must be a power of two, at least 16 KiB")
    return length


def _files_v1(info: Mapping[bytes, Any]) -> list[_File]:
    if b"files" not in info:
        name = _preferred(info, b"name", bytes)
        if clean_text(name.decode("utf-8", "replace")).strip("/\\") in ("", ".", ".."):
            _refuse("the torrent has no name")
        return [_file(info, ((), name))]
    files = info[b"files"]
    if not isinstance(files, list) or not files:
        _refuse("the torrent has no files")
    return [_file_of_list(each) for each in files]


def _file_of_list(entry: object) -> _File:
    if not isinstance(entry, dict):
        _refuse()
    file = _file(entry, ())
    names = _preferred(entry, b"path", list)
    if not names and file.is_padding:
        return file
    if not names or not all(isinstance(name, bytes) for name in names):
        _refuse("a file of the torrent has no valid path")
    path: _Path = ()
    for name in names:
        path = (path, name)
    return file._replace(path=path)


def _file(entry: Mapping[bytes, Any], path: _Path) -> _File:
    target = entry.get(b"symlink path") if _has(entry, b"l") else None
    if isinstance(target, list) and not all(isinstance(name, bytes) for name in target):
        _refuse("the target of a symlink in the torrent is not valid")
    length = 0 if _has(entry, b"l") else entry.get(b"length")
    if not isinstance(length, int) or length < 0:
        _refuse("the length of a file of the torrent is missing or not valid")
    return _File(path, length, _has(entry, b"p"))


def _has(entry: Mapping[bytes, Any], attribute: bytes) -> bool:
    """Whether a file is a symlink (``l``) or padding (``p``)."""
    attributes = entry.get(b"attr")
    return isinstance(attributes, bytes) and attribute in attributes


def _files_v2(info: Mapping[bytes, Any]) -> list[_File]:
    """In the order of the tree. A file is a dictionary under an empty name, which has no others beside it."""
    files: list[_File] = []
    waiting: list[tuple[_Path, object]] = [((), info.get(b"file tree"))]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict) or (b"" in node and (not path or len(node) > 1)):
            _refuse("the file tree of the v2 torrent is not valid")
        if b"" in node:
            files.append(_file_of_tree(node[b""], path))
        else:
            waiting.extend(((path, name), child) for name, child in reversed(node.items()))
    if not files:
        _refuse("the torrent has no files")
    return files


def _file_of_tree(entry: object, path: _Path) -> _File:
    if not isinstance(entry, dict):
        _refuse("the file tree of the v2 torrent is not valid")
    file = _file(entry, path)
    if file.is_padding:
        _refuse("the file tree of the v2 torrent has padding files")
    if not file.length and not (_has(entry, b"l") and not entry.get(b"symlink path")):
        return file
    root = entry.get(b"pieces root")
    if not isinstance(root, bytes) or len(root) != _ROOT_LENGTH or not any(root):
        _refuse("a file of the v2 torrent has no valid pieces root")
    return file._replace(root=root)


def _check_parts(v1: Sequence[_File], v2: Sequence[_File], piece_length: int) -> None:
    """Refuses a hybrid torrent whose parts have other files, or whose v1 files do not begin with a piece."""
    offset = 0
    for each in v1:
        if offset % piece_length and each.length and not each.is_padding:
            _refuse(_DIFFER)
        offset += each.length
        if offset % piece_length and each.is_padding:
            _refuse(_DIFFER)
    if [each[:2] for each in v2] != [each[:2] for each in v1 if not each.is_padding]:
        _refuse(_DIFFER)


def _pieces(info: Mapping[bytes, Any], files: Iterable[_File], piece_length: int) -> Pieces:
    hashes = info.get(b"pieces")
    total = _total(files)
    count = -(-total // piece_length)
    if not isinstance(hashes, bytes) or len(hashes) != count * HASH_LENGTH:
        _refuse("the piece hashes of the .torrent file do not match the size of its files")
    return Pieces(piece_length, total, hashes)


def _total(files: Iterable[_File]) -> int:
    total = sum(each.length for each in files)
    if not 0 < total <= MAX_COUNT:
        _refuse("the torrent is too large" if total else "the torrent is empty")
    return total


def _checked_layers(entries: Mapping[bytes, Entry], files: Iterable[_File], piece_length: int) -> dict[bytes, bytes]:
    """The piece layers by their roots, sorted. Refuses a layer of no file that is longer than a piece, and one whose
    root is another. Layers may be missing: a client gets them from peers."""
    given = entries[b"piece layers"].value if b"piece layers" in entries else {}
    lengths = {each.root: each.length for each in files if each.length > piece_length}
    empty = _empty_piece(piece_length)
    for root, layer in given.items() if isinstance(given, dict) else [(b"", given)]:
        count = -(-lengths.get(root, 0) // piece_length)
        is_layer = isinstance(layer, bytes) and len(layer) == count * _ROOT_LENGTH > 0
        if not is_layer or _root_of(layer, empty) != root:
            _refuse("the piece layers of the .torrent file do not match its files")
    return dict(sorted(given.items()))


def _empty_piece(piece_length: int) -> bytes:
    """The hash of a piece behind the end of a file: its blocks have the hash zero."""
    digest = bytes(_ROOT_LENGTH)
    for _ in range((piece_length // _BLOCK).bit_length() - 1):
        digest = sha256(digest * 2).digest()
    return digest


def _root_of(layer: bytes, empty: bytes) -> bytes:
    """The root of the hash tree over the hashes of ``layer``, filled up with ``empty``."""
    pair = 2 * _ROOT_LENGTH
    while len(layer) > _ROOT_LENGTH:
        layer += empty if len(layer) % pair else b""
        layer = b"".join(sha256(layer[at : at + pair]).digest() for at in range(0, len(layer), pair))
        empty = sha256(empty * 2).digest()
    return layer
