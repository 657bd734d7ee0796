"""Copies of tokens, sessions, lists of clients, groups and multipliers in the shards, which hold while the main prefix
is unavailable.

Who creates or revokes something writes it into all shards. A round of copying makes up for shards that did not answer,
and for what a program wrote: it compares what the main prefix and a shard list, and writes what differs. Rows do not
change, apart from the names of allowed clients, which are not read in a shard.

A main prefix without a layout is new, or has lost everything. Nothing is copied from it. Before it gets a layout, it
gets back what more than half of all shards have, and the groups and multipliers that most of those have that have any
(users/rules.py copies these). The store is new if all shards that answer are empty.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson
from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.schema.keys import Keys
from tracker.store.sharding.shards import Shard, Shards

_ALL = "max_downloads_in_all"
"""The field of a group's copy that has its limit over all torrents."""
_Command = tuple[Argument, ...]
_Members = Mapping[bytes, bytes]
"""Members of a list, each with its score or its text; a member of a set has none. A text is its own only member."""


def loaded_groups(text: bytes) -> dict[str, Any]:
    """Empty for text that is no object, which another program may have written."""
    try:
        found = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def divided_groups(text: bytes, shards: int) -> bytes:
    """The groups as shards have them: limits over all torrents are divided, and stand beside that in ``_ALL``."""
    groups = loaded_groups(text)
    for row in groups.values():
        limit = row.get("max_downloads") if isinstance(row, dict) else None
        if isinstance(limit, str) and limit.isdigit():
            row |= {"max_downloads": str(math.ceil(int(limit) / shards)), _ALL: limit}
    return orjson.dumps(groups) if groups else b""


def whole_groups(text: bytes) -> bytes:
    """The groups as the main prefix has them."""
    groups = loaded_groups(text)
    for row in groups.values():
        if isinstance(row, dict) and _ALL in row:
            row["max_downloads"] = row.pop(_ALL)
    return orjson.dumps(groups) if groups else b""


@dataclass(frozen=True, slots=True)
class _List:
    """``row`` gives the key of a member's hash; None where the list has the texts itself. ``original`` gives what the
    main prefix had, of which a text is a copy."""

    key: Callable[[Keys], str]
    row: Callable[[Keys, bytes], str | bytes] | None
    removes: str  # the command that removes a member: ZREM, SREM, HDEL or, of a text, DEL
    original: Callable[[bytes], bytes] = bytes

    def reading(self, keys: Keys) -> _Command:
        key = self.key(keys)
        reads: dict[str, _Command] = {
            "ZREM": ("ZRANGE", key, 0, -1, "WITHSCORES"),
            "SREM": ("SMEMBERS", key),
            "HDEL": ("HGETALL", key),
            "DEL": ("GET", key),
        }
        return reads[self.removes]

    def members(self, reply: Any) -> _Members | None:
        """None for a key of another type."""
        if self.removes == "DEL" and not isinstance(reply, RedisError):
            return {} if reply is None else {self.original(reply): b""}
        if not isinstance(reply, list):
            return None
        return dict.fromkeys(reply, b"") if self.removes == "SREM" else dict(zip(reply[::2], reply[1::2], strict=True))

    def adding(self, keys: Keys, member: bytes, value: bytes) -> _Command:
        key = self.key(keys)
        adds: dict[str, _Command] = {
            "ZREM": ("ZADD", key, value, member),
            "SREM": ("SADD", key, member),
            "HDEL": ("HSET", key, member, value),
            "DEL": ("SET", key, member),
        }
        return adds[self.removes]

    def missing(self, known: _Members, numbers: Counter[bytes], shards: int) -> set[bytes]:
        """What is to be restored where ``known`` members are, if so many of all shards have each member."""
        if self.removes == "DEL":
            shortest = sorted(numbers, key=len)  # of as many shards each: one missed that something was deleted
            return set() if known or not numbers else {max(shortest, key=numbers.__getitem__)}
        return {member for member, number in numbers.items() if 2 * number > shards} - known.keys()

    def removing(self, keys: Keys, member: bytes) -> list[_Command]:
        row: list[_Command] = [("UNLINK", self.row(keys, member))] if self.row else []
        return [*row, (self.removes, self.key(keys), member)]


