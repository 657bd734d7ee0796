"""A strict decoder of bencode (BEP 3) for untrusted bytes that are read completely.

It bounds depth and number of the values. Repeated keys, numbers that are not canonical, and bytes after the value are
refused. Unsorted keys are accepted, because programs send them.
"""

import re
from typing import Any

_TOKEN = re.compile(rb"(0|[1-9]\d{0,6}):|i(0|-?[1-9]\d{0,18})e|[dl]")
_KEY = re.compile(rb"(0|[1-9]\d{0,6}):")
_STRING, _INTEGER = 1, 2
_END, _DICTIONARY = ord("e"), ord("d")


class BencodeError(ValueError):
    """The bytes are not one bencoded value within the bounds."""


def decode(data: bytes, *, max_depth: int, max_values: int) -> Any:
    """The value as bytes, int, list and dict, with bytes as keys.

    ``max_depth`` counts lists and dictionaries inside each other, ``max_values`` all values and keys. Raises
    BencodeError only.
    """
    reader = _Reader(data, max_values)
    value = reader.value(max_depth)
    if reader.at != len(data):
        raise BencodeError("trailing bytes")
    return value


class _Reader:
    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes, max_values: int) -> None:
        self.data = data
        self.at = 0
        self.left = max_values

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
        return self._list(depth - 1)

    def _list(self, depth: int) -> list[Any]:
        values = []
        while not self._ended():
            values.append(self.value(depth))
        return values

    def _dictionary(self, depth: int) -> dict[bytes, Any]:
        values: dict[bytes, Any] = {}
        while not self._ended():
            key = self._string(self._next(_KEY))
            if key in values:
                raise BencodeError("repeated key")
            values[key] = self.value(depth)
        return values

    def _ended(self) -> bool:
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
