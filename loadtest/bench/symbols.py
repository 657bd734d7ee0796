"""Finds a function name for an address in a stripped program: the exported function before it.

The store's binary has no local symbols. So perf names only its exported functions, and gives file offsets for others.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

_LOADED, _SYMBOLS, _FUNCTION = 1, (2, 11), 2


class Symbols:
    """The functions of an ELF file (64 bits, little endian); empty for other files."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        self._segments: list[tuple[int, int, int]] = []
        self._functions: list[tuple[int, str]] = []
        if data[:6] == b"\x7fELF\x02\x01":
            self._read_segments(data)
            self._read_symbols(data)
        self._addresses = [address for address, _ in self._functions]

    def at_offset(self, offset: int) -> str:
        """The function at or before this offset of the file, or empty."""
        for start, length, address in self._segments:
            if start <= offset < start + length:
                return self._at(address + offset - start)
        return ""

    def _at(self, address: int) -> str:
        place = bisect_right(self._addresses, address)
        return self._functions[place - 1][1] if place else ""

    def _read_segments(self, data: bytes) -> None:
        (first,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        for n in range(count):
            kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, first + n * size)
            if kind == _LOADED:
                self._segments.append((offset, length, address))

    def _read_symbols(self, data: bytes) -> None:
        (first,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        sections: Sequence[tuple[int, ...]] = [
            struct.unpack_from("<IIQQQQIIQQ", data, first + n * size) for n in range(count)
        ]
        for section in sections:
            kind, offset, length, link, entry = (section[n] for n in (1, 4, 5, 6, 9))
            if kind in _SYMBOLS and entry:
                names = sections[link][4]
                for place in range(offset, offset + length, entry):
                    name, info, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, place)
                    if info & 15 == _FUNCTION and value:
                        end = data.index(b"\0", names + name)
                        self._functions.append((value, data[names + name : end].decode("ascii", "replace")))
        self._functions.sort()
