"""Pages of a sorted set, without a scan: a cursor is the last entry that was returned."""

import math

from tracker.errors import ClientError
from tracker.store.client.connection import Connection

Entry = tuple[bytes, float]
"""A member and its score."""


async def page_of(connection: Connection, key: str, cursor: str, count: int) -> tuple[list[Entry], str]:
    """The ``count`` entries after ``cursor`` (empty: from the start) and the next cursor, empty at the end. An entry
    that moves meanwhile may be missing or come twice. Raises ClientError for an invalid cursor."""
    start = await _start_after(connection, key, cursor) if cursor else 0
    flat = await connection.command("ZRANGE", key, start, start + count - 1, "WITHSCORES")
    entries = [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
    if len(entries) < count:
        return entries, ""
    member, score = entries[-1]
    return entries, f"{score!r} {member.decode('utf-8', 'surrogateescape')}"


async def _start_after(connection: Connection, key: str, cursor: str) -> int:
    score, _, name = cursor.partition(" ")
    try:
        number, member = float(score), name.encode("utf-8", "surrogateescape")
    except ValueError as error:
        raise ClientError("not a cursor") from error
    if math.isnan(number):
        raise ClientError("not a cursor")
    found, rank, earlier = await connection.pipeline(
        ("ZSCORE", key, member), ("ZRANK", key, member), ("ZCOUNT", key, "-inf", f"({number!r}")
    )
    for answer in (found, rank, earlier):
        if isinstance(answer, Exception):
            raise answer
    return int(rank) + 1 if found is not None and float(found) == number else int(earlier)
