"""Keys as commands that write them, for servers that do not read each other's DUMP."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import MAX_INTEGER

_READ: dict[str, tuple[str, tuple[Argument, ...]]] = {
    "STRING": ("GET", ()),
    "HASH": ("HGETALL", ()),
    "SET": ("SMEMBERS", ()),
    "LIST": ("LRANGE", (0, -1)),
    "ZSET": ("ZRANGE", (0, -1, "WITHSCORES")),
    "STREAM": ("XRANGE", ("-", "+")),
}
_MAX_WORDS = 2000
"""Words in one command, an even number."""


def read_command(type: str, key: bytes) -> tuple[Argument, ...]:
    """Reads all of a key of this type."""
    name, how = _READ[type]
    return (name, key, *how)


def write_commands(type: str, key: bytes, value: Any) -> Iterator[tuple[Argument, ...]]:
    """Write what ``read_command`` has read in place of what there is."""
    if value is None:  # it has expired
        return
    yield ("UNLINK", key)
    match type:
        case "STRING":
            yield ("SET", key, value)
        case "STREAM":
            for entry_id, flat in value:
                yield ("XADD", key, entry_id, *flat)
        case "ZSET":
            swapped = chain.from_iterable(zip(value[1::2], value[::2], strict=True))
            yield from _in_parts("ZADD", key, list(swapped))
        case _:
            add = {"HASH": "HSET", "SET": "SADD", "LIST": "RPUSH"}[type]
            yield from _in_parts(add, key, value)


def _in_parts(command: str, key: bytes, words: Sequence[Argument]) -> Iterator[tuple[Argument, ...]]:
    for first in range(0, len(words), _MAX_WORDS):
        yield (command, key, *words[first : first + _MAX_WORDS])


def id_before(entry_id: bytes) -> str:
    """The last id before that of an entry of a stream."""
    milliseconds, _, number = entry_id.partition(b"-")
    if int(number):
        return f"{int(milliseconds)}-{int(number) - 1}"
    return f"{max(0, int(milliseconds) - 1)}-{MAX_INTEGER if int(milliseconds) else 0}"
