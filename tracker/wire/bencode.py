"""A strict decoder of bencode (BEP 3) for untrusted bytes, and an encoder. The decoder bounds depth and number of the
values. It refuses repeated keys and numbers that are not canonical, and accepts unsorted keys, as programs send them.

The encoder leaves nothing in reference cycles: under 1,000 answers a second the collection of those of a library
stopped the process for 20 to 100 ms several times a second.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

_TOKEN = re.compile(rb"(0|[1-9]\d{0,8}):|i(0|-?[1-9]\d{0,18})e|[dl]")
_KEY = re.compile(rb"(0|[1-9]\d{0,8}):")
_STRING, _INTEGER = 1, 2
_END, _DICTIONARY = ord("e"), ord("d")


class BencodeError(ValueError):
    """The bytes are not one bencoded value within the bounds."""


def decode(data: bytes, *, max_depth: int, max_values: int) -> Any:
    """The value as bytes, int, list and dict, with bytes as keys. ``max_depth`` counts lists and dictionaries inside
    each other, ``max_values`` all values and keys. Raises BencodeError only."""
    reader = _Reader(data, max_values)
    value = reader.value(max_depth)
    if reader.at != len(data):
        raise BencodeError("trailing bytes")
    return value


class Entry(NamedTuple):
    span: bytes
    """As in the data."""
    value: Any
    is_sorted: bool
    """Whether the keys of all dictionaries in it are sorted."""


def decode_entries(data: bytes, keys: Collection[bytes], *, max_depth: int, max_values: int) -> dict[bytes, Entry]:
    """The values under ``keys`` of the dictionary that ``data`` begins with. Others may be repeated. Bytes after the
    dictionary are ignored. Raises BencodeError only."""
    reader = _Reader(data, max_values)
    if not data.startswith(b"d"):
        raise BencodeError("malformed")
    reader.at = 1
    entries: dict[bytes, Entry] = {}
    while not reader.ended():
        key = reader.key()
        start, reader.is_sorted = reader.at, True
        value = reader.value(max_depth)
        if key in entries:
            raise BencodeError("repeated key")
        if key in keys:
            entries[key] = Entry(data[start : reader.at], value, reader.is_sorted)
    return entries


def encode(value: Any) -> bytes:
    """``value`` consists of bytes, str (as UTF-8), int, list, tuple and dict, whose keys are not sorted."""
    parts: list[bytes] = []
    _append(value, parts.append)
    return b"".join(parts)


def _append(value: Any, add: Callable[[bytes], None]) -> None:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        add(b"%d:%b" % (len(value), value))
    elif isinstance(value, int):
        add(b"i%de" % value)
    elif isinstance(value, dict):
        add(b"d")
        for item in value.items():
            _append(item[0], add)
            _append(item[1], add)
        add(b"e")
    elif isinstance(value, list | tuple):
        add(b"l")
        for item in value:
            _append(item, add)
        add(b"e")
    else:
        raise TypeError(f"{type(value).__name__} cannot be bencoded")


@dataclass(slots=True, eq=False)
class _Reader:
    data: bytes
    left: int
    """How many more values there may be."""
    at: int = 0
    is_sorted: bool = True

    def value(self, depth: int) -> Any:
        """The value that begins at ``at``. ``depth`` is how many containers it may have inside each other."""
        match = self._next(_TOKEN)
        if match.lastindex == _STRING:
            return self._string(match)
        if match.lastindex == _INTEGER:
            return int(match[2])
        if not depth:
            raise BencodeError("too deep")
        if self.data[match.start()] == _DICTIONARY:
            return self._dictionary(depth - 1)
        values = []
        while not self.ended():
            values.append(self.value(depth - 1))
        return values

    def _dictionary(self, depth: int) -> dict[bytes, Any]:
        values: dict[bytes, Any] = {}
        last = b""
        while not self.ended():
            key = self.key()
            if key in values:
                raise BencodeError("repeated key")
            if key < last:
                self.is_sorted = False
            values[key] = self.value(depth)
            last = key
        return values

    def key(self) -> bytes:
        return self._string(self._next(_KEY))

    def ended(self) -> bool:
        if self.at >= len(self.data):
            raise BencodeError("truncated")
        if self.data[self.at] != _END:
            return False
        self.at += 1
        return True

    def _next(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        match = pattern.match(self.data, self.at)
        if not match:
            raise BencodeError("malformed")
        self.left -= 1
        if self.left < 0:
            raise BencodeError("too many values")
        self.at = match.end()
        return match

    def _string(self, match: re.Match[bytes]) -> bytes:
        start = self.at
        self.at += int(match[1])
        if self.at > len(self.data):
            raise BencodeError("truncated")
        return self.data[start : self.at]