_LISTS = (
    _List(Keys.admin_tokens, lambda keys, name: keys.admin_token(name.decode("ascii", "replace")), "ZREM"),
    _List(Keys.admin_sessions, lambda keys, name: keys.admin_session(name.decode("ascii", "replace")), "ZREM"),
    _List(Keys.allowed_clients, Keys.allowed_client, "SREM"),
    _List(Keys.denied_clients, None, "HDEL"),
)
_RESTORED = (
    *_LISTS,
    _List(Keys.upload_multiplier, None, "DEL"),
    _List(Keys.download_multiplier, None, "DEL"),
    _List(Keys.groups, None, "DEL", whole_groups),
)


async def copy_access(shards: Shards, targets: Sequence[Shard]) -> None:
    """Makes ``targets`` alike the main prefix; one that does not answer stays as it is. Raises StoreUnavailable and
    RedisError if the main prefix cannot be read."""
    main = shards.main
    wanted = await _with_rows(main, await _members_in(main, _LISTS))
    if await main.connection.command("EXISTS", main.keys.layout()):  # last: what was read is not that of a lost one
        for shard in targets:
            with suppress(StoreUnavailable, RedisError):
                await _copy(main, shard, wanted)


async def restore_access(shards: Shards) -> None:
    """Writes under the main prefix what the shards have. Raises StoreUnavailable unless more than half of them answer
    or the store is new, and RedisError."""
    answers = await shards.several(
        lambda shard: [*(each.reading(shard.keys) for each in _RESTORED), ("EXISTS", shard.keys.layout())]
    )
    if 2 * len(answers) <= len(shards) and any(any(replies) for replies in answers.values()):
        raise StoreUnavailable("the main store is empty, and too few shards answer to restore tokens and lists")
    main, commands = shards.main, list[_Command]()
    for place, (each, known) in enumerate(zip(_RESTORED, await _members_in(main, _RESTORED), strict=True)):
        lists = {shard: each.members(replies[place]) or {} for shard, replies in answers.items()}
        numbers = Counter(member for members in lists.values() for member in members)
        missing = each.missing(known or {}, numbers, len(shards))
        for shard, members in lists.items():
            found = {member: members[member] for member in missing & members.keys()}
            added = await _adding(each, found, shard, main.keys)
            commands += chain(*added.values())
            missing -= added.keys()  # another shard may have the row of one whose row is gone here
    for reply in await main.connection.pipeline(*commands) if commands else ():
        if isinstance(reply, RedisError):
            raise reply


async def _members_in(shard: Shard, lists: Sequence[_List]) -> list[_Members | None]:
    replies = await shard.connection.pipeline(*(each.reading(shard.keys) for each in lists))
    return [each.members(reply) for each, reply in zip(lists, replies, strict=True)]


async def _with_rows(shard: Shard, lists: Sequence[_Members | None]) -> list[_Members | None]:
    """Without members whose row is gone: those are revoked, or a site has removed them."""
    found: list[_Members | None] = []
    for each, members in zip(_LISTS, lists, strict=True):
        if members and each.row:
            there = await shard.connection.pipeline(*(("EXISTS", each.row(shard.keys, member)) for member in members))
            found.append({member: members[member] for member, exists in zip(members, there, strict=True) if exists})
        else:
            found.append(members)
    return found


async def _copy(main: Shard, shard: Shard, lists: Sequence[_Members | None]) -> None:
    commands: list[_Command] = []
    for each, wanted, held in zip(_LISTS, lists, await _members_in(shard, _LISTS), strict=True):
        if wanted is None:
            continue
        known = held or {}
        for gone in known.keys() - wanted.keys():
            commands += each.removing(shard.keys, gone)
        new = {
            member: value
            for member, value in wanted.items()
            if member not in known or (each.row is None and known[member] != value)
        }
        commands += chain(*(await _adding(each, new, main, shard.keys)).values())
    if commands:
        await shard.connection.pipeline(*commands)


async def _adding(each: _List, members: _Members, source: Shard, keys: Keys) -> dict[bytes, list[_Command]]:
    """What writes these members of ``source`` under other ``keys``, but not one whose row is gone or of another
    type."""
    if each.row is None or not members:
        return {member: [each.adding(keys, member, value)] for member, value in members.items()}
    commands: dict[bytes, list[_Command]] = {}
    rows = [each.row(source.keys, member) for member in members]
    read = await source.connection.pipeline(*(("HGETALL", row) for row in rows), *(("PTTL", row) for row in rows))
    for (member, value), row, left in zip(members.items(), read, read[len(rows) :], strict=False):
        if isinstance(row, list) and row:
            name = each.row(keys, member)
            expiry: list[_Command] = [("PEXPIRE", name, left)] if left > 0 else []
            commands[member] = [("HSET", name, *row), *expiry, each.adding(keys, member, value)]
    return commands
